package scheduler

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/belfryhq/belfry/internal/engine"
	"github.com/belfryhq/belfry/internal/lifecycle"
)

// The bounds of an orderly stop. Together they are shorter than the time that package lifecycle gives a component to stop.
const (
	planEnd   = 5 * time.Second        // for the planning step in progress
	keepFor   = time.Second            // runs that are due within it stay in the ring; the others have that long to claim the rest
	keepOver  = 500 * time.Millisecond // for the fires of the runs that stay, beyond keepFor
	backBatch = 1000                   // runs per HandBack
	backTime  = 8 * time.Second        // for all runs that are handed back
	backTries = 3                      // tries per batch
)

// outlasting returns a context that ends some time after ctx.
func outlasting(ctx context.Context, by time.Duration) (context.Context, context.CancelFunc) {
	out, cancel := context.WithCancel(context.WithoutCancel(ctx))
	stop := context.AfterFunc(ctx, func() {
		if lifecycle.Pause(out, by) {
			cancel()
		}
	})
	return out, func() { stop(); cancel() }
}

// Run plans and fires until ctx ends. Then it hands the ring's runs back, except those that are due in a moment, which it
// still fires. It returns after all Fires in progress have ended.
func (s *Scheduler) Run(ctx context.Context) error {
	firing, stopFiring := context.WithCancel(context.WithoutCancel(ctx))
	defer stopFiring()
	var fires sync.WaitGroup
	fires.Go(func() { lifecycle.Together(firing, s.ringLoop, s.paceLoop) })
	lifecycle.Together(ctx, s.listen, s.planLoop)

	work, cancel := context.WithTimeout(firing, backTime)
	defer cancel()
	begun := time.Now()
	s.handBack(work, s.withdraw(s.cfg.Store.Now().Add(keepFor)))
	for s.busy() && time.Since(begun) < keepFor+keepOver && lifecycle.Pause(firing, nearQuantum) {
		continue
	}
	stopFiring()
	fires.Wait()
	rest, cancel := context.WithTimeout(context.WithoutCancel(ctx), backTime/backTries)
	defer cancel()
	s.handBack(rest, s.withdraw(time.Time{}))
	return nil
}

// busy reports whether the ring has entries or a Fire is in progress.
func (s *Scheduler) busy() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.ring.size > 0 || s.firing > 0
}

// withdraw takes the entries that are due after an instant out of the ring, so that they are not fired here. It returns
// them in due order.
func (s *Scheduler) withdraw(after time.Time) []engine.Due {
	s.mu.Lock()
	out := s.ring.withdraw(after)
	s.mu.Unlock()
	slices.SortFunc(out, func(a, b engine.Due) int { return a.DueAt.Compare(b.DueAt) })
	return out
}

// handBack hands runs to the other schedulers, the next ones first. If that fails, the others take them over as stranded.
func (s *Scheduler) handBack(ctx context.Context, runs []engine.Due) {
	//sim:seam hand-back
	all := len(runs)
	for len(runs) > 0 {
		batch := runs[:min(len(runs), backBatch)]
		var err error
		for try := 1; ; try++ {
			if err = s.cfg.Store.HandBack(ctx, batch); err == nil || try == backTries || !lifecycle.Pause(ctx, 100*time.Millisecond) {
				break
			}
		}
		if err != nil {
			s.cfg.Log.WarnContext(ctx, "cannot hand planned runs back, other schedulers take them over as stranded", "runs", len(runs), "err", err)
			return
		}
		runs = runs[len(batch):]
	}
	if all > 0 {
		s.cfg.Log.InfoContext(ctx, "handed planned runs back to the other schedulers", "runs", all)
	}
}
