package sim

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/belfryhq/belfry/internal/domain"
)

// createJobs stores the plan's jobs.
func (w *World) createJobs() {
	for _, j := range w.plan.jobs {
		spec := j.spec
		for _, c := range j.children {
			spec.Children = append(spec.Children, domain.Child{JobID: w.jobs[c], On: domain.OnSuccess})
		}
		made, err := w.hands.CreateJob(context.Background(), spec, "sim")
		if err != nil {
			w.fault("create job %+v: %v", spec, err)
			continue
		}
		w.jobs = append(w.jobs, made.ID)
	}
}

func (w *World) edit(i int, change func(*domain.JobSpec)) {
	_, after, err := w.hands.EditJob(context.Background(), w.jobs[i], 0, "sim", func(s *domain.JobSpec) error {
		change(s)
		return nil
	})
	if err == nil {
		w.event("hands", fmt.Sprintf("edit job %d: version %d, enabled %v, %s", after.ID, after.Version, after.Enabled, after.Schedule.Kind))
	} else if domain.CodeOf(err) != domain.NotFound {
		w.fault("edit job %d: %v", w.jobs[i], err)
	}
}

func (w *World) trigger(i, n int) {
	for range n {
		ids, err := w.hands.Trigger(context.Background(), w.jobs[i], domain.Trigger{Cause: domain.CauseManual})
		if err == nil {
			w.event("hands", fmt.Sprintf("trigger job %d: run %s", w.jobs[i], ids[0]))
		}
	}
}

// remove deletes a job; one that is a child stays.
func (w *World) remove(i int) {
	if _, err := w.hands.DeleteJob(context.Background(), w.jobs[i], 0, "sim"); err == nil {
		w.event("hands", fmt.Sprintf("delete job %d", w.jobs[i]))
	}
}

// kill kills an unfinished run through a process that is there.
func (w *World) kill(draw uint64) {
	var ids []domain.RunID
	for _, r := range w.db.Runs() {
		if !r.State.Final() {
			ids = append(ids, r.ID)
		}
	}
	if len(ids) == 0 {
		return
	}
	id := ids[draw%uint64(len(ids))]
	for _, n := range w.nodes {
		p := n.life()
		if p == nil || p.disp.Load() == nil {
			continue
		}
		err := p.disp.Load().Kill(context.Background(), id, "sim")
		w.event("hands", fmt.Sprintf("kill run %s by %s: %v", id, p.title, err))
		if err == nil {
			w.mu.Lock()
			w.kills[id] = true
			w.mu.Unlock()
			return
		}
	}
}

// disableAll ends the load.
func (w *World) disableAll() {
	for _, id := range w.jobs {
		if _, _, err := w.hands.SetEnabled(context.Background(), id, false, 0, "sim"); err != nil && domain.CodeOf(err) != domain.NotFound {
			w.fault("disable job %d: %v", id, err)
		}
	}
}

// crash kills a process and starts it again after a while.
func (w *World) crash(name string, down time.Duration, disk bool) {
	if p := w.node(name).life(); p != nil && !w.healed.Load() {
		p.crash("killed", disk)
		time.Sleep(down)
	}
	w.node(name).start()
}

// crashAt kills a process when it passes a point, if it does so within a few seconds.
func (w *World) crashAt(name string, t *trap, skip int64, down time.Duration) {
	n := w.node(name)
	p := n.life()
	if p == nil || w.healed.Load() {
		return
	}
	t.left.Store(skip)
	p.trap.Store(t)
	n.trapped.Store(p)
	select {
	case <-p.dead:
		time.Sleep(down)
		n.start()
	case <-time.After(10 * time.Second):
		p.trap.CompareAndSwap(t, nil)
	}
}

