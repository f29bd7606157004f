package dispatcher

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/belfryhq/belfry/executor/wire"
	"github.com/belfryhq/belfry/internal/domain"
	"github.com/belfryhq/belfry/internal/engine"
	"github.com/belfryhq/belfry/internal/explain"
)

// If many runs wait for few slots, all of them run, in due order, each once.
func TestWaitingRunInDueOrder(t *testing.T) {
	const runs = 500
	w := newWorld(t, option{})
	job := w.job("j")
	ids := make([]domain.RunID, runs)
	for i := range ids {
		ids[i] = w.trigger(job)
	}
	// Due one by one, in reverse order.
	slices.Reverse(ids)
	w.eventually("all wait", func() bool { return w.count(`SELECT count(*) FROM runs_waiting`) == runs })
	for i, id := range ids {
		w.exec(`UPDATE runs_waiting SET due_at = now() - $2::interval WHERE run_id = $1`, id, time.Duration(runs-i)*time.Second)
	}
	a := w.join("a", auto, capacity(2))
	w.eventually("all have run", func() bool {
		return w.count(`SELECT count(*) FROM runs_history WHERE state = 'succeeded' AND attempt = 1`) == runs
	})
	a.mu.Lock()
	defer a.mu.Unlock()
	if len(a.offers) != runs {
		t.Errorf("%d offers", len(a.offers))
	}
	for i, o := range a.offers {
		// The two slots may be offered in either order.
		if at := slices.IndexFunc(ids, func(id domain.RunID) bool { return id.String() == o.RunID }); at < i-2 || at > i+2 {
			t.Fatalf("offer %d is run %d", i, at)
		}
	}
	if n := w.count(`SELECT count(*) FROM runs_waiting`); n != 0 {
		t.Errorf("%d runs still wait", n)
	}
}

// Runs that no instance can take do not delay other runs, in their group or in another.
func TestGroupWithoutExecutors(t *testing.T) {
	w := newWorld(t, option{})
	orphan := w.job("orphan", func(s *domain.JobSpec) { s.Group = "h" })
	unknown := w.job("unknown", func(s *domain.JobSpec) { s.Handler = "aaa" })
	for range 50 {
		w.trigger(orphan)
		w.trigger(unknown)
	}
	w.eventually("they wait", func() bool { return w.count(`SELECT count(*) FROM runs_waiting`) == 100 })
	w.join("a", auto, capacity(1))
	var ids []domain.RunID
	job := w.job("j")
	for range 10 {
		ids = append(ids, w.trigger(job))
	}
	for _, id := range ids {
		w.becomes(id, "succeeded")
	}
	w.eventually("the metrics show which group has no executor", func() bool { return fmt.Sprint(w.readyInstances()) == "map[g:1 h:0]" })
	// An instance that cannot write its results takes no runs. A full one will. Its heartbeat comes later, so when it is counted, both are known.
	w.join("unfit", func(p *puppet) { p.group, p.unfit = "h", &wire.Unfit{Reason: wire.UnfitSpoolFull} })
	w.join("full", func(p *puppet) { p.handlers, p.capacity, p.taken = []string{"aaa"}, 1, 1 })
	w.eventually("the metrics count instances that take runs", func() bool { return fmt.Sprint(w.readyInstances()) == "map[g:2 h:0]" })
}

// readyInstances returns the metric belfry_ready_instances by group.
func (w *world) readyInstances() map[string]float64 {
	families, err := w.reg.Gather()
	if err != nil {
		w.t.Fatal(err)
	}
	ready := make(map[string]float64)
	for _, f := range families {
		for _, m := range f.GetMetric() {
			if f.GetName() == "belfry_ready_instances" {
				ready[m.GetLabel()[0].GetValue()] = m.GetGauge().GetValue()
			}
		}
	}
	return ready
}

// If an instance reports an absurd capacity, all runs are still assigned.
func TestAbsurdCapacity(t *testing.T) {
	w := newWorld(t, option{})
	huge := w.trigger(w.job("huge", func(s *domain.JobSpec) { s.Handler = "aaa" }))
	id := w.trigger(w.job("j"))
	w.becomes(id, "queued")
	w.becomes(huge, "queued")
	aaa := func(p *puppet) { p.handlers, p.capacity, p.auto = []string{"aaa"}, 1<<62, true }
	w.join("a", aaa)
	w.join("b", aaa)
	w.join("c", auto)
	w.becomes(id, "succeeded")
	w.becomes(huge, "succeeded")
}

