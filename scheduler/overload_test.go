package scheduler

import (
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/belfryhq/belfry/internal/engine"
)

// While fires are late, only near fire times are planned. If fires get even later, none are planned. In the end, all fire
// times are fired.
func TestLateFiresHoldPlanningBack(t *testing.T) {
	var all []engine.Due
	inBubble(t, func(s *fakeStore, f *fakeFirer) {
		f.takes = 4 * time.Second // four at a time: 500 runs a second
		due := s.Now().Add(time.Second)
		for i := range 12 * fireBatch {
			all = append(all, entry(i, due))
		}
		for i := range 10 { // otherwise there would be nothing to plan later
			all = append(all, entry(len(all), due.Add(time.Duration(4+i)*time.Second)))
		}
		s.due = slices.Clone(all)
	}, func(t *testing.T, b *bench) {
		time.Sleep(3 * time.Second)
		synctest.Wait()
		planned := b.store.count("PlanDue")
		time.Sleep(2 * time.Second)
		synctest.Wait()
		if n := b.store.count("PlanDue"); n > planned+1 {
			t.Errorf("%d pre-reads while fires are over %v late", n-planned, lateWait)
		}
		time.Sleep(20 * time.Second)
		synctest.Wait()
		if b.store.count("near") == 0 || b.store.count("near") == b.store.preReads() {
			t.Errorf("%d of %d pre-reads planned what is near", b.store.count("near"), b.store.preReads())
		}
		for _, d := range all {
			b.firedOnce(t, d, leadMax, 20*time.Second)
		}
	})
}

// While results lag, fires are slowed down, by paceMost per run at most. Afterwards they are in time again.
func TestLagSlowsFiresDown(t *testing.T) {
	const n = 40 * fireBatch
	var slow, fast []engine.Due
	inBubble(t, func(s *fakeStore, f *fakeFirer) {
		f.lag = lagHigh + time.Second
		for i := range n {
			slow = append(slow, entry(i, s.Now().Add(30*time.Second)))
			fast = append(fast, entry(n+i, s.Now().Add(90*time.Second)))
		}
		s.due = append(slices.Clone(slow), fast...)
	}, func(t *testing.T, b *bench) {
		time.Sleep(45 * time.Second)
		synctest.Wait()
		b.firer.set(func() { b.firer.lag = 0 })
		const all = n * paceMost
		latest := time.Duration(0)
		for _, d := range slow {
			b.firedOnce(t, d, leadMax, all)
			latest = max(latest, b.firer.times(d)[0].Sub(d.DueAt))
		}
		if latest < all/2 {
			t.Errorf("%d runs were fired within %v", n, latest)
		}
		time.Sleep(60 * time.Second)
		synctest.Wait()
		for _, d := range fast {
			b.firedOnce(t, d, leadMax, 20*time.Millisecond)
		}
	})
}

// Runs that were planned far ahead are held while jobs that are due sooner are not planned yet, within the limits of
// the hold.
func TestLatePlansHoldFires(t *testing.T) {
	const batches = 40
	var ahead, behind []engine.Due
	inBubble(t, func(s *fakeStore, f *fakeFirer) {
		begin := s.Now().Add(time.Second)
		for i := range 4 * fireBatch {
			ahead = append(ahead, entry(i, begin.Add(time.Duration(i)*time.Millisecond)))
		}
		s.due = slices.Clone(ahead)
	}, func(t *testing.T, b *bench) {
		time.Sleep(900 * time.Millisecond)
		b.store.set(func() {
			b.store.takes = 50 * time.Millisecond
			for i := range batches * planBatch {
				behind = append(behind, entry(len(ahead)+i, b.store.now().Add(-500*time.Millisecond)))
			}
			b.store.due = slices.Clone(behind)
		})
		b.Wake()
		time.Sleep(20 * time.Second)
		synctest.Wait()
		last := time.Time{}
		for _, d := range behind {
			b.firedOnce(t, d, 0, 10*time.Second)
			if at := b.firer.times(d)[0]; at.After(last) {
				last = at
			}
		}
		held := 0
		for _, d := range ahead {
			b.firedOnce(t, d, leadMax, 10*time.Second)
			switch at := b.firer.times(d)[0]; {
			case d.DueAt.After(behind[0].DueAt.Add(lateStep)) && at.Before(last.Add(-200*time.Millisecond)):
				t.Fatalf("a run due %v after what is behind was fired %v before it", d.DueAt.Sub(behind[0].DueAt), last.Sub(at))
			case at.Sub(d.DueAt) > 100*time.Millisecond:
				held++
			}
		}
		if held == 0 {
			t.Error("nothing was held")
		}
	})
}

