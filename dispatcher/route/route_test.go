package route_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/belfryhq/belfry/dispatcher/route"
	"github.com/belfryhq/belfry/internal/domain"
)

// candidates creates instances a, b, … with the given capacity. running holds their slots in use.
func candidates(capacity int, running ...int) []*route.Candidate {
	out := make([]*route.Candidate, len(running))
	for i, n := range running {
		name := string(rune('a' + i))
		out[i] = &route.Candidate{Instance: name, BootID: "boot-" + name, Capacity: capacity, Running: n}
	}
	return out
}

// heard returns the answers of the instances, one letter each, with their numbers of runs of the job.
func heard(instances string, runs ...int) map[string]route.Heard {
	out := make(map[string]route.Heard)
	for i, name := range instances {
		out[string(name)] = route.Heard{JobRuns: runs[i]}
	}
	return out
}

func seeded(seed uint64) *rand.Rand { return rand.New(rand.NewPCG(seed, 1)) }

func TestChoose(t *testing.T) {
	for _, tt := range []struct {
		name       string
		candidates []*route.Candidate
		request    route.Request
		want       string // the instance; "" means that the run waits
		why        string // part of the reason
	}{
		{"no instance", nil, route.Request{Route: domain.RouteAny, Target: "echo"}, "", "no live instance offers the handler"},
		{"no instance for a script", nil, route.Request{Route: domain.RouteAny, Target: domain.ScriptTarget("python")}, "", "no live instance runs scripts in python"},
		{"no instance has room", candidates(2, 2, 3), route.Request{Route: domain.RouteAny}, "", "no free slot: a has 2 of 2 taken"},
		{"any: the least loaded", candidates(10, 5, 2, 9), route.Request{Route: domain.RouteAny}, "b", "least loaded of 3"},
		{"any: load is a share of the slots", []*route.Candidate{
			{Instance: "big", Capacity: 100, Running: 20}, {Instance: "small", Capacity: 4, Running: 1},
		}, route.Request{Route: domain.RouteAny}, "big", "any"},
		{"the only one with room", candidates(2, 2, 1, 2), route.Request{Route: domain.RouteLast}, "b", "2 of 3 instances had no free slot"},
		{"first", candidates(2, 1, 0, 0), route.Request{Route: domain.RouteFirst}, "a", "first of 3"},
		{"first is full", candidates(2, 2, 0, 0), route.Request{Route: domain.RouteFirst}, "b", "first of 2"},
		{"last", candidates(2, 0, 0, 1), route.Request{Route: domain.RouteLast}, "c", "last of 3"},
		{"round_robin 0", candidates(9, 8, 0, 0), route.Request{Route: domain.RouteRoundRobin}, "a", "number 1 of 3"},
		{"round_robin 4", candidates(9, 0, 0, 0), route.Request{Route: domain.RouteRoundRobin, Counter: 4}, "b", "turn 4"},
		{"round_robin after a lap of the counter", candidates(9, 0, 0, 0), route.Request{Route: domain.RouteRoundRobin, Counter: -1}, "a", "turn -1"},
		{"pin", candidates(2, 0, 1, 0), route.Request{Route: domain.RouteFirst, Pin: "b"}, "b", "by name"},
		{"pin is full", candidates(2, 0, 2, 0), route.Request{Route: domain.RouteFirst, Pin: "b"}, "", "no free slot: b has 2 of 2"},
		{"pin is gone", candidates(2, 0), route.Request{Route: domain.RouteFirst, Pin: "z"}, "", "may only run on z"},
		{"pin, no instance", nil, route.Request{Pin: "z"}, "", "may only run on z"},
		{"pin beats avoid", candidates(2, 0, 0), route.Request{Route: domain.RouteFirst, Pin: "b", Avoid: "b"}, "b", "by name"},
		{"least_frequently_used", candidates(9, 0, 0, 0), route.Request{Route: domain.RouteLeastFrequentlyUsed, Uses: route.Uses{"a": 5, "b": 2, "c": 2}}, "b", "given 2 runs today, the fewest of 3"},
		{"least_frequently_used, the least one is full", candidates(2, 0, 2, 0), route.Request{Route: domain.RouteLeastFrequentlyUsed, Uses: route.Uses{"a": 5, "b": 2, "c": 4}}, "c", "given 4 runs today, the fewest of 2"},
		{"least_recently_used", candidates(9, 0, 0, 0), route.Request{Route: domain.RouteLeastRecentlyUsed, Uses: route.Uses{"a": 5, "b": 9, "c": 7}}, "a", "last used at turn 5, the longest ago of 3"},
		{"least_recently_used, a newcomer", candidates(9, 0, 0), route.Request{Route: domain.RouteLeastRecentlyUsed, Uses: route.Uses{"a": 5, "b": 0}}, "b", "not used yet, of 2"},
		{"failover", candidates(9, 0, 0, 0), route.Request{Route: domain.RouteFailover, Heard: heard("bc", 3, 0)}, "b", "number 2 of 3 by name, the first that answered a ping; a did not answer"},
		{"failover, no answer", candidates(9, 0, 0), route.Request{Route: domain.RouteFailover, Heard: heard("")}, "", "no instance answered a ping: a did not answer, b did not answer"},
		{"failover, all are full", candidates(2, 2), route.Request{Route: domain.RouteFailover, Heard: heard("")}, "", "no free slot"},
		{"busyover", candidates(9, 0, 0, 0), route.Request{Route: domain.RouteBusyover, Heard: heard("abc", 2, 0, 0)}, "b", "number 2 of 3 by name, the first that is idle for the job; a has 2 runs of the job"},
		{"busyover, all are busy", candidates(9, 0, 0), route.Request{Route: domain.RouteBusyover, Heard: heard("ab", 2, 1)}, "", "no instance is idle for the job: a has 2 runs of the job, b has 1 run of the job"},
		{"busyover, no answer", candidates(9, 0), route.Request{Route: domain.RouteBusyover, Heard: heard("")}, "", "no instance answered a ping"},
		{"busyover, pinned", candidates(9, 0), route.Request{Route: domain.RouteBusyover, Pin: "a"}, "a", "by name"},
		{"avoid", candidates(2, 0, 0), route.Request{Route: domain.RouteFirst, Avoid: "a"}, "b", "not a, which had it before"},
		{"avoid the only instance", candidates(2, 0), route.Request{Route: domain.RouteFirst, Avoid: "a"}, "a", "only instance"},
		{"avoid an instance that is gone", candidates(2, 0, 0), route.Request{Route: domain.RouteFirst, Avoid: "z"}, "a", "first of 2"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			tt.request.Random = seeded(1)
			before := 0
			for _, c := range tt.candidates {
				before += c.Running
			}
			got := route.Choose(tt.candidates, tt.request)
			if got.Instance != tt.want || !strings.Contains(got.Route.English()+got.Waiting.English(), tt.why) {
				t.Fatalf("got %+v, want %q because %q", got, tt.want, tt.why)
			}
			after := 0
			for _, c := range tt.candidates {
				after += c.Running
				if c.Instance == got.Instance && c.BootID != got.BootID {
					t.Errorf("boot %q of instance %+v", got.BootID, c)
				}
			}
			taken := 0
			if tt.want != "" {
				taken = 1
			}
			if after-before != taken {
				t.Errorf("%d slots were taken", after-before)
			}
			if (got.Waiting == "") == (got.Instance == "") {
				t.Errorf("a run is bound or waits: %+v", got)
			}
		})
	}
}

