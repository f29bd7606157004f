package scheduler

import (
	"slices"
	"sort"
	"time"

	"github.com/belfryhq/belfry/internal/engine"
)

// ringSlots is the span of the ring in seconds. The pre-read's horizon is far shorter.
const ringSlots = 60

// ring is a time ring of one-second slots. An entry carries its exact due instant; the slot is only an index. A ring is
// not safe for concurrent use and reads no clock.
type ring struct {
	slots [ringSlots][]engine.Due
	ready []engine.Due // found due but not taken yet, in due order
	found []engine.Due // the whole slot that became ready, from its beginning; its array is recycled after all of ready is taken
	spare [][]engine.Due
	tick  int64 // the second of the slot that was drained last; earlier slots are empty
	size  int
	limit int
	hold  time.Time // if not zero, entries due after it are not taken
}

func newRing(now time.Time, limit int) *ring {
	return &ring{tick: now.Unix(), limit: limit}
}

// The entries of a busy second take megabytes, so the ring reuses the arrays of emptied slots. It drops arrays of more
// than spareEntries, which a rush leaves behind, and keeps at most spareArrays.
const (
	spareArrays  = 4
	spareEntries = 1 << 16
)

// recycle keeps a slot's array for reuse.
func (r *ring) recycle(slot []engine.Due) {
	if cap(slot) == 0 || cap(slot) > spareEntries || len(r.spare) == spareArrays {
		return
	}
	slot = slot[:cap(slot)]
	clear(slot)
	r.spare = append(r.spare, slot[:0])
}

// room returns how many more entries fit.
func (r *ring) room() int { return r.limit - r.size }

func (r *ring) slot(second int64) *[]engine.Due { return &r.slots[second%ringSlots] }

// add inserts an entry. A past-due entry goes into the slot that is drained next. If the ring is full or the entry is
// due beyond the ring's span, add refuses it and returns false.
func (r *ring) add(d engine.Due) bool {
	if d.DueAt.Unix() >= r.tick+ringSlots || r.room() <= 0 {
		return false
	}
	r.put(d)
	return true
}

// put files an entry in the slot of its second. If that second is outside the ring's span, put uses the nearest slot;
// when that slot is drained, take files the entry again.
func (r *ring) put(d engine.Due) {
	slot := r.slot(min(max(d.DueAt.Unix(), r.tick), r.tick+ringSlots-1))
	if last := len(r.spare) - 1; cap(*slot) == 0 && last >= 0 {
		*slot, r.spare[last] = r.spare[last], nil
		r.spare = r.spare[:last]
	}
	*slot = append(*slot, d)
	r.size++
}

// rewind files all entries again after the clock was set back. Otherwise no entry would be taken until the clock has
// caught up.
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

// take removes and returns at most limit entries that are due up to now+lead, in due order. It takes AtDue entries only
// once they are due, and no held entries. It drains every slot since the last tick, so that no slot is skipped after a
// stall.
func (r *ring) take(now time.Time, lead time.Duration, limit int) []engine.Due {
	if now.Unix() < r.tick {
		r.rewind(now)
	}
	until := now.Add(lead)
	var early []engine.Due
	before := len(r.ready)
	// After a stall of more than a lap, each slot is drained once.
	//sim:seam ring-catch-up
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
			case d.DueAt.Unix() > second: // filed in this slot by put, because its own second was out of range
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
	// The current slot may keep or receive entries that are due later in this second.
	r.tick = max(r.tick, now.Unix())
	for _, d := range early {
		r.put(d)
	}
	if len(r.ready) > before {
		slices.SortFunc(r.ready, func(a, b engine.Due) int { return a.DueAt.Compare(b.DueAt) })
	}
	return r.takeReady(now, until, limit)
}

// takeReady takes from the entries that take has found due. An earlier call may have found them with a longer lead, so
// each one is checked again.
func (r *ring) takeReady(now, until time.Time, limit int) []engine.Due {
	var out []engine.Due
	kept := r.ready[:0] // in place: kept is never longer than the part already visited
	looked := 0
	for ; looked < len(r.ready) && len(out) < limit; looked++ {
		d := r.ready[looked]
		if d.DueAt.After(until) || !r.hold.IsZero() && d.DueAt.After(r.hold) {
			break // the later entries must not be taken either
		}
		if !ready(d, now, until) {
			kept = append(kept, d)
			continue
		}
		if out == nil {
			out = make([]engine.Due, 0, min(len(r.ready)-looked, limit))
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
		r.ready, r.found = nil, nil // release the array and its entries
	}
	return out
}

// withdraw removes and returns the entries that are due after an instant, in no particular order.
func (r *ring) withdraw(after time.Time) []engine.Due {
	var out []engine.Due
	keep := func(entries []engine.Due) []engine.Due {
		return slices.DeleteFunc(entries, func(d engine.Due) bool {
			if d.DueAt.After(after) {
				out = append(out, d)
				return true
			}
			return false
		})
	}
	r.ready = keep(r.ready)
	for i := range r.slots {
		r.slots[i] = keep(r.slots[i])
	}
	r.size -= len(out)
	return out
}

// allReady reports whether all entries of a slot are ready. This is usual for a second that has passed.
func allReady(slot []engine.Due, now, until time.Time) bool {
	for i := range slot {
		if !ready(slot[i], now, until) {
			return false
		}
	}
	return true
}

func ready(d engine.Due, now, until time.Time) bool {
	if d.AtDue {
		return !d.DueAt.After(now)
	}
	return !d.DueAt.After(until)
}

// held reports whether entries are ready but none may be taken because of the hold. The next planned batch changes the
// hold.
func (r *ring) held() bool {
	return len(r.ready) > 0 && !r.hold.IsZero() && r.ready[0].DueAt.After(r.hold)
}

// late returns how long the first ready entry is past due.
func (r *ring) late(now time.Time) time.Duration {
	if len(r.ready) == 0 {
		return 0
	}
	return now.Sub(r.ready[0].DueAt)
}

// near counts the entries that are due up to until. Their number determines Fire's head start.
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

// next returns when take should be called next: at the earliest due instant, minus lead for entries that may be fired
// ahead of due. It returns false if the ring is empty.
func (r *ring) next(lead time.Duration) (time.Time, bool) {
	var best time.Time
	// begin is a lower bound for all entries of a slot. Most entries of a slot are due on the whole second, so the
	// search stops as soon as it finds one at begin.
	earliest := func(entries []engine.Due, begin time.Time) {
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
			break // later slots are due later than best
		}
		begin := time.Time{} // the slot that is drained next also has past-due entries
		if second > r.tick {
			begin = time.Unix(second, 0).Add(-lead)
		}
		earliest(*r.slot(second), begin)
	}
	return best, !best.IsZero()
}
