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
	single := make([]domain.Admission, 0, len(runs))
	var asks []domain.WaitingKey
	for _, run := range runs {
		def := defs.Of(run.JobID, run.JobVersion)
		switch {
		case def == nil:
			d.log.ErrorContext(ctx, "a planned run has no job version", "run_id", run.RunID, "job_id", run.JobID)
		case def.Route == domain.RouteBroadcast && run.Broadcast.IsZero():
			back, err := d.fireBroadcast(ctx, r, run, def)
			if err != nil {
				return nil, err
			}
			later = append(later, back...)
		default:
			if run.Pin == "" && def.Route.Asks() {
				asks = append(asks, def.WaitsAs(""))
			}
			single = append(single, domain.Admission{Due: run, Def: def, Binding: r.choose(run, def)})
		}
	}
	if len(single) == 0 {
		return later, nil
	}
	out, err := d.store.Admit(ctx, single)
	d.admitted(ctx, out, r.beats) // also beside an error: a part of the batch may be committed
	if err != nil {
		return nil, err
	}
	for _, k := range asks {
		d.ask(ctx, k)
	}
	return append(later, out.Later...), nil
}

// admitted acts on what the transaction did: offers, wakes, tells.
func (d *Dispatcher) admitted(ctx context.Context, out domain.Admitted, relies beats) {
	d.offer(ctx, out.Bound, relies, true)
	changes := make([]domain.Change, 0, len(out.Bound)+len(out.Waiting)+len(out.Ended))
	for i := range out.Bound {
		changes = append(changes, changeOf(&out.Bound[i]))
	}
	for i := range out.Waiting {
		changes = append(changes, changeOf(&out.Waiting[i]))
	}
	d.tell(append(changes, out.Ended...))
	d.dropped(out.Ended)
	d.covered(ctx, out.Kills, out.Released)
	if len(out.Waiting) > 0 {
		signal(d.waiting)
	}
}

// dropped counts the runs that the block policy ended.
func (d *Dispatcher) dropped(ended []domain.Change) {
	for _, c := range ended {
		if c.State.Final() {
			d.metrics.finished.WithLabelValues(string(c.State)).Inc()
		}
	}
}

// covered tells instances which runs end because a newer one of their job came due, and fires those whose turn has come. A
// kill that gets lost is said again by the reconciler.
func (d *Dispatcher) covered(ctx context.Context, kills []domain.LiveRun, released []domain.Due) {
	for _, runs := range byBoot(kills) {
		d.slow.do(func() { d.sendKills(context.WithoutCancel(ctx), runs, string(domain.ReasonCovered)) })
	}
	d.fireReleased(ctx, released)
}

func changeOf(r *domain.LiveRun) domain.Change {
	return domain.Change{
		RunID: r.ID, JobID: r.JobID, JobVersion: r.JobVersion, Group: r.Group, Cause: r.Cause, State: r.State,
		FireTime: r.FireTime, Attempt: r.Attempt,
	}
}

func (d *Dispatcher) fireBroadcast(ctx context.Context, r *routing, run domain.Due, def *domain.Definition) ([]domain.Due, error) {
	to := route.Shards(r.candidates(def.Group, def.Target()), def.Shards, run.Pin)
	if len(to) == 0 {
		// Nobody to expand over: it waits whole.
		waiting := route.Nobody(def.Target())
		if run.Pin != "" {
			waiting = route.Gone(run.Pin, def.Target())
		}
		out, err := d.store.Admit(ctx, []domain.Admission{{Due: run, Def: def, Binding: domain.Binding{
			Waiting: waiting, Route: "broadcast, not expanded yet",
		}}})
		if err == nil {
			d.admitted(ctx, out, r.beats)
		}
		return out.Later, err
	}
	out, err := d.store.ExpandBroadcast(ctx, run, def, to)
	if err != nil {
		return nil, err
	}
	d.admitted(ctx, out, r.beats)
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
	beats    beats                       // of all candidates
	counters map[domain.JobID]int64      // of round_robin
	uses     map[domain.JobID]route.Uses // of the routes by use
	heard    map[string]route.Heard      // of the one job whose instances were asked
	turnCame bool                        // these runs have waited, and nobody is before them
	random   *rand.Rand
}