// The run goes to an instance with room, or waits. If only the avoided instance has room, both outcomes are allowed.
func TestChooseProperties(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		cs := candidates(0, make([]int, rapid.IntRange(0, 6).Draw(t, "instances"))...)
		names := []string{"", "z"}
		for _, c := range cs {
			c.Capacity = rapid.IntRange(0, 3).Draw(t, "capacity")
			c.Running = rapid.IntRange(0, 4).Draw(t, "running")
			names = append(names, c.Instance)
		}
		q := route.Request{
			Route: rapid.SampledFrom(domain.Routes).Draw(t, "route"), Key: rapid.String().Draw(t, "key"),
			Counter: rapid.Int64().Draw(t, "counter"), Pin: rapid.SampledFrom(names).Draw(t, "pin"),
			Avoid: rapid.SampledFrom(names).Draw(t, "avoid"), Random: seeded(rapid.Uint64().Draw(t, "seed")),
			Uses: make(route.Uses), Heard: make(map[string]route.Heard),
		}
		open := make(map[string]bool)
		for _, c := range cs {
			q.Uses[c.Instance] = rapid.Int64Range(0, 3).Draw(t, "uses")
			answers, runs := rapid.Bool().Draw(t, "answers"), rapid.IntRange(0, 1).Draw(t, "runs of the job")
			if answers {
				q.Heard[c.Instance] = route.Heard{JobRuns: runs}
			}
			// An instance that does not answer, or is busy, counts as full.
			if c.Room() > 0 && (!q.Route.Asks() || q.Pin != "" || (answers && (runs == 0 || q.Route == domain.RouteFailover))) {
				open[c.Instance] = true
			}
		}
		got := route.Choose(cs, q)
		others := 0
		for name := range open {
			if name != q.Avoid {
				others++
			}
		}
		switch {
		case got.Instance != "" && !open[got.Instance]:
			t.Fatalf("%s has no room", got.Instance)
		case q.Pin != "" && got.Instance != "" && got.Instance != q.Pin:
			t.Fatalf("pinned to %s, went to %s", q.Pin, got.Instance)
		case q.Pin != "" && open[q.Pin] && got.Instance == "":
			t.Fatalf("%s has room, but the run that is pinned to it waits", q.Pin)
		case q.Pin == "" && others > 0 && (got.Instance == "" || got.Instance == q.Avoid):
			t.Fatalf("%d others have room, went to %q", others, got.Instance)
		}
	})
}

