//go:build unix

package faulttest

import (
	"context"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/belfryhq/belfry/internal/e2e/checker"
	"github.com/belfryhq/belfry/internal/e2e/hostile"
	"github.com/belfryhq/belfry/internal/e2e/rig"
)

// nemesis is a lane that injects faults; a seed decides their order. There are six lanes at the same time: two for Belfry's processes
// and their links, one that only freezes processes, one for the NATS servers, one for Postgres, and one for a hostile group. Each lane draws its kinds of
// fault from a shuffled deck, so that each kind is as frequent as it is listed. A lane heals each fault before its next one. Over all
// lanes, freezes are the most frequent kind.
type nemesis struct {
	w       *world
	random  *rand.Rand    // of this lane
	stop    chan struct{} // closed when the lane must end
	kinds   []kind
	pauseLo time.Duration // between two faults of the lane
	pauseHi time.Duration
	always  bool // also in periods without faults
}

// kind is a kind of fault. do injects a fault, heals it, and records it under name.
type kind struct {
	name string
	do   func(n *nemesis, name string)
}

// The kinds of fault, by lane.
var (
	processKinds = []kind{
		{"kill scheduler", killing("scheduler")},
		{"kill dispatcher", killing("dispatcher")},
		{"kill console", killing("console")},
		{"kill executor", killing("executor")},
		{"stop process", stopping("")},
		{"stop executor", stopping("executor")},
		{"freeze scheduler", freezing("scheduler")},
		{"freeze dispatcher", freezing("dispatcher")},
		{"freeze console", freezing("console")},
		{"freeze executor", freezing("executor")},
		{"cut nats", breaking(func(m *member) []*rig.Proxy { return m.nats[:] }, (*rig.Proxy).Cut)},
		{"blackhole nats", breaking(func(m *member) []*rig.Proxy { return m.nats[:] }, (*rig.Proxy).Blackhole)},
		{"cut postgres", breaking(toPostgres, (*rig.Proxy).Cut)},
		{"blackhole postgres", breaking(toPostgres, (*rig.Proxy).Blackhole)},
		{"shift clock", shifting},
	}
	freezeKinds = []kind{
		{"freeze executor", freezing("executor")},
		{"freeze executor", freezing("executor")},
		{"freeze executor", freezing("executor")},
		{"freeze executor", freezing("executor")},
		{"freeze scheduler", freezing("scheduler")},
		{"freeze dispatcher", freezing("dispatcher")},
	}
	natsKinds = []kind{
		{"freeze nats", freezingNATS},
		{"kill nats", func(n *nemesis, name string) { n.nats(name, 5_000, false) }},
		{"wipe nats", func(n *nemesis, name string) { n.nats(name, 3_000, true) }},
		{"freeze nats", freezingNATS},
		{"outage nats", outage},
	}
	hostileKinds  = []kind{{"attack group", attacking}}
	postgresKinds = []kind{
		{"restart postgres", func(n *nemesis, name string) { n.postgres(name, false) }},
		{"kill postgres", func(n *nemesis, name string) { n.postgres(name, true) }},
		{"slow postgres", slowing},
	}
)

// lanes returns the nemeses of a seed.
func lanes(w *world, seed uint64, stop chan struct{}) []*nemesis {
	lane := func(n uint64, kinds []kind, lo, hi time.Duration) *nemesis {
		return &nemesis{w: w, random: rand.New(rand.NewPCG(seed, n)), stop: stop, kinds: kinds, pauseLo: lo, pauseHi: hi}
	}
	attacks := lane(6, hostileKinds, 5*time.Second, 30*time.Second)
	attacks.always = true // an attack does not excuse a late run
	return []*nemesis{
		lane(1, processKinds, time.Second, 6*time.Second),
		lane(2, processKinds, time.Second, 6*time.Second),
		lane(3, natsKinds, 3*time.Second, 9*time.Second),
		lane(4, postgresKinds, 12*time.Second, 30*time.Second),
		lane(5, freezeKinds, time.Second, 4*time.Second),
		attacks,
	}
}

// Periods with faults (toil) and periods without faults (rest) alternate, for all lanes together. A rest shows how Belfry behaves
// without faults.
const (
	toil = 3 * time.Minute
	rest = time.Minute
)

