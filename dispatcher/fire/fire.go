// Package fire routes due runs to instances, binds them, and passes them to package offer.
//
// Fire is called with runs that are about to be due. It chooses an instance for each run, binds all runs in one
// transaction, and passes the bound ones to package offer. Only this package fires runs. A package that ends runs returns
// the released runs to its caller, which passes them to Release.
package fire

import (
	"context"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/belfryhq/belfry/dispatcher/announce"
	"github.com/belfryhq/belfry/dispatcher/divide"
	"github.com/belfryhq/belfry/dispatcher/kill"
	"github.com/belfryhq/belfry/dispatcher/offer"
	"github.com/belfryhq/belfry/dispatcher/peer"
	"github.com/belfryhq/belfry/dispatcher/roster"
	"github.com/belfryhq/belfry/dispatcher/route"
	"github.com/belfryhq/belfry/dispatcher/settle"
	"github.com/belfryhq/belfry/dispatcher/waiting"
	"github.com/belfryhq/belfry/internal/domain"
	"github.com/belfryhq/belfry/internal/engine"
	"github.com/belfryhq/belfry/internal/explain"
	"github.com/belfryhq/belfry/internal/lifecycle"
)

// Store defines the database operations that the firer needs.
type Store interface {
	Now() time.Time // the database's clock
	Definitions(ctx context.Context, runs []engine.Due) (engine.Definitions, error)
	CountRoutes(ctx context.Context, n map[domain.JobID]int) (map[domain.JobID]int64, error)
	TakeTurns(ctx context.Context, turns map[domain.JobID]engine.Turns) (map[domain.JobID]map[string]int64, error)
	Admit(ctx context.Context, in []engine.Admission) (engine.Admitted, error)
	ExpandBroadcast(ctx context.Context, run engine.Due, def *engine.Definition, to []engine.ShardBinding) (engine.Admitted, error)
	AssignWaiting(ctx context.Context, key engine.WaitingKey, limit int, choose func([]engine.WaitingRun) []engine.Binding) (bound []engine.LiveRun, others engine.Unassigned, err error)
	LongWaiting(ctx context.Context, d time.Duration) ([]engine.WaitingKey, error)
}

// Config holds the dependencies of a Firer. All fields but Registry are required.
type Config struct {
	Store     Store
	Peers     *peer.Peers
	Roster    *roster.Roster
	Sender    *offer.Sender
	Killer    *kill.Killer
	Recorder  *settle.Recorder
	Announcer *announce.Announcer
	Waiting   *waiting.Kinds
	Log       *slog.Logger
	Registry  prometheus.Registerer
}

// Firer fires runs. Create one with New and call Run. It is safe for concurrent use.
type Firer struct {
	Config
	pings *prometheus.CounterVec

	set reading // of Waiting

	mu     sync.Mutex
	asking map[engine.WaitingKey]*asking // the jobs whose instances are asked; guarded by mu
}

// New returns a firer.
func New(cfg Config) *Firer {
	f := &Firer{Config: cfg, asking: make(map[engine.WaitingKey]*asking), pings: prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "belfry_pings_total", Help: "Pings to instances for the routes failover and busyover, by answer.",
	}, []string{"answer"})}
	if cfg.Registry != nil {
		cfg.Registry.MustRegister(f.pings)
	}
	return f
}

// In a process without an assigner, new runs queue behind waiting runs that have been due for longWait. longWait is longer than an
// assigner needs to bind a run for which a slot is free. Otherwise a run that queued only because of this rule would make later
// runs queue too.
const longWait = 3 * waiting.Poll

// Run updates the set Waiting from Postgres until ctx ends, while runs are fired. A process that fires runs but has no assigner must
// call it. Otherwise its runs overtake runs that wait for a free slot.
func (f *Firer) Run(ctx context.Context) {
	f.set.reads.Store(true)
	for lifecycle.Rest(ctx, waiting.Poll) {
		if time.Since(f.set.firedAt()) < restAfter {
			f.readWaiting(ctx)
		}
	}
}

