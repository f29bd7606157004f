package route_test

import (
	"fmt"
	"math/rand/v2"

	"github.com/belfryhq/belfry/dispatcher/route"
	"github.com/belfryhq/belfry/internal/domain"
)

// The examples of docs/routes.md.
func ExampleChoose() {
	instances := func() []*route.Candidate {
		return []*route.Candidate{
			{Instance: "a", BootID: "1", Capacity: 4, Running: 2},
			{Instance: "b", BootID: "1", Capacity: 4},
			{Instance: "c", BootID: "1", Capacity: 4, Running: 1},
		}
	}
	for _, r := range []route.Request{
		{Route: domain.RouteAny, Random: rand.New(rand.NewPCG(1, 1))},
		{Route: domain.RouteFirst},
		{Route: domain.RouteLast},
		{Route: domain.RouteRoundRobin, Counter: 3},
		{Route: domain.RouteConsistentHash, Key: "42"},
		{Route: domain.RouteLeastFrequentlyUsed, Uses: route.Uses{"a": 5, "b": 2, "c": 3}},
		{Route: domain.RouteLeastRecentlyUsed, Uses: route.Uses{"a": 3, "b": 1, "c": 2}},
		{Route: domain.RouteFailover, Heard: map[string]route.Heard{"b": {}, "c": {}}},
		{Route: domain.RouteBusyover, Heard: map[string]route.Heard{"a": {JobRuns: 1}, "b": {}, "c": {}}},
		{Route: domain.RouteBusyover, Heard: map[string]route.Heard{"a": {JobRuns: 1}, "b": {JobRuns: 2}}},
		{Route: domain.RouteFirst, Pin: "b"},
	} {
		to := route.Choose(instances(), r)
		fmt.Printf("%s %s%s\n", to.Instance, to.Route.English(), to.Waiting.English())
	}
	for _, s := range route.Shards(instances(), 0, "") {
		fmt.Println(s.Instance, s.Route.English())
	}
	// Output:
	// b any: the least loaded of 3, 0 of 4 slots taken
	// a first of 3 by name
	// c last of 3 by name
	// a round_robin: turn 3, number 1 of 3
	// c consistent_hash of "42" over 3
	// b least_frequently_used: given 2 runs today, the fewest of 3
	// b least_recently_used: last used at turn 1, the longest ago of 3
	// b failover: number 2 of 3 by name, the first that answered a ping; a did not answer
	// b busyover: number 2 of 3 by name, the first that is idle for the job; a has 1 run of the job
	//  no instance is idle for the job: a has 1 run of the job, b has 2 runs of the job, c did not answer
	// b asked for by name
	// a broadcast: shard 0 of 3
	// b broadcast: shard 1 of 3
	// c broadcast: shard 2 of 3
}
