package scheduler

import (
	"fmt"
	"slices"
	"testing"
	"time"
	"unsafe"

	"pgregory.net/rapid"

	"github.com/belfryhq/belfry/internal/engine"
)

// begin is in the middle of a second, so that a test can distinguish slots from seconds.
var begin = time.Date(2026, 3, 1, 12, 0, 0, 400e6, time.UTC)

// entry makes a ring entry with a recognizable id.
func entry(n int, due time.Time) engine.Due {
	d := engine.Due{DueAt: due, Attempt: 1}
	d.RunID[0], d.RunID[1], d.RunID[2] = byte(n>>16), byte(n>>8), byte(n)
	return d
}

func atDue(d engine.Due) engine.Due {
	d.AtDue = true
	return d
}

func TestRing(t *testing.T) {
	const ms = time.Millisecond
	type look struct {
		after time.Duration // since begin
		limit int           // 0: no limit
		want  []int         // the entries taken, in order
	}
	for _, tt := range []struct {
		name    string
		entries []engine.Due // numbered from 1
		looks   []look
	}{
		{"nothing", nil, []look{{after: 0}, {after: time.Hour}}},
		{"at its instant within lead, not before", []engine.Due{entry(1, begin.Add(500*ms))}, []look{
			{after: 479 * ms}, {after: 480 * ms, want: []int{1}}, {after: time.Second}}},
		{"in due order, whatever the order of adding", []engine.Due{entry(1, begin.Add(30*ms)), entry(2, begin.Add(10*ms)), entry(3, begin.Add(20*ms))},
			[]look{{after: 50 * ms, want: []int{2, 3, 1}}}},
		{"past due at once", []engine.Due{entry(1, begin.Add(-time.Hour))}, []look{{after: 0, want: []int{1}}}},
		{"lead reaches over a second", []engine.Due{entry(1, begin.Add(610*ms))}, []look{
			{after: 589 * ms}, {after: 590 * ms, want: []int{1}}}},
		{"at due is not ahead of due", []engine.Due{atDue(entry(1, begin.Add(605*ms)))}, []look{
			{after: 600 * ms}, {after: 604 * ms}, {after: 605 * ms, want: []int{1}}}},
		{"an entry that stays in its slot is found again", []engine.Due{entry(1, begin.Add(100*ms)), entry(2, begin.Add(550*ms))}, []look{
			{after: 200 * ms, want: []int{1}}, {after: 200 * ms}, {after: 560 * ms, want: []int{2}}}},
		{"the last slot of the lap", []engine.Due{entry(1, begin.Add(59*time.Second))}, []look{
			{after: 58 * time.Second}, {after: 59 * time.Second, want: []int{1}}}},
		{"a stall of over a lap drains all, once", []engine.Due{entry(1, begin), entry(2, begin.Add(30*time.Second)), entry(3, begin.Add(59*time.Second))},
			[]look{{after: 10 * time.Minute, want: []int{1, 2, 3}}, {after: 11 * time.Minute}}},
		{"entries over the limit come next", []engine.Due{entry(1, begin), entry(2, begin.Add(ms)), entry(3, begin.Add(2*ms))}, []look{
			{after: 5 * time.Second, limit: 2, want: []int{1, 2}}, {after: 5 * time.Second, limit: 2, want: []int{3}}}},
		{"entries over the limit, and a clock that is set back", []engine.Due{entry(1, begin), entry(2, begin.Add(time.Second))}, []look{
			{after: 5 * time.Second, limit: 1, want: []int{1}}, {after: 0}, {after: time.Second, want: []int{2}}}},
		{"a clock that is set back", []engine.Due{entry(1, begin.Add(2*time.Second)), entry(2, begin.Add(-time.Hour))}, []look{
			{after: -40 * time.Second, want: []int{2}}, {after: time.Second}, {after: 2 * time.Second, want: []int{1}}}},
		{"a clock that is set back by hours", []engine.Due{entry(1, begin.Add(2*time.Second))}, []look{
			{after: -3 * time.Hour}, {after: -2 * time.Hour}, {after: time.Second}, {after: 2 * time.Second, want: []int{1}}}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			r := newRing(begin, 100)
			for i, d := range tt.entries {
				if !r.add(d) {
					t.Fatalf("entry %d was refused", i+1)
				}
			}
			left := len(tt.entries)
			for _, l := range tt.looks {
				limit := l.limit
				if limit == 0 {
					limit = 1000
				}
				var got []int
				for _, d := range r.take(begin.Add(l.after), 20*ms, limit) {
					got = append(got, int(d.RunID[2]))
				}
				if !slices.Equal(got, l.want) {
					t.Errorf("after %s: took %v, want %v", l.after, got, l.want)
				}
				if left -= len(got); r.size != left {
					t.Errorf("after %s: size %d, want %d", l.after, r.size, left)
				}
			}
		})
	}
}