// loseBoth kills an executor, with its disk, when it has published a result, and the dispatchers before they settle one.
func (w *World) loseBoth(name string, down time.Duration) {
	var all sync.WaitGroup
	all.Go(func() { w.crashAt(name, &trap{point: "sends belfry.v1.result", disk: true}, 0, down) })
	for _, d := range []string{"d1", "d2"} {
		all.Go(func() { w.crashAt(d, &trap{point: "before Settle"}, 0, down) })
	}
	all.Wait()
}

// restart ends a process in an orderly way and starts it again.
func (w *World) restart(name string, down time.Duration) {
	n := w.node(name)
	if p := n.life(); p != nil && !w.healed.Load() {
		p.leave()
		time.Sleep(down)
	}
	n.start()
}

func (w *World) freeze(name string, d time.Duration) {
	if p := w.node(name).life(); p != nil && !w.healed.Load() {
		w.event("nemesis", fmt.Sprintf("freezes %s for %s", p.title, d))
		p.freeze(d)
	}
}

func (w *World) freezeAll(d time.Duration, names ...string) {
	var all sync.WaitGroup
	for _, name := range names {
		all.Go(func() { w.freeze(name, d) })
	}
	all.Wait()
}

// cutOff takes a process off the network.
func (w *World) cutOff(name string, d time.Duration) {
	n := w.node(name)
	p := n.life()
	if p == nil || w.healed.Load() {
		return
	}
	w.event("nemesis", fmt.Sprintf("cuts %s off for %s", p.title, d))
	n.mu.Lock()
	n.troubled("cut off")
	n.mu.Unlock()
	p.link.Cut(true)
	time.Sleep(d)
	p.link.Cut(false)
	n.mu.Lock()
	n.settleTrouble("cut off")
	n.mu.Unlock()
}

func (w *World) restartNATS(down time.Duration, wipe bool) {
	if w.healed.Load() {
		return
	}
	w.event("nemesis", fmt.Sprintf("NATS away for %s, wiped %v", down, wipe))
	w.nats.Stop()
	time.Sleep(down)
	wipe = wipe && !w.healed.Load() // it runs again then
	if wipe {
		w.mu.Lock()
		w.wipes = append(w.wipes, time.Now())
		w.mu.Unlock()
	}
	w.nats.Start(wipe)
}

func (w *World) databaseAway(d time.Duration) {
	if w.healed.Load() {
		return
	}
	w.event("nemesis", fmt.Sprintf("Postgres away for %s", d))
	w.faults.awayUntil.Store(time.Now().Add(d).UnixNano())
}

// troubleStore makes transactions fail, and outcomes unknown.
func (w *World) troubleStore(fails, unknown float64, d time.Duration) {
	if w.healed.Load() {
		return
	}
	w.event("nemesis", fmt.Sprintf("%.3f of the transactions fail, of %.3f the outcome is unknown, for %s", fails, unknown, d))
	w.faults.fails.Store(int64(fails * 1e6))
	w.faults.unknown.Store(int64(unknown * 1e6))
	time.Sleep(d)
	w.faults.fails.Store(0)
	w.faults.unknown.Store(0)
}

// troubleNetwork loses messages and makes them late.
func (w *World) troubleNetwork(loss, spikes float64, d time.Duration) {
	if w.healed.Load() {
		return
	}
	w.event("nemesis", fmt.Sprintf("%.3f of the messages are lost, %.3f late, for %s", loss, spikes, d))
	w.faults.loss.Store(int64(loss * 1e6))
	w.faults.spikes.Store(int64(spikes * 1e6))
	time.Sleep(d)
	w.faults.loss.Store(0)
	w.faults.spikes.Store(0)
}

// skew has a process measure the database's clock wrong.
func (w *World) skew(name string, d time.Duration) {
	if p := w.node(name).life(); p != nil && !w.healed.Load() {
		w.event("nemesis", fmt.Sprintf("%s takes the database's clock for %s fast", p.title, d))
		w.skewed.Store(true)
		p.store.Skew(d)
	}
}