// The order of the candidates does not matter.
func TestChooseIgnoresOrder(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		q := route.Request{
			Route:   rapid.SampledFrom([]domain.Route{domain.RouteFirst, domain.RouteLast, domain.RouteRoundRobin, domain.RouteConsistentHash}).Draw(t, "route"),
			Key:     rapid.String().Draw(t, "key"),
			Counter: rapid.Int64().Draw(t, "counter"),
		}
		order := rapid.Permutation([]int{0, 1, 2, 3, 4}).Draw(t, "order")
		sorted, mixed := candidates(9, 0, 0, 0, 0, 0), candidates(9, 0, 0, 0, 0, 0)
		for i, at := range order {
			mixed[i] = candidates(9, 0, 0, 0, 0, 0)[at]
		}
		if a, b := route.Choose(sorted, q), route.Choose(mixed, q); a.Instance != b.Instance {
			t.Fatalf("%s for one order, %s for another", a.Instance, b.Instance)
		}
	})
}

func TestBalance(t *testing.T) {
	const runs, instances = 3000, 3
	for _, r := range []domain.Route{domain.RouteAny, domain.RouteRandom, domain.RouteRoundRobin, domain.RouteConsistentHash} {
		t.Run(string(r), func(t *testing.T) {
			cs := candidates(runs, 0, 0, 0)
			random := seeded(7)
			for i := range runs {
				route.Choose(cs, route.Request{Route: r, Key: fmt.Sprint(i), Counter: int64(i), Random: random})
			}
			slack := 0
			if r == domain.RouteRandom || r == domain.RouteConsistentHash {
				slack = 150 // more than five standard deviations
			}
			for _, c := range cs {
				if off := c.Running - runs/instances; off > slack || off < -slack {
					t.Errorf("%s got %d of %d", c.Instance, c.Running, runs)
				}
			}
		})
	}
}

// Equal instances share consecutive runs. The first one does not get all of them.
func TestAnyTiesAreRandom(t *testing.T) {
	seen := make(map[string]int)
	random := seeded(3)
	for range 300 {
		seen[route.Choose(candidates(4, 1, 1, 1), route.Request{Route: domain.RouteAny, Random: random}).Instance]++
	}
	for name, n := range seen {
		if n < 60 {
			t.Errorf("%s got %d of 300", name, n)
		}
	}
	if len(seen) != 3 {
		t.Errorf("went to %v", seen)
	}
}

