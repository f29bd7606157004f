package peer

import (
	"testing"
	"testing/synctest"
	"time"
)

// Missing heartbeats are evidence of a death only after this process was connected for long enough, and not directly after a freeze.
func TestHeardForLong(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHearing(nil, 0, nil)
		if h.HeardForLong() {
			t.Error("true before NATS was connected")
		}
		h.since = time.Now()
		time.Sleep(heardEnough)
		h.checked = time.Now()
		if h.HeardForLong() {
			t.Errorf("true after only %v", heardEnough)
		}
		time.Sleep(time.Nanosecond)
		if !h.HeardForLong() {
			t.Errorf("false after more than %v", heardEnough)
		}
		h.Suspect()
		if h.HeardForLong() {
			t.Error("true after a freeze")
		}
	})
}

func TestBetween(t *testing.T) {
	now := time.Now()
	for _, tt := range []struct {
		from, to time.Time
		want     time.Duration
	}{
		{now, now.Add(time.Second), time.Second},
		{now.Round(0), now.Add(time.Second).Round(0), time.Second},
		{now, now, 0},
	} {
		if got := between(tt.from, tt.to); got != tt.want {
			t.Errorf("between %v and %v: %s", tt.from, tt.to, got)
		}
	}
}