// restAfter is how long after the last fire Run goes on. The first fire after a rest reads the set itself.
const restAfter = 10 * time.Second

// reading is when the set Waiting was read and when runs were fired, in a process without an assigner.
type reading struct {
	reads atomic.Bool
	mu    sync.Mutex
	fired time.Time // guarded by mu
	at    time.Time // guarded by mu
}

func (r *reading) firedAt() time.Time {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.fired
}

// fires notes a fire, and reports whether the set is too old for it.
func (r *reading) fires(now time.Time) (old bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.fired = now
	return r.reads.Load() && now.Sub(r.at) > 2*waiting.Poll
}

func (f *Firer) readWaiting(ctx context.Context) {
	keys, err := f.Store.LongWaiting(ctx, longWait)
	if err != nil {
		f.warn(ctx, "cannot read what runs wait for, retrying", err)
		return
	}
	f.Waiting.Set(keys)
	f.set.mu.Lock()
	defer f.set.mu.Unlock()
	f.set.at = time.Now()
}

// Fire routes runs, binds them in one transaction, and offers them as soon as they are bound. It is called shortly before they
// are due. later has the runs that have their block slot but are not due yet. After an error, any part of the batch may have
// been fired. It is safe to fire the batch again. A run that Postgres refuses to fire does not stop the others: it stays planned, and
// schedulers find it as stranded.
func (f *Firer) Fire(ctx context.Context, runs []engine.Due) (later []engine.Due, err error) {
	err = divide.Batch(runs, domain.Refused, func(part []engine.Due) error {
		back, err := f.fire(ctx, part)
		later = append(later, back...)
		return err
	}, func(run engine.Due, err error) error {
		f.Recorder.Refused(ctx, "fire", run.RunID, err)
		return nil
	})
	if err != nil {
		return nil, err
	}
	return later, nil
}

// fire fires runs in one transaction, except broadcasts, which have a transaction each.
func (f *Firer) fire(ctx context.Context, runs []engine.Due) (later []engine.Due, err error) {
	if f.set.fires(time.Now()) {
		f.readWaiting(ctx)
	}
	defs, err := f.Store.Definitions(ctx, runs)
	if err != nil {
		return nil, err
	}
	r := f.NewRouting()
	if err := r.Count(ctx, runs, defs); err != nil {
		return nil, err
	}
	single := make([]engine.Admission, 0, len(runs))
	var asks []engine.WaitingKey
	for _, run := range runs {
		def := defs.Of(run.JobID, run.JobVersion)
		switch {
		case def == nil:
			f.Log.ErrorContext(ctx, "a planned run has no job version, it cannot be fired", "run_id", run.RunID, "job_id", run.JobID)
		case def.Route == domain.RouteBroadcast && run.Broadcast.IsZero():
			back, err := f.fireBroadcast(ctx, r, run, def)
			if err != nil {
				return nil, err
			}
			later = append(later, back...)
		default:
			if run.Pin == "" && def.Route.Asks() {
				asks = append(asks, def.WaitsAs(""))
			}
			single = append(single, engine.Admission{Due: run, Def: def, Binding: r.choose(run, def)})
		}
	}
	if len(single) == 0 {
		return later, nil
	}
	//sim:seam admit
	out, err := f.Store.Admit(ctx, single)
	f.admitted(ctx, out, r.Beats()) // also after an error: a part of the batch may be committed
	if err != nil {
		return nil, err
	}
	for _, k := range asks {
		f.ask(ctx, k)
	}
	return append(later, out.Later...), nil
}

const releaseTimeout = 10 * time.Second

// Release fires held runs whose turn has come. If that fails, a scheduler finds them as stranded and fires them.
func (f *Firer) Release(ctx context.Context, runs []engine.Due) {
	if len(runs) == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), releaseTimeout)
	defer cancel()
	if _, err := f.Fire(ctx, runs); err != nil {
		f.Log.WarnContext(ctx, "cannot fire released runs, a scheduler fires them later", "runs", len(runs), "err", err)
	}
}

