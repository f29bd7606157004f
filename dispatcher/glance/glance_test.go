package glance

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/belfryhq/belfry/internal/engine"
)

type store struct {
	calls int
	found engine.Glance
	err   error
}

func (s *store) Glance(context.Context) (engine.Glance, error) {
	s.calls++
	time.Sleep(10 * time.Millisecond)
	return s.found, s.err
}

// Loops that look in the same second share one statement. A failed look is not remembered.
func TestLook(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := &store{found: engine.Glance{Held: true}}
		g := New(s)
		look := func(loops int, want engine.Glance, fails bool) {
			t.Helper()
			var all sync.WaitGroup
			for range loops {
				all.Go(func() {
					if got, err := g.Look(t.Context()); got != want || (err != nil) != fails {
						t.Errorf("%+v, %v", got, err)
					}
				})
			}
			all.Wait()
		}
		look(5, s.found, false)
		time.Sleep(fresh / 2)
		s.found = engine.Glance{Kills: true}
		look(3, engine.Glance{Held: true}, false)
		if s.calls != 1 {
			t.Errorf("%d statements in a second", s.calls)
		}
		time.Sleep(fresh / 2)
		look(3, s.found, false)
		time.Sleep(fresh)
		s.err = errors.New("away")
		look(2, s.found, true)
		s.err = nil
		s.found = engine.Glance{}
		look(2, s.found, false)
		if s.calls != 5 {
			t.Errorf("%d statements in all", s.calls)
		}
		ended, end := context.WithCancel(t.Context())
		end()
		<-g.turn
		if _, err := g.Look(ended); !errors.Is(err, context.Canceled) {
			t.Errorf("a look that waits for another one when its context ends: %v", err)
		}
	})
}
