package outbound

import (
	"context"
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
	runTime   = 10 * time.Second // for the answer to a request that starts a run
	busyAgain = 2 * time.Second  // between two requests while the executor refuses a run
	tryAgain  = 500 * time.Millisecond
	// takenAfter is how long a run that was taken is watched before that is stored, so that a run that ends before needs only one change of its row. Until then,
	// Postgres has the send as sending. The next owner of the address treats such a send like one that was taken.
	takenAfter = time.Second
)

// carrier carries attempts to the executor of a tender.
type carrier struct{ *tender }

// carry brings an accepted attempt to the executor. It returns when the executor has taken the run, or when it is stored that it has not.
func (t *carrier) carry(a *address.Attempt) {
	defer t.f.carrying.Done()
	if run, done, ok := t.prepare(a); ok {
		defer done()
		t.call(a, run)
	}
}

// prepare waits until the request of an attempt may be made, and gives the attempt back if it may not. done ends the request.
func (t *carrier) prepare(a *address.Attempt) (run protocol.Run, done func(), ok bool) {
	defer t.f.waiting.Done()
	if ok = t.await(a); ok {
		run, ok = t.request(a)
	}
	if !ok {
		t.giveBack(a, "")
		return run, nil, false
	}
	c, err := t.f.caller(t.address.Group)
	if err != nil {
		t.giveBack(a, err.Error())
		return run, nil, false
	}
	if why, ok := t.begin(a, c); !ok {
		t.giveBack(a, why)
		return run, nil, false
	}
	done = func() { <-c.calls }
	if !t.sends(a, &run) {
		done()
		t.giveBack(a, "")
		return run, nil, false
	}
	return run, done, true
}

// begin takes one of the places for requests of the group, or says why there is none.
func (t *carrier) begin(a *address.Attempt, c *caller) (why string, ok bool) {
	select {
	case <-t.retired:
		return "", false
	default:
	}
	select {
	case c.calls <- struct{}{}:
		return "", true
	default:
	}
	limit := time.NewTimer(left(a))
	defer limit.Stop()
	select {
	case c.calls <- struct{}{}:
		return "", true
	case <-limit.C:
		return "the gateway starts too many runs of the group at the same time", false
	case <-t.retired:
		return "", false
	}
}

// left returns how long the request of an attempt may still wait.
func left(a *address.Attempt) time.Duration { return max(clock.Since(clock.Now(), a.Limit), 0) }

// await waits until an attempt is due and has its turn. It reports false if the attempt must go back.
func (t *carrier) await(a *address.Attempt) bool {
	due := time.Duration(0)
	if !a.Task.Now.IsZero() {
		due = a.Task.DueAt.Sub(a.Task.Now.Time) - clock.Since(a.Arrived, clock.Now())
	}
	if due > 0 && !t.waitUntilDue(a, due) {
		return false
	}
	t.mu.Lock()
	turn := t.machine.Turn(a)
	t.mu.Unlock()
	select {
	case <-turn: // the usual case
	default:
		limit := time.NewTimer(left(a))
		defer limit.Stop()
		select {
		case <-turn:
		case <-limit.C:
			return false
		case <-t.ctx.Done():
			return false
		}
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	return a.KillReason == "" && !t.retiring && !a.TooLate(clock.Now())
}

// waitUntilDue reports false if the attempt must go back before.
func (t *carrier) waitUntilDue(a *address.Attempt, due time.Duration) bool {
	timer := time.NewTimer(due)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-a.Woken(): // a kill: the attempt has not asked for its turn
	case <-t.ctx.Done():
	}
	return false
}

