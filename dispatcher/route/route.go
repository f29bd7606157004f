// Package route decides which instance gets a run. It is pure: candidates and shared counters in, the decision
// and its explanation out.
package route

import (
	"hash/fnv"
	"math/rand/v2"
	"slices"
	"strings"

	"github.com/belfryhq/belfry/internal/domain"
	"github.com/belfryhq/belfry/internal/engine"
	"github.com/belfryhq/belfry/internal/explain"
)

// Candidate is a live instance that registered the run's handler and takes runs.
type Candidate struct {
	Instance string
	BootID   string
	Beat     int64 // the heartbeat that offers to the instance may rely on; not used here
	Capacity int   // slots
	Running  int   // slots taken, as far as this process knows; Choose increments it
}

// Room returns the free slots, at least 0.
func (c *Candidate) Room() int { return max(c.Capacity-c.Running, 0) }

// Request holds the other inputs of the decision, besides the candidates.
type Request struct {
	Route   domain.Route
	Key     string // of consistent_hash
	Counter int64  // of round_robin, shared by all dispatchers
	Target  string // what instances must offer, a handler or scripts in a language; only for explanations
	Pin     string // the only instance allowed; "": any
	Avoid   string // the instance that just lost the run
	Random  *rand.Rand
	Uses    Uses             // of least_frequently_used and least_recently_used; Choose updates it
	Heard   map[string]Heard // of failover and busyover, by instance; Choose updates it
	Absence Absence          // why there are no candidates; only for explanations
}

// Absence is the reason why a group has no candidate for a target.
type Absence int

// The kinds of absence, the least specific first.
const (
	NoOffer    Absence = iota // no live instance offers the target, or the reason is unknown
	NoInstance                // the group has no live instance
	AllDrain                  // instances offer the target, but all of them drain
	AllUnfit                  // instances offer the target, but all of them report a problem, or drain
)

// Uses holds a number for each instance of a job, shared by all dispatchers: for least_frequently_used, the runs that the
// instance got today; for least_recently_used, the turn of its last run. The instance with the smallest number is next.
type Uses map[string]int64

// Heard is an instance's answer to a ping.
type Heard struct {
	JobRuns int // runs of the job that it has
}

// Choose picks one of the candidates and takes one of its slots. If no candidate qualifies and has room, the Binding has no
// instance and gives the reason why the run waits. The order of the candidates does not matter.
func Choose(candidates []*Candidate, r Request) engine.Binding {
	fit, avoided, none := qualify(candidates, r)
	if len(fit) == 0 {
		return engine.Binding{Waiting: none}
	}
	open := slices.DeleteFunc(slices.Clone(fit), func(c *Candidate) bool { return c.Room() == 0 })
	if len(open) == 0 {
		return engine.Binding{Waiting: noRoom(fit)}
	}
	slices.SortFunc(open, func(a, b *Candidate) int { return strings.Compare(a.Instance, b.Instance) })
	var c *Candidate
	var why decision
	if r.Route.Asks() && r.Pin == "" {
		if c, why = pickHeard(open, r); c == nil {
			return engine.Binding{Waiting: explain.Of(why.code, why.args...)}
		}
		r.Heard[c.Instance] = Heard{r.Heard[c.Instance].JobRuns + 1}
	} else {
		c, why = pick(open, r)
	}
	c.Running++
	return engine.Binding{
		Instance: c.Instance, BootID: c.BootID,
		Route: explain.Of(why.code, append(why.args, len(fit)-len(open), avoided)...),
	}
}

// decision is the code of a decision with its specific arguments. Choose adds the arguments that all routes share.
type decision struct {
	code explain.Code
	args []any
}

func because(code explain.Code, args ...any) decision { return decision{code, args} }

// NoCandidate explains that no instance can take runs with a target.
func NoCandidate(target string, absence Absence) explain.Note {
	switch absence {
	case NoInstance:
		return explain.Of(explain.NoInstance)
	case AllDrain:
		return explain.Of(explain.Draining, language(target))
	case AllUnfit:
		return explain.Of(explain.Unfit, language(target))
	case NoOffer:
	}
	return explain.Of(explain.NoHandler, language(target))
}

// Gone explains that the only allowed instance is not a candidate.
func Gone(pin, target string) explain.Note {
	return explain.Of(explain.PinnedGone, pin, language(target))
}

// language returns the script language that a target names, or "" if the target is a handler.
func language(target string) string {
	l, script := strings.CutPrefix(target, domain.ScriptTarget(""))
	if !script {
		return ""
	}
	return l
}

// qualify applies pin and avoid to the candidates. It returns the instance that avoid excluded, or the reason why no candidate is
// left.
func qualify(candidates []*Candidate, r Request) (fit []*Candidate, avoided string, none explain.Note) {
	if r.Pin != "" {
		for _, c := range candidates {
			if c.Instance == r.Pin {
				return []*Candidate{c}, "", ""
			}
		}
		return nil, "", Gone(r.Pin, r.Target)
	}
	if len(candidates) == 0 {
		return nil, "", NoCandidate(r.Target, r.Absence)
	}
	if r.Avoid == "" || len(candidates) < 2 {
		return candidates, "", ""
	}
	rest := slices.DeleteFunc(slices.Clone(candidates), func(c *Candidate) bool { return c.Instance == r.Avoid })
	if len(rest) == len(candidates) {
		return candidates, "", ""
	}
	return rest, r.Avoid, ""
}

