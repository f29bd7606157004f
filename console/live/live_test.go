package live_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/belfryhq/belfry/console/live"
	"github.com/belfryhq/belfry/internal/domain"
	"github.com/belfryhq/belfry/internal/engine"
)

// source is a Source whose callbacks the tests call.
type source struct {
	changed       func([]engine.Change)
	missed        func()
	subscriptions int // begun
	stopped       int
	err           error
}

func (s *source) Hear(changed func([]engine.Change), missed func()) (func(), error) {
	if s.err != nil {
		return nil, s.err
	}
	s.subscriptions++
	s.changed, s.missed = changed, missed
	return func() { s.stopped++ }, nil
}

// table replaces Postgres.
type table struct {
	mu    sync.Mutex
	runs  map[domain.RunID]domain.Run
	reads [][]domain.RunID
	err   error
}

func (t *table) read(_ context.Context, ids []domain.RunID) (runs []domain.Run, err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.reads = append(t.reads, ids)
	for _, id := range ids {
		if r, ok := t.runs[id]; ok {
			runs = append(runs, r)
		}
	}
	return runs, t.err
}

func (t *table) put(n int, group string, state domain.State) engine.Change {
	t.mu.Lock()
	defer t.mu.Unlock()
	id := domain.RunID{14: byte(n >> 8), 15: byte(n)}
	t.runs[id] = domain.Run{ID: id, Group: group, State: state}
	return engine.Change{RunID: id, Group: group, State: state}
}

func of(group string) live.Filter {
	return live.Filter{
		Wants: func(c *engine.Change) bool { return c.Group == group },
		Judge: func(r *domain.Run) live.Verdict {
			if r.Group != group {
				return live.Nothing
			}
			if r.State.Final() {
				return live.Gone
			}
			return live.Show
		},
	}
}

func watched(t *testing.T, test func(*source, *table, *live.Hub)) {
	synctest.Test(t, func(t *testing.T) {
		s, db := &source{}, &table{runs: map[domain.RunID]domain.Run{}}
		test(s, db, live.NewHub(s, db.read, slog.New(slog.DiscardHandler)))
	})
}

func watch(t *testing.T, h *live.Hub, f live.Filter) *live.Watcher {
	t.Helper()
	w, err := h.Watch(f)
	if err != nil {
		t.Fatal(err)
	}
	return w
}

// took waits until all goroutines are idle, and describes the events that the watcher has received.
func took(w *live.Watcher) string {
	synctest.Wait()
	select {
	case <-w.Wake():
	default:
		return "nothing"
	}
	events, gap := w.Take()
	out := ""
	for _, e := range events {
		out += fmt.Sprintf("%d %s %t;", e.Run.ID[15], e.Run.State, e.Gone)
	}
	if gap {
		out += "gap"
	}
	return out
}

func TestWatcherGetsMatchingChanges(t *testing.T) {
	watched(t, func(s *source, db *table, h *live.Hub) {
		a, b := watch(t, h, of("a")), watch(t, h, of("b"))
		s.changed([]engine.Change{db.put(1, "a", domain.Queued)})
		if got := took(a); got != "1 queued false;" {
			t.Errorf("a got %s", got)
		}
		if got := took(b); got != "nothing" {
			t.Errorf("b got %s", got)
		}
		// Of several changes before the next round, a watcher gets the latest.
		s.changed([]engine.Change{db.put(1, "a", domain.Running)})
		s.changed([]engine.Change{db.put(1, "a", domain.Succeeded)})
		if got := took(a); got != "nothing" {
			t.Errorf("before the next round a got %s", got)
		}
		time.Sleep(time.Second)
		if got := took(a); got != "1 succeeded true;" {
			t.Errorf("a got %s", got)
		}
		if len(db.reads) != 2 {
			t.Errorf("%d reads", len(db.reads))
		}
		// If a change names a group that is not the run's, no watcher gets the run.
		wrong := db.put(2, "b", domain.Queued)
		wrong.Group = "a"
		s.changed([]engine.Change{wrong})
		time.Sleep(time.Second)
		if got := took(a); got != "nothing" {
			t.Errorf("a got %s", got)
		}
		a.Close()
		b.Close()
	})
}

func TestWatchersShareReads(t *testing.T) {
	watched(t, func(s *source, db *table, h *live.Hub) {
		var all []*live.Watcher
		for range 20 {
			all = append(all, watch(t, h, of("a")))
		}
		s.changed([]engine.Change{db.put(1, "a", domain.Queued), db.put(2, "a", domain.Queued)})
		for i, w := range all {
			if got := took(w); got != "1 queued false;2 queued false;" && got != "2 queued false;1 queued false;" {
				t.Errorf("watcher %d got %s", i, got)
			}
			w.Close()
		}
		if len(db.reads) != 1 || len(db.reads[0]) != 2 {
			t.Errorf("reads: %v", db.reads)
		}
	})
}

