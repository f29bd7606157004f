package dispatcher

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/belfryhq/belfry/executor/wire"
	"github.com/belfryhq/belfry/internal/domain"
	"github.com/belfryhq/belfry/internal/engine"
)

func routed(r domain.Route) func(*domain.JobSpec) {
	return func(s *domain.JobSpec) { s.Route = r }
}

// routeOf returns the run's route decision and its reason.
func (w *world) routeOf(id domain.RunID) string {
	w.t.Helper()
	var route string
	if err := w.pg.Pool().QueryRow(w.t.Context(), `SELECT route FROM runs WHERE id = $1`, id).Scan(&route); err != nil {
		w.t.Fatal(err)
	}
	return route
}

// The run goes to the first instance by name that answers a ping. Other runs do not wait for the instances that do not
// answer.
func TestFailover(t *testing.T) {
	w := newWorld(t, option{})
	a, b := w.join("a", auto), w.join("b", auto)
	job := w.job("j", routed(domain.RouteFailover))
	id := w.trigger(job)
	if r := w.becomes(id, "succeeded"); r.Instance != "a" || !strings.Contains(w.routeOf(id), "the first that answered a ping") {
		t.Errorf("run %+v: %s", r, w.routeOf(id))
	}
	// The round left no waiting run, so the next run, such as one that a stopping instance hands back, waits for no pause.
	w.eventually("the instances can be asked again", func() bool {
		before := w.firer.Asking()
		early := w.firer.AskAgain(t.Context(), engine.WaitingKey{Group: "g", Target: "echo", Apart: job})
		if early && !before && !w.firer.Asking() {
			t.Error("no round is under way, but the instances are not asked again at once")
		}
		return !early
	})
	a.set(func() { a.deaf = true })
	id = w.trigger(job)
	if r := w.becomes(id, "succeeded"); r.Instance != "b" || !strings.Contains(w.routeOf(id), "a did not answer") {
		t.Errorf("run %+v: %s", r, w.routeOf(id))
	}
	w.eventually("no instances are being asked", func() bool { return !w.firer.Asking() })
	b.set(func() { b.deaf = true })
	id = w.trigger(job)
	w.eventually("it says why it waits", func() bool { return strings.HasPrefix(w.run(id).Waiting, "no instance answered a ping: ") })
	// Other runs of the same handler do not wait behind it, and neither does a manual trigger that names the instance.
	w.becomes(w.trigger(w.job("other")), "succeeded")
	pinned, err := w.pg.Trigger(t.Context(), job, domain.Trigger{Cause: domain.CauseManual, Instance: "b"})
	if err != nil {
		t.Fatal(err)
	}
	w.becomes(pinned[0], "succeeded")
	a.set(func() { a.deaf = false })
	if r := w.becomes(id, "succeeded"); r.Instance != "a" {
		t.Errorf("run %+v", r)
	}
	startedOnce(t, a, b)
}

// The run goes to the first instance by name that is idle for the job. If there is none, the run waits until one is
// idle.
func TestBusyover(t *testing.T) {
	w := newWorld(t, option{})
	a, b := w.join("a"), w.join("b")
	job := w.job("j", routed(domain.RouteBusyover))
	a.got(w.trigger(w.job("other", routed(domain.RouteFirst))), 1) // a run of another job does not make the instance busy
	first := w.trigger(job)
	o := a.got(first, 1)
	second := w.trigger(job)
	p := b.got(second, 1)
	if r := w.routeOf(second); !strings.Contains(r, "the first that is idle for the job; a has 1 run of the job") {
		t.Error(r)
	}
	third := w.trigger(job)
	w.eventually("it says why it waits", func() bool { return strings.HasPrefix(w.run(third).Waiting, "no instance is idle for the job: ") })
	b.report(p, wire.Succeeded)
	b.report(b.got(third, 1), wire.Succeeded)
	w.becomes(third, "succeeded")
	a.report(o, wire.Succeeded)
	w.becomes(first, "succeeded")
	// An instance that does not report its runs of the job counts as busy if it runs anything.
	a.set(func() { a.silent = true })
	b.got(w.trigger(job), 1)
	startedOnce(t, a, b)
}

// If many runs arrive at once, the dispatcher asks the instances for each run, and all runs start.
func TestManyAreAskedFor(t *testing.T) {
	w := newWorld(t, option{})
	a, b := w.join("a", auto), w.join("b", auto, func(p *puppet) { p.capacity = 2 })
	var ids []domain.RunID
	for i := range 12 {
		for _, r := range []domain.Route{domain.RouteFailover, domain.RouteBusyover} {
			job := w.job(fmt.Sprintf("%s %d", r, i), routed(r))
			for range 10 {
				ids = append(ids, w.trigger(job))
			}
		}
	}
	for _, id := range ids {
		w.becomes(id, "succeeded")
	}
	startedOnce(t, a, b)
}

// The shared state of round_robin, least_frequently_used and least_recently_used also applies to runs that had to wait.
func TestWaitingRunsTakeTurns(t *testing.T) {
	w := newWorld(t, option{})
	for _, r := range []domain.Route{domain.RouteRoundRobin, domain.RouteLeastFrequentlyUsed, domain.RouteLeastRecentlyUsed} {
		job := w.job(string(r), routed(r), func(s *domain.JobSpec) { s.Handler = string(r) })
		var ids []domain.RunID
		for range 6 {
			ids = append(ids, w.trigger(job))
		}
		for _, id := range ids {
			w.becomes(id, "queued")
		}
		handles := func(p *puppet) { p.handlers, p.auto = []string{string(r)}, true }
		w.exec(`UPDATE runs_waiting SET handler = 'later'`)
		w.join(string(r)+"-a", handles)
		w.join(string(r)+"-b", handles)
		w.join(string(r)+"-c", handles)
		w.exec(`UPDATE runs_waiting SET handler = $1`, string(r))
		got := make(map[string]int)
		for _, id := range ids {
			got[w.becomes(id, "succeeded").Instance]++
		}
		if len(got) != 3 || got[string(r)+"-a"] != 2 || got[string(r)+"-b"] != 2 {
			t.Errorf("%s: went to %v", r, got)
		}
	}
}

// If an instance answers offers late, the offers of that job use the slow lane, and those of other jobs do not.
func TestSlowLane(t *testing.T) {
	w := newWorld(t, option{})
	a := w.join("a", auto)
	slow, fast := w.job("slow"), w.job("fast")
	sent := func(lane string) (n uint64) {
		families, err := w.reg.Gather()
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range families {
			for _, m := range f.GetMetric() {
				if f.GetName() == "belfry_dispatch_seconds" && m.GetLabel()[0].GetValue() == lane {
					n += m.GetHistogram().GetSampleCount()
				}
			}
		}
		return n
	}
	a.set(func() { a.onOffer = func(o wire.Offer) { <-time.After(600 * time.Millisecond) } })
	for sent("slow") == 0 { // repeat, because the count of late answers starts at zero every minute
		for range 11 {
			w.becomes(w.trigger(slow), "succeeded")
			if sent("slow") > 0 {
				break
			}
		}
	}
	a.set(func() { a.onOffer = nil })
	before := sent("slow")
	w.becomes(w.trigger(fast), "succeeded")
	if n := sent("slow"); n != before {
		t.Errorf("%d offers of another job on the slow lane", n-before)
	}
	startedOnce(t, a)
}
