package lifecycle

import (
	"context"
	"errors"
	"reflect"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// journal notes what happened in order.
type journal struct {
	mu     sync.Mutex
	events []string
}

func (j *journal) note(event string) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.events = append(j.events, event)
}

func (j *journal) want(t *testing.T, want ...string) {
	t.Helper()
	j.mu.Lock()
	defer j.mu.Unlock()
	if !reflect.DeepEqual(j.events, want) {
		t.Errorf("events are %v, want %v", j.events, want)
	}
}

// slow is ready one second after its start, and ends one second after its context.
func (j *journal) slow(name string) Component {
	ready := make(chan struct{})
	return Component{Name: name, Ready: ready, Run: func(ctx context.Context) error {
		j.note("+" + name)
		time.Sleep(time.Second)
		close(ready)
		<-ctx.Done()
		time.Sleep(time.Second)
		j.note("-" + name)
		return nil
	}}
}

func TestStartsAndStopsInOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var j journal
		var g Group
		for _, name := range []string{"database", "engine", "console"} {
			g.Add(j.slow(name))
		}
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error)
		begin := time.Now()
		go func() { done <- g.Run(ctx) }()
		time.Sleep(10 * time.Second)
		j.want(t, "+database", "+engine", "+console")
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
		j.want(t, "+database", "+engine", "+console", "-console", "-engine", "-database")
		if took := time.Since(begin); took != 13*time.Second {
			t.Errorf("took %s: stops overlapped or waited for nothing", took)
		}
	})
}

func TestFirstFailureStopsAll(t *testing.T) {
	broken := errors.New("broken")
	for _, c := range []struct {
		name string
		run  func(context.Context) error
		want string
	}{
		{"error", func(context.Context) error { time.Sleep(5 * time.Second); return broken }, "engine: broken"},
		{"plain return", func(context.Context) error { time.Sleep(5 * time.Second); return nil }, "engine: ended by itself"},
		{"panic", func(context.Context) error { panic("oh") }, "engine: panic: oh"},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var j journal
				var g Group
				g.Add(j.slow("database"))
				g.Add(Component{Name: "engine", Run: c.run})
				g.Add(j.slow("console"))
				err := g.Run(t.Context())
				if err == nil || !strings.HasPrefix(err.Error(), c.want) {
					t.Errorf("got %v", err)
				}
				j.want(t, "+database", "+console", "-console", "-database")
			})
		})
	}
}

func TestFailureBeforeReady(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		broken := errors.New("broken")
		var j journal
		var g Group
		g.Add(j.slow("database"))
		g.Add(Component{Name: "engine", Ready: make(chan struct{}), Run: func(context.Context) error { return broken }})
		g.Add(j.slow("console"))
		if err := g.Run(t.Context()); !errors.Is(err, broken) {
			t.Errorf("got %v", err)
		}
		j.want(t, "+database", "-database")
	})
}

func TestCancelledWhileStarting(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var j journal
		var g Group
		g.Add(j.slow("database"))
		g.Add(Component{Name: "engine", Ready: make(chan struct{}), Run: func(ctx context.Context) error {
			<-ctx.Done()
			return ctx.Err() // after the cancellation, this error is not a failure
		}})
		g.Add(j.slow("console"))
		ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
		defer cancel()
		if err := g.Run(ctx); err != nil {
			t.Error(err)
		}
		j.want(t, "+database", "-database")
	})
}

func TestErrorsAreJoined(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		one, two := errors.New("one"), errors.New("two")
		fail := func(err error) func(context.Context) error {
			return func(ctx context.Context) error { <-ctx.Done(); return err }
		}
		var g Group
		g.Add(Component{Name: "a", Run: fail(one)})
		g.Add(Component{Name: "b", Run: fail(two)})
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(time.Second, cancel)
		err := g.Run(ctx)
		if !errors.Is(err, one) || !errors.Is(err, two) {
			t.Errorf("got %v", err)
		}
	})
}

func TestStopHasALimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var j journal
		release := make(chan struct{})
		var g Group
		g.Add(j.slow("database"))
		g.Add(Component{Name: "stuck", StopTimeout: 2 * time.Second, Run: func(context.Context) error { <-release; return nil }})
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(5*time.Second, cancel)
		begin := time.Now()
		if err := g.Run(ctx); !errors.Is(err, ErrStopTimeout) || !strings.HasPrefix(err.Error(), "stuck: ") {
			t.Errorf("got %v", err)
		}
		if took := time.Since(begin); took != 8*time.Second {
			t.Errorf("took %s", took)
		}
		j.want(t, "+database", "-database")
		close(release)
	})
}

func TestEmptyAndCancelled(t *testing.T) {
	if err := new(Group).Run(t.Context()); err != nil {
		t.Error(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	var g Group
	g.Add(Component{Name: "a", Run: func(context.Context) error { t.Error("started"); return nil }})
	if err := g.Run(ctx); err != nil {
		t.Error(err)
	}
}
