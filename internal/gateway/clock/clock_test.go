package clock

import (
	"testing"
	"time"
)

// The clock on which most time has passed counts.
func TestSince(t *testing.T) {
	a := Now()
	wall := a.at.Round(0)
	for name, c := range map[string]struct {
		b    Instant
		want time.Duration
	}{
		"all clocks agree":            {a.Add(3 * time.Second), 3 * time.Second},
		"the wall clock was set back": {Instant{a.at.Add(2 * time.Second), a.boot + 2*time.Second}, 2 * time.Second},
		"the wall clock was set":      {Instant{wall.Add(time.Hour), a.boot}, time.Hour},
		"the machine was suspended":   {Instant{a.at, a.boot + time.Minute}, time.Minute},
	} {
		if got := Since(a, c.b); got != c.want {
			t.Errorf("%s: %v, want %v", name, got, c.want)
		}
	}
	if (Instant{}).IsZero() == a.IsZero() {
		t.Error("a reading counts as none")
	}
}
