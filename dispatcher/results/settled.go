package results

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/belfryhq/belfry/executor/wire"
	"github.com/belfryhq/belfry/internal/lifecycle"
)

// checks holds the state of AllSettled by group.
type checks struct {
	mu sync.Mutex
	of map[string]*checksOf
}

// checksOf holds the checks of one group. A check is valid only for callers that called before it began, so callers that arrive
// while a check is in progress share the next one. A group with hundreds of dead instances therefore needs at most two checks at a
// time.
type checksOf struct{ running, next *check }

type check struct {
	done    chan struct{}
	settled bool
	err     error
}

// AllSettled reports whether the results of a group that the streams hold now are settled. It waits for them for about two seconds, also
// if new ones arrive all the time. Dispatchers acknowledge a result after its commit, so a result that is no longer in a work queue is
// settled. The only exceptions are results that were acknowledged without being settled because their group exceeded its share
// (docs/limits.md).
func (c *Consumer) AllSettled(ctx context.Context, group string) (bool, error) {
	c.checks.mu.Lock()
	g := c.checks.of[group]
	if g == nil {
		g = &checksOf{}
		c.checks.of[group] = g
	}
	if own := g.next; own != nil {
		c.checks.mu.Unlock()
		return own.wait(ctx)
	}
	own, before := &check{done: make(chan struct{})}, g.running
	if before != nil {
		g.next = own
	} else {
		g.running = own
	}
	c.checks.mu.Unlock()
	if before != nil {
		<-before.done // ends within seconds, with the context of the caller that runs the check
		c.checks.mu.Lock()
		g.running, g.next = own, nil
		c.checks.mu.Unlock()
	}
	own.settled, own.err = c.allSettled(ctx, group)
	c.checks.mu.Lock()
	if g.next == nil { // otherwise the caller that runs the next check continues
		delete(c.checks.of, group)
	}
	c.checks.mu.Unlock()
	close(own.done)
	return own.settled, own.err
}

func (k *check) wait(ctx context.Context) (bool, error) {
	select {
	case <-k.done:
		return k.settled, k.err
	case <-ctx.Done():
		return false, ctx.Err()
	}
}

const (
	settleTries = 20
	settlePause = 100 * time.Millisecond
)

// allSettled waits until the results of a group that the streams hold now are settled. It reads the overflow stream after the
// results stream, because a result that moves to the overflow is stored there before it is acknowledged in the results stream.
func (c *Consumer) allSettled(ctx context.Context, group string) (bool, error) {
	tries := settleTries
	for _, s := range []struct{ stream, subject string }{
		{wire.StreamResults, wire.ResultSubject(group)},
		{wire.StreamOverflow, wire.OverflowSubject(group)},
	} {
		stream, err := c.JetStream.Stream(ctx, s.stream)
		if err != nil {
			return false, err
		}
		last := stream.CachedInfo().State.LastSeq
		for ; ; tries-- {
			first, err := stream.GetMsg(ctx, 1, jetstream.WithGetMsgSubject(s.subject))
			if errors.Is(err, jetstream.ErrMsgNotFound) || (err == nil && first.Sequence > last) {
				break
			}
			if err != nil {
				return false, err
			}
			if tries <= 1 || !lifecycle.Pause(ctx, settlePause) {
				return false, nil
			}
		}
	}
	return true, nil
}
