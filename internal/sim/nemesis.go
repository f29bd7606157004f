package sim

import (
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/belfryhq/belfry/executor/wire"
	"github.com/belfryhq/belfry/internal/sim/simnats"
)

// nemesis breaks the cluster, and heals it in the end.
type nemesis struct {
	*journal
	cluster *cluster
	faults  *faults
	nats    *simnats.Server
	steps   sync.WaitGroup // steps and freezes in progress
	healed  atomic.Bool    // after this, no step may break anything
	skewed  atomic.Bool    // a process measured the database's clock wrong

	mu      sync.Mutex
	wipedAt []time.Time // when NATS lost its storage
}

// crash kills a process and starts the node again after a while.
func (n *nemesis) crash(name string, down time.Duration, disk bool) {
	if p := n.cluster.node(name).process(); p != nil && !n.healed.Load() {
		p.crash("killed", disk)
		time.Sleep(down)
	}
	n.cluster.node(name).start()
}

// crashAt sets a trap, which crashes or freezes a process when it reaches a point again after skip times. The trap ends after
// ten seconds.
func (n *nemesis) crashAt(name string, t *trap, skip int64, down time.Duration) {
	node := n.cluster.node(name)
	p := node.process()
	if p == nil || n.healed.Load() {
		return
	}
	t.skip.Store(skip)
	p.trap.Store(t)
	node.trapped.Store(p)
	select {
	case <-p.dead:
		time.Sleep(down)
		node.start()
	case <-time.After(10 * time.Second):
		p.trap.CompareAndSwap(t, nil)
	}
}

// loseBoth kills an executor with its disk when it has published a result, and the dispatchers before they settle one.
func (n *nemesis) loseBoth(name string, down time.Duration) {
	var all sync.WaitGroup
	all.Go(func() { n.crashAt(name, &trap{point: "sends belfry.v1.result", disk: true}, 0, down) })
	for _, d := range []string{"d1", "d2"} {
		all.Go(func() { n.crashAt(d, &trap{point: "before Settle"}, 0, down) })
	}
	all.Wait()
}

// restart stops a process in order and starts the node again after a while.
func (n *nemesis) restart(name string, down time.Duration) {
	node := n.cluster.node(name)
	if p := node.process(); p != nil && !n.healed.Load() {
		p.leave()
		time.Sleep(down)
	}
	node.start()
}

func (n *nemesis) freeze(name string, d time.Duration) {
	if p := n.cluster.node(name).process(); p != nil && !n.healed.Load() {
		n.event("nemesis", fmt.Sprintf("freezes %s for %s", p.title, d))
		p.freeze(d)
	}
}

func (n *nemesis) freezeAll(d time.Duration, names ...string) {
	var all sync.WaitGroup
	for _, name := range names {
		all.Go(func() { n.freeze(name, d) })
	}
	all.Wait()
}

// cutOff disconnects a process from the network for a while.
func (n *nemesis) cutOff(name string, d time.Duration) {
	node := n.cluster.node(name)
	p := node.process()
	if p == nil || n.healed.Load() {
		return
	}
	n.event("nemesis", fmt.Sprintf("cuts %s off for %s", p.title, d))
	node.beginTrouble("cut off")
	p.link.Cut(true)
	time.Sleep(d)
	p.link.Cut(false)
	node.endTrouble("cut off")
}

func (n *nemesis) restartNATS(down time.Duration, wipe bool) {
	if n.healed.Load() {
		return
	}
	n.event("nemesis", fmt.Sprintf("NATS away for %s, wiped %v", down, wipe))
	n.nats.Stop()
	time.Sleep(down)
	wipe = wipe && !n.healed.Load() // heal has started NATS already
	if wipe {
		n.mu.Lock()
		n.wipedAt = append(n.wipedAt, time.Now())
		n.mu.Unlock()
	}
	n.nats.Start(wipe)
}

// siege directs acknowledgements to the keys of instances, so that the bucket refuses their heartbeats.
func (n *nemesis) siege(d, period time.Duration, keys ...string) {
	n.event("nemesis", fmt.Sprintf("disturbs %v every %s for %s", keys, period, d))
	for end := time.Now().Add(d); time.Now().Before(end) && !n.healed.Load(); time.Sleep(period) {
		for _, k := range keys {
			n.nats.Direct(wire.InstanceSubject(k), []byte(`{"stream":"BELFRY_RESULTS","seq":1}`))
		}
	}
}

func (n *nemesis) databaseAway(d time.Duration) {
	if n.healed.Load() {
		return
	}
	n.event("nemesis", fmt.Sprintf("Postgres away for %s", d))
	n.faults.awayUntil.Store(time.Now().Add(d).UnixNano())
}

// troubleStore makes transactions fail, and hides the outcome of others from their callers.
func (n *nemesis) troubleStore(fails, unknown float64, d time.Duration) {
	if n.healed.Load() {
		return
	}
	n.event("nemesis", fmt.Sprintf("%.3f of the transactions fail, of %.3f the outcome is unknown, for %s", fails, unknown, d))
	n.faults.fails.Store(int64(fails * 1e6))
	n.faults.unknown.Store(int64(unknown * 1e6))
	time.Sleep(d)
	n.faults.fails.Store(0)
	n.faults.unknown.Store(0)
}

// troubleNetwork loses and delays messages.
func (n *nemesis) troubleNetwork(loss, spikes float64, d time.Duration) {
	if n.healed.Load() {
		return
	}
	n.event("nemesis", fmt.Sprintf("%.3f of the messages are lost, %.3f late, for %s", loss, spikes, d))
	n.faults.loss.Store(int64(loss * 1e6))
	n.faults.spikes.Store(int64(spikes * 1e6))
	time.Sleep(d)
	n.faults.loss.Store(0)
	n.faults.spikes.Store(0)
}

// skew makes a process measure the database's clock wrong.
func (n *nemesis) skew(name string, d time.Duration) {
	if p := n.cluster.node(name).process(); p != nil && !n.healed.Load() {
		n.event("nemesis", fmt.Sprintf("%s measures the database's clock %s fast", p.title, d))
		n.skewed.Store(true)
		p.store.Skew(d)
	}
}

// heal ends all faults and starts what is down. After it, no step breaks anything.
func (n *nemesis) heal() {
	n.healed.Store(true)
	n.event("nemesis", "all is healed")
	n.faults.clear()
	n.nats.Start(false)
	for _, node := range n.cluster.nodes {
		node.trapped.Store(nil)
		if p := node.process(); p != nil {
			p.trap.Store(nil)
			p.frozenUntil.Store(0)
			p.link.Freeze(false)
			node.endTrouble("cut off")
			node.endTrouble("frozen")
		}
		node.start()
	}
}
