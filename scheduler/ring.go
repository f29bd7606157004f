package scheduler

import (
	"slices"
	"sort"
	"time"

	"github.com/belfryhq/belfry/internal/domain"
)

// ringSlots is how many seconds the ring spans. The horizon of the pre-read is far shorter.
const ringSlots = 60

// ring is a time ring of one-second slots. An entry carries its exact due instant; its slot only says where to
// look. It is not safe for concurrent use and knows no clock.
type ring struct {
	slots [ringSlots][]domain.Due
	ready []domain.Due // were found due and not taken yet, in due order
	found []domain.Due // the slot that became ready, from its beginning; its array is used again when all of it is taken
	spare [][]domain.Due
	tick  int64 // the second whose slot was looked at last; entries of earlier seconds are gone
	size  int
	limit int
	hold  time.Time // if not zero: what is due after it is not taken
}

func newRing(now time.Time, limit int) *ring {
	return &ring{tick: now.Unix(), limit: limit}
}

// A busy second's entries are megabytes. So the arrays of slots that were emptied serve those that are filled next, but for
// large ones, which a rush has left, and for more than are emptied while one is filled.
const (
	spareArrays  = 4
	spareEntries = 1 << 16
)

// recycle keeps the array of a slot for another one.
func (r *ring) recycle(slot []domain.Due) {
	if cap(slot) == 0 || cap(slot) > spareEntries || len(r.spare) == spareArrays {
		return
	}
	slot = slot[:cap(slot)]
	clear(slot)
	r.spare = append(r.spare, slot[:0])
}

// room returns how many entries more it takes.
func (r *ring) room() int { return r.limit - r.size }

func (r *ring) slot(second int64) *[]domain.Due { return &r.slots[second%ringSlots] }

// add puts an entry in. What is past due goes into the slot that is drained next. What is further away than the
// ring spans is refused, as is everything while the ring is full.
func (r *ring) add(d domain.Due) bool {
	if d.DueAt.Unix() >= r.tick+ringSlots || r.room() <= 0 {
		return false
	}
	r.put(d)
	return true
}

// put files an entry under its second, or the nearest one that the ring spans: there it is looked at, and filed anew
// if it is not due yet.
func (r *ring) put(d domain.Due) {
	slot := r.slot(min(max(d.DueAt.Unix(), r.tick), r.tick+ringSlots-1))
	if last := len(r.spare) - 1; cap(*slot) == 0 && last >= 0 {
		*slot, r.spare[last] = r.spare[last], nil
		r.spare = r.spare[:last]
	}
	*slot = append(*slot, d)
	r.size++
}

// rewind files everything anew for a clock that was set back. Otherwise nothing would be looked at until the clock
// has caught up.
func (r *ring) rewind(now time.Time) {
	all := r.ready
	r.ready, r.found = nil, nil
	for i := range r.slots {
		all = append(all, r.slots[i]...)
		r.slots[i] = nil
	}
	r.tick, r.size = now.Unix(), 0
	for _, d := range all {
		r.put(d)
	}
}

// take removes and returns, in due order, at most limit entries that are due up to now+lead; entries marked AtDue
// only once they are due, and none that is held. Every slot since the last tick is looked at, so that a stall skips none.
func (r *ring) take(now time.Time, lead time.Duration, limit int) []domain.Due {
	if now.Unix() < r.tick {
		r.rewind(now)
	}
	until := now.Add(lead)
	var early []domain.Due
	before := len(r.ready)
	// After a stall of more than a lap every slot is looked at, once.
	for second := r.tick; second <= min(until.Unix(), r.tick+ringSlots-1); second++ {
		slot := r.slot(second)
		if len(*slot) == 0 {
			continue
		}
		if len(r.ready) == 0 && allReady(*slot, now, until) {
			r.ready, r.found, *slot = *slot, *slot, nil
			continue
		}
		kept := (*slot)[:0]
		for _, d := range *slot {
			switch {
			case ready(d, now, until):
				r.ready = append(r.ready, d)
			case d.DueAt.Unix() > second: // filed here by rewind
				early = append(early, d)
			default:
				kept = append(kept, d)
			}
		}
		if len(kept) == 0 {
			r.recycle(*slot)
			*slot = nil
			continue
		}
		clear((*slot)[len(kept):])
		*slot = kept
	}
	r.size -= len(early)
	// The slot of now may still get, or keep, entries that are due later in this second.
	r.tick = max(r.tick, now.Unix())
	for _, d := range early {
		r.put(d)
	}
	if len(r.ready) > before {
		slices.SortFunc(r.ready, func(a, b domain.Due) int { return a.DueAt.Compare(b.DueAt) })
	}
	return r.takeReady(now, until, limit)
}

