package lifecycle

import (
	"context"
	"testing"
	"testing/synctest"
	"time"
)

func TestPause(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		begun := time.Now()
		if !Pause(ctx, time.Minute) || time.Since(begun) != time.Minute {
			t.Errorf("a pause of a minute took %v", time.Since(begun))
		}
		cancel()
		if Pause(ctx, time.Minute) || time.Since(begun) != time.Minute {
			t.Errorf("a pause goes on after its context ended")
		}
	})
}

func TestSignal(t *testing.T) {
	c := make(chan struct{}, 1)
	Signal(c)
	Signal(c) // must not block
	<-c
	select {
	case <-c:
		t.Error("two signals are waiting in a channel of capacity one")
	default:
	}
}

func TestTogether(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		returned := 0
		done := make(chan struct{})
		loop := func(ctx context.Context) { <-ctx.Done() }
		go func() {
			Together(ctx, loop, loop)
			returned++
			close(done)
		}()
		synctest.Wait()
		if returned != 0 {
			t.Error("Together returned before its loops")
		}
		cancel()
		<-done
	})
}
