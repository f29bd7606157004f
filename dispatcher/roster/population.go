package roster

import (
	"cmp"
	"slices"
	"time"

	"github.com/belfryhq/belfry/executor/wire"
)

const (
	// remembered is the time within which a key that reappears keeps its age, so that an outage of NATS does not change the
	// order of a group's instances.
	remembered = time.Minute
	// settleIn is how long the keys that a process finds at its start count as old. Other processes have seen these keys
	// appear, know their order, and remove the newest ones during that time.
	settleIn = 30 * time.Second
	// residentsMax is the maximum number of keys of a group in memory. If there are more, keys without a heartbeat are
	// deleted from memory.
	residentsMax = 20_000
)

// population holds the keys of each group in the bucket and their order of appearance. The order is given by the stream
// sequence of the first message of each key, so all processes that received that message agree. Later heartbeats replace
// the message, so only the memory of these processes has the sequence.
//
// Values that are not heartbeats count as well, because they use the same space in the bucket.
type population struct {
	groups map[string]map[string]*resident
	from   time.Time // when this process had first received the whole bucket; zero: not yet
}

// resident is a key of the bucket.
type resident struct {
	born    uint64    // the sequence of its first message; 0: it was there before this process
	started time.Time // started_at of its heartbeat; orders keys that were there before this process
	seq     uint64    // the sequence of its newest message
	seen    time.Time // when that was received, monotonic
	large   bool      // its newest message is larger than wire.MaxHeartbeat
	gone    bool      // it was deleted
}

func (e *resident) alive(now time.Time) bool { return !e.gone && now.Sub(e.seen) <= wire.LeaseTTL }

// put records a message of a key. first reports whether it is the first one of its group.
func (p *population) put(k key, seq uint64, size int, started, now time.Time) (first bool) {
	group := p.groups[k.group]
	if first = group == nil; first {
		group = make(map[string]*resident)
		p.groups[k.group] = group
	}
	e := group[k.name]
	if e == nil {
		if len(group) >= residentsMax {
			p.forget(group, now, 0)
		}
		e = &resident{}
		if !p.from.IsZero() {
			e.born = seq
		}
		group[k.name] = e
	}
	if !started.IsZero() {
		e.started = started
	}
	e.seq, e.seen, e.large, e.gone = seq, now, size > wire.MaxHeartbeat, false
	return first
}

// delete records that a key was deleted, by its instance or by a dispatcher. seq is the last message that is gone.
func (p *population) delete(k key, seq uint64) {
	if e := p.groups[k.group][k.name]; e != nil && e.seq <= seq {
		e.gone, e.large = true, false
	}
}

// complete records that this process has received the whole bucket.
func (p *population) complete(now time.Time) {
	if p.from.IsZero() {
		p.from = now
	}
}

// sweep deletes keys without a heartbeat from memory.
func (p *population) sweep(now time.Time) {
	for name, group := range p.groups {
		p.forget(group, now, remembered)
		if len(group) == 0 {
			delete(p.groups, name)
		}
	}
}

func (p *population) forget(group map[string]*resident, now time.Time, after time.Duration) {
	for name, e := range group {
		if !e.alive(now) && now.Sub(e.seen) > after {
			delete(group, name)
		}
	}
}

// beyond returns the newest keys of a group beyond its limit, the newest first.
func (p *population) beyond(group string, limit int, now time.Time) []string {
	if len(p.groups[group]) <= limit {
		return nil
	}
	var alive []string
	for name, e := range p.groups[group] {
		if e.alive(now) {
			alive = append(alive, name)
		}
	}
	if len(alive) <= limit {
		return nil
	}
	slices.SortFunc(alive, func(a, b string) int { return p.newest(group, a, b) })
	newest := alive[:len(alive)-limit]
	if !p.from.IsZero() && now.Sub(p.from) >= settleIn {
		return newest
	}
	return newest[:len(newest)-count(newest, func(name string) bool { return p.groups[group][name].born == 0 })]
}

func count(names []string, which func(string) bool) (n int) {
	for _, name := range names {
		if which(name) {
			n++
		}
	}
	return n
}

// newest orders keys of a group, the newest first. Keys that this process has seen appear are newer than all others.
func (p *population) newest(group, a, b string) int {
	x, y := p.groups[group][a], p.groups[group][b]
	return cmp.Or(cmp.Compare(y.born, x.born), y.started.Compare(x.started), cmp.Compare(b, a))
}

// exceeds reports whether a key is beyond its group's limit.
func (p *population) exceeds(k key, limit int, now time.Time) bool {
	if len(p.groups[k.group]) <= limit {
		return false
	}
	e := p.groups[k.group][k.name]
	if e == nil || e.born == 0 && (p.from.IsZero() || now.Sub(p.from) < settleIn) {
		return false
	}
	older := 0
	for name, other := range p.groups[k.group] {
		if name != k.name && other.alive(now) && p.newest(k.group, k.name, name) < 0 {
			older++
		}
	}
	return older >= limit
}
