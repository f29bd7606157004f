//go:build unix

package faulttest

import (
	"math/rand/v2"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/belfryhq/belfry/internal/e2e/checker"
	"github.com/belfryhq/belfry/internal/e2e/hostile"
	"github.com/belfryhq/belfry/internal/e2e/rig"
)

// nemesis injects faults, one after the other, and heals each fault before its next one. First it carries out its plan. Then it injects
// faults at random until the test ends, so that the faults of the other nemeses do not become less frequent. A seed decides the order.
type nemesis struct {
	w      *world
	lane   lane
	random *rand.Rand
	stop   <-chan struct{} // closed when the nemesis must end
	plan   []kind
	left   *atomic.Int64 // number of planned faults of all nemeses that are not carried out
}

// The kinds of fault.
var (
	killKinds = []kind{
		{name: "kill scheduler", mean: 3 * time.Second, do: killing("scheduler")},
		{name: "kill dispatcher", mean: 3 * time.Second, do: killing("dispatcher")},
		{name: "kill console", mean: 3 * time.Second, do: killing("console")},
		{name: "kill executor", mean: 3 * time.Second, do: killing("executor")},
	}
	processKinds = append(killKinds[:len(killKinds):len(killKinds)], []kind{
		{name: "stop scheduler", mean: 2 * time.Second, do: stopping("scheduler")},
		{name: "stop dispatcher", mean: 2 * time.Second, do: stopping("dispatcher")},
		{name: "stop console", mean: 2 * time.Second, do: stopping("console")},
		{name: "stop executor", mean: 2 * time.Second, do: stopping("executor")},
		{name: "cut nats", mean: 7 * time.Second, do: breaking(toNATS, (*rig.Proxy).Cut)},
		{name: "blackhole nats", mean: 7 * time.Second, do: breaking(toNATS, (*rig.Proxy).Blackhole)},
		{name: "cut postgres", mean: 7 * time.Second, do: breaking(toPostgres, (*rig.Proxy).Cut)},
		{name: "blackhole postgres", mean: 7 * time.Second, do: breaking(toPostgres, (*rig.Proxy).Blackhole)},
		{name: "shift clock", mean: 10 * time.Second, do: shifting},
	}...)
	freezeKinds = []kind{
		{name: "freeze executor", lots: 2, mean: 14 * time.Second, do: freezing("executor")},
		{name: "freeze scheduler", mean: 14 * time.Second, do: freezing("scheduler")},
		{name: "freeze dispatcher", mean: 14 * time.Second, do: freezing("dispatcher")},
		{name: "freeze console", mean: 14 * time.Second, do: freezing("console")},
	}
	foreignKinds = []kind{
		{name: "kill foreign", mean: 3 * time.Second, do: killing(foreign)},
		{name: "stop foreign", mean: 3 * time.Second, do: stopping(foreign)},
		{name: "freeze foreign", mean: 14 * time.Second, do: freezing(foreign)},
	}
	schedulerKinds = []kind{
		{name: "kill scheduler", mean: 4 * time.Second, do: killing("scheduler")},
		{name: "stop scheduler", mean: 3 * time.Second, do: stopping("scheduler")},
		{name: "freeze scheduler", mean: 14 * time.Second, do: freezing("scheduler")},
		{name: "cut scheduler", slow: true, mean: 7 * time.Second, do: breakingAny("scheduler", (*rig.Proxy).Cut)},
		{name: "blackhole scheduler", slow: true, mean: 7 * time.Second, do: breakingAny("scheduler", (*rig.Proxy).Blackhole)},
	}
	// someProcessKinds are injected while servers have faults.
	someProcessKinds = []kind{
		{name: "kill executor", do: killing("executor")},
		{name: "freeze executor", do: freezing("executor")},
		{name: "kill dispatcher", do: killing("dispatcher")},
		{name: "stop scheduler", do: stopping("scheduler")},
	}
	hostileKinds = []kind{{name: "attack group", slow: true, mean: 13 * time.Second, do: attacking}}
	versionKinds = []kind{
		{name: "replace scheduler", slow: true, mean: 3 * time.Second, do: replacing("scheduler")},
		{name: "replace dispatcher", slow: true, mean: 3 * time.Second, do: replacing("dispatcher")},
		{name: "replace console", slow: true, mean: 3 * time.Second, do: replacing("console")},
		{name: "replace executor", slow: true, mean: 5 * time.Second, do: replacing("executor")},
	}
)

// nemeses returns the nemeses of a part for a seed, and the number of planned faults that are not carried out yet.
func (p part) nemeses(w *world, seed uint64, fast int, stop <-chan struct{}) (all []*nemesis, left *atomic.Int64) {
	left = &atomic.Int64{}
	for i, l := range p.lanes {
		for j, plan := range l.plan(fast, rand.New(rand.NewPCG(seed, uint64(100*i)))) {
			left.Add(int64(len(plan)))
			all = append(all, &nemesis{
				w: w, lane: l, random: rand.New(rand.NewPCG(seed, uint64(100*i+j+1))), stop: stop, plan: plan, left: left,
			})
		}
	}
	return all, left
}

// Periods with faults (toil) and periods without faults (rest) alternate, for all lanes together. A rest shows how Belfry behaves
// without faults.
const (
	toil = 3 * time.Minute
	rest = time.Minute
)

// run injects faults until stop.
func (n *nemesis) run() {
	var deck []kind
	for begin := time.Now(); n.wait(n.between(n.lane.pauseLo, n.lane.pauseHi)); {
		if done := time.Since(begin) % (toil + rest); done > toil && !n.lane.always && !n.wait(toil+rest-done) {
			return
		}
		if len(n.plan) > 0 {
			n.plan[0].do(n, n.plan[0].name)
			n.plan = n.plan[1:]
			n.left.Add(-1)
			continue
		}
		if len(deck) == 0 {
			for _, i := range n.random.Perm(len(n.lane.kinds)) {
				deck = append(deck, n.lane.kinds[i])
			}
		}
		k := deck[0]
		deck = deck[1:]
		k.do(n, k.name)
	}
}