// When one of n instances leaves, only its own keys move. When it returns, it gets them back.
func TestConsistentHashMovesLittle(t *testing.T) {
	const keys = 2000
	choose := func(key int, without string) string {
		cs := slices.DeleteFunc(candidates(9, 0, 0, 0, 0, 0), func(c *route.Candidate) bool { return c.Instance == without })
		return route.Choose(cs, route.Request{Route: domain.RouteConsistentHash, Key: fmt.Sprint(key)}).Instance
	}
	moved := 0
	for key := range keys {
		before, after := choose(key, ""), choose(key, "c")
		if before != after {
			moved++
			if before != "c" {
				t.Fatalf("key %d moved from %s to %s, though c left", key, before, after)
			}
		}
	}
	if moved < keys/5-100 || moved > keys/5+100 {
		t.Errorf("%d of %d keys moved", moved, keys)
	}
}

func TestShards(t *testing.T) {
	if got := route.Shards(nil, 3, ""); got != nil {
		t.Errorf("shards without instances: %v", got)
	}
	for _, tt := range []struct {
		name    string
		running []int // of 2 slots
		total   int
		pin     string
		want    []string // the instance; "!" comes before the pin of a run that waits
	}{
		{"one for each", []int{0, 0, 0}, 0, "", []string{"a", "b", "c"}},
		{"one for each, one of them full", []int{0, 2, 0}, 0, "", []string{"a", "!b", "c"}},
		{"fewer than instances", []int{0, 0, 0}, 2, "", []string{"a", "b"}},
		{"more than instances", []int{0, 0}, 3, "", []string{"a", "b", "a"}},
		{"more than slots", []int{1, 1}, 5, "", []string{"a", "b", "!", "!", "!"}},
		{"one for the chosen one", []int{0, 0, 0}, 0, "b", []string{"b"}},
		{"all for the chosen one", []int{0, 0, 0}, 3, "b", []string{"b", "b", "!b"}},
		{"the chosen one is not there", []int{0, 0}, 2, "z", nil},
	} {
		t.Run(tt.name, func(t *testing.T) {
			cs := candidates(2, tt.running...)
			slices.Reverse(cs)
			var got []string
			for i, s := range route.Shards(cs, tt.total, tt.pin) {
				if (tt.total == 0 || tt.pin != "") != (s.Pin != "") {
					t.Errorf("shard %d is pinned to %q", i, s.Pin)
				}
				if s.Instance == "" {
					if s.Waiting == "" {
						t.Errorf("shard %d does not say why it waits", i)
					}
					got = append(got, "!"+s.Pin)
					continue
				}
				if s.BootID != "boot-"+s.Instance || (s.Pin != "" && s.Pin != s.Instance) {
					t.Errorf("shard %d: %+v", i, s)
				}
				got = append(got, s.Instance)
			}
			if !slices.Equal(got, tt.want) {
				t.Errorf("went to %v, want %v", got, tt.want)
			}
			for _, c := range cs {
				if c.Running > c.Capacity {
					t.Errorf("%s has %d of %d slots taken", c.Instance, c.Running, c.Capacity)
				}
			}
		})
	}
}

// least_frequently_used and least_recently_used distribute runs evenly. If all instances always have room, no instance gets
// two runs more than another. With least_recently_used, no instance is used again before all others were used.
func TestByUseGoesRound(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(1, 6).Draw(t, "instances")
		r := rapid.SampledFrom([]domain.Route{domain.RouteLeastFrequentlyUsed, domain.RouteLeastRecentlyUsed}).Draw(t, "route")
		cs := candidates(1000, make([]int, n)...)
		uses := make(route.Uses)
		given := make(map[string]int)
		var order []string
		for range rapid.IntRange(1, 40).Draw(t, "runs") {
			got := route.Choose(cs, route.Request{Route: r, Uses: uses}).Instance
			given[got]++
			order = append(order, got)
		}
		for _, a := range cs {
			for _, b := range cs {
				if d := given[a.Instance] - given[b.Instance]; d > 1 {
					t.Fatalf("%s was given %d more than %s", a.Instance, d, b.Instance)
				}
			}
		}
		for i := n; r == domain.RouteLeastRecentlyUsed && i < len(order); i++ {
			if order[i] != order[i-n] {
				t.Fatalf("%v does not go round", order)
			}
		}
	})
}
