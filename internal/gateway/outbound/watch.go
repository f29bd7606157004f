package outbound

import (
	"context"
	"fmt"
	"time"

	"github.com/belfryhq/belfry/executor/wire"
	"github.com/belfryhq/belfry/internal/domain"
	"github.com/belfryhq/belfry/internal/gateway/address"
	"github.com/belfryhq/belfry/internal/gateway/clock"
	"github.com/belfryhq/belfry/internal/lifecycle"
	"github.com/belfryhq/belfry/internal/store/gateway"
	"github.com/belfryhq/belfry/internal/xxl/protocol"
)

const (
	watchEvery = 500 * time.Millisecond
	askTime    = 5 * time.Second  // for an answer to /kill, /idleBeat and /beat
	killAgain  = 10 * time.Second // the executor confirms a kill only by the callback
	killLate   = 5 * time.Second  // after the timeout, which the executor enforces itself
	probeEvery = 3 * time.Second  // whether an executor that could not be called answers again
	doubtFor   = 30 * time.Second // after a statement without an answer; Postgres ends every statement before
)

// watcher looks after the attempts that the executor of a tender has.
type watcher struct{ *tender }

// watch looks after the attempts that the executor has: kills, timeouts, and ends without a callback.
func (t *watcher) watch() {
	tick := time.NewTicker(watchEvery)
	defer tick.Stop()
	var probed clock.Instant
	for {
		if now := clock.Now(); t.holds(now) {
			t.returnStrays()
			if probed.IsZero() || clock.Since(probed, now) >= probeEvery {
				probed = now
				t.probe()
			}
			t.killDue()
			t.askDue()
			if t.leaveIfGone() {
				return
			}
		}
		select {
		case <-t.ctx.Done():
			return
		case <-tick.C:
		case <-t.lookSoon:
		}
	}
}

// probe asks an executor that could not be called whether it answers again.
func (t *watcher) probe() {
	t.mu.Lock()
	u := t.machine.Unfit()
	t.mu.Unlock()
	if u == nil {
		return
	}
	e, err := t.executorNow()
	if err != nil {
		return
	}
	ctx, cancel := context.WithTimeout(t.ctx, askTime)
	defer cancel()
	if e.Beat(ctx).Outcome != protocol.Taken {
		return
	}
	t.mu.Lock()
	t.machine.Trouble(nil)
	t.mu.Unlock()
	t.log.InfoContext(t.ctx, "the executor answers again")
	lifecycle.Signal(t.beatSoon)
}

// running returns the attempts that the executor has or may have.
func (t *watcher) running(which func(*address.Attempt) bool) (out []*address.Attempt) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, a := range t.machine.Attempts() {
		if a.State == address.Running && which(a) {
			out = append(out, a)
		}
	}
	return out
}

// killDue sends kills that were requested, and those of attempts past their timeout.
func (t *watcher) killDue() {
	now := clock.Now()
	due := t.running(func(a *address.Attempt) bool {
		limit := time.Duration(a.Task.TimeoutMS) * time.Millisecond
		if limit > 0 && a.KillReason == "" && !a.Sent.IsZero() && clock.Since(a.Sent, now) >= limit+killLate {
			t.machine.Kill(a.Attempt, string(domain.ReasonTimeout), now)
		}
		return a.KillReason != "" && (a.NextKill.IsZero() || clock.Since(a.NextKill, now) >= 0)
	})
	for _, a := range due {
		if !t.killOnce(a) {
			return // the next look tries again
		}
	}
}

// killOnce asks the executor to kill a run. It reports false if the request of the kill cannot be stored.
func (t *watcher) killOnce(a *address.Attempt) bool {
	t.mu.Lock()
	reason, stored := a.KillReason, a.KillStored
	t.mu.Unlock()
	if !stored { // a callback that comes at once must find the reason
		ctx, cancel := context.WithTimeout(t.ctx, storeTime)
		err := t.f.Sends.RequestKill(ctx, []int64{a.LogID}, reason)
		cancel()
		if err != nil {
			return false
		}
	}
	t.mu.Lock()
	a.KillStored, a.NextKill = true, clock.Now().Add(killAgain)
	t.mu.Unlock()
	e, err := t.executorNow()
	if err != nil {
		return true
	}
	ctx, cancel := context.WithTimeout(t.ctx, askTime)
	defer cancel()
	if answer := e.Kill(ctx, a.WireID); answer.Outcome != protocol.Taken {
		t.log.DebugContext(ctx, "an executor did not take a kill, repeating it", "run_id", a.Run, "attempt", a.Number, "err", answer.Message)
	}
	return true
}

