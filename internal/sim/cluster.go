package sim

import (
	"strings"
	"time"

	"github.com/belfryhq/belfry/internal/sim/simnats"
)

// cluster is the set of nodes.
type cluster struct{ nodes []*node }

// node returns the node with the given name.
func (c *cluster) node(name string) *node {
	for _, n := range c.nodes {
		if n.name == name {
			return n
		}
	}
	panic("sim: no node " + name)
}

// start starts the nodes that are down.
func (c *cluster) start() {
	for _, n := range c.nodes {
		n.start()
	}
}

// springTraps springs the traps that wait for a message. The caller holds the lock of the NATS server.
func (c *cluster) springTraps(m simnats.Message) {
	for _, n := range c.nodes {
		p := n.trapped.Load()
		if p == nil {
			continue
		}
		t := p.trap.Load()
		if t == nil || (m.From != p.name && m.To != p.name) {
			continue
		}
		verb := "sends "
		if m.To == p.name {
			verb = "hears "
		}
		if subject, ok := strings.CutPrefix(t.point, verb); ok && strings.HasPrefix(m.Subject, subject) {
			go p.reach(t.point) // a crash needs the server's lock
		}
	}
}

// slotsReleased waits until no instance reports a taken slot. After half a minute, it returns the slots that are still taken.
func (c *cluster) slotsReleased() (taken map[string]int) {
	for deadline := time.Now().Add(30 * time.Second); ; time.Sleep(500 * time.Millisecond) {
		if taken = c.slotsTaken(); len(taken) == 0 || time.Now().After(deadline) {
			return taken
		}
	}
}

// slotsTaken returns the taken slots that instances report, as schedulers and dispatchers see it.
func (c *cluster) slotsTaken() map[string]int {
	taken := make(map[string]int)
	for _, n := range c.nodes {
		p := n.process()
		if p == nil || p.firing.Load() == nil {
			continue
		}
		for _, i := range p.firing.Load().Instances("") {
			if i.Running > 0 {
				taken[i.ID+" seen by "+n.name] = i.Running
			}
		}
	}
	return taken
}

// stop stops every process in order, and waits until the goroutines of crashed processes have ended too.
func (c *cluster) stop() {
	for _, n := range c.nodes {
		if p := n.process(); p != nil {
			p.leave()
		}
	}
	for _, n := range c.nodes {
		for _, p := range n.processes {
			<-p.done
		}
	}
}