// New runs queue behind runs that already wait.
func TestNewRunsQueueBehind(t *testing.T) {
	w := newWorld(t, option{})
	a := w.join("a", capacity(1))
	job := w.job("j")
	first := w.trigger(job)
	o := a.got(first, 1)
	second := w.trigger(job)
	w.becomes(second, "queued")
	w.eventually("the dispatcher knows that a run waits", func() bool { return w.waiting.Has(engine.WaitingKey{Group: "g", Target: "echo"}) })
	third := w.trigger(job)
	w.becomes(third, "queued")
	a.report(o, wire.Succeeded)
	a.report(a.got(second, 1), wire.Succeeded)
	a.report(a.got(third, 1), wire.Succeeded)
	w.becomes(third, "succeeded")
	w.eventually("the dispatcher knows that no run waits", func() bool { return !w.waiting.Has(engine.WaitingKey{Group: "g", Target: "echo"}) })
}

// The first waiting run always shows the present reason. The history keeps the last one, and how long the run waited.
func TestReasonOfWaiting(t *testing.T) {
	w := newWorld(t, option{})
	a := w.join("a", capacity(1))
	job := w.job("j")
	o := a.got(w.trigger(job), 1)
	waits := w.trigger(job)
	waitsFor := func(code explain.Code) {
		t.Helper()
		w.eventually(string(code), func() bool {
			return w.count(`SELECT count(*) FROM runs_live WHERE id = $1 AND waiting IS NOT NULL AND waiting_note LIKE $2`, waits, fmt.Sprintf("[%q%%", code)) == 1
		})
	}
	waitsFor(explain.NoRoom)
	a.set(func() { a.drained = true })
	waitsFor(explain.Draining)
	a.set(func() { a.drained = false })
	a.report(o, wire.Succeeded)
	a.report(a.got(waits, 1), wire.Succeeded)
	w.becomes(waits, "succeeded")
	if w.count(`SELECT count(*) FROM runs_history WHERE id = $1 AND waited_note LIKE '[%' AND waited_ms > 0`, waits) != 1 {
		t.Error("the history does not say why the run waited, and how long")
	}
	if w.count(`SELECT count(*) FROM runs_history WHERE id::text = $1 AND waited_note IS NULL AND waited_ms IS NULL`, o.RunID) != 1 {
		t.Error("the history says that the first run waited")
	}
}

// The runs of a serial job follow each other at once and in order, even on different instances.
func TestSerial(t *testing.T) {
	w := newWorld(t, option{})
	var puppets []*puppet
	for _, name := range []string{"a", "b"} {
		puppets = append(puppets, w.join(name, auto))
	}
	job := w.job("j", func(s *domain.JobSpec) { s.Block = domain.BlockSerial })
	var ids []domain.RunID
	for range 40 {
		ids = append(ids, w.trigger(job))
	}
	for _, id := range ids {
		w.becomes(id, "succeeded")
	}
	if n := w.reconciled()["held_by_nobody"]; n > 0 {
		t.Errorf("a reconciler had to release %v of them", n)
	}
	if n := w.count(`SELECT count(*) FROM (SELECT started_at, lag(finished_at) OVER (ORDER BY id) AS before FROM runs_history) h WHERE started_at < before`); n != 0 {
		t.Errorf("%d runs overlap", n)
	}
	startedOnce(t, puppets...)
}

// With scope instance, runs of a job run concurrently on different instances, but never on the same one.
func TestInstanceScope(t *testing.T) {
	w := newWorld(t, option{})
	a, b := w.join("a"), w.join("b")
	job := w.job("j", func(s *domain.JobSpec) {
		s.Block, s.BlockScope, s.Route = domain.BlockSerial, domain.ScopeInstance, domain.RouteRoundRobin
	})
	var ids []domain.RunID
	for range 4 {
		ids = append(ids, w.trigger(job))
	}
	w.eventually("two run, two are held", func() bool { return w.count(`SELECT count(*) FROM runs_live WHERE held`) == 2 })
	for ended := 0; ended < 4; {
		for _, p := range []*puppet{a, b} {
			p.mu.Lock()
			if p.taken > 1 {
				t.Errorf("%s runs %d of the job", p.name, p.taken)
			}
			var open []wire.Offer
			for _, o := range p.offers {
				if p.known[attempt{o.RunID, o.Attempt}] == wire.StatusRunning {
					open = append(open, o)
				}
			}
			if len(open) > 0 {
				p.send(open[:1], wire.Succeeded)
				ended++
			}
			p.mu.Unlock()
		}
		w.holds(20*time.Millisecond, "a moment", func() bool { return true })
	}
	for _, id := range ids {
		w.becomes(id, "succeeded")
	}
	startedOnce(t, a, b)
}
