package ends_test

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/belfryhq/belfry/internal/domain"
	"github.com/belfryhq/belfry/internal/gateway/ends"
	"github.com/belfryhq/belfry/internal/gateway/spool"
	"github.com/belfryhq/belfry/internal/store/gateway"
)

// world is a Keeper with a store that knows the log ids below 100.
type world struct {
	*ends.Keeper
	mu      sync.Mutex
	away    error // why the store refuses everything
	refused int64 // the store refuses batches with this log id as invalid
	ended   map[int64]string
	letters []string
	stored  []int64
	hold    chan struct{} // if not nil, statements wait until it is closed
	batches []string      // groups and number of the ends of each statement
	letting chan struct{} // if not nil, dead letters wait until it is closed
}

// memory is the store of a world.
type memory struct{ *world }

func newWorld(t *testing.T) *world {
	t.Helper()
	s, err := spool.Open(t.TempDir(), slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	w := &world{ended: map[int64]string{}}
	letter := func(_ context.Context, group string, data []byte, reason error) {
		if w.letting != nil {
			<-w.letting
		}
		w.mu.Lock()
		defer w.mu.Unlock()
		w.letters = append(w.letters, fmt.Sprintf("%s %s %v", group, data, reason))
	}
	stored := func(ids []int64) {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.stored = append(w.stored, ids...)
	}
	w.Keeper = ends.New(memory{w}, s, letter, stored, slog.New(slog.DiscardHandler))
	return w
}

func (w *world) set(away error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.away = away
}

// end returns how a send has ended.
func (w *world) end(id int64) string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.ended[id]
}

// Finish implements ends.Store.
func (s memory) Finish(_ context.Context, groups []string, batch []gateway.End) (out []gateway.Disposition, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.batches = append(s.batches, fmt.Sprint(groups, len(batch)))
	if hold := s.hold; hold != nil {
		s.mu.Unlock()
		<-hold
		s.mu.Lock()
	}
	if s.away != nil {
		return nil, s.away
	}
	for _, e := range batch {
		if e.LogID == s.refused {
			return nil, domain.NewError(domain.Invalid, "a value is not valid")
		}
	}
	for _, e := range batch {
		out = append(out, s.store(e))
	}
	return out, nil
}

func (w *world) store(e gateway.End) gateway.Disposition {
	switch _, ended := w.ended[e.LogID]; {
	case e.LogID >= 100:
		return gateway.NoSend
	case e.LogID == 50:
		return gateway.NotSent
	case ended:
		return gateway.Repeated
	}
	w.ended[e.LogID] = e.Result.Outcome
	return gateway.Finished
}

var unavailable = domain.NewError(domain.Unavailable, "away")

func report(ids ...int64) (out []gateway.End) {
	for _, id := range ids {
		out = append(out, gateway.End{LogID: id, Result: gateway.Result{Outcome: "succeeded"}})
	}
	return out
}

func TestFinish(t *testing.T) {
	w := newWorld(t)
	w.refused = 7
	if err := w.Finish(t.Context(), []string{"g", "h"}, report(1, 2, 7, 1, 50, 3, 100)); err != nil {
		t.Fatal(err)
	}
	if slices.Sort(w.stored); !slices.Equal(w.stored, []int64{1, 2, 3}) || len(w.letters) != 3 {
		t.Errorf("stored %v, dead letters %q", w.stored, w.letters)
	}
	all := strings.Join(w.letters, "\n")
	for _, want := range []string{`g {"LogID":7`, `"LogID":50`, `"LogID":100`, "not valid", "was not sent", "has the log id 100"} {
		if !strings.Contains(all, want) {
			t.Errorf("no dead letter has %q:\n%s", want, all)
		}
	}
	w.Unusable(t.Context(), []string{"g"}, []byte("x"), unavailable)
	if len(w.letters) != 4 {
		t.Error("an unusable callback is no dead letter")
	}
}

// Reports for the same groups that come while a statement runs are stored with one statement. Callers for other groups do not wait for it, and each caller
// waits only for its own dead letters.
func TestTogether(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.hold, w.letting = make(chan struct{}), make(chan struct{})
		var callers sync.WaitGroup
		var returned []int64 // by the first end of each caller
		finish := func(groups string, ends []gateway.End) {
			callers.Go(func() {
				if err := w.Finish(t.Context(), strings.Fields(groups), ends); err != nil {
					t.Error(err)
				}
				w.mu.Lock()
				defer w.mu.Unlock()
				returned = append(returned, ends[0].LogID)
			})
			synctest.Wait()
		}
		finish("g", report(1))
		finish("g", report(2, 3))
		finish("g h", report(4))
		finish("g", report(101, 5, 102))
		finish("g", report(6, 103))
		large := report(7)
		large[0].Result.Output = strings.Repeat("x", 2<<20)
		finish("g", large)
		close(w.hold)
		time.Sleep(time.Second) // all statements have run
		w.mu.Lock()
		if slices.Sort(returned); !slices.Equal(returned, []int64{1, 2, 4, 7}) {
			t.Errorf("while dead letters wait, the callers %d return", returned)
		}
		w.mu.Unlock()
		close(w.letting)
		callers.Wait()
		if slices.Sort(w.batches[2:]); !slices.Equal(w.batches, []string{"[g] 1", "[g h] 1", "[g] 1", "[g] 7"}) {
			t.Errorf("the statements were %q", w.batches)
		}
		if slices.Sort(w.letters); len(w.letters) != 3 || !strings.Contains(w.letters[0], "log id 101") || !strings.Contains(w.letters[2], "log id 103") {
			t.Errorf("dead letters: %q", w.letters)
		}
	})
}

// While Postgres is away, ends are kept on disk. The first end of a run counts, also across the outage.
func TestOutage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error)
		go func() { done <- w.Run(ctx) }()
		w.set(unavailable)
		if err := w.Finish(t.Context(), []string{"g"}, report(1, 2)); err != nil {
			t.Fatal(err)
		}
		time.Sleep(10 * time.Second)
		if w.end(1) != "" {
			t.Error("stored while Postgres is away")
		}
		w.set(nil)
		second := gateway.End{LogID: 1, Result: gateway.Result{Outcome: "failed"}}
		if err := w.Finish(t.Context(), []string{"g"}, []gateway.End{second}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(10 * time.Second)
		if w.end(1) != "succeeded" || w.end(2) != "succeeded" {
			t.Errorf("ended as %q and %q", w.end(1), w.end(2))
		}
		if err := w.Finish(t.Context(), []string{"g"}, report(3)); err != nil || w.end(3) == "" { // directly
			t.Errorf("after the outage: %v", err)
		}
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}
