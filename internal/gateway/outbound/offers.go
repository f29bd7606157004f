package outbound

import (
	"context"
	"errors"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/belfryhq/belfry/executor/wire"
	"github.com/belfryhq/belfry/internal/gateway/address"
	"github.com/belfryhq/belfry/internal/gateway/clock"
	"github.com/belfryhq/belfry/internal/store/gateway"
)

func (t *tender) serveOffers() {
	for {
		select {
		case <-t.ctx.Done():
			return
		case m := <-t.offers:
			t.takeOffers(m)
			continue
		case <-t.retired:
		}
		for { // what has arrived
			select {
			case m := <-t.offers:
				t.takeOffers(m)
				continue
			default:
			}
			return
		}
	}
}

// takeOffers answers a message of offers. Without an answer, the dispatcher asks about the attempts later.
func (t *tender) takeOffers(msg *nats.Msg) {
	var m wire.Offers
	if err := wire.Decode(msg.Data, &m); err != nil || len(m.Offers) > wire.MaxOffers {
		t.log.WarnContext(t.ctx, "received malformed offers, the dispatcher gets no answer", "err", err)
		return
	}
	now := clock.Now()
	if !t.holds(now) {
		return
	}
	t.mu.Lock()
	verdicts, fresh, raised := t.machine.Judge(&m, now)
	t.mu.Unlock()
	ok := true
	if len(raised) > 0 {
		ctx, cancel := context.WithTimeout(t.ctx, storeTime)
		ok = t.f.Sends.RaiseBinds(ctx, raised) == nil
		cancel()
	}
	t.readIDs(fresh, m.Offers)
	verdicts, stored := t.storeFresh(fresh, verdicts)
	if !ok || !stored || !t.holds(clock.Now()) {
		return
	}
	answer := wire.Answer{V: wire.Version, Instance: t.address.Instance, BootID: t.address.BootID, Load: t.loadFor(&m, now), Verdicts: verdicts}
	t.respond(msg, wire.EncodeAnswer(&answer))
}

// readIDs reads the wire ids of fresh attempts.
func (t *tender) readIDs(fresh []*address.Attempt, offers []wire.Offer) {
	if len(fresh) == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(t.ctx, storeTime)
	defer cancel()
	t.f.ids.read(ctx, t.address.Group, offers)
}

// noticeTime is how long dispatchers may need to receive the first heartbeat of a new owner.
const noticeTime = time.Second

// loadFor returns the load in the answer to offers. A dispatcher offers nothing for a while to an instance that has room and refuses. But offers that rely on
// heartbeats of the earlier owner are refused only until the dispatcher has received the first heartbeat of this one. So their answer says that the instance is full. Its number
// is lower than that of any heartbeat, so that the dispatcher does not keep this load.
func (t *tender) loadFor(m *wire.Offers, now clock.Instant) wire.Load {
	t.mu.Lock()
	defer t.mu.Unlock()
	load := t.machine.Load()
	if m.Beat>>32 < t.address.Epoch && clock.Since(t.begun, now) < noticeTime {
		load.Running, load.Seq = max(load.Running, load.Capacity), -1
	}
	return load
}

// storeFresh stores the sends of attempts that were judged as accepted, and begins to carry them. It returns the verdicts as Postgres corrects them, and false if the
// dispatcher gets no answer.
func (t *tender) storeFresh(fresh []*address.Attempt, verdicts []wire.Verdict) ([]wire.Verdict, bool) {
	if len(fresh) == 0 {
		return verdicts, true
	}
	ctx, cancel := context.WithTimeout(t.ctx, storeTime)
	defer cancel()
	offers := make([]gateway.Offer, 0, len(fresh))
	for _, a := range fresh {
		id, err := t.f.ids.of(ctx, t.address.Group, a.Task.JobID)
		if err != nil {
			t.forget(fresh)
			return nil, false
		}
		t.mu.Lock()
		a.WireID = id
		offers = append(offers, a.Offer)
		t.mu.Unlock()
	}
	ids, err := t.f.Sends.Accept(ctx, t.f.Owner, t.address.Hold(), offers)
	if err != nil {
		t.mu.Lock()
		t.doubted = clock.Now() // the sends may be stored
		t.mu.Unlock()
		t.forget(fresh)
		if !errors.Is(err, gateway.ErrNotHeld) {
			t.log.WarnContext(t.ctx, "cannot store accepted runs, the dispatcher gets no answer", "runs", len(fresh), "err", err)
		}
		return nil, false
	}
	var other []*address.Attempt
	t.mu.Lock()
	for _, a := range fresh {
		id, ok := ids[a.Attempt]
		if !ok {
			other = append(other, a)
			continue
		}
		t.machine.Admit(a, id)
		t.f.waiting.Add(1)
		t.f.carrying.Add(1)
		go (&carrier{t}).carry(a)
	}
	t.mu.Unlock()
	if len(other) == 0 {
		return verdicts, true
	}
	return t.recall(ctx, other, verdicts)
}

// forget removes attempts that were not stored.
func (t *tender) forget(attempts []*address.Attempt) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, a := range attempts {
		t.machine.Forget(a)
	}
}

// recall corrects the verdicts on attempts that Postgres did not accept, because they have sends already.
func (t *tender) recall(ctx context.Context, attempts []*address.Attempt, verdicts []wire.Verdict) ([]wire.Verdict, bool) {
	ids := make([]gateway.Attempt, len(attempts))
	for i, a := range attempts {
		ids[i] = a.Attempt
	}
	sends, err := t.f.Records.Known(ctx, ids)
	if err != nil {
		t.forget(attempts)
		return nil, false
	}
	of := make(map[gateway.Attempt][]gateway.Send)
	for _, s := range sends {
		of[s.Attempt] = append(of[s.Attempt], s)
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	corrected := make(map[string]wire.Verdict, len(attempts))
	for _, a := range attempts {
		v := address.Recall(of[a.Attempt], t.address.Instance, t.address.BootID, &a.Task)
		switch v.Verdict {
		case wire.Refused:
			t.machine.Refuse(a, v.Reason, clock.Now())
		default:
			t.machine.Forget(a)
			if v.Verdict == wire.Accepted {
				t.doubted = clock.Now()
			}
		}
		corrected[v.RunID] = v
	}
	out := verdicts[:0]
	for _, v := range verdicts {
		c, ok := corrected[v.RunID]
		switch {
		case !ok || v.Attempt != c.Attempt:
			out = append(out, v)
		case c.Verdict != wire.Accepted: // the machine does not know an attempt that is under way here: it goes back soon
			out = append(out, c)
		}
	}
	return out, true
}
