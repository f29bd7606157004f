package checker

import (
	"slices"
	"time"
)

// Clock says how far the database's clock is ahead of the machine's clock since an instant of the machine's clock.
type Clock struct {
	From  time.Time
	Ahead time.Duration
}

// nearStep is how long before and after a step of the database's clock the order of two instants is uncertain.
const nearStep = 2 * time.Minute

// db converts an instant of the machine's clock to the database's clock.
func (c *check) db(at time.Time) time.Time {
	if at.IsZero() {
		return at
	}
	i, found := slices.BinarySearchFunc(c.h.Clocks, at, func(k Clock, at time.Time) int { return k.From.Compare(at) })
	if !found {
		i--
	}
	if i < 0 {
		return at
	}
	return at.Add(c.h.Clocks[i].Ahead)
}

// slack returns by how much the order of instants near at, by the database's clock, may differ from the order in which they happened:
// the largest step near at. Without steps it is 0.
func (c *check) slack(at time.Time) (most time.Duration) {
	for i := 1; i < len(c.h.Clocks); i++ {
		before, after := c.h.Clocks[i-1], c.h.Clocks[i]
		from, to := after.From.Add(before.Ahead), after.From.Add(after.Ahead)
		if to.Before(from) {
			from, to = to, from
		}
		if at.After(from.Add(-nearStep)) && at.Before(to.Add(nearStep)) {
			most = max(most, (after.Ahead-before.Ahead).Abs()+time.Second)
		}
	}
	return most
}

// toDatabase converts the instants of the machine's clock in the history to the database's clock. A fault during a step covers both
// readings of its ends.
func (c *check) toDatabase() {
	own := *c.h
	own.Notes, own.Faults, own.Acks, own.Stalls = slices.Clone(own.Notes), slices.Clone(own.Faults), slices.Clone(own.Acks), slices.Clone(own.Stalls)
	for i := range own.Notes {
		n := &own.Notes[i]
		n.began, n.ended = n.Start, n.End
		n.Start, n.End = c.db(n.Start), c.db(n.End)
	}
	for i := range own.Faults {
		f := &own.Faults[i]
		from, to := c.db(f.From), c.db(f.To)
		for n := 1; n < len(own.Clocks); n++ {
			if at := own.Clocks[n].From; !at.Before(f.From) && !at.After(f.To) {
				for _, ahead := range []time.Duration{own.Clocks[n-1].Ahead, own.Clocks[n].Ahead} {
					from, to = earlier(from, at.Add(ahead)), later(to, at.Add(ahead))
				}
			}
		}
		f.From, f.To = earlier(from, to), later(from, to)
	}
	for i := range own.Acks {
		own.Acks[i].At = c.db(own.Acks[i].At)
	}
	for i := range own.Stalls {
		own.Stalls[i].From = c.db(own.Stalls[i].From)
	}
	c.h = &own
}

func earlier(a, b time.Time) time.Time {
	if b.Before(a) {
		return b
	}
	return a
}

func later(a, b time.Time) time.Time {
	if b.After(a) {
		return b
	}
	return a
}
