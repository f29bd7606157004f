package address

import (
	"testing"
	"time"

	"github.com/belfryhq/belfry/internal/gateway/clock"
)

// An executor that sends no registrations gets no runs at first, and later its runs are lost. The time before this process observed the address does not count.
func TestPresence(t *testing.T) {
	begin := clock.Now()
	at := func(s int) clock.Instant { return begin.Add(time.Duration(s) * time.Second) }
	p := NewPresence(DefaultPatience(), "java", 1000, nil, begin)
	state := func(s int) string {
		switch {
		case p.Gone(at(s)):
			return "gone"
		case p.Silent(at(s)):
			return "silent"
		}
		return "there"
	}
	for _, c := range []struct {
		at   int
		want string
	}{{0, "there"}, {89, "there"}, {90, "silent"}, {134, "silent"}, {135, "gone"}} {
		if got := state(c.at); got != c.want {
			t.Errorf("after %d s: %s, want %s", c.at, got, c.want)
		}
	}
	p.Observe(1000, nil, at(80)) // the row was read, and nothing is new
	p.Observe(1001, nil, at(85))
	for _, c := range []struct {
		at   int
		want string
	}{{90, "there"}, {174, "there"}, {175, "silent"}, {220, "gone"}} {
		if got := state(c.at); got != c.want {
			t.Errorf("after a registration, at %d s: %s, want %s", c.at, got, c.want)
		}
	}
}

// Several processes behind one address are recognized by their sources, or by their pace.
func TestShared(t *testing.T) {
	begin := clock.Now()
	at := func(s int) clock.Instant { return begin.Add(time.Duration(s) * time.Second) }
	t.Run("one process", func(t *testing.T) {
		p := NewPresence(DefaultPatience(), "java", 1, nil, begin)
		for s := 30; s < 600; s += 30 {
			p.Observe(int64(1+s/30), nil, at(s))
			if p.Shared(at(s)) {
				t.Fatalf("one process counts as several after %d s", s)
			}
		}
		p.Observe(22, nil, at(610)) // it has restarted
		if p.Shared(at(610)) {
			t.Error("a restart makes it several")
		}
	})
	t.Run("two processes", func(t *testing.T) {
		p := NewPresence(DefaultPatience(), "java", 1, nil, begin)
		for s := 15; s <= 300; s += 15 {
			p.Observe(int64(1+s/15), nil, at(s))
		}
		if !p.Shared(at(300)) {
			t.Error("twice the pace is not noticed")
		}
	})
	t.Run("two sources", func(t *testing.T) {
		p := NewPresence(DefaultPatience(), "other", 1, nil, begin)
		changed := time.Now()
		p.Observe(2, &changed, at(10))
		if !p.Shared(at(10)) || p.Shared(at(10+int(sharedFor/time.Second))) {
			t.Error("a change of the source does not count for the time that it should")
		}
	})
}

// A run is lost if the executor has denied it for long enough, and has registered in the meantime.
func TestSuspicion(t *testing.T) {
	begin := clock.Now()
	at := func(s int) clock.Instant { return begin.Add(time.Duration(s) * time.Second) }
	p := NewPresence(DefaultPatience(), "java", 1, nil, begin)
	var s Suspicion
	for _, c := range []struct {
		at            int
		busy          bool
		registrations int64
		want          bool
	}{
		{0, false, 1, false},
		{44, false, 2, false},  // not long enough
		{45, true, 2, false},   // it has the run
		{50, false, 2, false},  // again from the start
		{100, false, 2, false}, // no registration since
		{101, false, 3, true},
	} {
		p.Observe(c.registrations, nil, at(c.at))
		if c.busy {
			s.Busy()
			continue
		}
		if got := s.Idle(p, at(c.at)); got != c.want {
			t.Errorf("at %d s: %v, want %v", c.at, got, c.want)
		}
	}
}
