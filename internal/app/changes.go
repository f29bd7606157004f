package app

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/belfryhq/belfry/executor/wire"
	"github.com/belfryhq/belfry/internal/domain"
	"github.com/belfryhq/belfry/internal/engine"
)

// runChanges hears from NATS which runs changed, whichever dispatcher changed them. It implements live.Source.
type runChanges struct {
	nc  *nats.Conn
	log *slog.Logger
}

const (
	changesHeld  = 10_000 // messages that wait for who hears them; what comes beyond is dropped
	changesBytes = 64 << 20
	changesFlush = 2 * time.Second
	// changesCheck is how often it is looked whether messages were dropped.
	changesCheck = time.Second
)

// Hear calls changed from one goroutine of its own and missed from another.
func (c runChanges) Hear(changed func([]engine.Change), missed func()) (stop func(), err error) {
	sub, err := c.nc.Subscribe(wire.RunSubject("*"), func(m *nats.Msg) {
		var message wire.RunChanges
		if err := wire.Decode(m.Data, &message); err != nil {
			c.log.Warn("a message of changed runs cannot be read", "subject", m.Subject, "err", err)
			missed()
			return
		}
		changed(changesOf(wire.GroupOfSubject(m.Subject), message.Runs))
	})
	if err != nil {
		return nil, domain.WrapError(domain.Unavailable, "NATS is away", err)
	}
	if err := sub.SetPendingLimits(changesHeld, changesBytes); err != nil {
		return nil, domain.WrapError(domain.Unavailable, "NATS is away", err)
	}
	if c.nc.IsConnected() {
		// From now on all is heard. Where the server does not answer, the connection comes back, and that is told.
		_ = c.nc.FlushTimeout(changesFlush)
	}
	ctx, cancel := context.WithCancel(context.Background())
	back := c.nc.StatusChanged(nats.CONNECTED)
	var wg sync.WaitGroup
	wg.Go(func() { c.watchLoss(ctx, sub, back, missed) })
	return func() {
		cancel()
		wg.Wait()
		c.nc.RemoveStatusListener(back)
		_ = sub.Unsubscribe() // the connection may be closed already
	}, nil
}

// watchLoss tells of what cannot have been heard: what came while the connection was broken, and what was dropped
// because more came than could be taken.
func (c runChanges) watchLoss(ctx context.Context, sub *nats.Subscription, back <-chan nats.Status, missed func()) {
	tick := time.NewTicker(changesCheck)
	defer tick.Stop()
	before := 0
	for {
		select {
		case <-ctx.Done():
			return
		case _, open := <-back:
			if !open { // the connection is closed for good
				return
			}
			// It is back before the server knows again what is to be heard, and what comes in between would be missed by
			// those who look as soon as they are told.
			known, cancel := context.WithTimeout(ctx, changesFlush)
			_ = c.nc.FlushWithContext(known) // if it breaks again, it also comes back again
			cancel()
			missed()
		case <-tick.C:
			if dropped, err := sub.Dropped(); err == nil && dropped != before {
				before = dropped
				missed()
			}
		}
	}
}

func changesOf(group string, told []wire.RunChange) []engine.Change {
	out := make([]engine.Change, 0, len(told))
	for _, r := range told {
		id, err := domain.ParseRunID(r.RunID)
		if err != nil {
			continue // who watches reads the run by its id
		}
		out = append(out, engine.Change{
			RunID: id, JobID: domain.JobID(r.JobID), Group: group, Cause: domain.Cause(r.Cause),
			State: domain.State(r.State), Reason: domain.Reason(r.Reason), Attempt: r.Attempt,
		})
	}
	return out
}
