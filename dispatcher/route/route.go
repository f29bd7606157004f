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
	"github.com/belfryhq/belfry/internal/engine"
)

// Candidate is a live instance that registered the run's handler and is not draining.
type Candidate struct {
	Instance string
	BootID   string
	Beat     int64 // the heartbeat that offers to it may rely on; not looked at here
	Capacity int   // slots
	Running  int   // slots taken, as far as is known here; Choose counts what it gives
}

// Room returns the free slots, at least 0.
func (c *Candidate) Room() int { return max(c.Capacity-c.Running, 0) }

// Request is what the decision depends on besides the candidates.
type Request struct {
	Route   domain.Route
	Key     string // of consistent_hash
	Counter int64  // of round_robin, shared by all dispatchers
	Target  string // what instances must offer, a handler or scripts in a language; only for words
	Pin     string // the only instance allowed; "": any
	Avoid   string // the instance that just lost the run
	Random  *rand.Rand
	Uses    Uses             // of least_frequently_used and least_recently_used; Choose counts what it gives
	Heard   map[string]Heard // of failover and busyover, by instance; Choose counts what it gives
}

// Uses are a job's numbers of its instances, shared by all dispatchers: how many runs each was given today, for
// least_frequently_used, or which turn was its last, for least_recently_used. The smallest number is next.
type Uses map[string]int64

// Heard is what an instance answered when it was asked. Who did not answer has none.
type Heard struct {
	JobRuns int // runs of the job that it has
}

// The beginnings of what a Binding says about waiting, by which waiting runs are counted.
const (
	NoInstance = "no live instance "
	NoSlot     = "no free slot"
	NotThere   = "it may only run on "
	NoAnswer   = "no instance answered a ping"
	AllBusy    = "no instance is idle for the job"
)

// Choose picks one of the candidates and takes a slot of it. Without one that qualifies and has room, the Binding
// has no instance and says why the run waits. The order of the candidates does not matter.
func Choose(candidates []*Candidate, r Request) engine.Binding {
	fit, note := qualify(candidates, r)
	if len(fit) == 0 {
		return engine.Binding{Waiting: note}
	}
	open := slices.DeleteFunc(slices.Clone(fit), func(c *Candidate) bool { return c.Room() == 0 })
	if len(open) == 0 {
		return engine.Binding{Waiting: fmt.Sprintf("%s: %s", NoSlot, slots(fit))}
	}
	slices.SortFunc(open, func(a, b *Candidate) int { return strings.Compare(a.Instance, b.Instance) })
	var c *Candidate
	var why string
	if r.Route.Asks() && r.Pin == "" {
		if c, why = pickHeard(open, r); c == nil {
			return engine.Binding{Waiting: why}
		}
		r.Heard[c.Instance] = Heard{r.Heard[c.Instance].JobRuns + 1}
	} else {
		c, why = pick(open, r)
	}
	c.Running++
	if len(open) < len(fit) {
		why += fmt.Sprintf("; %d of %d instances had no free slot", len(fit)-len(open), len(fit))
	}
	return engine.Binding{Instance: c.Instance, BootID: c.BootID, Route: why + note}
}

// Nobody says that no instance offers a target.
func Nobody(target string) string {
	if language, script := strings.CutPrefix(target, domain.ScriptTarget("")); script {
		return NoInstance + "runs scripts in " + language
	}
	return NoInstance + "offers the handler"
}

// Gone says that the only instance allowed is no candidate.
func Gone(pin, target string) string {
	lacks := "offer the handler"
	if language, script := strings.CutPrefix(target, domain.ScriptTarget("")); script {
		lacks = "run scripts in " + language
	}
	return fmt.Sprintf("%s%s, which is not there or does not %s", NotThere, pin, lacks)
}

// qualify narrows the candidates by pin and avoid. The note says why nobody is left, or what was passed over.
func qualify(candidates []*Candidate, r Request) ([]*Candidate, string) {
	if len(candidates) == 0 && r.Pin == "" {
		return nil, Nobody(r.Target)
	}
	if r.Pin != "" {
		for _, c := range candidates {
			if c.Instance == r.Pin {
				return []*Candidate{c}, ""
			}
		}
		return nil, Gone(r.Pin, r.Target)
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
	case n == 1 && !r.Route.ByUse():
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
	case domain.RouteLeastFrequentlyUsed, domain.RouteLeastRecentlyUsed:
		return leastUsed(open, r)
	case domain.RouteAny, domain.RouteBroadcast, domain.RouteFailover, domain.RouteBusyover:
	}
	c := leastLoaded(open, r.Random)
	return c, fmt.Sprintf("any: the least loaded of %d, %d of %d slots taken", n, c.Running, c.Capacity)
}