// request returns the request of an attempt, without what Postgres decides. It reports false if the script cannot be read.
func (t *carrier) request(a *address.Attempt) (protocol.Run, bool) {
	o := &a.Task
	r := protocol.Run{
		JobID: a.WireID, Handler: o.Handler, Param: o.Param, Block: protocol.BlockSerial, TimeoutS: (o.TimeoutMS + 999) / 1000, LogID: a.LogID,
		GlueType: protocol.GlueBean, ShardIndex: o.Shard.Index, ShardTotal: max(o.Shard.Total, 1),
	}
	if o.Script == nil {
		return r, true
	}
	ctx, cancel := context.WithTimeout(t.ctx, storeTime)
	defer cancel()
	script, err := t.f.Records.Script(ctx, domain.JobID(o.JobID), o.Script.Version)
	if err != nil {
		t.log.WarnContext(ctx, "cannot read a script, its run is routed again", "run_id", o.RunID, "err", err)
		return r, false
	}
	glue, ok := protocol.GlueType(script.Language)
	r.GlueType, r.GlueSource, r.GlueUpdatedMS = glue, script.Code, script.CreatedAt.UnixMilli()
	return r, ok
}

// sends records that the request of an attempt will be made now. It reports false if it must not be made.
func (t *carrier) sends(a *address.Attempt, run *protocol.Run) bool {
	sentAt, err := t.f.sendings.Call(sending{t.tender, a})
	at, moved := sentAt[a.LogID]
	if err != nil || !moved {
		return false
	}
	run.LogTimeMS = at.UnixMilli()
	return true
}

// may reports whether the request of an attempt may begin now.
func (t *carrier) may(a *address.Attempt) bool {
	now := clock.Now()
	return t.holds(now) && !a.TooLate(now) && t.ctx.Err() == nil
}

// call makes the request of an attempt, and stores the answer. An executor that is busy is asked again until the limit of the attempt.
func (t *carrier) call(a *address.Attempt, run protocol.Run) {
	for {
		answer := t.callOnce(a, run)
		t.f.meters.answers.WithLabelValues(string(answer.Outcome)).Inc()
		switch answer.Outcome {
		case protocol.Taken:
			t.taken(a, gateway.Answer{LogID: a.LogID, State: gateway.Taken, Message: answer.Message})
			return
		case protocol.Unknown:
			t.log.WarnContext(t.ctx, "an executor did not answer, the run counts as running and is not sent again", "run_id", a.Task.RunID, "attempt", a.Number, "err", answer.Message)
			t.taken(a, gateway.Answer{LogID: a.LogID, State: gateway.Unknown, Message: answer.Message})
			return
		case protocol.NotSent:
			if t.may(a) {
				t.troubled("unreachable", answer.Message)
			}
			t.giveBack(a, answer.Message)
			return
		case protocol.Refused:
		}
		if done := t.refused(a, answer); done {
			return
		}
		select {
		case <-time.After(busyAgain):
		case <-t.ctx.Done():
		}
		t.mu.Lock()
		killed := a.KillReason != "" || t.retiring || a.State != address.Sending
		t.mu.Unlock()
		if killed || !t.may(a) {
			t.giveBack(a, answer.Message)
			return
		}
	}
}

func (t *carrier) callOnce(a *address.Attempt, run protocol.Run) protocol.Answer {
	e, err := t.executorNow()
	if err != nil {
		return protocol.Answer{Outcome: protocol.NotSent, Message: err.Error()}
	}
	// The request continues when the service ends, so that its answer is known.
	ctx, cancel := context.WithTimeout(t.f.work, runTime)
	defer cancel()
	t.calling(1)
	defer t.calling(-1)
	return e.Run(ctx, run, func() bool { return t.may(a) })
}

// calling counts the requests that start runs. Meanwhile no logs are read, because many executors serve one request at a time.
func (t *carrier) calling(n int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.calls += n
}