// The hold ends soon if planning fails, and ends after holdSpan if planning never catches up.
func TestHoldEnds(t *testing.T) {
	for name, fails := range map[string]bool{"planning fails": true, "planning never catches up": false} {
		t.Run(name, func(t *testing.T) {
			var all, later []engine.Due
			inBubble(t, func(s *fakeStore, _ *fakeFirer) {
				for i := range 6 * planBatch {
					all = append(all, entry(i, s.Now().Add(4*time.Second+time.Duration(i)*100*time.Microsecond)))
					later = append(later, entry(len(all)+6*planBatch, s.Now().Add(holdSpan+6*time.Second)))
				}
				s.due = append(slices.Clone(all), later...)
				s.full, s.next = 1_000_000, s.Now().Add(-time.Second)
				s.takes = 10 * time.Millisecond
			}, func(t *testing.T, b *bench) {
				time.Sleep(100 * time.Millisecond)
				b.store.set(func() { b.store.away = fails })
				time.Sleep(holdSpan + 10*time.Second)
				synctest.Wait()
				for _, d := range all {
					b.firedOnce(t, d, leadMax, holdMost)
				}
				if fails {
					return // the hold has ended, although no further batch was planned
				}
				if near, all := b.store.count("near"), b.store.count("PlanDue"); near < all-1 {
					t.Errorf("%d of %d pre-reads planned what is near", near, all)
				}
				for _, d := range later {
					b.firedOnce(t, d, leadMax, 50*time.Millisecond)
				}
			})
		})
	}
}

func TestPaced(t *testing.T) {
	for _, c := range []struct {
		pace, lag time.Duration
		falling   bool
		want      time.Duration
	}{
		{0, lagHigh, false, 0},
		{0, lagHigh + 1, false, paceLeast},
		{paceLeast, lagHigh + 1, false, paceLeast * 3 / 2},
		{paceLeast, lagHigh + 1, true, paceLeast},
		{paceMost, time.Hour, false, paceMost},
		{paceMost, lagLow + 1, false, paceMost},
		{paceMost, lagLow, false, paceMost * 3 / 4},
		{paceLeast, 0, false, 0},
	} {
		if got := paced(c.pace, c.lag, c.falling); got != c.want {
			t.Errorf("%v with a lag of %v, falling %t: %v, want %v", c.pace, c.lag, c.falling, got, c.want)
		}
	}
}

// In a rush, each Fire gets more runs, up to rushBatch.
func TestRushIsFiredInLargerBatches(t *testing.T) {
	for n, want := range map[int]int{rush: rush / fireBatch, rush + 6*rushBatch: 1 + 6 + (rush-fireBatch)/fireBatch} {
		inBubble(t, func(s *fakeStore, _ *fakeFirer) {
			due := s.Now().Add(5 * time.Second)
			for i := range n {
				s.due = append(s.due, entry(i, due))
			}
		}, func(t *testing.T, b *bench) {
			time.Sleep(20 * time.Second)
			synctest.Wait()
			b.firer.set(func() {
				if len(b.firer.fired) != n || b.firer.tries != want {
					t.Errorf("%d of %d runs were fired in %d batches, want %d", len(b.firer.fired), n, b.firer.tries, want)
				}
			})
		})
	}
}
