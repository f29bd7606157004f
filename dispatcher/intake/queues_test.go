package intake

import (
	"fmt"
	"slices"
	"testing"

	"github.com/nats-io/nats.go/jetstream"
	"pgregory.net/rapid"
)

// sized is a message that has only a size.
type sized struct {
	jetstream.Msg
	data []byte
}

func (m sized) Data() []byte { return m.data }

var zeros [maxBatch]byte

// add pushes a message of a group and returns it.
func add(q *queues, group string, size int) *Message {
	m := &Message{Msg: sized{data: zeros[:size]}, Group: group, size: max(size, leastLen), id: messageID{sequence: uint64(len(q.held) + 1), stream: group}}
	for ; q.held[m.id] != nil; m.id.sequence++ {
	}
	q.push(m)
	return m
}

func groupsOf(batch []*Message) string {
	var out string
	for _, m := range batch {
		out += m.Group
	}
	return out
}

const enough = 1000

func TestTakeInTurns(t *testing.T) {
	q := newQueues(Bounds{}.withDefaults(), share)
	for range 900 {
		add(q, "a", maxBatch)
	}
	if got := groupsOf(q.take(enough, false)); got != "a" {
		t.Errorf("a batch with large messages is %q", got)
	}
	for range 40 {
		add(q, "b", 100)
	}
	add(q, "c", 10_000)
	// A has used up its credit and needs 17 visits for the next message.
	var order string
	for range 18 {
		order += groupsOf(q.take(enough, false)) + " "
	}
	if order != "bbbbbbbbbbbbbbc bbbbbbbbbbbbbb bbbbbbbbbbbb a a a a a a a a a a a a a a a " {
		t.Errorf("the next batches are %q", order)
	}
	// A limit interrupts a visit; the next batch continues it.
	q = newQueues(Bounds{}.withDefaults(), share)
	for range 20 {
		add(q, "a", 1)
		add(q, "b", 1)
	}
	var got string
	for range 10 {
		got += groupsOf(q.take(4, false))
	}
	if got != "aaaaaaaaaaaaaabbbbbbbbbbbbbbaaaaaabbbbbb" {
		t.Errorf("in small batches: %q", got)
	}
}

// A message of a group waits at most for two batches of each other group, however much they hold: a large message fills one, and
// the small messages of the same visit are in the next.
func TestNoGroupWaitsForLong(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		q := newQueues(Bounds{}.withDefaults(), share)
		others := rapid.IntRange(0, 6).Draw(t, "others")
		size := rapid.OneOf(rapid.IntRange(0, 2000), rapid.IntRange(0, maxBatch))
		for i := range others {
			for range rapid.IntRange(1, 60).Draw(t, "messages") {
				add(q, fmt.Sprint(i), size.Draw(t, "size"))
			}
		}
		for range rapid.IntRange(0, 10).Draw(t, "batches before") {
			q.take(20, false)
		}
		single := add(q, "single", rapid.IntRange(0, share-baseCost).Draw(t, "its size"))
		active := len(q.active) - 1
		for n := 1; ; n++ {
			if slices.Contains(q.take(20, false), single) {
				break
			}
			if n > 2*active+1 {
				t.Fatalf("with %d other groups, it is not in the first %d batches", active, n)
			}
		}
	})
}

// Groups that always have messages get equal shares. The difference is at most one quantum and one message.
func TestEqualShares(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		q := newQueues(Bounds{}.withDefaults(), share)
		groups := rapid.IntRange(2, 5).Draw(t, "groups")
		largest := 0
		sizes := make([]int, groups)
		for i := range sizes {
			sizes[i] = rapid.OneOf(rapid.IntRange(0, 3000), rapid.IntRange(0, maxBatch)).Draw(t, "size")
			largest = max(largest, sizes[i]+baseCost)
		}
		served := make([]int, groups)
		limit := rapid.IntRange(1, 50).Draw(t, "limit")
		for range rapid.IntRange(1, 200).Draw(t, "batches") {
			for i, size := range sizes {
				for g := q.groups[fmt.Sprint(i)]; g == nil || len(g.waiting) < 60; g = q.groups[fmt.Sprint(i)] {
					add(q, fmt.Sprint(i), size)
				}
			}
			batch := q.take(limit, false)
			bytes := 0
			for _, m := range batch {
				var i int
				if _, err := fmt.Sscan(m.Group, &i); err != nil {
					t.Fatal(err)
				}
				served[i] += cost(m)
				bytes += cost(m)
			}
			if len(batch) == 0 || len(batch) > limit || (bytes > maxBatch && len(batch) > 1) {
				t.Fatalf("a batch of %d messages with %d bytes", len(batch), bytes)
			}
			q.release(batch)
		}
		if least, most := slices.Min(served), slices.Max(served); most-least > share+largest {
			t.Fatalf("served %v, with messages of up to %d", served, largest)
		}
	})
}

// The counters of the queues match their content for any sequence of calls.
func TestQueuesAgainstModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		q := newQueues(Bounds{GroupBytes: 5000, TotalBytes: 10_000}, share)
		held := map[*Message]bool{}
		var taken []*Message
		t.Repeat(map[string]func(*rapid.T){
			"add": func(t *rapid.T) {
				group := rapid.SampledFrom([]string{"a", "b", "c"}).Draw(t, "group")
				size := rapid.IntRange(0, 3000).Draw(t, "size")
				probe := &Message{Msg: sized{data: zeros[:size]}, Group: group, size: max(size, leastLen)}
				if !q.fits(probe) {
					return
				}
				for q.full(probe) {
					out := q.evict(probe)
					if out == nil {
						return
					}
					if out.Group == group || out.taken || !held[out] {
						t.Fatalf("evicted %+v", out)
					}
					delete(held, out)
				}
				held[add(q, group, size)] = true
			},
			"take": func(t *rapid.T) {
				taken = append(taken, q.take(rapid.IntRange(1, 5).Draw(t, "limit"), rapid.Bool().Draw(t, "one"))...)
			},
			"release": func(*rapid.T) {
				for _, m := range taken {
					delete(held, m)
				}
				q.release(taken)
				taken = nil
			},
			"": func(t *rapid.T) {
				bytes, waiting := map[string]int{}, map[string]int{}
				total, all, costs := 0, 0, 0
				for m := range held {
					bytes[m.Group] += m.size
					total += m.size
					if !m.taken {
						waiting[m.Group]++
						all++
						costs += cost(m)
					}
				}
				if q.bytes != total || q.waiting != all || q.cost != costs || len(q.held) != len(held) || len(q.groups) != len(bytes) || len(q.active) != len(waiting) {
					t.Fatalf("%d bytes, %d wait, %d are held, %d groups; the model has %d, %d, %d, %v", q.bytes, q.waiting, len(q.held), len(q.groups), total, all, len(held), bytes)
				}
				for group, n := range bytes {
					if q.bytesOf(group) != n || n > 5000 {
						t.Fatalf("group %s has %d, the model %d", group, q.bytesOf(group), n)
					}
				}
				if total > 10_000 {
					t.Fatalf("%d bytes are held", total)
				}
			},
		})
	})
}