// admitted acts on the result of a transaction: it offers the bound runs, announces the changes, kills covered runs, and fires
// released runs.
func (f *Firer) admitted(ctx context.Context, out engine.Admitted, relies offer.Beats) {
	f.Sender.Send(ctx, out.Bound, relies, true)
	changes := make([]engine.Change, 0, len(out.Bound)+len(out.Waiting)+len(out.Ended))
	for i := range out.Bound {
		changes = append(changes, changeOf(&out.Bound[i]))
	}
	for i := range out.Waiting {
		changes = append(changes, changeOf(&out.Waiting[i]))
	}
	f.Announcer.Notify(append(changes, out.Ended...))
	f.Recorder.CountDropped(out.Ended)
	f.cover(ctx, out.Kills, out.Released)
	if len(out.Waiting) > 0 {
		f.Waiting.Wake()
	}
}

// Unassigned acts on waiting runs that a transaction of AssignWaiting did not bind.
func (f *Firer) Unassigned(ctx context.Context, others engine.Unassigned) {
	for _, b := range others.Expand {
		f.expandWaiting(ctx, b)
	}
	f.Recorder.Dropped(others.Ended)
	f.cover(ctx, others.Kills, others.Released)
}

// cover kills the runs that a newer run of their job covers, and fires the runs whose turn has come. If a kill is lost, a
// reconciler sends it again.
func (f *Firer) cover(ctx context.Context, kills []engine.LiveRun, released []engine.Due) {
	for _, runs := range peer.ByBoot(kills) {
		f.Sender.Aside(func() {
			ctx := context.WithoutCancel(ctx)
			f.Release(ctx, f.Killer.Send(ctx, runs, domain.ReasonCovered))
		})
	}
	f.Release(ctx, released)
}

func changeOf(r *engine.LiveRun) engine.Change {
	return engine.Change{
		RunID: r.ID, JobID: r.JobID, JobVersion: r.JobVersion, Group: r.Group, Cause: r.Cause, State: r.State,
		FireTime: r.FireTime, Attempt: r.Attempt,
	}
}

func (f *Firer) fireBroadcast(ctx context.Context, r *Routing, run engine.Due, def *engine.Definition) ([]engine.Due, error) {
	to := route.Shards(r.Candidates(def.Group, def.Target()), def.Shards, run.Pin)
	if len(to) == 0 {
		// No instance can take a shard, so the whole broadcast waits.
		why := route.NoCandidate(def.Target(), f.Roster.Absence(def.Group, def.Target()))
		if run.Pin != "" {
			why = route.Gone(run.Pin, def.Target())
		}
		out, err := f.Store.Admit(ctx, []engine.Admission{{Due: run, Def: def, Binding: engine.Binding{
			Waiting: why, Route: explain.Of(explain.NotExpanded),
		}}})
		if err == nil {
			f.admitted(ctx, out, r.Beats())
		}
		return out.Later, err
	}
	out, err := f.Store.ExpandBroadcast(ctx, run, def, to)
	if err != nil {
		return nil, err
	}
	f.admitted(ctx, out, r.Beats())
	return out.Later, nil
}

// expandWaiting expands a broadcast that found no instance when it was fired.
func (f *Firer) expandWaiting(ctx context.Context, run engine.LiveRun) {
	defs, err := f.Store.Definitions(ctx, []engine.Due{run.Due()})
	if err != nil {
		f.warn(ctx, "cannot read the job of a waiting broadcast, retrying", err)
		return
	}
	def := defs.Of(run.JobID, run.JobVersion)
	if def == nil {
		return
	}
	r := f.NewRouting()
	to := route.Shards(r.Candidates(def.Group, def.Target()), def.Shards, run.Pin)
	if len(to) == 0 {
		return
	}
	out, err := f.Store.ExpandBroadcast(ctx, run.Due(), def, to)
	if err != nil {
		f.warn(ctx, "cannot expand a waiting broadcast, retrying", err)
		return
	}
	f.admitted(ctx, out, r.Beats())
}

func (f *Firer) warn(ctx context.Context, failure string, err error) {
	if ctx.Err() == nil {
		f.Log.WarnContext(ctx, failure, "err", err)
	}
}
