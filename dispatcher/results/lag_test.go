package results

import (
	"testing"
	"time"
)

// The lag is the number of waiting messages divided by the delivery rate. While no message is delivered, it grows with
// time.
func TestPace(t *testing.T) {
	begin := time.Now()
	var p pace
	for i, c := range []struct {
		at, want           time.Duration
		delivered, waiting uint64
	}{
		{0, 0, 1000, 500},                         // the rate is not known yet
		{time.Second, 5 * time.Second, 1100, 500}, // 100 per second
		{2 * time.Second, time.Second, 1300, 200}, // 200 per second
		{3 * time.Second, 0, 1300, 0},             // nothing waits
		{time.Hour, 0, 1300, 0},
		{time.Hour + 2*time.Second, 3 * time.Second, 1300, 200}, // no message was fetched for two seconds
		{2 * time.Hour, 0, 10, 50},                              // the consumer was created again
		{2*time.Hour + time.Second, 10 * time.Second, 20, 100},
	} {
		if got := p.note(begin.Add(c.at), c.delivered, c.waiting); got != c.want {
			t.Errorf("look %d: %v, want %v", i, got, c.want)
		}
	}
}