func TestTooMuchIsAGap(t *testing.T) {
	watched(t, func(s *source, db *table, h *live.Hub) {
		quiet, busy := watch(t, h, of("quiet")), watch(t, h, of("busy"))
		defer quiet.Close()
		defer busy.Close()
		for round := range 5 { // the watchers take nothing
			for n := range 1000 {
				s.changed([]engine.Change{db.put(1000*round+n, "busy", domain.Queued)})
			}
			time.Sleep(time.Second)
		}
		synctest.Wait()
		events, gap := busy.Take()
		if len(events) == 0 || len(events) > 300 || !gap {
			t.Errorf("%d events, gap %t", len(events), gap)
		}
		for _, ids := range db.reads {
			if len(ids) > 1000 {
				t.Errorf("%d runs were read at once", len(ids))
			}
		}
		if got := took(quiet); got != "nothing" {
			t.Errorf("the watcher of another group got %s", got)
		}
		s.changed([]engine.Change{db.put(1, "busy", domain.Queued)})
		time.Sleep(time.Second)
		if events, gap := busy.Take(); len(events) != 1 || gap {
			t.Errorf("afterwards %d events, gap %t", len(events), gap)
		}
	})
}

func TestManyWatchersReadABoundedNumber(t *testing.T) {
	watched(t, func(s *source, db *table, h *live.Hub) {
		var all []*live.Watcher
		for g := range 20 {
			all = append(all, watch(t, h, of(fmt.Sprint(g))))
		}
		s.changed([]engine.Change{db.put(9999, "0", domain.Queued)})
		synctest.Wait() // a round has just ended, so all of the following changes are in the next one
		for g := range 20 {
			var changes []engine.Change
			for n := range 90 {
				changes = append(changes, db.put(100*g+n, fmt.Sprint(g), domain.Queued))
			}
			s.changed(changes)
		}
		time.Sleep(time.Second)
		synctest.Wait()
		gaps := 0
		for _, w := range all {
			if _, gap := w.Take(); gap {
				gaps++
			}
			w.Close()
		}
		if most := len(db.reads[len(db.reads)-1]); most != 1000 || gaps < 8 || gaps > 10 {
			t.Errorf("%d runs were read, %d watchers got a gap", most, gaps)
		}
	})
}

func TestLossIsAGap(t *testing.T) {
	watched(t, func(s *source, db *table, h *live.Hub) {
		w := watch(t, h, of("a"))
		s.missed()
		if got := took(w); got != "gap" {
			t.Errorf("after a loss the watcher got %s", got)
		}
		db.err = errors.New("away")
		s.changed([]engine.Change{db.put(1, "a", domain.Queued)})
		time.Sleep(time.Second)
		if got := took(w); got != "1 queued false;gap" {
			t.Errorf("after a failed read the watcher got %s", got)
		}
		w.Close()
	})
}

func TestWithoutJudgeChangesWake(t *testing.T) {
	watched(t, func(s *source, db *table, h *live.Hub) {
		w := watch(t, h, live.Filter{Wants: func(c *engine.Change) bool { return c.Group == "a" }})
		defer w.Close()
		s.changed([]engine.Change{db.put(1, "b", domain.Queued)})
		if got := took(w); got != "nothing" {
			t.Errorf("after a change in another group the watcher got %s", got)
		}
		s.changed([]engine.Change{db.put(2, "a", domain.Queued)})
		if got := took(w); got != "" || len(db.reads) > 0 {
			t.Errorf("the watcher got %s, after %d reads", got, len(db.reads))
		}
	})
}

// Without watchers the hub has no subscription and no goroutine. A goroutine would keep the bubble from ending.
func TestLastWatcherEndsSubscription(t *testing.T) {
	watched(t, func(s *source, _ *table, h *live.Hub) {
		a, b := watch(t, h, of("a")), watch(t, h, of("b"))
		a.Close()
		if s.subscriptions != 1 || s.stopped != 0 {
			t.Errorf("with one watcher left: %d subscriptions, %d stopped", s.subscriptions, s.stopped)
		}
		b.Close()
		if s.stopped != 1 {
			t.Error("the hub is still subscribed")
		}
		s.err = errors.New("away")
		if _, err := h.Watch(of("a")); !errors.Is(err, s.err) {
			t.Errorf("the error is %v", err)
		}
		s.err = nil
		watch(t, h, of("a")).Close()
		if s.subscriptions != 2 || s.stopped != 2 {
			t.Errorf("at the end: %d subscriptions, %d stopped", s.subscriptions, s.stopped)
		}
	})
}