// takeReady takes from what was found due: perhaps by a longer lead than there is now.
func (r *ring) takeReady(now, until time.Time, limit int) []domain.Due {
	var out []domain.Due
	kept := r.ready[:0] // in place: it is never longer than what was looked at
	looked := 0
	for ; looked < len(r.ready) && len(out) < limit; looked++ {
		d := r.ready[looked]
		if d.DueAt.After(until) || !r.hold.IsZero() && d.DueAt.After(r.hold) {
			break // and so is all that follows
		}
		if !ready(d, now, until) {
			kept = append(kept, d)
			continue
		}
		if out == nil {
			out = make([]domain.Due, 0, min(len(r.ready)-looked, limit))
		}
		out = append(out, d)
	}
	if len(out) == 0 {
		return nil
	}
	r.size -= len(out)
	if len(kept) == 0 {
		r.ready = r.ready[looked:]
	} else {
		rest := len(kept) + copy(r.ready[len(kept):], r.ready[looked:])
		clear(r.ready[rest:])
		r.ready = r.ready[:rest]
	}
	if len(r.ready) == 0 {
		r.recycle(r.found)
		r.ready, r.found = nil, nil // or the array would be kept, and what it holds
	}
	return out
}

// allReady reports whether all entries of a slot are ready, as those of a whole second are.
func allReady(slot []domain.Due, now, until time.Time) bool {
	for i := range slot {
		if !ready(slot[i], now, until) {
			return false
		}
	}
	return true
}

func ready(d domain.Due, now, until time.Time) bool {
	if d.AtDue {
		return !d.DueAt.After(now)
	}
	return !d.DueAt.After(until)
}

// held reports whether nothing that is ready may be taken. What is planned next changes that.
func (r *ring) held() bool {
	return len(r.ready) > 0 && !r.hold.IsZero() && r.ready[0].DueAt.After(r.hold)
}

// late is how long past due the first entry is that was found due and is not taken yet.
func (r *ring) late(now time.Time) time.Duration {
	if len(r.ready) == 0 {
		return 0
	}
	return now.Sub(r.ready[0].DueAt)
}

// near counts the entries that are due up to until, by which Fire is given its head start.
func (r *ring) near(until time.Time) int {
	n := sort.Search(len(r.ready), func(i int) bool { return r.ready[i].DueAt.After(until) })
	for second := r.tick; second <= min(until.Unix(), r.tick+ringSlots-1); second++ {
		for _, d := range *r.slot(second) {
			if !d.DueAt.After(until) {
				n++
			}
		}
	}
	return n
}

// next returns when the ring wants to be looked at: the earliest due instant, less lead for entries that may be
// fired ahead. False when it is empty.
func (r *ring) next(lead time.Duration) (time.Time, bool) {
	var best time.Time
	// No entry wants to be looked at before begin, as most entries of a whole second do.
	earliest := func(entries []domain.Due, begin time.Time) {
		for i := range entries {
			at := entries[i].DueAt
			if !entries[i].AtDue {
				at = at.Add(-lead)
			}
			if best.IsZero() || at.Before(best) {
				if best = at; best.Equal(begin) {
					break
				}
			}
		}
	}
	earliest(r.ready, time.Time{})
	for second := r.tick; second < r.tick+ringSlots; second++ {
		if second > r.tick && !best.IsZero() && second > best.Add(lead).Unix() {
			break // what follows is due later than what was found
		}
		begin := time.Time{} // the slot that is drained next has what is past due
		if second > r.tick {
			begin = time.Unix(second, 0).Add(-lead)
		}
		earliest(*r.slot(second), begin)
	}
	return best, !best.IsZero()
}
