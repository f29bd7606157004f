package runstats

import (
	"context"
	"errors"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"
)

// ledger is a store in which a fixed number of runs is settled per second, up to now.
type ledger struct {
	perSecond int64
	most      int64 // maximum number of runs per transaction; more of them fail
	through   time.Time
	counted   int64
	windows   []time.Duration
	tended    int
}

func (l *ledger) RollUp(_ context.Context, window time.Duration) (int64, time.Time, time.Time, bool, error) {
	now := time.Now()
	upto := l.through.Add(window)
	if upto.After(now) {
		upto = now
	}
	if upto.Sub(l.through) < time.Second {
		return 0, l.through, now, false, nil
	}
	runs := int64(upto.Sub(l.through).Seconds()) * l.perSecond
	if l.windows = append(l.windows, window); l.most > 0 && runs > l.most {
		return 0, time.Time{}, time.Time{}, false, errors.New("too much for a transaction")
	}
	l.counted += runs
	l.through = upto
	return runs, upto, now, upto.Before(now), nil
}

func (l *ledger) Tend(context.Context) error { l.tended++; return nil }

// live runs a roller on the ledger for a while.
func live(t *testing.T, l *ledger, behind, while time.Duration) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		l.through = time.Now().Add(-behind)
		ctx, cancel := context.WithTimeout(t.Context(), while)
		defer cancel()
		if err := New(l, slog.New(slog.DiscardHandler), nil).Run(ctx); err != nil {
			t.Error(err)
		}
		if behind := time.Since(l.through); behind > period {
			t.Errorf("after %s it is %s behind", while, behind)
		}
	})
}

func TestRollerCatchesUpByTheHour(t *testing.T) {
	l := &ledger{perSecond: 1}
	live(t, l, 24*time.Hour, 5*time.Minute)
	if len(l.windows) > 110 || l.counted < 86_400 || l.tended < 4 {
		t.Errorf("%d windows for a day with few runs, %d runs, tended %d times", len(l.windows), l.counted, l.tended)
	}
}

func TestRollerTakesShorterWindowsIfBusy(t *testing.T) {
	l := &ledger{perSecond: 10_000, most: 300_000} // half of the runs of the first window
	live(t, l, time.Hour, 5*time.Minute)
	if l.counted < 36_000_000 {
		t.Errorf("%d runs were counted", l.counted)
	}
	for _, w := range l.windows[2:] {
		if w > firstWindow {
			t.Fatalf("a window of %s has too many runs", w)
		}
	}
}
