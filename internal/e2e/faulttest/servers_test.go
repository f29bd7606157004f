//go:build unix

package faulttest

import (
	"syscall"
	"time"

	"github.com/belfryhq/belfry/internal/e2e/rig"
)

// The kinds of fault of servers.
var (
	natsKinds = []kind{
		{name: "freeze nats", mean: 20 * time.Second, do: freezingNATS},
		{name: "kill nats", mean: 9 * time.Second, do: func(n *nemesis, name string) { n.nats(name, 5_000, false) }},
		{name: "wipe nats", slow: true, mean: 12 * time.Second, do: func(n *nemesis, name string) { n.nats(name, 3_000, true) }},
		{name: "outage nats", mean: 15 * time.Second, do: outage},
	}
	quorumKinds   = []kind{{name: "quorum nats", slow: true, mean: 22 * time.Second, do: withoutQuorum}}
	postgresKinds = []kind{
		{name: "restart postgres", mean: 4 * time.Second, do: func(n *nemesis, name string) { n.postgres(name, false) }},
		{name: "kill postgres", mean: 4 * time.Second, do: func(n *nemesis, name string) { n.postgres(name, true) }},
		{name: "slow postgres", mean: 9 * time.Second, do: slowing},
	}
	clockKinds    = []kind{{name: "step clock", slow: true, mean: 20 * time.Second, do: stepping}}
	failoverKinds = []kind{{name: "failover postgres", slow: true, mean: 20 * time.Second, do: failingOver}}
	diskKinds     = []kind{
		{name: "fill nats", slow: true, mean: 35 * time.Second, do: fillingNATS},
		{name: "fill postgres", slow: true, mean: 20 * time.Second, do: fillingPostgres},
		{name: "fill spool", slow: true, mean: 12 * time.Second, do: fillingSpool},
	}
)

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

// withoutQuorum freezes or kills two of three NATS servers. The third one accepts connections, and JetStream has no quorum.
func withoutQuorum(n *nemesis, name string) {
	if !n.current() {
		return
	}
	from := time.Now()
	two := n.random.Perm(rig.Replicas)[:2]
	kill := n.random.IntN(2) == 0
	for _, i := range two {
		if kill {
			n.w.nats.Nodes[i].Kill()
		} else {
			n.w.nats.Nodes[i].Signal(syscall.SIGSTOP)
		}
	}
	n.wait(n.between(5*time.Second, 25*time.Second))
	for _, i := range two {
		if kill {
			n.w.nats.Launch(i)
		} else {
			n.w.nats.Nodes[i].Signal(syscall.SIGCONT)
		}
	}
	n.current()
	n.note(name, "nats", from)
}

// postgres stops Postgres by a shutdown, or by SIGKILL to the postmaster, and starts it again.
func (n *nemesis) postgres(kind string, kill bool) {
	pg := n.w.pg
	pg.mu.Lock()
	defer pg.mu.Unlock()
	from := time.Now()
	if kill {
		if err := pg.kill(pg.primary); err != nil {
			n.w.died(err.Error())
			return
		}
	}
	pg.down(pg.primary)
	n.wait(n.upTo(3_000))
	pg.mustStart(pg.primary)
	n.note(kind, "postgres", from)
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

// stepping sets the database's clock by up to a minute. After a step back, nothing fires until the clock has caught up.
func stepping(n *nemesis, name string) {
	pg := n.w.pg
	pg.mu.Lock()
	defer pg.mu.Unlock()
	last := pg.clocks[len(pg.clocks)-1].Ahead
	ahead := last
	for (ahead - last).Abs() < 5*time.Second {
		ahead = n.between(-30*time.Second, 30*time.Second).Truncate(time.Second)
	}
	from := time.Now()
	pg.clock.Set(ahead)
	pg.readClock(from)
	n.wait(max(0, last-ahead))
	n.note(name, "postgres", from)
}

// failingOver kills the primary and promotes the standby. Then it makes the old primary a standby of the new one.
func failingOver(n *nemesis, name string) {
	pg := n.w.pg
	pg.mu.Lock()
	defer pg.mu.Unlock()
	from := time.Now()
	if err := pg.failOver(); err != nil {
		n.w.died(err.Error())
		return
	}
	n.note(name, "postgres", from)
	pg.rebuild(1 - pg.primary)
}

// fillingNATS fills the disks of one or of all NATS servers. A stream whose write failed accepts no messages until its server is
// restarted, so the operator restarts the servers when there is room again.
func fillingNATS(n *nemesis, name string) {
	if !n.current() {
		return
	}
	from := time.Now()
	full := n.random.Perm(rig.Replicas)[:[]int{1, rig.Replicas}[n.random.IntN(2)]]
	var empty []func()
	for _, i := range full {
		e, err := rig.Fill(n.w.natsDir(i))
		if err == nil {
			empty = append(empty, e)
			continue
		}
		n.w.died("fill the disk of a NATS server: " + err.Error())
	}
	n.wait(n.between(5*time.Second, 15*time.Second))
	for _, e := range empty {
		e()
	}
	for _, i := range full {
		n.w.nats.Nodes[i].Kill()
		n.w.nats.Launch(i)
	}
	n.current()
	n.note(name, "nats", from)
}

// fillingPostgres fills the disk of Postgres. If Postgres ends because of it, the operator starts it when there is room again.
func fillingPostgres(n *nemesis, name string) {
	pg := n.w.pg
	pg.mu.Lock()
	defer pg.mu.Unlock()
	from := time.Now()
	empty, err := rig.Fill(pg.sides[pg.primary].dir)
	if err != nil {
		n.w.died("fill the disk of Postgres: " + err.Error())
		return
	}
	n.wait(n.between(5*time.Second, 15*time.Second))
	empty()
	if err := pg.recover(); err != nil {
		n.w.died(err.Error())
	}
	n.note(name, "postgres", from)
}

// fillingSpool fills the disk of an executor's spool.
func fillingSpool(n *nemesis, name string) {
	n.to(name, "executor", func(m *member) {
		empty, err := rig.Fill(m.spool())
		if err != nil {
			n.w.died("fill the disk of an executor: " + err.Error())
			return
		}
		n.wait(n.between(5*time.Second, 15*time.Second))
		empty()
	})
}
