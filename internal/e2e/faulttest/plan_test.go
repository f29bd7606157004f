//go:build unix

package faulttest

import (
	"math/rand/v2"
	"slices"
	"testing"
	"time"
)

// part is a part of the fault test: a cluster with certain servers, and the faults that it suffers. Each part has its own lanes of
// faults. A fault is planned a number of times: the plan of a lane contains each of its kinds as often as required, in a random order,
// and the part ends when all plans are carried out. So the number of faults of a kind does not depend on luck or on the machine.
type part struct {
	name  string
	needs setup // the fields previous, python and java only say that they are needed
	lanes []lane
}

// lane injects faults one after the other.
type lane struct {
	kinds            []kind
	goroutines       int // which share the plan; 0: one
	pauseLo, pauseHi time.Duration
	always           bool // also in periods without faults
	extra            bool // nothing is planned: the lane injects faults until the other lanes have carried out their plans
}

// kind is a kind of fault. do injects a fault, heals it, and records it under name.
type kind struct {
	name string
	slow bool          // it is planned slowShare times less often
	lots int           // it is planned lots times as often; 0: once
	mean time.Duration // how long it takes on a quiet machine, to estimate the length of a part
	do   func(n *nemesis, name string)
}

// slowShare is the ratio between the numbers of fast and of slow faults.
const slowShare = 4

// times returns how often a kind is planned if an ordinary kind is planned fast times.
func (k kind) times(fast int) int {
	if k.slow {
		return (fast + slowShare - 1) / slowShare
	}
	return fast * max(k.lots, 1)
}

// plan returns the faults of a lane in random order, dealt to its goroutines.
func (l lane) plan(fast int, random *rand.Rand) [][]kind {
	var all []kind
	for _, k := range l.kinds {
		for range k.times(fast) {
			if !l.extra {
				all = append(all, k)
			}
		}
	}
	random.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
	out := make([][]kind, max(l.goroutines, 1))
	for i, k := range all {
		out[i%len(out)] = append(out[i%len(out)], k)
	}
	return out
}

// estimate returns how long a part takes on a quiet machine, without its beginning and its end.
func (p part) estimate(fast int) (longest time.Duration) {
	for _, l := range p.lanes {
		total := time.Duration(0)
		for _, k := range l.kinds {
			if !l.extra {
				total += time.Duration(k.times(fast)) * (k.mean + (l.pauseLo+l.pauseHi)/2)
			}
		}
		total /= time.Duration(max(l.goroutines, 1))
		if !l.always {
			total += total * rest / toil
		}
		longest = max(longest, total)
	}
	return longest
}

// planned returns how often each kind of fault is planned in a part.
func (p part) planned(fast int) map[string]int {
	out := make(map[string]int)
	for _, l := range p.lanes {
		for _, k := range l.kinds {
			if !l.extra {
				out[k.name] += k.times(fast)
			}
		}
	}
	return out
}

// mixed is the part that `go test` runs: all lanes of the parts processes and servers, until a fixed time has passed.
const mixed = "mixed"

