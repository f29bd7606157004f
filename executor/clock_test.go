package executor

import (
	"testing"
	"time"

	"github.com/belfryhq/belfry/executor/wire"
)

func at(mono, wall time.Duration) instant { return instant{wall: epoch.Add(wall), mono: mono} }

func TestLease(t *testing.T) {
	const s = time.Second
	var l lease
	if !l.over(at(0, 0)) {
		t.Error("there is a lease before any heartbeat")
	}
	if l.confirm(at(0, 0), at(s, s)) || l.lapsed {
		t.Error("the first confirmation counts as the end of a lapse")
	}
	for _, tt := range []struct {
		name string
		now  instant
		over bool
	}{
		{"10 s from the sending", at(10*s, 10*s), false},
		{"the wall clock set back", at(10*s, -3600*s), false},
	} {
		if got := l.over(tt.now); got != tt.over {
			t.Errorf("%s: over %t", tt.name, got)
		}
	}
	for _, now := range []instant{at(10*s+1, 10*s), at(s, 11*s), at(11*s, s)} {
		m := l
		if !m.over(now) {
			t.Errorf("%+v: held", now)
		}
		if !m.over(at(2*s, 2*s)) {
			t.Errorf("%+v: a detected lapse ended without a confirmation", now)
		}
		if !m.confirm(now, now) || m.over(now) || m.renewed != now {
			t.Errorf("%+v: not renewed: %+v", now, m)
		}
	}
	if m := l; m.confirm(at(s, s), at(12*s, 12*s)) || !m.over(at(12*s, 12*s)) {
		t.Error("a confirmation older than the lease renews it")
	}
	if l.confirm(at(-s, 0), at(0, 0)); l.confirmed != at(0, 0) {
		t.Error("an outdated confirmation counts")
	}
	if wire.LeaseTTL != 10*s {
		t.Error("this table assumes a lease of 10 s")
	}
}

func TestDatabaseClock(t *testing.T) {
	const s = time.Second
	db := func(d time.Duration) time.Time { return epoch.Add(d) }
	near := func(got, want time.Time) bool {
		d := got.Sub(want)
		return d < 100*time.Millisecond && d > -100*time.Millisecond
	}
	fresh := func() (c dbClock) { c.sample(db(100*s), at(0, 0)); return c }

	c := fresh()
	if !near(c.now(at(5*s, 5*s)), db(105*s)) {
		t.Error("the estimate does not advance")
	}
	c.sample(db(40*s), at(10*s, 10*s)) // a message that is a minute late
	if !near(c.now(at(10*s, 10*s)), db(110*s)) {
		t.Error("one late message turns the estimate back")
	}
	c.sample(db(111*s), at(10*s, 10*s))
	if !near(c.now(at(10*s, 10*s)), db(111*s)) {
		t.Error("a better reading is ignored")
	}
	c = fresh()
	if !near(c.latest(at(s, 60*s)), db(160*s)) || !near(c.now(at(s, 60*s)), db(101*s)) {
		t.Error("after a suspend, ages must use the wall clock and starts the monotonic clock")
	}
	c.lapse(at(s, 60*s))
	if !near(c.latest(at(s, 60*s)), db(101*s)) {
		t.Error("after a lapse, the wall clock is still used")
	}
	c = fresh()
	for d := s; d <= 40*s; d += 3 * s {
		c.sample(db(d), at(d, d)) // a database whose clock was set back by 100 s
	}
	if !near(c.now(at(40*s, 40*s)), db(40*s)) {
		t.Error("the estimate never follows a database whose clock was set back")
	}
	c = fresh()
	for n := range 20 { // late messages with different delays
		d := time.Duration(n) * 3 * s
		c.sample(db(d-time.Duration(n%5)*20*s), at(d, d))
	}
	if !near(c.now(at(60*s, 60*s)), db(160*s)) {
		t.Error("late messages turn the estimate back")
	}
	if now := (&dbClock{}).now(at(s, 7*s)); !now.Equal(db(7 * s)) {
		t.Error("without a reading, the estimate must be the wall clock")
	}
}
