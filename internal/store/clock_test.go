package store

import (
	"testing"
	"testing/synctest"
	"time"
)

// If the wall clock is set forward or back, the estimate of the database's clock continues steadily, and the change is noticed.
// A suspended machine, during which only the wall clock continues, is noticed as well.
func TestClockIgnoresTheWall(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		wrong := time.Duration(0)
		wall := func() time.Time { return time.Now().Round(0).Add(wrong) }
		s := &Store{clock: clock{wall: wall}}
		db := time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC) // the machine's own clock does not matter
		s.clock.reading.Store(&reading{db: db, at: time.Now(), wall: wall()})
		for _, jump := range []time.Duration{0, time.Minute, -time.Hour, 300 * time.Millisecond} {
			wrong = jump
			begun := s.Now()
			time.Sleep(time.Second)
			if got := s.Now().Sub(begun); got != time.Second {
				t.Errorf("with a clock set by %v a second lasted %v", jump, got)
			}
			if got, want := s.clock.stale(time.Now(), wall()), jump != 0; got != want {
				t.Errorf("with a clock set by %v the reading counts as stale: %v", jump, got)
			}
		}
		wrong = 0
		time.Sleep(clockPeriod)
		if !s.clock.stale(time.Now(), wall()) {
			t.Error("an old reading is not renewed")
		}
		if want := db.Add(4*time.Second + clockPeriod); !s.Now().Equal(want) {
			t.Errorf("it is %v, want %v", s.Now(), want)
		}
	})
}
