package sim

import "time"

// checkLoads checks that no instance says that a slot is taken now that nothing runs.
func (w *World) checkLoads() {
	for deadline := time.Now().Add(30 * time.Second); ; time.Sleep(500 * time.Millisecond) {
		taken := w.slotsTaken()
		if len(taken) == 0 {
			return
		}
		if time.Now().After(deadline) {
			w.fault("all runs are final, and slots are taken: %v", taken)
			return
		}
	}
}

// slotsTaken returns the slots that instances say are taken, as the dispatchers see it.
func (w *World) slotsTaken() map[string]int {
	taken := make(map[string]int)
	for _, n := range w.nodes {
		p := n.life()
		if p == nil || p.disp.Load() == nil {
			continue
		}
		for _, i := range p.disp.Load().Instances("") {
			if i.Running > 0 {
				taken[i.ID+" seen by "+n.name] = i.Running
			}
		}
	}
	return taken
}
