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