// leastUsed returns the candidate with the smallest number, among equals the first by name, and counts the use.
func leastUsed(open []*Candidate, r Request) (*Candidate, string) {
	best := open[0]
	for _, c := range open[1:] {
		if r.Uses[c.Instance] < r.Uses[best.Instance] {
			best = c
		}
	}
	n, of := r.Uses[best.Instance], len(open)
	why := fmt.Sprintf("%s: given %s today, the fewest of %d", r.Route, runs(int(n)), of)
	next := n + 1
	if r.Route == domain.RouteLeastRecentlyUsed {
		why = fmt.Sprintf("%s: not used yet, of %d", r.Route, of)
		if n > 0 {
			why = fmt.Sprintf("%s: last used at turn %d, the longest ago of %d", r.Route, n, of)
		}
		for _, used := range r.Uses {
			next = max(next, used+1)
		}
	}
	if r.Uses != nil {
		r.Uses[best.Instance] = next
	}
	return best, why
}

// pickHeard applies failover and busyover to candidates that are sorted by name and have room. Without one, the words say
// why.
func pickHeard(open []*Candidate, r Request) (*Candidate, string) {
	var passed []string // and why
	answered := false
	for i, c := range open {
		h, ok := r.Heard[c.Instance]
		switch {
		case !ok:
			passed = append(passed, c.Instance+" did not answer")
		case r.Route == domain.RouteBusyover && h.JobRuns > 0:
			answered = true
			passed = append(passed, fmt.Sprintf("%s has %s of the job", c.Instance, runs(h.JobRuns)))
		default:
			why := fmt.Sprintf("%s: number %d of %d by name, the first that answered a ping", r.Route, i+1, len(open))
			if r.Route == domain.RouteBusyover {
				why = fmt.Sprintf("%s: number %d of %d by name, the first that is idle for the job", r.Route, i+1, len(open))
			}
			return c, why + after("; ", passed)
		}
	}
	if answered {
		return nil, AllBusy + after(": ", passed)
	}
	return nil, NoAnswer + after(": ", passed)
}

func runs(n int) string {
	if n == 1 {
		return "1 run"
	}
	return fmt.Sprintf("%d runs", n)
}

// after lists the first few of what there is behind a separator.
func after(separator string, all []string) string {
	if len(all) == 0 {
		return ""
	}
	if n := len(all) - shown; n > 0 {
		all = append(slices.Clone(all[:shown]), fmt.Sprintf("and %d more", n))
	}
	return separator + strings.Join(all, ", ")
}

// shown is of how many instances the words tell.
const shown = 3

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
// total shards over the candidates in turn. A pin leaves one candidate, where all of them must run. Nil without candidates.
func Shards(candidates []*Candidate, total int, pin string) []engine.ShardBinding {
	sorted := slices.DeleteFunc(slices.Clone(candidates), func(c *Candidate) bool { return pin != "" && c.Instance != pin })
	if len(sorted) == 0 {
		return nil
	}
	slices.SortFunc(sorted, func(a, b *Candidate) int { return strings.Compare(a.Instance, b.Instance) })
	pinned := total == 0 || pin != ""
	if total == 0 {
		total = len(sorted)
	}
	out := make([]engine.ShardBinding, total)
	for i := range out {
		c := sorted[i%len(sorted)]
		b := engine.Binding{Route: fmt.Sprintf("broadcast: shard %d of %d", i, total)}
		if c.Room() > 0 {
			b.Instance, b.BootID = c.Instance, c.BootID
			c.Running++
		} else {
			b.Waiting = fmt.Sprintf("%s: %s", NoSlot, slots([]*Candidate{c}))
		}
		out[i] = engine.ShardBinding{Binding: b}
		if pinned {
			out[i].Pin = c.Instance
		}
	}
	return out
}

func slots(cs []*Candidate) string {
	parts := make([]string, len(cs))
	for i, c := range cs {
		parts[i] = fmt.Sprintf("%s has %d of %d taken", c.Instance, c.Running, c.Capacity)
	}
	return after("", parts)
}