// refused acts on a refusal of the executor. It reports false if the executor should be asked again.
func (t *carrier) refused(a *address.Attempt, answer protocol.Answer) (done bool) {
	switch answer.Text {
	case protocol.TextNoHandler, protocol.TextNoGlue:
		t.mu.Lock()
		t.machine.Lack(a.Handler, clock.Now())
		t.mu.Unlock()
		lifecycle.Signal(t.beatSoon)
		if t.f.nobodyOffers(t.address.Group, a.Handler) {
			reason := domain.ReasonHandlerNotFound
			if answer.Text == protocol.TextNoGlue {
				reason = domain.ReasonUnsupported
			}
			t.fail(a, reason, answer.Message)
			return true
		}
		t.giveBack(a, answer.Message)
	case protocol.TextScript:
		t.fail(a, domain.ReasonBadScript, answer.Message)
	case protocol.TextToken:
		t.troubled("wrong_token", answer.Message)
		t.giveBack(a, answer.Message)
	case protocol.TextNoPath:
		t.troubled("no_executor", answer.Message)
		t.giveBack(a, answer.Message)
	case protocol.TextBusy, protocol.TextInvalid, protocol.TextOther: // busy, or a request that a proxy refuses
		return false
	default:
		return false
	}
	return true
}

// taken stores that an executor has, or may have, taken a run.
func (t *carrier) taken(a *address.Attempt, answer gateway.Answer) {
	t.mu.Lock()
	t.machine.Runs(a)
	t.follow(a)
	t.mu.Unlock()
	t.f.carrying.Add(1) // the carrier of the attempt is counted, so the counter is not zero
	go t.storeTaken(a, answer)
}

// storeTaken stores the answer of an executor that has, or may have, taken a run, unless the run has ended meanwhile. The answers of runs that were taken at the same
// time are stored together.
func (t *carrier) storeTaken(a *address.Attempt, answer gateway.Answer) {
	defer t.f.carrying.Done()
	if answer.State == gateway.Taken {
		wait := time.NewTimer(takenAfter)
		select {
		case <-wait.C:
		case <-t.retired:
		case <-t.f.work.Done():
		}
		wait.Stop()
		t.mu.Lock()
		ended := a.State == address.Ended
		t.mu.Unlock()
		if ended {
			return
		}
	}
	t.persist(func(context.Context) error {
		_, err := t.f.answers.Call(answer)
		return err
	})
}

// giveBack stores that an attempt certainly did not start, so that it is routed again. Only the carrier of the attempt calls it, because no other goroutine makes its request.
func (t *carrier) giveBack(a *address.Attempt, why string) {
	t.mu.Lock()
	reason := a.KillReason
	t.mu.Unlock()
	t.persist(func(ctx context.Context) error {
		if reason != "" {
			if err := t.f.Sends.RequestKill(ctx, []int64{a.LogID}, reason); err != nil {
				return err
			}
		}
		if withdrawn, err := t.f.Sends.Withdraw(ctx, []int64{a.LogID}); err != nil || len(withdrawn) > 0 {
			return err
		}
		_, err := t.f.Sends.Answer(ctx, []gateway.Answer{{LogID: a.LogID, State: gateway.Unstarted, Message: protocol.Clip(why, 1<<10)}})
		return err
	})
	t.over(a, wire.Unstarted)
}

// fail stores that an attempt failed without a run of its handler.
func (t *carrier) fail(a *address.Attempt, reason domain.Reason, message string) {
	end := gateway.End{LogID: a.LogID, Result: gateway.Result{Outcome: wire.Failed, Reason: string(reason), Message: message}}
	t.persist(func(ctx context.Context) error {
		_, err := t.f.Sends.Finish(ctx, []string{t.address.Group}, []gateway.End{end})
		return err
	})
	t.over(a, wire.Failed)
}

// over frees the slot of an attempt whose end is stored, and publishes the result.
func (t *carrier) over(a *address.Attempt, outcome string) {
	t.mu.Lock()
	t.machine.End(a.Attempt, outcome)
	t.mu.Unlock()
	t.f.results.soon([]int64{a.LogID})
}

// persist repeats a change until Postgres has stored it, or the process ends.
func (t *carrier) persist(change func(ctx context.Context) error) {
	for said := false; ; said = true {
		ctx, cancel := context.WithTimeout(t.f.work, storeTime)
		err := change(ctx)
		cancel()
		if err == nil || t.f.work.Err() != nil {
			return
		}
		if !said {
			t.log.WarnContext(t.ctx, "cannot store what came of a run, retrying", "err", err)
		}
		if !lifecycle.Pause(t.f.work, tryAgain) {
			return
		}
	}
}
