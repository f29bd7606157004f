package results

import (
	"log/slog"
	"testing"
	"testing/synctest"
	"time"
)

// Backlog returns how late results of a group are settled while many wait, and for a short time afterwards.
func TestBacklog(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := New(Config{Log: slog.New(slog.DiscardHandler)})
		const some, many = settlers * maxMessages, settlers*maxMessages + 1
		for _, b := range []struct {
			waiting int
			late    time.Duration
			age     time.Duration
			ok      bool
		}{
			{0, 0, 0, false}, {some, time.Hour, 0, false}, {many, 3 * time.Second, 3 * time.Second, true},
			{many, time.Hour, maxBacklog, true}, {many, -time.Hour, 0, true}, // published by a machine whose clock is ahead
		} {
			c.noteBacklog("g", b.waiting, time.Now().Add(-b.late))
			if age, ok := c.Backlog("g"); age != b.age || ok != b.ok {
				t.Errorf("while %d messages wait, and the last one was settled %v late: %v, %v", b.waiting, b.late, age, ok)
			}
		}
		if age, ok := c.Backlog("h"); ok {
			t.Errorf("of a group without results: %v", age)
		}
		time.Sleep(behindFor)
		if age, ok := c.Backlog("g"); ok {
			t.Errorf("after the messages were settled: %v", age)
		}
		if c.noteBacklog("h", many, time.Now()); len(c.behind.of) != 1 {
			t.Errorf("%d groups are remembered", len(c.behind.of))
		}
	})
}
