// Package route decides which instance gets a run. It is pure: candidates and shared counters in, the decision
// and its reason in words out.
package route

import (
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"slices"
	"strings"

	"github.com/belfryhq/belfry/internal/domain"
)

// Candidate is a live instance that registered the run's handler and is not draining.
type Candidate struct {
	Instance string
	BootID   string
	Capacity int // slots
	Running  int // slots taken, as far as is known here; Choose counts what it gives
}

// Room returns the free slots, at least 0.
func (c *Candidate) Room() int { return max(c.Capacity-c.Running, 0) }

// Request is what the decision depends on besides the candidates.
type Request struct {
	Route   domain.Route
	Key     string // of consistent_hash
	Counter int64  // of round_robin, shared by all dispatchers
	Pin     string // the only instance allowed; "": any
	Avoid   string // the instance that just lost the run
	Random  *rand.Rand
}

// The beginnings of what a Binding says about waiting, by which waiting runs are counted.
const (
	NoInstance = "no live instance offers the handler"
	NoSlot     = "no free slot"
	NotThere   = "it may only run on "
)

// Choose picks one of the candidates and takes a slot of it. Without one that qualifies and has room, the Binding
// has no instance and says why the run waits. The order of the candidates does not matter.
func Choose(candidates []*Candidate, r Request) domain.Binding {
	fit, note := qualify(candidates, r)
	if len(fit) == 0 {
		return domain.Binding{Waiting: note}
	}
	open := slices.DeleteFunc(slices.Clone(fit), func(c *Candidate) bool { return c.Room() == 0 })
	if len(open) == 0 {
		return domain.Binding{Waiting: fmt.Sprintf("%s: %s", NoSlot, slots(fit))}
	}
	slices.SortFunc(open, func(a, b *Candidate) int { return strings.Compare(a.Instance, b.Instance) })
	c, why := pick(open, r)
	c.Running++
	if len(open) < len(fit) {
		why += fmt.Sprintf("; %d of %d instances had no free slot", len(fit)-len(open), len(fit))
	}
	return domain.Binding{Instance: c.Instance, BootID: c.BootID, Route: why + note}
}

// qualify narrows the candidates by pin and avoid. The note says why nobody is left, or what was passed over.
func qualify(candidates []*Candidate, r Request) ([]*Candidate, string) {
	if len(candidates) == 0 && r.Pin == "" {
		return nil, NoInstance
	}
	if r.Pin != "" {
		for _, c := range candidates {
			if c.Instance == r.Pin {
				return []*Candidate{c}, ""
			}
		}
		return nil, fmt.Sprintf("%s%s, which is not there or does not offer the handler", NotThere, r.Pin)
	}
	if r.Avoid == "" || len(candidates) < 2 {
		return candidates, ""
	}
	rest := slices.DeleteFunc(slices.Clone(candidates), func(c *Candidate) bool { return c.Instance == r.Avoid })
	if len(rest) == len(candidates) {
		return candidates, ""
	}
	return rest, fmt.Sprintf("; not %s, which had it before", r.Avoid)
}

// pick applies the route to candidates that are sorted by name and have room.
func pick(open []*Candidate, r Request) (*Candidate, string) {
	n := len(open)
	switch {
	case r.Pin != "":
		return open[0], "asked for by name"
	case n == 1:
		return open[0], fmt.Sprintf("%s: the only instance with a free slot", r.Route)
	}
	switch r.Route {
	case domain.RouteFirst:
		return open[0], fmt.Sprintf("first of %d by name", n)
	case domain.RouteLast:
		return open[n-1], fmt.Sprintf("last of %d by name", n)
	case domain.RouteRoundRobin:
		i := int(uint64(r.Counter) % uint64(n))
		return open[i], fmt.Sprintf("round_robin: turn %d, number %d of %d", r.Counter, i+1, n)
	case domain.RouteRandom:
		return open[r.Random.IntN(n)], fmt.Sprintf("random: one of %d", n)
	case domain.RouteConsistentHash:
		return hashed(open, r.Key), fmt.Sprintf("consistent_hash of %q over %d", r.Key, n)
	case domain.RouteAny, domain.RouteBroadcast, domain.RouteLeastFrequentlyUsed, domain.RouteLeastRecentlyUsed,
		domain.RouteFailover, domain.RouteBusyover:
	}
	c := leastLoaded(open, r.Random)
	return c, fmt.Sprintf("any: the least loaded of %d, %d of %d slots taken", n, c.Running, c.Capacity)
}

// leastLoaded returns the candidate with the smallest share of its slots taken, one of them at random.
func leastLoaded(open []*Candidate, random *rand.Rand) *Candidate {
	best, ties := open[0], 1
	for _, c := range open[1:] {
		// a/b < c/d without division
		switch l, r := c.Running*best.Capacity, best.Running*c.Capacity; {
		case l < r:
			best, ties = c, 1
		case l == r:
			ties++
			if random.IntN(ties) == 0 {
				best = c
			}
		}
	}
	return best
}

// hashed is rendezvous hashing: each candidate's score depends on the key and its own name alone, so that one that
// comes or goes moves only the keys that are its own.
func hashed(open []*Candidate, key string) *Candidate {
	var best *Candidate
	var top uint64
	for _, c := range open {
		if score := score(key, c.Instance); best == nil || score > top {
			best, top = c, score
		}
	}
	return best
}

func score(key, instance string) uint64 {
	h := fnv.New64a()
	h.Write([]byte(key))
	h.Write([]byte{0})
	h.Write([]byte(instance))
	// FNV alone mixes its last bytes badly; the finalizer of splitmix64 spreads them.
	x := h.Sum64()
	x ^= x >> 30
	x *= 0xbf58476d1ce4e5b9
	x ^= x >> 27
	x *= 0x94d049bb133111eb
	return x ^ x>>31
}

// Shards decides where the shards of a broadcast go: with total 0 one to each candidate, where it must run; else
// total shards over the candidates in turn. Nil without candidates.
func Shards(candidates []*Candidate, total int) []domain.ShardBinding {
	if len(candidates) == 0 {
		return nil
	}
	sorted := slices.Clone(candidates)
	slices.SortFunc(sorted, func(a, b *Candidate) int { return strings.Compare(a.Instance, b.Instance) })
	pinned := total == 0
	if pinned {
		total = len(sorted)
	}
	out := make([]domain.ShardBinding, total)
	for i := range out {
		c := sorted[i%len(sorted)]
		b := domain.Binding{Route: fmt.Sprintf("broadcast: shard %d of %d", i, total)}
		if c.Room() > 0 {
			b.Instance, b.BootID = c.Instance, c.BootID
			c.Running++
		} else {
			b.Waiting = fmt.Sprintf("%s: %s", NoSlot, slots([]*Candidate{c}))
		}
		out[i] = domain.ShardBinding{Binding: b}
		if pinned {
			out[i].Pin = c.Instance
		}
	}
	return out
}

func slots(cs []*Candidate) string {
	const shown = 3
	parts := make([]string, 0, shown+1)
	for i, c := range cs {
		if i == shown {
			parts = append(parts, fmt.Sprintf("and %d more", len(cs)-shown))
			break
		}
		parts = append(parts, fmt.Sprintf("%s has %d of %d taken", c.Instance, c.Running, c.Capacity))
	}
	return strings.Join(parts, ", ")
}
