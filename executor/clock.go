package executor

import (
	"time"

	"github.com/belfryhq/belfry/executor/wire"
)

// instant is one reading of the local clocks. The readings are separate because each clock can fail alone. The wall
// clock can be set, the monotonic clock stops during a suspend, and some systems have no boot clock.
type instant struct {
	wall time.Time     // without a monotonic reading
	mono time.Duration // since an arbitrary origin
	boot time.Duration // since another origin; continues during a suspend; always 0 if the system has no such clock
}

// since returns the time from a to b, by the clock on which most time has passed. This is the safe choice for leases
// and ages, where an underestimate is dangerous.
func since(a, b instant) time.Duration {
	//sim:seam elapsed
	return max(b.wall.Sub(a.wall), b.mono-a.mono, b.boot-a.boot)
}

// systemClock returns a function that reads the clocks. With a given wall clock, which only tests pass, it reads that
// clock and the monotonic clock. A test may simulate time, and the system's boot clock would not follow.
func systemClock(wall func() time.Time) func() instant {
	origin := time.Now()
	if wall == nil {
		return func() instant {
			now := time.Now()
			return instant{wall: now.Round(0), mono: now.Sub(origin), boot: bootTime()}
		}
	}
	return func() instant { return instant{wall: wall().Round(0), mono: time.Since(origin)} }
}

// lease is the permission to start handlers.
type lease struct {
	held      bool    // a heartbeat was confirmed in this boot
	confirmed instant // when the sending of the newest confirmed heartbeat began
	renewed   instant // when the sending of the heartbeat that ended the last lapse began
	lapsed    bool    // there was a lapse, so renewed is valid
	lapses    int     // the number of lapses
	// over sets overSeen when it sees an expired lease. The lapse then counts even if the wall clock jumps back before
	// the next call.
	overSeen bool
}

// over reports whether no attempt may start at now.
func (l *lease) over(now instant) bool {
	if !l.held {
		return true
	}
	if since(l.confirmed, now) > wire.LeaseTTL {
		l.overSeen = true
	}
	return l.overSeen
}

// confirm records at now that the heartbeat sent at the given instant was confirmed. It reports whether that ended a
// lapse.
func (l *lease) confirm(sent, now instant) (ended bool) {
	if l.held && sent.mono <= l.confirmed.mono {
		return false // a newer confirmation came first
	}
	ended = l.held && l.over(now)
	if since(sent, now) > wire.LeaseTTL {
		return false // too late: the lease that it confirms has expired again
	}
	if ended {
		l.lapsed, l.renewed, l.overSeen = true, sent, false
		l.lapses++
	}
	l.held, l.confirmed = true, sent
	return ended
}

const (
	// clockDrift is the maximum difference between the rates of two healthy clocks, as a fraction. The estimate runs slower
	// by this fraction, so that a new reading soon replaces an old one.
	clockDrift = 0.0002
	// If the database's clock was set back, the executor accepts the lower time after lowCount consistent readings over
	// lowFor. Until then, that database's offers look stale and are routed again.
	lowFor   = 30 * time.Second
	lowCount = 8
	lowBy    = time.Second
)

// dbClock estimates the database's clock from the readings in offers. Each reading is late by its transit time, so the
// highest one is the best. A single late message cannot set the estimate back.
type dbClock struct {
	known bool
	at    instant
	db    time.Time

	lowN     int // consecutive readings that were lower than the estimate by more than lowBy
	lowSince instant
	lowBest  time.Time // the best of these readings and when it arrived
	lowAt    instant
	lowLast  time.Time // the latest of these readings
}

// sample adds a reading that arrived at now.
func (c *dbClock) sample(db time.Time, now instant) {
	if db.IsZero() {
		return
	}
	estimate := c.now(now)
	if !c.known || db.After(estimate) {
		*c = dbClock{known: true, at: now, db: db}
		return
	}
	if estimate.Sub(db) <= lowBy {
		c.lowN = 0
		return
	}
	// Late messages are late by different amounts and may be duplicates. The readings of a clock agree and advance.
	if c.lowN > 0 && !db.After(c.lowLast) {
		return
	}
	c.lowLast = db
	apart := db.Sub(c.lowBest) - (now.mono - c.lowAt.mono)
	if c.lowN == 0 || apart > lowBy || apart < -lowBy {
		c.lowN, c.lowSince, c.lowBest, c.lowAt = 0, now, db, now
	} else if apart > 0 {
		c.lowBest, c.lowAt = db, now
	}
	c.lowN++
	if c.lowN >= lowCount && now.mono-c.lowSince.mono >= lowFor {
		*c = dbClock{known: true, at: c.lowAt, db: c.lowBest}
	}
}

// now estimates the database's clock for starting attempts when they are due. It uses the monotonic clock, as timers
// do.
func (c *dbClock) now(now instant) time.Time {
	if !c.known {
		return now.wall
	}
	return c.db.Add(decayed(now.mono - c.at.mono))
}

// latest estimates the database's clock for judging ages. It uses the local clock that advanced most.
func (c *dbClock) latest(now instant) time.Time {
	if !c.known {
		return now.wall
	}
	return c.db.Add(decayed(since(c.at, now)))
}

// lapse is called when a lapse of the lease has ended, because the clocks may have jumped. The monotonic clock may have
// stopped but never runs ahead. Its estimate is a safe lower bound, which the next reading raises. The wall clock's
// progress until now is discarded: if it was set forward by hand, every offer would look stale.
func (c *dbClock) lapse(now instant) {
	if c.known {
		*c = dbClock{known: true, at: now, db: c.now(now)}
	}
}

func decayed(d time.Duration) time.Duration {
	return d - time.Duration(float64(d)*clockDrift)
}
