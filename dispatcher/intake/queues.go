package intake

import (
	"time"

	"github.com/nats-io/nats.go/jetstream"
)

// Message is a message of a group that a Fair holds.
type Message struct {
	jetstream.Msg
	Group string

	id      messageID
	size    int       // counted in the bounds
	touched time.Time // when it was delivered, or when its acknowledgement time was last extended
	taken   bool      // a worker has it
	behind  uint64    // undelivered messages of all groups when this one was delivered
}

// messageID identifies a message. Sequences start again after the storage was wiped, so the time of storage is a part of it.
type messageID struct {
	stream   string
	sequence uint64
	stored   int64
}

// Bounds limits the messages that one process holds of one kind. Zero fields have the defaults.
type Bounds struct {
	GroupBytes int // of one group; the default is 64 MiB
	TotalBytes int // of all groups; the default is 256 MiB
}

// The defaults of Bounds, and the bounds of the messages that wait to be stored elsewhere.
const (
	groupBytes  = 64 << 20
	totalBytes  = 256 << 20
	excessGroup = 8 << 20
	excessTotal = 32 << 20
)

func (b Bounds) withDefaults() Bounds {
	if b.GroupBytes == 0 {
		b.GroupBytes = groupBytes
	}
	if b.TotalBytes == 0 {
		b.TotalBytes = totalBytes
	}
	return b
}

// Constants of the deficit round robin.
const (
	share    = 64 << 10 // added to a group's credit by each visit
	baseCost = 4 << 10  // the cost of each message in addition to its size
	leastLen = 512      // the minimum size of a message in the bounds: its structs in memory
	maxBatch = 1 << 20  // the size of a batch, unless its only message is larger
)

// queues holds the messages of all groups. It decides which message is next and which one exceeds the bounds. It is not safe for
// concurrent use.
type queues struct {
	bounds  Bounds
	quantum int               // added to a group's credit by each visit
	groups  map[string]*queue // only groups with held messages
	active  []*queue          // groups with waiting messages, in the order of the next visits
	held    map[messageID]*Message
	bytes   int // of all held messages
	waiting int // messages that no worker has
	cost    int // of these
}

// queue holds the messages of one group.
type queue struct {
	group   string
	waiting []*Message
	bytes   int // of all held messages, including those that a worker has
	credit  int
	visited bool // the current visit has added its quantum
}

func newQueues(b Bounds, quantum int) *queues {
	return &queues{bounds: b, quantum: quantum, groups: make(map[string]*queue), held: make(map[messageID]*Message)}
}

// replace updates the delivery of a message that is held already.
func (q *queues) replace(m *Message) bool {
	old, ok := q.held[m.id]
	if !ok {
		return false
	}
	if !old.taken { // a worker that has it may acknowledge either delivery
		old.Msg = m.Msg
	}
	old.touched = m.touched
	return true
}

// fits reports whether a group has room for a message.
func (q *queues) fits(m *Message) bool {
	g := q.groups[m.Group]
	return g == nil || g.bytes+m.size <= q.bounds.GroupBytes
}

// full reports whether there is no room for a message in the queues of all groups.
func (q *queues) full(m *Message) bool { return q.bytes+m.size > q.bounds.TotalBytes }

// evict removes the newest waiting message of the group that holds most, if that group holds more than the group of m.
func (q *queues) evict(m *Message) *Message {
	most := m.size
	if g := q.groups[m.Group]; g != nil {
		most += g.bytes
	}
	var largest *queue
	for _, g := range q.active {
		if g.group != m.Group && g.bytes > most {
			largest, most = g, g.bytes
		}
	}
	if largest == nil {
		return nil
	}
	last := len(largest.waiting) - 1
	out := largest.waiting[last]
	largest.waiting[last] = nil
	largest.waiting = largest.waiting[:last]
	q.waiting--
	q.cost -= cost(out)
	q.forget(out)
	if last == 0 {
		q.deactivate(largest)
	}
	return out
}

func (q *queues) deactivate(g *queue) {
	for i, o := range q.active {
		if o == g {
			q.active = append(q.active[:i:i], q.active[i+1:]...)
			break
		}
	}
	g.credit, g.visited = 0, false
}

// push appends a message to the queue of its group. The caller has checked the bounds.
func (q *queues) push(m *Message) {
	g := q.groups[m.Group]
	if g == nil {
		g = &queue{group: m.Group}
		q.groups[m.Group] = g
	}
	if len(g.waiting) == 0 {
		q.active = append(q.active, g)
	}
	g.waiting = append(g.waiting, m)
	g.bytes += m.size
	q.bytes += m.size
	q.held[m.id] = m
	q.waiting++
	q.cost += cost(m)
}

func cost(m *Message) int { return m.size + baseCost }

// take returns the next messages: at most limit, and at most maxBatch bytes unless the first message is larger. With one, all of
// them are of one group. The messages stay held until release.
func (q *queues) take(limit int, one bool) []*Message {
	var batch []*Message
	room := maxBatch
	for len(q.active) > 0 {
		g := q.active[0]
		if len(batch) == limit || (len(batch) > 0 && cost(g.waiting[0]) > room) {
			return batch // the next batch begins, or continues, with this group
		}
		if !g.visited {
			g.visited = true
			g.credit += q.quantum
		}
		for len(g.waiting) > 0 && g.credit >= cost(g.waiting[0]) {
			m := g.waiting[0]
			if len(batch) == limit || (len(batch) > 0 && cost(m) > room) {
				return batch
			}
			g.waiting[0] = nil
			g.waiting = g.waiting[1:]
			g.credit -= cost(m)
			room -= cost(m)
			m.taken = true
			q.waiting--
			q.cost -= cost(m)
			batch = append(batch, m)
		}
		q.active = q.active[1:]
		g.visited = false
		if len(g.waiting) > 0 {
			q.active = append(q.active, g)
		} else {
			g.credit = 0
		}
		if one && len(batch) > 0 {
			return batch
		}
	}
	return batch
}

// release removes the messages of a batch from held.
func (q *queues) release(batch []*Message) {
	for _, m := range batch {
		q.forget(m)
	}
}

func (q *queues) forget(m *Message) {
	delete(q.held, m.id)
	q.bytes -= m.size
	g := q.groups[m.Group]
	if g.bytes -= m.size; g.bytes == 0 {
		delete(q.groups, m.Group)
	}
}

// bytesOf returns how much of its bound a group uses.
func (q *queues) bytesOf(group string) int {
	if g := q.groups[group]; g != nil {
		return g.bytes
	}
	return 0
}

// waitingOf returns how many messages of a group no worker has.
func (q *queues) waitingOf(group string) int {
	if g := q.groups[group]; g != nil {
		return len(g.waiting)
	}
	return 0
}
