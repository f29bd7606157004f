package scheduler

import (
	"context"
	"log/slog"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/belfryhq/belfry/internal/engine"
)

// A scheduler that stops fires what is due within keepFor, hands back the rest, and fires nothing that it has handed back.
func TestStopHandsBack(t *testing.T) {
	var all []engine.Due
	inBubble(t, func(s *fakeStore, _ *fakeFirer) {
		begin := s.Now().Truncate(time.Second).Add(time.Second)
		for i := range 24 {
			all = append(all, entry(i, begin.Add(time.Duration(i)*200*time.Millisecond)))
		}
		s.due = slices.Clone(all)
	}, func(t *testing.T, b *bench) {
		time.Sleep(1700 * time.Millisecond)
		stopped := b.store.Now()
		b.stop()
		kept := 0
		for _, d := range all {
			switch back := slices.Contains(b.store.back, d); {
			case d.DueAt.After(stopped.Add(keepFor)) != back:
				t.Errorf("a run that is due %s after the stop was handed back: %v", d.DueAt.Sub(stopped), back)
			case back && len(b.firer.times(d)) > 0:
				t.Errorf("a run that is due %s after the stop was handed back and fired", d.DueAt.Sub(stopped))
			case !back:
				b.firedOnce(t, d, 30*time.Millisecond, 5*time.Millisecond)
				if d.DueAt.After(stopped) {
					kept++
				}
			}
		}
		if kept == 0 || len(b.store.back) == 0 {
			t.Errorf("%d runs were fired after the stop, %d were handed back", kept, len(b.store.back))
		}
		if !slices.IsSortedFunc(b.store.back, func(x, y engine.Due) int { return x.DueAt.Compare(y.DueAt) }) {
			t.Error("the runs were not handed back in due order")
		}
		if took := b.store.Now().Sub(stopped); took > keepFor {
			t.Errorf("the stop took %s, and all runs were fired before", took)
		}
	})
}

// Without near runs, a stop takes no time.
func TestStopOfAnIdleScheduler(t *testing.T) {
	inBubble(t, func(s *fakeStore, _ *fakeFirer) {
		s.due = []engine.Due{entry(1, s.Now().Add(4*time.Second))}
	}, func(t *testing.T, b *bench) {
		synctest.Wait()
		stopped := b.store.Now()
		b.stop()
		if took := b.store.Now().Sub(stopped); took > 0 || len(b.store.back) != 1 {
			t.Errorf("the stop took %s, %d runs were handed back", took, len(b.store.back))
		}
	})
}

// The planning step in progress is completed, because its runs would otherwise be in no ring.
func TestStopCompletesThePlanningStep(t *testing.T) {
	var d engine.Due
	inBubble(t, func(s *fakeStore, _ *fakeFirer) {
		s.takes = 2 * time.Second
		d = entry(1, s.Now().Add(6*time.Second))
		s.due = []engine.Due{d}
	}, func(t *testing.T, b *bench) {
		time.Sleep(1500 * time.Millisecond)
		b.stop()
		if !slices.Equal(b.store.back, []engine.Due{d}) || len(b.firer.times(d)) > 0 {
			t.Errorf("handed back %v, fired at %v", b.store.back, b.firer.times(d))
		}
	})
}

// Another scheduler claims what is handed back: each run is fired once, and at its due instant.
func TestStopWithASuccessor(t *testing.T) {
	var all []engine.Due
	inBubble(t, func(s *fakeStore, _ *fakeFirer) {
		begin := s.Now()
		for i := range 400 {
			all = append(all, entry(i, begin.Add(time.Duration(i)*20*time.Millisecond)))
		}
		s.due = slices.Clone(all)
		s.shared = true
	}, func(t *testing.T, b *bench) {
		time.Sleep(900 * time.Millisecond)
		other := New(Config{Store: b.store, Firer: b.firer, Log: slog.New(slog.DiscardHandler)})
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		ended := make(chan error, 1)
		go func() { ended <- other.Run(ctx) }()
		time.Sleep(700 * time.Millisecond)
		b.stop()
		time.Sleep(15 * time.Second)
		synctest.Wait()
		for _, d := range all {
			b.firedOnce(t, d, leadMax, 5*time.Millisecond)
		}
		if len(b.store.back) == 0 {
			t.Error("no run was handed back")
		}
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
}

// Late runs that a stopping scheduler cannot fire in time are handed back.
func TestStopHandsBackABacklog(t *testing.T) {
	var all []engine.Due
	inBubble(t, func(s *fakeStore, f *fakeFirer) {
		f.takes = 400 * time.Millisecond
		for i := range 40 * fireBatch {
			all = append(all, entry(i, s.Now().Add(time.Second)))
		}
		s.due = slices.Clone(all)
	}, func(t *testing.T, b *bench) {
		b.store.set(func() { b.store.full = 0 })
		time.Sleep(1100 * time.Millisecond)
		stopped := b.store.Now()
		b.stop()
		if took := b.store.Now().Sub(stopped); took > keepFor+keepOver+b.firer.takes+nearQuantum {
			t.Errorf("the stop took %s", took)
		}
		back := make(map[engine.Due]int)
		for _, d := range b.store.back {
			back[d]++
		}
		planned := 0
		for _, d := range all {
			if slices.Contains(b.store.due, d) {
				continue // not planned here
			}
			planned++
			if n := len(b.firer.times(d)) + back[d]; n != 1 {
				t.Fatalf("run %v was fired or handed back %d times", d.RunID[:3], n)
			}
		}
		if len(back) == 0 || len(back) == planned {
			t.Errorf("%d of %d runs were handed back", len(back), planned)
		}
	})
}

// Without Postgres, a scheduler stops soon, and others take its runs over as stranded.
func TestStopWithoutPostgres(t *testing.T) {
	inBubble(t, func(s *fakeStore, _ *fakeFirer) {
		s.due = []engine.Due{entry(1, s.Now().Add(3*time.Second))}
	}, func(t *testing.T, b *bench) {
		synctest.Wait()
		b.store.set(func() { b.store.away = true })
		b.stop()
		if n := b.store.count("HandBack"); n != backTries {
			t.Errorf("%d tries", n)
		}
	})
}
