// Package clock measures elapsed time on all clocks of this machine.
//
// Each clock can fail alone: the wall clock can be set, and the monotonic clock stops while the machine is suspended. The clock that
// shows the most elapsed time counts, which is the safe choice for the ends of leases.
package clock

import "time"

// Instant is one reading of the clocks.
type Instant struct {
	at   time.Time     // the wall clock and the monotonic clock
	boot time.Duration // since the machine was started; continues during a suspend; 0 if the system has no such clock
}

// Now reads the clocks.
func Now() Instant { return Instant{time.Now(), bootTime()} }

// Since returns the time from a to b, by the clock on which most time has passed.
func Since(a, b Instant) time.Duration {
	return max(b.at.Round(0).Sub(a.at.Round(0)), b.at.Sub(a.at), b.boot-a.boot)
}

// IsZero reports whether i is no reading.
func (i Instant) IsZero() bool { return i.at.IsZero() }

// Add returns the reading after d, if all clocks advance equally.
func (i Instant) Add(d time.Duration) Instant { return Instant{i.at.Add(d), i.boot + d} }

// Time returns the reading of the wall clock.
func (i Instant) Time() time.Time { return i.at }
