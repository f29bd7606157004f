package fire

import (
	"context"
	"fmt"
	"math/rand/v2"

	"github.com/belfryhq/belfry/dispatcher/offer"
	"github.com/belfryhq/belfry/dispatcher/peer"
	"github.com/belfryhq/belfry/dispatcher/route"
	"github.com/belfryhq/belfry/internal/domain"
	"github.com/belfryhq/belfry/internal/engine"
	"github.com/belfryhq/belfry/internal/explain"
)

// Routing is the state of one batch of route decisions. It reads the candidates once, and each decision takes the earlier ones
// into account. It is not safe for concurrent use.
type Routing struct {
	firer      *Firer
	candidates map[[2]string][]*route.Candidate
	beats      offer.Beats                 // of all candidates
	counters   map[domain.JobID]int64      // of the route round_robin
	uses       map[domain.JobID]route.Uses // of least_frequently_used and least_recently_used
	heard      map[string]route.Heard      // answers of the instances, if the batch is for one job with the route failover or busyover
	waited     bool                        // see Waited
	random     *rand.Rand
}

// NewRouting begins a batch of decisions. The runs have to be bound in a transaction that begins after this call, because
// their offers rely on the heartbeats that the routing reads: see Beats.
func (f *Firer) NewRouting() *Routing {
	return &Routing{
		firer: f, candidates: make(map[[2]string][]*route.Candidate), beats: make(offer.Beats),
		random: rand.New(rand.NewPCG(rand.Uint64(), rand.Uint64())), //nolint:gosec // the random numbers only spread the load
	}
}

// Waited marks the runs of this batch as the first ones in their queue, so that they do not queue again.
func (r *Routing) Waited() { r.waited = true }

// Beats returns the heartbeats of all candidates that were read. The offers of the batch may rely on them.
func (r *Routing) Beats() offer.Beats { return r.beats }

// Count reads and increments the shared counters of the jobs whose route needs them, with one statement for each kind.
func (r *Routing) Count(ctx context.Context, runs []engine.Due, defs engine.Definitions) error {
	var n map[domain.JobID]int
	var turns map[domain.JobID]engine.Turns
	for _, run := range runs {
		def := defs.Of(run.JobID, run.JobVersion)
		switch {
		case def == nil:
		case def.Route == domain.RouteRoundRobin:
			if n == nil {
				n = make(map[domain.JobID]int)
			}
			n[run.JobID]++
		case def.Route.ByUse() && r.routedNow(run, def):
			if turns == nil {
				turns = make(map[domain.JobID]engine.Turns)
			}
			r.addTurn(turns, def)
		}
	}
	if len(n) > 0 {
		counters, err := r.firer.Store.CountRoutes(ctx, n)
		if err != nil {
			return err
		}
		r.counters = counters
	}
	if len(turns) > 0 {
		uses, err := r.firer.Store.TakeTurns(ctx, turns)
		if err != nil {
			return err
		}
		r.uses = make(map[domain.JobID]route.Uses, len(uses))
		for job, u := range uses {
			r.uses[job] = u
		}
	}
	return nil
}

// addTurn adds a run of a job to the turns that Count requests from the store.
func (r *Routing) addTurn(turns map[domain.JobID]engine.Turns, def *engine.Definition) {
	t := turns[def.JobID]
	if t.Runs++; t.Runs == 1 {
		t.Route, t.Known = def.Route, r.firer.Roster.Offering(def.Group, def.Target())
		for _, c := range r.Candidates(def.Group, def.Target()) {
			if c.Room() > 0 {
				t.Open = append(t.Open, c.Instance)
			}
		}
	}
	turns[def.JobID] = t
}

// Candidates returns the instances that can take runs of a target now. There are none while NATS is unavailable.
func (r *Routing) Candidates(group, target string) []*route.Candidate {
	k := [2]string{group, target}
	if _, known := r.candidates[k]; known {
		return r.candidates[k]
	}
	r.candidates[k] = nil
	if r.firer.Peers.Connected() {
		r.candidates[k] = r.firer.Roster.Candidates(group, target)
	}
	for _, c := range r.candidates[k] {
		b := peer.Boot{Group: group, Instance: c.Instance, ID: c.BootID}
		if beat, known := r.beats[b]; !known || c.Beat < beat { // the instance may already be a candidate for another target
			r.beats[b] = c.Beat
		}
	}
	return r.candidates[k]
}

// choose routes a run. If runs of its kind wait already, the run queues behind them.
func (r *Routing) choose(run engine.Due, def *engine.Definition) engine.Binding {
	switch key := def.WaitsAs(run.Pin); {
	case !r.firer.Peers.Connected():
		return engine.Binding{Waiting: explain.Of(explain.NATSUnavailable)}
	case key.Apart != 0:
		return engine.Binding{Waiting: explain.Of(explain.AskingInstances)}
	case r.firer.Waiting.Has(key):
		return engine.Binding{Waiting: explain.Of(explain.BehindOthers)}
	}
	return r.Pick(run, def)
}

// routedNow reports whether a run is routed now and among all instances: it is not pinned and does not queue behind others.
func (r *Routing) routedNow(run engine.Due, def *engine.Definition) bool {
	return run.Pin == "" && (r.waited || (r.firer.Peers.Connected() && !r.firer.Waiting.Has(def.WaitsAs(""))))
}

// Uncounted reports whether the route of a job needs shared counters that were not read.
func (r *Routing) Uncounted(pin string, def *engine.Definition) bool {
	if pin != "" {
		return false
	}
	_, counted := r.counters[def.JobID]
	_, taken := r.uses[def.JobID]
	return (def.Route == domain.RouteRoundRobin && !counted) || (def.Route.ByUse() && !taken)
}

// Pick routes a run among the candidates.
func (r *Routing) Pick(run engine.Due, def *engine.Definition) engine.Binding {
	q := route.Request{
		Route: def.Route, Key: def.RouteKey, Pin: run.Pin, Avoid: run.Avoid, Random: r.random, Counter: r.counters[def.JobID],
		Uses: r.uses[def.JobID], Heard: r.heard, Target: def.Target(),
	}
	if q.Key == "" && q.Route == domain.RouteConsistentHash {
		q.Key = fmt.Sprint(def.JobID)
	}
	if _, counted := r.counters[def.JobID]; counted {
		r.counters[def.JobID]++
	}
	candidates := r.Candidates(def.Group, def.Target())
	if len(candidates) == 0 {
		q.Absence = r.firer.Roster.Absence(def.Group, def.Target())
	}
	return route.Choose(candidates, q)
}