func TestRingRefuses(t *testing.T) {
	r := newRing(begin, 2)
	if r.add(entry(1, begin.Add(ringSlots*time.Second))) {
		t.Error("took an entry that is due a whole lap ahead")
	}
	if r.size != 0 || r.room() != 2 {
		t.Errorf("size %d, room %d after a refusal", r.size, r.room())
	}
	for i := range 2 {
		if !r.add(entry(i, begin)) {
			t.Fatalf("refused entry %d of 2", i)
		}
	}
	if r.add(entry(3, begin)) || r.room() != 0 {
		t.Errorf("a full ring took an entry; room %d", r.room())
	}
	// Entries over the limit of one call stay in a ring that was full.
	if got := len(r.take(begin, 0, 1)); got != 1 || r.size != 1 {
		t.Errorf("took %d, left %d", got, r.size)
	}
}

func TestRingNextAndNear(t *testing.T) {
	const lead = 20 * time.Millisecond
	r := newRing(begin, 100)
	if at, ok := r.next(lead); ok {
		t.Errorf("an empty ring wants to be looked at: %s", at)
	}
	r.add(entry(1, begin.Add(3*time.Second)))
	r.add(atDue(entry(2, begin.Add(2990*time.Millisecond))))
	if at, ok := r.next(lead); !ok || !at.Equal(begin.Add(2980*time.Millisecond)) {
		t.Errorf("next is %v %v", at, ok)
	}
	if n := r.near(begin.Add(2990 * time.Millisecond)); n != 1 {
		t.Errorf("near counts %d", n)
	}
	if n := r.near(begin.Add(time.Hour)); n != 2 {
		t.Errorf("near counts %d", n)
	}
}

