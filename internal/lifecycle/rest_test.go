package lifecycle

import (
	"context"
	"testing"
	"testing/synctest"
	"time"
)

// Loops with different periods wake up at the same few instants of each second, and their periods are right on average.
func TestRest(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		begun := time.Now()
		ctx, stop := context.WithTimeout(t.Context(), time.Minute)
		defer stop()
		loop := func(period, work time.Duration) func(context.Context) {
			return func(ctx context.Context) {
				rests := 0
				for last := begun; Rest(ctx, period); last = time.Now() {
					now := time.Now()
					if phase := now.Sub(begun) % restGrid; phase != restPhase {
						t.Errorf("a rest of %s ended %s after a quarter of a second", period, phase)
					}
					if rested := now.Sub(last); rested < period-restGrid/2 || rested > period+restGrid/2 {
						t.Errorf("a rest of %s lasted %s", period, rested)
					}
					rests++
					time.Sleep(work)
				}
				if want := int(time.Minute / period); rests < want-1 || rests > want {
					t.Errorf("%d rests of %s in a minute", rests, period)
				}
			}
		}
		Together(ctx, loop(restGrid, 0), loop(500*time.Millisecond, 3*time.Millisecond), loop(time.Second, 20*time.Millisecond), loop(5*time.Second, 100*time.Millisecond))
		if Rest(ctx, time.Hour) {
			t.Error("a rest does not end with its context")
		}
	})
}