// askDue asks the executor whether it still has runs, and declares those lost that it denies for long enough.
func (t *watcher) askDue() {
	now := clock.Now()
	t.mu.Lock()
	shared := t.presence.Shared(now)
	t.mu.Unlock()
	if shared {
		return // what one process says proves nothing about the others
	}
	due := t.running(func(a *address.Attempt) bool {
		if a.NextCheck.IsZero() {
			a.NextCheck = now.Add(t.f.Patience.Check)
		}
		return clock.Since(a.NextCheck, now) >= 0
	})
	var lost []*address.Attempt
	for _, a := range due {
		e, err := t.executorNow()
		if err != nil || !t.holds(clock.Now()) {
			return
		}
		ctx, cancel := context.WithTimeout(t.ctx, askTime)
		answer := e.IdleBeat(ctx, a.WireID)
		cancel()
		now := clock.Now()
		t.mu.Lock()
		a.NextCheck = now.Add(t.f.Patience.Check)
		switch {
		case a.State != address.Running:
		case answer.Outcome == protocol.Taken:
			if a.Suspicion.Idle(t.presence, now) {
				lost = append(lost, a)
			}
		case answer.Outcome == protocol.Refused && answer.Text == protocol.TextBusy:
			a.Suspicion.Busy()
		}
		t.mu.Unlock()
		if answer.Outcome == protocol.NotSent {
			break // the others have the same answer
		}
	}
	t.lose(lost, fmt.Sprintf("The executor at %s does not have the run any more, and has sent no callback. It may have restarted.", t.address.URL))
}

// lose declares attempts lost.
func (t *watcher) lose(lost []*address.Attempt, why string) {
	if len(lost) == 0 || !t.holds(clock.Now()) {
		return
	}
	ctx, cancel := context.WithTimeout(t.ctx, storeTime)
	defer cancel()
	runs := make([]domain.RunID, len(lost))
	for i, a := range lost {
		runs[i] = a.Run
	}
	retried, err := t.f.Records.Retried(ctx, runs)
	if err != nil {
		return // the next look tries again
	}
	may := make(map[domain.RunID]bool, len(retried))
	for _, r := range retried {
		may[r] = true
	}
	ends, ids := make([]gateway.End, len(lost)), make([]int64, len(lost))
	for i, a := range lost {
		ids[i] = a.LogID
		ends[i] = gateway.End{LogID: a.LogID, Result: gateway.Result{Reason: string(domain.ReasonLost), Message: why, Permanent: !may[a.Run]}}
	}
	dispositions, err := t.f.Sends.Lose(ctx, t.address.Group, ends)
	if err != nil {
		return
	}
	t.mu.Lock()
	for i, d := range dispositions {
		if d == gateway.Finished {
			t.f.meters.lost.Inc()
			t.machine.End(lost[i].Attempt, wire.Failed)
			t.log.WarnContext(ctx, "a run of an executor is lost, it is tried again only if its job allows that", "run_id", lost[i].Run, "attempt", lost[i].Number, "reason", why)
		}
	}
	t.mu.Unlock()
	t.f.results.soon(ids)
}

// leaveIfGone declares the attempts of an executor lost that has sent no registration for long enough, and removes the address when nothing is left of it. It reports
// whether the address was removed.
func (t *watcher) leaveIfGone() bool {
	now := clock.Now()
	t.mu.Lock()
	gone, leaving := t.presence.Gone(now), t.leaving
	t.drainIfNeeded(now)
	left := len(t.machine.Attempts())
	t.mu.Unlock()
	if gone {
		t.lose(t.running(func(*address.Attempt) bool { return true }), fmt.Sprintf("The executor at %s has sent no registration for %s.", t.address.URL, t.f.Patience.Silent+t.f.Patience.Lost))
	}
	if !gone && !leaving || left > 0 {
		return false
	}
	ctx, cancel := context.WithTimeout(t.f.work, storeTime)
	defer cancel()
	removed, err := t.f.Addresses.Remove(ctx, t.f.Owner, t.address.Hold())
	if err != nil || !removed {
		return false
	}
	t.log.InfoContext(ctx, "an executor has gone")
	t.goodbye(ctx)
	t.f.drop(t.tender)
	return true
}

// returnStrays gives sends back that Postgres has accepted although this process could not know it, because its statement got no answer.
func (t *watcher) returnStrays() {
	t.mu.Lock()
	doubt := !t.doubted.IsZero() && clock.Since(t.doubted, clock.Now()) < doubtFor
	t.mu.Unlock()
	if !doubt {
		return
	}
	var strays []int64
	for after := int64(0); ; {
		ctx, cancel := context.WithTimeout(t.ctx, storeTime)
		sends, err := t.f.Records.Outstanding(ctx, &t.address, after, restorePage)
		cancel()
		if err != nil {
			return
		}
		t.mu.Lock()
		for i := range sends {
			s := &sends[i]
			after = s.LogID
			if s.State == gateway.Accepted && t.machine.Known(s.Attempt) == nil {
				strays = append(strays, s.LogID)
			}
		}
		t.mu.Unlock()
		if len(sends) < restorePage {
			break
		}
	}
	ctx, cancel := context.WithTimeout(t.ctx, storeTime)
	defer cancel()
	if len(strays) == 0 {
		return
	}
	if _, err := t.f.Sends.Withdraw(ctx, strays); err == nil {
		t.f.results.soon(strays)
	}
}