func (d *Dispatcher) newRouting() *routing {
	return &routing{
		d: d, cands: make(map[[2]string][]*route.Candidate), beats: make(beats),
		random: rand.New(rand.NewPCG(rand.Uint64(), rand.Uint64())), //nolint:gosec // spreading load is no secret
	}
}

// count reads and raises the shared numbers of the jobs in the batch whose route needs them, one statement for each kind.
func (r *routing) count(ctx context.Context, runs []domain.Due, defs domain.Definitions) error {
	var n map[domain.JobID]int
	var turns map[domain.JobID]domain.Turns
	for _, run := range runs {
		def := defs.Of(run.JobID, run.JobVersion)
		switch {
		case def == nil:
		case def.Route == domain.RouteRoundRobin:
			if n == nil {
				n = make(map[domain.JobID]int)
			}
			n[run.JobID]++
		case def.Route.ByUse() && r.freely(run, def):
			if turns == nil {
				turns = make(map[domain.JobID]domain.Turns)
			}
			r.turn(turns, def)
		}
	}
	if len(n) > 0 {
		counters, err := r.d.store.CountRoutes(ctx, n)
		if err != nil {
			return err
		}
		r.counters = counters
	}
	if len(turns) > 0 {
		uses, err := r.d.store.TakeTurns(ctx, turns)
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

// turn adds a run of a job to the turns that are to be taken.
func (r *routing) turn(turns map[domain.JobID]domain.Turns, def *domain.Definition) {
	t := turns[def.JobID]
	if t.Runs++; t.Runs == 1 {
		t.Route, t.Known = def.Route, r.d.roster.Offering(def.Group, def.Target())
		for _, c := range r.candidates(def.Group, def.Target()) {
			if c.Room() > 0 {
				t.Open = append(t.Open, c.Instance)
			}
		}
	}
	turns[def.JobID] = t
}

func (r *routing) candidates(group, target string) []*route.Candidate {
	k := [2]string{group, target}
	if _, known := r.cands[k]; !known {
		r.cands[k] = r.d.candidates(group, target)
		for _, c := range r.cands[k] {
			b := boot{group, c.Instance, c.BootID}
			if beat, known := r.beats[b]; !known || c.Beat < beat { // for another target, a moment ago
				r.beats[b] = c.Beat
			}
		}
	}
	return r.cands[k]
}

// choose routes a run, unless runs of its kind wait already: then it waits its turn behind them.
func (r *routing) choose(run domain.Due, def *domain.Definition) domain.Binding {
	switch key := def.WaitsAs(run.Pin); {
	case !r.d.steady.connected():
		return domain.Binding{Waiting: natsAway}
	case key.Apart != 0:
		return domain.Binding{Waiting: asked}
	case r.d.waitsFor(key):
		return domain.Binding{Waiting: behindOthers}
	}
	return r.pick(run, def)
}

// freely reports whether a run is routed now, among all instances: not to a place of its own, nor behind others.
func (r *routing) freely(run domain.Due, def *domain.Definition) bool {
	return run.Pin == "" && (r.turnCame || (r.d.steady.connected() && !r.d.waitsFor(def.WaitsAs(""))))
}

// uncounted reports whether the job's shared numbers are needed and were not read.
func (r *routing) uncounted(pin string, def *domain.Definition) bool {
	if pin != "" {
		return false
	}
	_, counted := r.counters[def.JobID]
	_, taken := r.uses[def.JobID]
	return (def.Route == domain.RouteRoundRobin && !counted) || (def.Route.ByUse() && !taken)
}

func (r *routing) pick(run domain.Due, def *domain.Definition) domain.Binding {
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
	return route.Choose(r.candidates(def.Group, def.Target()), q)
}

func (d *Dispatcher) waitsFor(k domain.WaitingKey) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.waits[k]
}
