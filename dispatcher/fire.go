package dispatcher

import (
	"context"
	"fmt"
	"math/rand/v2"

	"github.com/belfryhq/belfry/dispatcher/route"
	"github.com/belfryhq/belfry/internal/domain"
)

// Fire routes runs, binds them in one transaction, and offers them as soon as they are bound. It is called a little
// before due. Those whose block slot is taken and that are not yet due come back in later. An error means that
// nothing is known of the whole batch; firing it again is safe.
func (d *Dispatcher) Fire(ctx context.Context, runs []domain.Due) (later []domain.Due, err error) {
	defs, err := d.store.Definitions(ctx, runs)
	if err != nil {
		return nil, err
	}
	r := d.newRouting()
	if err := r.count(ctx, runs, defs); err != nil {
		return nil, err
	}
	var single []domain.Admission
	for _, run := range runs {
		def := defs.Of(run.JobID, run.JobVersion)
		switch {
		case def == nil:
			d.log.ErrorContext(ctx, "a planned run has no job version", "run_id", run.RunID, "job_id", run.JobID)
		case def.Route == domain.RouteBroadcast && run.Broadcast.IsZero():
			back, err := d.fireBroadcast(ctx, run, def)
			if err != nil {
				return nil, err
			}
			later = append(later, back...)
		default:
			single = append(single, domain.Admission{Due: run, Def: def, Binding: r.choose(run, def)})
		}
	}
	if len(single) == 0 {
		return later, nil
	}
	out, err := d.store.Admit(ctx, single)
	d.admitted(ctx, out) // also beside an error: a part of the batch may be committed
	if err != nil {
		return nil, err
	}
	return append(later, out.Later...), nil
}

// admitted acts on what the transaction did: offers, wakes, tells.
func (d *Dispatcher) admitted(ctx context.Context, out domain.Admitted) {
	d.offer(ctx, out.Bound, true)
	var changes []domain.Change
	for _, r := range out.Bound {
		changes = append(changes, changeOf(&r))
	}
	for _, r := range out.Waiting {
		changes = append(changes, changeOf(&r))
	}
	d.tell(append(changes, out.Ended...))
	if len(out.Waiting) > 0 {
		signal(d.waiting)
	}
}

func changeOf(r *domain.LiveRun) domain.Change {
	return domain.Change{
		RunID: r.ID, JobID: r.JobID, JobVersion: r.JobVersion, Group: r.Group, Cause: r.Cause, State: r.State,
		FireTime: r.FireTime, Attempt: r.Attempt,
	}
}

func (d *Dispatcher) fireBroadcast(ctx context.Context, run domain.Due, def *domain.Definition) ([]domain.Due, error) {
	to := route.Shards(d.candidates(def.Group, def.Target()), def.Shards)
	if len(to) == 0 {
		// Nobody to expand over: it waits whole.
		out, err := d.store.Admit(ctx, []domain.Admission{{Due: run, Def: def, Binding: domain.Binding{
			Waiting: route.NoInstance, Route: "broadcast, not expanded yet",
		}}})
		if err == nil {
			d.admitted(ctx, out)
		}
		return out.Later, err
	}
	out, err := d.store.ExpandBroadcast(ctx, run, def, to)
	if err != nil {
		return nil, err
	}
	d.admitted(ctx, out)
	return out.Later, nil
}

// candidates returns who could take a run now. While NATS is away, nobody can.
func (d *Dispatcher) candidates(group, target string) []*route.Candidate {
	if !d.steady.connected() {
		return nil
	}
	return d.roster.Candidates(group, target)
}

// routing is the state of one batch of decisions: candidates are read once, and every choice counts.
type routing struct {
	d        *Dispatcher
	cands    map[[2]string][]*route.Candidate
	counters map[domain.JobID]int64
	random   *rand.Rand
}

func (d *Dispatcher) newRouting() *routing {
	return &routing{
		d: d, cands: make(map[[2]string][]*route.Candidate), counters: make(map[domain.JobID]int64),
		random: rand.New(rand.NewPCG(rand.Uint64(), rand.Uint64())), //nolint:gosec // spreading load is no secret
	}
}

// count reads the shared counters of the round_robin jobs in the batch, one statement for all.
func (r *routing) count(ctx context.Context, runs []domain.Due, defs domain.Definitions) error {
	n := make(map[domain.JobID]int)
	for _, run := range runs {
		if def := defs.Of(run.JobID, run.JobVersion); def != nil && def.Route == domain.RouteRoundRobin {
			n[run.JobID]++
		}
	}
	if len(n) == 0 {
		return nil
	}
	counters, err := r.d.store.CountRoutes(ctx, n)
	if err == nil {
		r.counters = counters
	}
	return err
}

func (r *routing) candidates(group, target string) []*route.Candidate {
	k := [2]string{group, target}
	if _, known := r.cands[k]; !known {
		r.cands[k] = r.d.candidates(group, target)
	}
	return r.cands[k]
}

// choose routes a run, unless runs of its kind wait already: then it waits its turn behind them.
func (r *routing) choose(run domain.Due, def *domain.Definition) domain.Binding {
	switch {
	case !r.d.steady.connected():
		return domain.Binding{Waiting: natsAway}
	case r.d.waitsFor(domain.WaitingKey{Group: def.Group, Target: def.Target(), Pin: run.Pin}):
		return domain.Binding{Waiting: behindOthers}
	}
	return r.pick(run, def)
}

func (r *routing) pick(run domain.Due, def *domain.Definition) domain.Binding {
	q := route.Request{
		Route: def.Route, Key: def.RouteKey, Pin: run.Pin, Avoid: run.Avoid, Random: r.random, Counter: r.counters[def.JobID],
	}
	if q.Key == "" {
		q.Key = fmt.Sprint(def.JobID)
	}
	if def.Route == domain.RouteRoundRobin {
		r.counters[def.JobID]++
	}
	return route.Choose(r.candidates(def.Group, def.Target()), q)
}

func (d *Dispatcher) waitsFor(k domain.WaitingKey) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.waits[k]
}
