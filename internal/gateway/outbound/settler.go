package outbound

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/belfryhq/belfry/executor/wire"
	"github.com/belfryhq/belfry/internal/gateway/address"
	"github.com/belfryhq/belfry/internal/lifecycle"
	"github.com/belfryhq/belfry/internal/store/gateway"
)

const (
	// settleFor is how long the settler collects, because a large statement costs less than many small ones. Nothing waits for it, except attempts that did not start: an address
	// accepts them again only after that is settled, and dispatchers offer them again at once.
	settleFor   = 50 * time.Millisecond
	mostSettled = 1000 // in one statement
	// mostSettling bounds the memory of what is not recorded yet. The results of others are published and settled again.
	mostSettling = 100_000
)

// settler records which results dispatchers have settled, for all addresses together. If Postgres is away, the results are published and settled again.
type settler struct {
	f    *Fleet
	wake chan struct{} // capacity 1
	now  chan struct{} // capacity 1; ends the collecting

	mu      sync.Mutex
	waiting []settling // guarded by mu
}

// settling is an attempt with a settled result, and the tender of its address.
type settling struct {
	t *tender
	gateway.SettledAttempt
}

// soon records that the results of attempts are settled.
func (s *settler) soon(t *tender, refs []wire.Ref) {
	attempts := make([]settling, 0, len(refs))
	for _, r := range refs {
		if id, ok := attemptOf(r); ok {
			attempts = append(attempts, settling{t, gateway.SettledAttempt{Attempt: id, BootID: r.BootID}})
		}
	}
	s.mu.Lock()
	s.waiting = append(s.waiting, attempts[:min(len(attempts), mostSettling-len(s.waiting))]...)
	s.mu.Unlock()
	lifecycle.Signal(s.wake)
	if slices.ContainsFunc(attempts, settling.hurries) {
		lifecycle.Signal(s.now)
	}
}

// hurries reports whether the attempt may be offered again. The offer may have come before.
func (s settling) hurries() bool {
	s.t.mu.Lock()
	defer s.t.mu.Unlock()
	a := s.t.machine.Known(s.Attempt)
	return a == nil || a.State != address.Ended || a.Outcome == wire.Unstarted
}

// run records until ctx ends.
func (s *settler) run(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-s.wake:
		}
		select {
		case <-ctx.Done():
			return
		case <-s.now:
		case <-time.After(settleFor):
		}
		for batch := s.take(); len(batch) > 0; batch = s.take() {
			s.settle(ctx, batch)
		}
	}
}

// take takes up to mostSettled attempts.
func (s *settler) take() []settling {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := min(len(s.waiting), mostSettled)
	batch := s.waiting[:n:n]
	if s.waiting = s.waiting[n:]; len(s.waiting) == 0 {
		s.waiting = nil
	}
	return batch
}

func (s *settler) settle(ctx context.Context, batch []settling) {
	attempts := make([]gateway.SettledAttempt, len(batch))
	for i := range batch {
		attempts[i] = batch[i].SettledAttempt
	}
	ctx, cancel := context.WithTimeout(ctx, storeTime)
	defer cancel()
	logIDs, err := s.f.Sends.Settle(ctx, attempts)
	if err != nil {
		s.f.Log.DebugContext(ctx, "cannot record that results are settled, they are published again", "runs", len(batch), "err", err)
		return
	}
	settled := make(map[int64]bool, len(logIDs))
	for _, id := range logIDs {
		settled[id] = true
	}
	for i := range batch {
		batch[i].done(settled)
	}
}

// done forgets the attempt. sends are the log ids of what is settled.
func (s settling) done(sends map[int64]bool) {
	t := s.t
	if s.BootID != "" && s.BootID != t.address.BootID {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if known := t.machine.Known(s.Attempt); known != nil && !sends[known.LogID] {
		return // an earlier send of the attempt is settled, and this one goes on
	}
	t.finishTail(s.Attempt, true)
	t.machine.Settled(s.Attempt)
}