// parts returns the parts of the fault test.
func parts() []part {
	seconds := func(s int) time.Duration { return time.Duration(s) * time.Second }
	attacks := lane{kinds: hostileKinds, pauseLo: seconds(5), pauseHi: seconds(30), always: true} // an attack does not excuse a late run
	some := lane{kinds: someProcessKinds, pauseLo: seconds(3), pauseHi: seconds(9), extra: true}
	return []part{
		{name: mixed, lanes: []lane{
			{kinds: processKinds, goroutines: 2, pauseLo: seconds(1), pauseHi: seconds(6)},
			{kinds: freezeKinds, pauseLo: seconds(1), pauseHi: seconds(4)},
			{kinds: natsKinds, pauseLo: seconds(3), pauseHi: seconds(9)},
			{kinds: postgresKinds, pauseLo: seconds(12), pauseHi: seconds(30)},
			attacks,
		}},
		{name: "processes", needs: setup{python: "yes"}, lanes: []lane{
			{kinds: slices.Concat(processKinds, freezeKinds, foreignKinds), goroutines: 4, pauseLo: seconds(1), pauseHi: seconds(4)},
			attacks,
		}},
		{name: "servers", needs: setup{python: "yes"}, lanes: []lane{
			{kinds: slices.Concat(natsKinds, quorumKinds), pauseLo: seconds(2), pauseHi: seconds(5)},
			{kinds: postgresKinds, pauseLo: seconds(8), pauseHi: seconds(16)},
			some,
			attacks,
		}},
		{name: "schedulers", lanes: []lane{
			// With only one lane, one of two schedulers works. The pause is longer than the time until a scheduler works again.
			{kinds: schedulerKinds, pauseLo: seconds(6), pauseHi: seconds(8), always: true},
			attacks,
		}},
		{name: "clock", needs: setup{clock: true}, lanes: []lane{
			{kinds: clockKinds, pauseLo: seconds(25), pauseHi: seconds(40), always: true},
			some,
		}},
		{name: "failover", needs: setup{standby: true}, lanes: []lane{
			{kinds: failoverKinds, pauseLo: seconds(20), pauseHi: seconds(40), always: true},
			some,
		}},
		{name: "disks", needs: setup{disks: true}, lanes: []lane{
			{kinds: diskKinds, pauseLo: seconds(15), pauseHi: seconds(25), always: true},
			some,
		}},
		{name: "versions", needs: setup{previous: &noRelease}, lanes: []lane{
			{kinds: versionKinds, pauseLo: seconds(4), pauseHi: seconds(12)},
			{kinds: killKinds, pauseLo: seconds(4), pauseHi: seconds(12), extra: true},
		}},
		{name: "gateway", needs: setup{java: "yes"}, lanes: []lane{
			{kinds: gatewayKinds, pauseLo: seconds(2), pauseHi: seconds(6)},
			{kinds: xxlKinds, pauseLo: seconds(3), pauseHi: seconds(7)},
			{kinds: awayKinds, pauseLo: seconds(8), pauseHi: seconds(16)},
			{kinds: someProcessKinds, pauseLo: seconds(5), pauseHi: seconds(15), extra: true},
		}},
	}
}

// Each part of the long tier takes at most half an hour, and each kind of fault is planned often enough in one of them.
func TestPlans(t *testing.T) {
	t.Parallel()
	const fast, slow, most = 20, 5, 28 * time.Minute
	total := make(map[string]int)
	for _, p := range parts() {
		if p.name == mixed {
			continue
		}
		d := p.estimate(fast).Round(time.Minute)
		t.Logf("%-10s takes about %v", p.name, d)
		if d > most {
			t.Errorf("%s takes about %v", p.name, d)
		}
		planned := p.planned(fast)
		dealt := make(map[string]int)
		for i, l := range p.lanes {
			for _, share := range l.plan(fast, rand.New(rand.NewPCG(1, uint64(i)))) {
				for _, k := range share {
					dealt[k.name]++
				}
			}
		}
		for name, n := range planned {
			if total[name] += n; dealt[name] != n {
				t.Errorf("%s: the lanes of %s have %d faults, want %d", name, p.name, dealt[name], n)
			}
		}
	}
	for _, name := range []string{
		"kill scheduler", "kill dispatcher", "kill console", "kill executor", "stop scheduler", "stop dispatcher", "stop console", "stop executor",
		"freeze scheduler", "freeze dispatcher", "freeze console", "freeze executor", "kill foreign", "stop foreign", "freeze foreign",
		"cut nats", "blackhole nats", "cut postgres", "blackhole postgres", "shift clock", "freeze nats", "kill nats", "outage nats",
		"restart postgres", "kill postgres", "slow postgres", "kill gateway", "stop gateway", "freeze gateway", "kill xxl", "kill and restart xxl", "stop xxl", "freeze xxl",
	} {
		if total[name] < fast {
			t.Errorf("%s is planned only %d times", name, total[name])
		}
	}
	for _, name := range []string{
		"wipe nats", "quorum nats", "step clock", "failover postgres", "fill nats", "fill postgres", "fill spool", "attack group",
		"replace scheduler", "replace dispatcher", "replace console", "replace executor", "cut gateway", "blackhole gateway",
	} {
		if total[name] < slow {
			t.Errorf("%s is planned only %d times", name, total[name])
		}
	}
}
