package executor

import (
	"time"

	"github.com/belfryhq/belfry/executor/wire"
)

// instant is one reading of the local clocks. They are kept apart because each can fail alone: the wall clock can be
// set, the monotonic clock stands still while a machine is suspended, and not every system has a clock like boot.
type instant struct {
	wall time.Time     // without a monotonic reading
	mono time.Duration // since an arbitrary origin
	boot time.Duration // since another origin; continues during a suspend. Always 0 where there is no such clock
}

// since is the time from a to b by the clock that says that most time has passed: safe for leases and ages, where
// believing that less time has passed is the dangerous error.
func since(a, b instant) time.Duration {
	return max(b.wall.Sub(a.wall), b.mono-a.mono, b.boot-a.boot)
}

// systemClock returns a function that reads the clocks. If it is given a wall clock, which only tests do, it reads that
// one and the monotonic clock: time may be simulated, and the system's boot clock would not follow.
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

// lease is the right to start handlers.
type lease struct {
	held      bool    // a heartbeat was confirmed in this boot
	confirmed instant // sending of the newest confirmed heartbeat
	renewed   instant // sending of the heartbeat that ended the latest lapse
	lapsed    bool    // there was a lapse, so renewed means something
	lapses    int     // how many there were
	// overSeen is set by over, so that a lapse counts even when only a glance in between noticed it: the wall
	// clock may have jumped there and back.
	overSeen bool
}

// over reports whether nothing may be started at now.
func (l *lease) over(now instant) bool {
	if !l.held {
		return true
	}
	if since(l.confirmed, now) > wire.LeaseTTL {
		l.overSeen = true
	}
	return l.overSeen
}

// confirm notes that the heartbeat sent at the given instant was confirmed, at now. It reports whether that ended
// a lapse.
func (l *lease) confirm(sent, now instant) (ended bool) {
	if l.held && sent.mono <= l.confirmed.mono {
		return false // a confirmation that was overtaken
	}
	ended = l.held && l.over(now)
	if since(sent, now) > wire.LeaseTTL {
		return false // too late: it confirms a lease that is over again
	}
	if ended {
		l.lapsed, l.renewed, l.overSeen = true, sent, false
		l.lapses++
	}
	l.held, l.confirmed = true, sent
	return ended
}

const (
	// clockDrift is how far two healthy clocks run apart, as a fraction: the estimate decays by it, so that a fresh
	// reading soon replaces an old one.
	clockDrift = 0.0002
	// A database whose clock was set back is believed when lowCount readings that agree with one another have said so,
	// over lowFor. Until then its offers look stale and are routed anew.
	lowFor   = 30 * time.Second
	lowCount = 8
	lowBy    = time.Second
)

// dbClock estimates the database's clock from the readings that offers carry. A reading is always late, by its way
// to here, so the highest is the best, and one late message alone cannot turn the estimate back.
type dbClock struct {
	known bool
	at    instant
	db    time.Time

	lowN     int // readings in a row that were lower than the estimate by over lowBy
	lowSince instant
	lowBest  time.Time // the best of them, and when it came
	lowAt    instant
	lowLast  time.Time // the latest of them
}

// sample takes a reading that arrived at now.
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
	// Messages that were merely late differ from one another in how late, and may be one message that came again;
	// readings of a clock agree, and go on.
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

// now estimates the database's clock for starting at a due instant: by the monotonic clock, as timers go by it.
func (c *dbClock) now(now instant) time.Time {
	if !c.known {
		return now.wall
	}
	return c.db.Add(decayed(now.mono - c.at.mono))
}

// latest estimates the database's clock for judging ages: by whichever local clock went on further.
func (c *dbClock) latest(now instant) time.Time {
	if !c.known {
		return now.wall
	}
	return c.db.Add(decayed(since(c.at, now)))
}

// lapse is called when a lapse of the lease ended: the clocks may have jumped. The monotonic clock may have stood
// still but never runs ahead, so what it says is a safe lower bound, which the next reading raises. The wall clock's
// word up to here is forgotten: set forward by hand, it would make every offer look stale.
func (c *dbClock) lapse(now instant) {
	if c.known {
		*c = dbClock{known: true, at: now, db: c.now(now)}
	}
}

func decayed(d time.Duration) time.Duration {
	return d - time.Duration(float64(d)*clockDrift)
}
