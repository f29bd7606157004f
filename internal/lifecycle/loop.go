package lifecycle

import (
	"context"
	"sync"
	"time"
)

// Pause waits for d and reports whether ctx is still alive. It returns early when ctx ends.
func Pause(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-t.C:
		return true
	}
}

// Rests end at whole quarters of a second of the wall clock, plus restPhase: many jobs are due at whole seconds.
const (
	restGrid  = 250 * time.Millisecond
	restPhase = restGrid / 2
)

// Rest is like Pause, for loops that look for work periodically. It waits for about d, at least restGrid: it ends up to an eighth of a second earlier
// or later, so that all such loops on a machine wake up together. At rest, a process needs most of its CPU for waking up.
func Rest(ctx context.Context, d time.Duration) bool {
	now := time.Now().Round(0) // without the monotonic clock, which differs between processes
	return Pause(ctx, now.Add(d-restPhase).Round(restGrid).Add(restPhase).Sub(now))
}

// Signal sends to a wake-up channel of capacity one. If a signal is already waiting there, it does nothing.
func Signal(c chan<- struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// Together runs loops side by side and returns when all of them have returned.
func Together(ctx context.Context, loops ...func(context.Context)) {
	var wg sync.WaitGroup
	for _, loop := range loops {
		wg.Go(func() { loop(ctx) })
	}
	wg.Wait()
}