// pick applies the route to candidates that are sorted by name and have room.
func pick(open []*Candidate, r Request) (*Candidate, decision) {
	n := len(open)
	switch {
	case r.Pin != "":
		return open[0], because(explain.AskedByName)
	case n == 1 && !r.Route.ByUse():
		return open[0], because(explain.OnlyInstance, string(r.Route))
	}
	switch r.Route {
	case domain.RouteFirst:
		return open[0], because(explain.First, n)
	case domain.RouteLast:
		return open[n-1], because(explain.Last, n)
	case domain.RouteRoundRobin:
		i := int(uint64(r.Counter) % uint64(n))
		return open[i], because(explain.RoundRobin, n, r.Counter, i+1)
	case domain.RouteRandom:
		return open[r.Random.IntN(n)], because(explain.Random, n)
	case domain.RouteConsistentHash:
		return hashed(open, r.Key), because(explain.ConsistentHash, n, r.Key)
	case domain.RouteLeastFrequentlyUsed, domain.RouteLeastRecentlyUsed:
		return leastUsed(open, r)
	case domain.RouteAny, domain.RouteBroadcast, domain.RouteFailover, domain.RouteBusyover:
	}
	c := leastLoaded(open, r.Random)
	return c, because(explain.LeastLoaded, n, c.Running, c.Capacity)
}

// leastUsed returns the candidate with the smallest number, and records its use. Among equals, it takes the first by name.
func leastUsed(open []*Candidate, r Request) (*Candidate, decision) {
	best := open[0]
	for _, c := range open[1:] {
		if r.Uses[c.Instance] < r.Uses[best.Instance] {
			best = c
		}
	}
	n, of := r.Uses[best.Instance], len(open)
	why := because(explain.LeastFrequentlyUsed, of, n)
	next := n + 1
	if r.Route == domain.RouteLeastRecentlyUsed {
		why = because(explain.NotUsedYet, of)
		if n > 0 {
			why = because(explain.LeastRecentlyUsed, of, n)
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

// pickHeard applies failover and busyover to candidates that are sorted by name and have room. If it picks none, the decision
// gives the reason.
func pickHeard(open []*Candidate, r Request) (*Candidate, decision) {
	passed := explain.List{}
	answered := false
	for i, c := range open {
		h, ok := r.Heard[c.Instance]
		switch {
		case !ok:
			passed = append(passed, []any{c.Instance, false, 0})
		case r.Route == domain.RouteBusyover && h.JobRuns > 0:
			answered = true
			passed = append(passed, []any{c.Instance, true, h.JobRuns})
		default:
			some, more := few(passed)
			if r.Route == domain.RouteBusyover {
				return c, because(explain.Busyover, len(open), i+1, some, more)
			}
			return c, because(explain.Failover, len(open), i+1, some, more)
		}
	}
	some, more := few(passed)
	if answered {
		return nil, because(explain.AllBusy, some, more)
	}
	return nil, because(explain.NoAnswer, some, more)
}

// few returns the first few of a list, and how many more there are.
func few(all explain.List) (some explain.List, more int) {
	if len(all) <= shown {
		return all, 0
	}
	return all[:shown], len(all) - shown
}

// shown is the maximum number of instances that an explanation names.
const shown = 3

// leastLoaded returns the candidate with the smallest share of its slots in use. If several are equal, it picks one at random.
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

// hashed applies rendezvous hashing: each candidate's score depends only on the key and the candidate's name, so that a
// candidate that joins or leaves moves only its own keys.
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

// Shards assigns the shards of a broadcast to candidates. If total is 0, each candidate gets one shard, which may run only
// there. Otherwise, total shards are distributed round-robin. If there is a pin, all shards may run only on
// that candidate. Without candidates, Shards returns nil.
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
		b := engine.Binding{Route: explain.Of(explain.BroadcastShard, i, total)}
		if c.Room() > 0 {
			b.Instance, b.BootID = c.Instance, c.BootID
			c.Running++
		} else {
			b.Waiting = noRoom([]*Candidate{c})
		}
		out[i] = engine.ShardBinding{Binding: b}
		if pinned {
			out[i].Pin = c.Instance
		}
	}
	return out
}

// noRoom explains that the candidates have no free slot.
func noRoom(cs []*Candidate) explain.Note {
	all := make(explain.List, 0, min(len(cs), shown))
	for _, c := range cs[:min(len(cs), shown)] {
		all = append(all, []any{c.Instance, c.Running, c.Capacity})
	}
	return explain.Of(explain.NoRoom, all, max(len(cs)-shown, 0))
}