// wait waits for d. It returns false if the lane must end.
func (n *nemesis) wait(d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-n.stop:
		return false
	}
}

func (n *nemesis) between(lo, hi time.Duration) time.Duration {
	return lo + time.Duration(n.random.Int64N(int64(hi-lo)+1))
}

func (n *nemesis) upTo(ms int) time.Duration {
	return n.between(50*time.Millisecond, time.Duration(ms)*time.Millisecond)
}

// note records a fault that ends now.
func (w *world) note(kind, target string, from time.Time) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.faults = append(w.faults, checker.Fault{Kind: kind, Target: target, From: from, To: time.Now()})
}

func (n *nemesis) note(kind, target string, from time.Time) { n.w.note(kind, target, from) }

// victim locks a member of a role that has no fault of another lane, and returns it. The role "" means any of this repository. The caller unlocks busy.
func (n *nemesis) victim(role string) *member {
	var fit []*member
	for _, m := range n.w.members {
		if role == "" && m.role != foreign && !m.inJava() || m.role == role || role == "with postgres" && m.postgres != nil {
			fit = append(fit, m)
		}
	}
	for {
		for _, i := range n.random.Perm(len(fit)) {
			if fit[i].busy.TryLock() {
				fit[i].alive()
				return fit[i]
			}
		}
		if !n.wait(50 * time.Millisecond) {
			return nil
		}
	}
}

// to injects a fault into a victim and records it.
func (n *nemesis) to(kind, role string, do func(m *member)) {
	m := n.victim(role)
	if m == nil {
		return
	}
	defer m.busy.Unlock()
	from := time.Now()
	do(m)
	n.note(kind, m.name, from)
}

func killing(role string) func(*nemesis, string) {
	return func(n *nemesis, name string) {
		n.to(name, role, func(m *member) {
			m.process.Kill()
			n.wait(n.upTo(5_000))
			n.started(m)
		})
	}
}

func stopping(role string) func(*nemesis, string) {
	return func(n *nemesis, name string) {
		n.to(name, role, func(m *member) {
			m.stop()
			n.started(m)
		})
	}
}

// started starts a member's process. The fault of a scheduler lasts until the scheduler is ready again, or ten seconds.
func (n *nemesis) started(m *member) {
	m.start()
	if m.role == "scheduler" {
		m.awaitReady(10 * time.Second)
	}
}

// Freezes are shorter or longer than the 10 s for which an attempt may start on a heartbeat.
const freezeLo, freezeHi = 2 * time.Second, 25 * time.Second

func freezing(role string) func(*nemesis, string) {
	return func(n *nemesis, name string) {
		n.to(name, role, func(m *member) {
			if (m.executes() || m.inJava()) && !n.aim() {
				return
			}
			m.process.Signal(syscall.SIGSTOP)
			n.wait(n.between(freezeLo, freezeHi))
			m.process.Signal(syscall.SIGCONT)
		})
	}
}

// aim waits until just before the next second, when executors have accepted attempts that are due at that second.
func (n *nemesis) aim() bool {
	now := time.Now()
	due := now.Truncate(time.Second).Add(time.Second)
	return n.wait(due.Sub(now) - n.between(0, 15*time.Millisecond))
}

func toNATS(m *member) []*rig.Proxy { return m.nats[:] }

func toPostgres(m *member) []*rig.Proxy { return m.postgres }

// breakingAny breaks the links of a process to NATS, to Postgres, or to both.
func breakingAny(role string, how func(*rig.Proxy)) func(*nemesis, string) {
	return func(n *nemesis, name string) {
		n.to(name, role, func(m *member) {
			links := [][]*rig.Proxy{toNATS(m), toPostgres(m), m.links()}[n.random.IntN(3)]
			n.broken(links, how)
		})
	}
}

func breaking(links func(*member) []*rig.Proxy, how func(*rig.Proxy)) func(*nemesis, string) {
	return func(n *nemesis, name string) {
		role := ""
		if strings.HasSuffix(name, "postgres") {
			role = "with postgres"
		}
		n.to(name, role, func(m *member) {
			n.broken(links(m), how)
		})
	}
}

// broken breaks links for some seconds.
func (n *nemesis) broken(links []*rig.Proxy, how func(*rig.Proxy)) {
	for _, p := range links {
		how(p)
	}
	n.wait(n.upTo(14_000))
	for _, p := range links {
		p.Heal()
	}
}

// shifting sets a process's clock up to a minute forward or back, and corrects it later.
func shifting(n *nemesis, name string) {
	n.to(name, "", func(m *member) {
		m.setClock(n.between(-time.Minute, time.Minute))
		n.wait(n.upTo(20_000))
		m.setClock(0)
	})
}

// attacking runs a hostile client with the token of a group that has no jobs. The client's bounds are a quarter of those of the promise test,
// because three NATS servers share the machine with it.
func attacking(n *nemesis, name string) {
	from := time.Now()
	c := hostile.Config{URL: n.w.nats.ExecutorURL(func(i int) string { return n.w.nats.Nodes[i].Addr() }), Group: hostileGroup, Token: n.w.hostile, Part: 0.25}
	p := rig.Start(n.w.t, "hostile", n.w.dir, filepath.Join(n.w.dir, "hostile.log"), []string{"GOMAXPROCS=1", c.Env()})
	n.wait(n.between(5*time.Second, 20*time.Second))
	p.Kill()
	n.note(name, hostileGroup, from)
}
