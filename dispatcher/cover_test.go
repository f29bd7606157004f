package dispatcher

import (
	"fmt"
	"strings"
	"testing"

	"github.com/belfryhq/belfry/executor/wire"
	"github.com/belfryhq/belfry/internal/domain"
	"github.com/belfryhq/belfry/internal/explain"
)

func covering(s *domain.JobSpec) { s.Block = domain.BlockCoverEarly }

// gotKill waits until the instance has received a kill request for a run.
func (p *puppet) gotKill(id domain.RunID) {
	p.w.t.Helper()
	p.w.eventually(fmt.Sprintf("%s receives the kill of %s", p.name, id), func() bool {
		p.mu.Lock()
		defer p.mu.Unlock()
		for _, k := range p.kills {
			if k.RunID == id.String() {
				return true
			}
		}
		return false
	})
}

// The newest run covers running and held runs. It starts when the covered run has ended, however long that takes.
func TestCoverEarly(t *testing.T) {
	for _, scope := range []domain.BlockScope{domain.ScopeCluster, domain.ScopeInstance} {
		t.Run(string(scope), func(t *testing.T) {
			w := newWorld(t, option{})
			a := w.join("a")
			job := w.job("j", covering, func(s *domain.JobSpec) { s.BlockScope, s.Retries = scope, 3 })
			first := w.trigger(job)
			o := a.got(first, 1)
			second := w.trigger(job)
			a.gotKill(first)
			if r := w.becomes(second, "pending"); r.Waiting != explain.Of(explain.CoveredRun).English() {
				t.Errorf("the second one: %+v", r)
			}
			third := w.trigger(job)
			w.becomes(second, "skipped/covered")
			if n := len(a.offersOf(third)); n != 0 {
				t.Errorf("offered %d times before its turn", n)
			}
			a.report(o, wire.Cancelled, func(r *wire.Result) { r.Reason = string(domain.ReasonCovered) })
			if r := w.becomes(first, "cancelled/covered"); !strings.HasPrefix(r.Message, "run "+second.String()+" of the job covers it") {
				t.Errorf("the first one does not say who covered it: %+v", r)
			}
			p := a.got(third, 1)
			// If the instance did not receive the kill of a covered run, the dispatcher repeats it.
			a.set(func() { a.deaf, a.kills = true, nil })
			fourth := w.trigger(job)
			a.gotKill(third)
			a.set(func() { a.deaf, a.kills = false, nil })
			a.gotKill(third)
			a.report(p, wire.Succeeded)
			w.becomes(third, "succeeded")
			a.report(a.got(fourth, 1), wire.Succeeded)
			w.becomes(fourth, "succeeded")
			startedOnce(t, a)
		})
	}
}

// A broadcast covers all shards of the previous one, on every instance.
func TestBroadcastCoversBroadcast(t *testing.T) {
	w := newWorld(t, option{})
	a, b := w.join("a"), w.join("b")
	job := w.job("j", covering, broadcast(0))
	first := w.trigger(job)
	shards := w.shards(first, 2)
	o, p := a.got(shards[0], 1), b.got(shards[1], 1)
	second := w.trigger(job)
	a.gotKill(shards[0])
	b.gotKill(shards[1])
	cancelled := func(r *wire.Result) { r.Reason = string(domain.ReasonCovered) }
	a.report(o, wire.Cancelled, cancelled)
	w.becomes(shards[0], "cancelled/covered")
	w.becomes(second, "pending")
	b.report(p, wire.Cancelled, cancelled)
	w.becomes(shards[1], "cancelled/covered")
	for i, s := range w.shards(second, 2) {
		in := []*puppet{a, b}[i]
		in.report(in.got(s, 1), wire.Succeeded)
		w.becomes(s, "succeeded")
	}
	startedOnce(t, a, b)
}

// A run that had to wait for an instance covers the job's run there.
func TestWaitingRunCovers(t *testing.T) {
	w := newWorld(t, option{})
	a := w.join("a", capacity(2))
	job := w.job("j", covering, func(s *domain.JobSpec) { s.BlockScope = domain.ScopeInstance })
	first := w.trigger(job)
	o := a.got(first, 1)
	other := a.got(w.trigger(w.job("other")), 1)
	// A heartbeat that was sent before may still say that there is room. Then the second run would cover at once.
	w.eventually("the dispatcher knows that the instance is full", func() bool {
		all := w.roster.Instances("g")
		return len(all) == 1 && all[0].Running == 2
	})
	second := w.trigger(job)
	w.becomes(second, "queued")
	a.report(other, wire.Succeeded)
	a.gotKill(first)
	w.becomes(second, "pending")
	a.report(o, wire.Cancelled, func(r *wire.Result) { r.Reason = string(domain.ReasonCovered) })
	w.becomes(first, "cancelled/covered")
	a.report(a.got(second, 1), wire.Succeeded)
	w.becomes(second, "succeeded")
	startedOnce(t, a)
}
