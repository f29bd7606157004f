package outbound

import (
	"context"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/belfryhq/belfry/executor/wire"
	"github.com/belfryhq/belfry/internal/domain"
	"github.com/belfryhq/belfry/internal/gateway/address"
	"github.com/belfryhq/belfry/internal/gateway/clock"
	"github.com/belfryhq/belfry/internal/lifecycle"
	"github.com/belfryhq/belfry/internal/store/gateway"
	"github.com/belfryhq/belfry/internal/xxl/protocol"
)

func (t *tender) serveControls() {
	for {
		select {
		case <-t.ctx.Done():
			return
		case m := <-t.controls:
			t.takeControl(m)
		}
	}
}

// takeControl carries out a control request and answers it.
func (t *tender) takeControl(msg *nats.Msg) {
	var m wire.Control
	if err := wire.Decode(msg.Data, &m); err != nil {
		t.log.WarnContext(t.ctx, "a control request is malformed, it gets no answer", "err", err)
		return
	}
	if m.Op == wire.OpSettled {
		t.f.settler.soon(t, m.Runs)
		return
	}
	if m.Op == wire.OpOverwrite || !t.holds(clock.Now()) {
		return
	}
	reply := wire.ControlReply{V: wire.Version, Instance: t.address.Instance, BootID: t.address.BootID}
	switch m.Op {
	case wire.OpPing:
		if m.JobID != 0 {
			t.loops.Go(func() { t.ping(msg, m.JobID, reply) })
			return
		}
	case wire.OpStatus, wire.OpKill:
		var ok bool
		if m.Op == wire.OpKill {
			t.kill(m.Runs, m.Reason)
		}
		if reply.Statuses, ok = t.statuses(m.Runs); !ok {
			return
		}
	case wire.OpDrain:
		t.loops.Go(func() { t.drain(msg, reply) })
		return
	case wire.OpScript: // Postgres has the code
	default:
		reply.Error = "unknown operation"
	}
	t.reply(msg, reply)
}

// drain drains the instance, and answers when that is stored: the next owner of the address must know it.
func (t *tender) drain(msg *nats.Msg, reply wire.ControlReply) {
	ctx, cancel := context.WithTimeout(t.ctx, storeTime)
	defer cancel()
	if err := t.f.Addresses.Drain(ctx, t.f.Owner, t.address.Hold()); err != nil {
		t.log.WarnContext(ctx, "cannot store that the instance is drained, the operator must repeat it", "err", err)
		reply.Error = "the gateway cannot store that the instance is drained, try again"
		t.reply(msg, reply)
		return
	}
	t.mu.Lock()
	t.drained, t.drainedAt = true, clock.Now()
	t.drainIfNeeded(t.drainedAt)
	t.mu.Unlock()
	lifecycle.Signal(t.beatSoon)
	t.reply(msg, reply)
}

func (t *tender) reply(msg *nats.Msg, reply wire.ControlReply) {
	if !t.holds(clock.Now()) {
		return
	}
	t.mu.Lock()
	reply.Load = t.machine.Load()
	t.mu.Unlock()
	t.respond(msg, wire.Encode(reply))
}

// pingTime is how long an executor has to answer when a route asks whether it is there. The dispatcher waits 500 ms.
const pingTime = 400 * time.Millisecond

// ping answers how many runs of a job the executor has, if the executor answers. The routes failover and busyover ask.
func (t *tender) ping(msg *nats.Msg, job int64, reply wire.ControlReply) {
	ctx, cancel := context.WithTimeout(t.ctx, pingTime)
	defer cancel()
	e, err := t.executorNow()
	if err != nil || e.Beat(ctx).Outcome != protocol.Taken {
		return
	}
	if id, err := t.f.ids.of(ctx, t.address.Group, job); err == nil {
		t.mu.Lock()
		n := t.machine.JobRuns(id)
		t.mu.Unlock()
		reply.JobRuns = &n
	}
	t.reply(msg, reply)
}