// TestRingAgainstModel compares the ring with a list that is searched linearly. The clock stalls, and is set forward
// and back.
func TestRingAgainstModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		const limit = 30
		r, model, now, n := newRing(begin, limit), []engine.Due{}, begin, 0
		ms := func(label string, from, to int) time.Duration {
			return time.Duration(rapid.IntRange(from, to).Draw(t, label)) * time.Millisecond
		}
		ready := func(d engine.Due, lead time.Duration) bool {
			if d.AtDue {
				lead = 0
			}
			return !d.DueAt.After(now.Add(lead))
		}
		t.Repeat(map[string]func(*rapid.T){
			"add": func(t *rapid.T) {
				n++
				d := entry(n, now.Add(ms("due", -10_000, 5_000)))
				d.AtDue = rapid.Bool().Draw(t, "at due")
				if got, want := r.add(d), len(model) < limit && d.DueAt.Unix() < r.tick+ringSlots; got != want {
					t.Fatalf("add says %v, want %v", got, want)
				} else if got {
					model = append(model, d)
				}
			},
			"wait":     func(*rapid.T) { now = now.Add(ms("wait", 0, 1500)) },
			"stall":    func(*rapid.T) { now = now.Add(ms("stall", 0, 200_000)) },
			"set back": func(*rapid.T) { now = now.Add(-ms("back", 0, 200_000)) },
			"take": func(t *rapid.T) {
				lead := ms("lead", 0, 200)
				most := rapid.IntRange(1, limit+5).Draw(t, "limit")
				var want []time.Time
				for _, d := range model {
					if ready(d, lead) {
						want = append(want, d.DueAt)
					}
				}
				slices.SortFunc(want, time.Time.Compare)
				want = want[:min(len(want), most)]
				var got []time.Time
				for _, d := range r.take(now, lead, most) {
					at := slices.Index(model, d)
					if at < 0 {
						t.Fatalf("took %v, which is not there (any more)", d)
					}
					model = slices.Delete(model, at, at+1)
					if !ready(d, lead) {
						t.Fatalf("took %v too early, at %s", d, now)
					}
					got = append(got, d.DueAt)
				}
				if !slices.EqualFunc(got, want, time.Time.Equal) {
					t.Fatalf("took %v, want %v", got, want)
				}
			},
			"": func(t *rapid.T) {
				if r.size != len(model) || r.room() != limit-len(model) {
					t.Fatalf("size %d, room %d with %d entries", r.size, r.room(), len(model))
				}
				const lead = 200 * time.Millisecond
				var want time.Time
				for _, d := range model {
					at := d.DueAt.Add(-lead)
					if d.AtDue {
						at = d.DueAt
					}
					if want.IsZero() || at.Before(want) {
						want = at
					}
				}
				if got, ok := r.next(lead); ok != (len(model) > 0) || !got.Equal(want) {
					t.Fatalf("wants to be looked at at %s (%v), not at %s", got, ok, want)
				}
			},
		})
		// No entry stays behind.
		now = now.Add(time.Hour)
		for len(model) > 0 {
			out := r.take(now, 0, 7)
			if len(out) == 0 {
				t.Fatalf("%d entries are lost", len(model))
			}
			for _, d := range out {
				at := slices.Index(model, d)
				if at < 0 {
					t.Fatalf("took %v twice", d)
				}
				model = slices.Delete(model, at, at+1)
			}
		}
	})
}

// The ring reuses the array of one second's entries for another second, whether or not the whole second was ready at
// once. It does not keep the large arrays of a rush.
func TestRingArrays(t *testing.T) {
	r, now := newRing(begin, 10*spareEntries), begin.Truncate(time.Second)
	fill := func(n int, apart time.Duration) {
		now = now.Add(time.Second)
		for i := range n {
			r.add(entry(i, now.Add(time.Duration(i)*apart)))
		}
	}
	drain := func() {
		for at := now; r.size > 0; at = at.Add(100 * time.Millisecond) {
			r.take(at, 0, 100) // the small limit leaves entries in ready while more become ready
		}
	}
	used := make(map[*engine.Due]bool)
	for i := range 20 {
		fill(1000, time.Duration(i%2)*time.Millisecond/2)
		used[unsafe.SliceData(*r.slot(now.Unix()))] = true
		drain()
	}
	if len(used) > spareArrays {
		t.Errorf("20 seconds took %d arrays", len(used))
	}
	for _, array := range r.spare {
		if whole := array[:cap(array)]; slices.ContainsFunc(whole, func(d engine.Due) bool { return d != (engine.Due{}) }) {
			t.Error("an array still references taken entries")
		}
	}
	fill(2*spareEntries, 0)
	drain()
	for _, array := range r.spare {
		if cap(array) > spareEntries {
			t.Errorf("an array of %d entries is kept", cap(array))
		}
	}
}

func BenchmarkRing(b *testing.B) {
	for _, size := range []int{1000, 100_000} {
		b.Run(fmt.Sprint(size), func(b *testing.B) {
			r := newRing(begin, size+1)
			for i := range size {
				r.add(entry(i, begin.Add(time.Duration(i%5000)*time.Millisecond)))
			}
			for b.Loop() {
				r.add(entry(size, begin))
				r.take(begin, 0, 1)
			}
		})
	}
}
