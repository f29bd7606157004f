package dispatcher

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/belfryhq/belfry/executor/wire"
	"github.com/belfryhq/belfry/internal/domain"
)

func routed(r domain.Route) func(*domain.JobSpec) {
	return func(s *domain.JobSpec) { s.Route = r }
}

// routeOf returns what a run says about why it went where it did.
func (w *world) routeOf(id domain.RunID) string {
	w.t.Helper()
	var route string
	if err := w.pg.Pool().QueryRow(w.t.Context(), `SELECT route FROM runs WHERE id = $1`, id).Scan(&route); err != nil {
		w.t.Fatal(err)
	}
	return route
}

// The first by name that answers a ping gets the run; nobody else waits for those that do not answer.
func TestFailover(t *testing.T) {
	w := newWorld(t, option{})
	a, b := w.join("a", auto), w.join("b", auto)
	job := w.job("j", routed(domain.RouteFailover))
	id := w.trigger(job)
	if r := w.becomes(id, "succeeded"); r.Instance != "a" || !strings.Contains(w.routeOf(id), "the first that answered a ping") {
		t.Errorf("run %+v: %s", r, w.routeOf(id))
	}
	a.set(func() { a.deaf = true })
	id = w.trigger(job)
	if r := w.becomes(id, "succeeded"); r.Instance != "b" || !strings.Contains(w.routeOf(id), "a did not answer") {
		t.Errorf("run %+v: %s", r, w.routeOf(id))
	}
	w.eventually("nobody is being asked", func() bool {
		w.mu.Lock()
		defer w.mu.Unlock()
		for _, a := range w.asks {
			if a.underWay {
				return false
			}
		}
		return true
	})
	b.set(func() { b.deaf = true })
	id = w.trigger(job)
	w.eventually("it says why it waits", func() bool { return strings.HasPrefix(w.run(id).Waiting, "no instance answered a ping: ") })
	// Others of the same handler do not wait behind it, nor does a hand that names the instance.
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

// The first by name that is idle for the job gets the run; where none is, it waits until one is.
func TestBusyover(t *testing.T) {
	w := newWorld(t, option{})
	a, b := w.join("a"), w.join("b")
	job := w.job("j", routed(domain.RouteBusyover))
	a.got(w.trigger(w.job("other", routed(domain.RouteFirst))), 1) // another job's run makes nobody busy
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
	// One that does not say whose runs it has is busy with whatever it runs.
	a.set(func() { a.silent = true })
	b.got(w.trigger(job), 1)
	startedOnce(t, a, b)
}

// Many runs come at once: each is asked for, and all of them run.
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

// The shared numbers of round_robin and of the routes by use are read also for runs that had to wait.
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

// A job whose offers are answered late goes by the slow lane, and from the next minute on by the fast one again.
func TestLateJobsAreSlow(t *testing.T) {
	var l lateness
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	run := func(job domain.JobID) domain.LiveRun { return domain.LiveRun{JobID: job} }
	for i := range lateMax {
		l.note([]domain.LiveRun{run(1)}, now.Add(time.Duration(i)*time.Second))
	}
	if slow := l.jobs(now.Add(30 * time.Second)); slow != nil {
		t.Errorf("slow after %d late answers: %v", lateMax, slow)
	}
	l.note([]domain.LiveRun{run(1), run(2)}, now.Add(31*time.Second))
	if slow := l.jobs(now.Add(59 * time.Second)); len(slow) != 1 || !slow[1] {
		t.Errorf("slow: %v", slow)
	}
	if slow := l.jobs(now.Add(time.Minute)); slow != nil {
		t.Errorf("slow in the next minute: %v", slow)
	}
	for job := range domain.JobID(lateJobsMax + 1) {
		for range lateMax + 1 {
			l.note([]domain.LiveRun{run(job)}, now)
		}
	}
	if n := len(l.jobs(now)); n != lateJobsMax {
		t.Errorf("%d jobs are counted", n)
	}
}

// An instance that answers offers late makes its job's offers go by the slow lane, and leaves the fast one to the others.
func TestSlowLane(t *testing.T) {
	w := newWorld(t, option{})
	a := w.join("a", auto)
	slow, fast := w.job("slow"), w.job("fast")
	w.late.note(runsOf(slow, lateMax+1), time.Now())
	if len(w.late.jobs(time.Now())) == 0 { // the minute turned
		w.late.note(runsOf(slow, lateMax+1), time.Now())
	}
	for range cap(w.fastLane.inFlight) {
		if !w.fastLane.begin(t.Context()) {
			t.Fatal("the fast lane is full already")
		}
	}
	w.becomes(w.trigger(slow), "succeeded")
	id := w.trigger(fast)
	w.becomes(id, "queued")
	for range cap(w.fastLane.inFlight) {
		w.fastLane.end()
	}
	w.becomes(id, "succeeded") // the reconciler makes the offer
	for range cap(w.slow.line) {
		w.slow.line <- struct{}{}
	}
	if w.slow.do(func() {}) {
		t.Error("the slow lane takes more than its line holds")
	}
	for range cap(w.slow.line) {
		<-w.slow.line
	}
	startedOnce(t, a)
}

func runsOf(job domain.JobID, n int) []domain.LiveRun {
	out := make([]domain.LiveRun, n)
	for i := range out {
		out[i].JobID = job
	}
	return out
}

// The pool does all the work that it took, a bounded part of it at a time, and leaves no goroutine behind.
func TestPool(t *testing.T) {
	others := goleak.IgnoreCurrent()
	var work sync.WaitGroup
	const workers, line = 3, 8
	p := newPool(workers, line, &work)
	var now, most, done atomic.Int32
	gate := make(chan struct{})
	taken := 0
	for range 20 {
		if p.do(func() {
			if n := now.Add(1); n > most.Load() {
				most.Store(n)
			}
			<-gate
			now.Add(-1)
			done.Add(1)
		}) {
			taken++
		}
	}
	close(gate)
	work.Wait()
	if taken != line || int(done.Load()) != taken || most.Load() > workers {
		t.Errorf("%d taken, %d done, %d at a time", taken, done.Load(), most.Load())
	}
	if !p.do(func() {}) {
		t.Error("an idle pool takes no work")
	}
	work.Wait()
	goleak.VerifyNone(t, others)
}

// A lane that waits for its turn to send gives up when its context ends.
func TestLaneEndsWithItsContext(t *testing.T) {
	l := lane{inFlight: make(chan struct{}, 1), patient: true}
	ctx, cancel := context.WithCancel(t.Context())
	if !l.begin(ctx) {
		t.Fatal("an idle lane has no place")
	}
	cancel()
	if l.begin(ctx) {
		t.Error("it found a place that is taken")
	}
	l.end()
	if !l.begin(t.Context()) {
		t.Error("it has no place though one was given back")
	}
}