// statuses answers what is known of attempts. It reports false if Postgres cannot be asked: without it, an attempt must not be called unknown.
func (t *tender) statuses(refs []wire.Ref) ([]wire.Status, bool) {
	out := make([]wire.Status, 0, len(refs))
	var ask []gateway.Attempt
	now := clock.Now()
	t.mu.Lock()
	for _, r := range refs {
		id, ok := attemptOf(r)
		if !ok {
			out = append(out, wire.Status{RunID: r.RunID, Attempt: r.Attempt, Status: wire.StatusUnknown})
			continue
		}
		if a := t.machine.Known(id); a != nil && a.State != address.Ended {
			out = append(out, address.StatusOf(a))
			continue
		}
		ask = append(ask, id)
	}
	t.mu.Unlock()
	if len(ask) == 0 {
		return out, true
	}
	ctx, cancel := context.WithTimeout(t.ctx, storeTime)
	defer cancel()
	sends, err := t.f.Records.Known(ctx, ask)
	if err != nil {
		return nil, false
	}
	of := make(map[gateway.Attempt][]gateway.Send)
	for _, s := range sends {
		if s.Instance == t.address.Instance && s.BootID == t.address.BootID {
			of[s.Attempt] = append(of[s.Attempt], s)
		}
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, id := range ask {
		s := statusOf(id, of[id])
		if noted := t.machine.Noted(id, now); s.Status == wire.StatusUnknown && noted != "" {
			s.Status = noted
		}
		out = append(out, s)
	}
	return bounded(out), true
}

// statusBytes bounds the results in one answer. The dispatcher asks again for what is left out.
const statusBytes = 512 << 10

func bounded(all []wire.Status) []wire.Status {
	size, out := 0, all[:0]
	for i, s := range all {
		if s.Result != nil {
			size += len(s.Result.Output) + len(s.Result.Message) + 512
		}
		if size > statusBytes && i > 0 && s.Result != nil {
			continue
		}
		out = append(out, s)
	}
	return out
}

// statusOf returns the status of an attempt by its sends of this boot, by log id.
func statusOf(id gateway.Attempt, sends []gateway.Send) wire.Status {
	st := wire.Status{RunID: id.Run.String(), Attempt: id.Number, Status: wire.StatusUnknown}
	for i := range sends {
		s := &sends[i]
		if s.SentAt != nil {
			st.StartedAt = wire.Time{Time: *s.SentAt}
		}
		switch {
		case s.State == gateway.Accepted:
			st.Status = wire.StatusAccepted
		case s.EndedAt == nil:
			st.Status = wire.StatusRunning
		case s.Settled && s.State == gateway.Unstarted:
			st.Status, st.StartedAt = wire.StatusRefused, wire.Time{}
		default:
			st.Status = wire.StatusDone
			if s.State != gateway.Unstarted {
				st.Outcome = s.Result.Outcome
			}
			if !s.Settled {
				r := resultOf(s)
				st.Result = &r
			}
		}
	}
	return st
}

func attemptOf(r wire.Ref) (gateway.Attempt, bool) {
	id, err := domain.ParseRunID(r.RunID)
	return gateway.Attempt{Run: id, Number: r.Attempt}, err == nil
}

// kill records kills. The carriers of attempts that were not sent give them back, and the watch kills the others.
func (t *tender) kill(refs []wire.Ref, reason string) {
	if reason != string(domain.ReasonCovered) && reason != string(domain.ReasonTimeout) {
		reason = string(domain.ReasonKilled)
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	now := clock.Now()
	for _, r := range refs {
		if id, ok := attemptOf(r); ok {
			t.machine.Kill(id, reason, now)
		}
	}
	lifecycle.Signal(t.lookSoon)
}

// ended records that the end of an attempt is stored.
func (t *tender) ended(s *gateway.Send) {
	t.mu.Lock()
	defer t.mu.Unlock()
	load := t.machine.Load()
	if s.BootID != t.address.BootID || !t.machine.End(s.Attempt, s.Result.Outcome) {
		return
	}
	if s.Result.Outcome != wire.Succeeded {
		t.tails.insist(s.Attempt)
	}
	t.finishTail(s.Attempt, false)
	if load.Running >= load.Capacity { // otherwise it is early enough if the result says that a slot is free
		lifecycle.Signal(t.beatSoon)
	}
}