// run injects faults until stop.
func (n *nemesis) run() {
	var deck []int
	for begin := time.Now(); n.wait(n.between(n.pauseLo, n.pauseHi)); {
		if done := time.Since(begin) % (toil + rest); done > toil && !n.always && !n.wait(toil+rest-done) {
			return
		}
		if len(deck) == 0 {
			deck = n.random.Perm(len(n.kinds))
		}
		k := n.kinds[deck[0]]
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
func (n *nemesis) note(kind, target string, from time.Time) {
	n.w.mu.Lock()
	defer n.w.mu.Unlock()
	n.w.faults = append(n.w.faults, checker.Fault{Kind: kind, Target: target, From: from, To: time.Now()})
}

// victim locks a member of a role that has no fault of another lane, and returns it. The role "" means any. The caller unlocks busy.
func (n *nemesis) victim(role string) *member {
	var fit []*member
	for _, m := range n.w.members {
		if role == "" || m.role == role || role == "with postgres" && m.postgres != nil {
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
			m.start()
		})
	}
}

func stopping(role string) func(*nemesis, string) {
	return func(n *nemesis, name string) {
		n.to(name, role, func(m *member) {
			m.stop()
			m.start()
		})
	}
}

// Freezes are shorter or longer than the 10 s for which an attempt may start on a heartbeat.
const freezeLo, freezeHi = 2 * time.Second, 25 * time.Second

func freezing(role string) func(*nemesis, string) {
	return func(n *nemesis, name string) {
		n.to(name, role, func(m *member) {
			if role == "executor" && !n.aim() {
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

func toPostgres(m *member) []*rig.Proxy {
	if m.postgres == nil {
		return nil
	}
	return []*rig.Proxy{m.postgres}
}

func breaking(links func(*member) []*rig.Proxy, how func(*rig.Proxy)) func(*nemesis, string) {
	return func(n *nemesis, name string) {
		role := ""
		if strings.HasSuffix(name, "postgres") {
			role = "with postgres"
		}
		n.to(name, role, func(m *member) {
			for _, p := range links(m) {
				how(p)
			}
			n.wait(n.upTo(14_000))
			for _, p := range links(m) {
				p.Heal()
			}
		})
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

// current waits until all copies of all streams are up to date: a fault of NATS lasts until then.
func (n *nemesis) current() bool {
	deadline := time.Now().Add(rig.Patience)
	for !n.w.nats.Current() {
		if time.Now().After(deadline) {
			n.w.died("the NATS cluster did not catch up within " + rig.Patience.String())
			return false
		}
		if !n.wait(200 * time.Millisecond) {
			return false
		}
	}
	return true
}

// nats kills a NATS server while the other servers have all its data.
func (n *nemesis) nats(kind string, ms int, wipe bool) {
	if !n.current() {
		return
	}
	i := n.random.IntN(rig.Replicas)
	from := time.Now()
	n.w.nats.Nodes[i].Kill()
	if wipe {
		n.w.nats.Wipe(i)
	}
	n.wait(n.upTo(ms))
	n.w.nats.Launch(i)
	n.current()
	n.note(kind, n.w.nats.Nodes[i].Name, from)
}

func freezingNATS(n *nemesis, name string) {
	if !n.current() {
		return
	}
	node := n.w.nats.Nodes[n.random.IntN(rig.Replicas)]
	from := time.Now()
	node.Signal(syscall.SIGSTOP)
	n.wait(n.between(freezeLo, freezeHi))
	node.Signal(syscall.SIGCONT)
	n.current()
	n.note(name, node.Name, from)
}

// outage kills all NATS servers. They keep their storage.
func outage(n *nemesis, name string) {
	if !n.current() {
		return
	}
	from := time.Now()
	for _, node := range n.w.nats.Nodes {
		node.Kill()
	}
	n.wait(n.upTo(12_000))
	for i := range n.w.nats.Nodes {
		n.w.nats.Launch(i)
	}
	n.current()
	n.note(name, "nats", from)
}

// postgres stops Postgres by a shutdown, or by SIGKILL to the postmaster, and starts it again.
func (n *nemesis) postgres(kind string, kill bool) {
	n.w.pgMu.Lock()
	defer n.w.pgMu.Unlock()
	from := time.Now()
	ctx, cancel := context.WithTimeout(context.Background(), rig.Patience)
	defer cancel()
	if kill {
		content, err := os.ReadFile(filepath.Join(n.w.dir, "pg", "postgres", "data", "postmaster.pid"))
		first, _, _ := strings.Cut(string(content), "\n")
		pid, noNumber := strconv.Atoi(first)
		if err != nil || noNumber != nil || pid < 2 {
			n.w.died("Postgres's pid file says " + strconv.Quote(first))
			return
		}
		if p, err := os.FindProcess(pid); err == nil {
			_ = p.Kill()
		}
		<-n.w.pg.Done()
	}
	_ = n.w.pg.Stop(ctx) // returns an error after a kill
	n.wait(n.upTo(3_000))
	n.w.startPostgres()
	n.note(kind, "postgres", from)
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

// slowing delays all data between Belfry and Postgres by up to 200 ms in each direction.
func slowing(n *nemesis, name string) {
	from, d := time.Now(), n.between(20*time.Millisecond, 200*time.Millisecond)
	for _, m := range n.w.members {
		for _, p := range toPostgres(m) {
			p.Delay(d)
		}
	}
	n.wait(n.between(3*time.Second, 15*time.Second))
	for _, m := range n.w.members {
		for _, p := range toPostgres(m) {
			p.Delay(0)
		}
	}
	n.note(name, "postgres", from)
}
