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

// runChanges receives the changes of runs from all dispatchers through NATS. It implements live.Source.
type runChanges struct {
	nc  *nats.Conn
	log *slog.Logger
}

const (
	changesHeld  = 10_000 // maximum number of pending messages; NATS drops further ones
	changesBytes = 64 << 20
	changesFlush = 2 * time.Second
	// changesCheck is the interval of checks for dropped messages.
	changesCheck = time.Second
)

// Hear subscribes to changes of runs. It calls changed with each change, and missed whenever changes may have been lost. The two
// are called from different goroutines.
func (c runChanges) Hear(changed func([]engine.Change), missed func()) (stop func(), err error) {
	sub, err := c.nc.Subscribe(wire.RunSubject("*"), func(m *nats.Msg) {
		var message wire.RunChanges
		if err := wire.Decode(m.Data, &message); err != nil {
			c.log.Warn("cannot decode a message of changed runs, dropping it", "subject", m.Subject, "err", err)
			missed()
			return
		}
		changed(changesOf(wire.GroupOfSubject(m.Subject), message.Runs))
	})
	if err != nil {
		return nil, domain.WrapError(domain.Unavailable, "NATS is unavailable", err)
	}
	if err := sub.SetPendingLimits(changesHeld, changesBytes); err != nil {
		return nil, domain.WrapError(domain.Unavailable, "NATS is unavailable", err)
	}
	if c.nc.IsConnected() {
		// After the flush, the server knows the subscription. If the flush fails, the reconnect calls missed.
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

// watchLoss calls missed after messages may have been lost: after a reconnect, and after NATS has dropped messages because too
// many were pending.
func (c runChanges) watchLoss(ctx context.Context, sub *nats.Subscription, back <-chan nats.Status, missed func()) {
	tick := time.NewTicker(changesCheck)
	defer tick.Stop()
	before := 0
	for {
		select {
		case <-ctx.Done():
			return
		case _, open := <-back:
			if !open { // the connection was closed
				return
			}
			// The status changes before the server has the subscriptions again. A subscriber that read the runs before the flush
			// would miss the changes in between.
			known, cancel := context.WithTimeout(ctx, changesFlush)
			_ = c.nc.FlushWithContext(known) // on an error, the connection broke again, and another reconnect follows
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
			continue // subscribers could not read a run without its id
		}
		out = append(out, engine.Change{
			RunID: id, JobID: domain.JobID(r.JobID), Group: group, Cause: domain.Cause(r.Cause),
			State: domain.State(r.State), Reason: domain.Reason(r.Reason), Attempt: r.Attempt,
		})
	}
	return out
}
