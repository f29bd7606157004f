// Package reconcile repairs runs that a lost message, a crash or a manual change of the database has left in a wrong state. It
// finds such runs with queries to Postgres.
//
// Package dispatcher lists all reconcilers. Those that ask instances are in package verdict.
package reconcile

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/belfryhq/belfry/dispatcher/fire"
	"github.com/belfryhq/belfry/dispatcher/glance"
	"github.com/belfryhq/belfry/dispatcher/kill"
	"github.com/belfryhq/belfry/dispatcher/peer"
	"github.com/belfryhq/belfry/dispatcher/results"
	"github.com/belfryhq/belfry/dispatcher/settle"
	"github.com/belfryhq/belfry/dispatcher/verdict"
	"github.com/belfryhq/belfry/dispatcher/waiting"
	"github.com/belfryhq/belfry/executor/wire"
	"github.com/belfryhq/belfry/internal/domain"
	"github.com/belfryhq/belfry/internal/engine"
	"github.com/belfryhq/belfry/internal/explain"
	"github.com/belfryhq/belfry/internal/lifecycle"
)

// Store defines the database operations that the reconciler needs.
type Store interface {
	Now() time.Time // the database's clock
	Definitions(ctx context.Context, runs []engine.Due) (engine.Definitions, error)
	PastDeadline(ctx context.Context, limit int) ([]engine.LiveRun, error)
	PastGiveUp(ctx context.Context, group string, limit int) ([]engine.LiveRun, error)
	UnconfirmedKills(ctx context.Context, after time.Duration, limit int) ([]engine.LiveRun, error)
	ReplanOverdue(ctx context.Context, limit int) (int, error)
	GoOnChains(ctx context.Context, limit int) (int, error)
	ReleaseOrphans(ctx context.Context, limit int) ([]engine.Due, error)
	ReturnStrays(ctx context.Context, limit int) (int, error)
}

// Config holds the dependencies of a Reconciler. All fields are required.
type Config struct {
	Store    Store
	Peers    *peer.Peers
	Firer    *fire.Firer
	Killer   *kill.Killer
	Recorder *settle.Recorder
	Results  *results.Consumer
	Judge    *verdict.Judge
	Waiting  *waiting.Kinds
	Glance   *glance.Glance
	Log      *slog.Logger
}

// Reconciler repairs runs. Create one with New and call Run.
type Reconciler struct {
	Config
	overdue *peer.Lanes // of endOverdue
}

// New returns a reconciler.
func New(cfg Config) *Reconciler { return &Reconciler{cfg, peer.NewLanes()} }

// batch is the maximum number of runs that one pass repairs.
const batch = 500

// Run repairs runs until ctx ends. Each kind of repair has its own loop, so that a repair that waits for an answer does not delay
// the others.
func (r *Reconciler) Run(ctx context.Context) {
	every := func(period time.Duration, failure string, f func(context.Context) error) func(context.Context) {
		return func(ctx context.Context) {
			for lifecycle.Rest(ctx, period) {
				if err := f(ctx); err != nil && ctx.Err() == nil {
					r.Log.WarnContext(ctx, failure, "err", err)
				}
			}
		}
	}
	lifecycle.Together(ctx,
		every(time.Second, "cannot end runs past their start deadline, retrying", r.ifAny(func(g engine.Glance) bool { return g.Deadlines }, r.endUnstarted)),
		every(time.Second, "cannot end runs past their timeout, retrying", r.endOverdue),
		every(time.Second, "cannot repeat kill requests, retrying", r.ifAny(func(g engine.Glance) bool { return g.Kills }, r.repeatKills)),
		every(time.Second, "cannot plan overdue retries again, retrying",
			r.ifAny(func(g engine.Glance) bool { return g.Retries }, r.counted("retry_not_replanned", r.Store.ReplanOverdue))),
		every(2*time.Second, "cannot release held runs, retrying", r.ifAny(func(g engine.Glance) bool { return g.Held }, r.releaseOrphans)),
		every(5*time.Second, "cannot continue jobs with a fixed delay, retrying", r.counted("fixed_delay_stopped", r.Store.GoOnChains)),
		every(15*time.Second, "cannot return stray runs, retrying", r.returnStrays),
	)
	r.overdue.Wait()
}

// ifAny calls a repair only if a glance at the database shows something for it.
func (r *Reconciler) ifAny(shown func(engine.Glance) bool, repair func(context.Context) error) func(context.Context) error {
	return func(ctx context.Context) error {
		g, err := r.Glance.Look(ctx)
		if err != nil || !shown(g) {
			return err
		}
		return repair(ctx)
	}
}

func (r *Reconciler) counted(kind string, f func(context.Context, int) (int, error)) func(context.Context) error {
	return func(ctx context.Context) error {
		n, err := f(ctx, batch)
		r.Recorder.Reconciled(kind, n)
		return err
	}
}

func (r *Reconciler) found(ctx context.Context, kind string, ended []engine.Ended) {
	_, released := r.Recorder.Found(ctx, kind, ended)
	r.Firer.Release(ctx, released)
}

// returnStrays adds missing entries to the waiting runs: queued, unbound runs without an entry would never be assigned.
func (r *Reconciler) returnStrays(ctx context.Context) error {
	n, err := r.Store.ReturnStrays(ctx, batch)
	if n > 0 {
		r.Recorder.Reconciled("stray", n)
		r.Waiting.Wake()
	}
	return err
}

// releaseOrphans fires runs that are held by a run that is final.
func (r *Reconciler) releaseOrphans(ctx context.Context) error {
	runs, err := r.Store.ReleaseOrphans(ctx, batch)
	if err != nil {
		return err
	}
	r.Recorder.Reconciled("held_by_nobody", len(runs))
	r.Firer.Release(ctx, runs)
	return nil
}

// endUnstarted ends runs that no instance took before their start deadline. Deadlines pause while NATS is unavailable, and
// afterwards for as long as executors need to reconnect.
func (r *Reconciler) endUnstarted(ctx context.Context) error {
	if !r.Peers.HeardForLong() {
		return nil
	}
	runs, err := r.Store.PastDeadline(ctx, batch)
	if err != nil {
		return err
	}
	keys := make([]engine.Due, len(runs))
	for i, run := range runs {
		keys[i] = engine.Due{JobID: run.JobID, JobVersion: run.JobVersion}
	}
	defs, err := r.Store.Definitions(ctx, keys)
	if err != nil {
		return err
	}
	var ended []engine.Ended
	for _, run := range runs {
		if def := defs.Of(run.JobID, run.JobVersion); def != nil {
			ended = append(ended, r.Recorder.NoExecutor(run.ID, run.Attempt, notTaken(run.Group, def)))
		}
	}
	r.found(ctx, "start_deadline", ended)
	return nil
}

// notTaken explains why a run missed its start deadline.
func notTaken(group string, def *engine.Definition) explain.Note {
	deadline := def.StartDeadline.Std().Milliseconds()
	if def.Script != nil {
		return explain.Of(explain.ScriptNotTaken, group, def.Script.Language, deadline)
	}
	return explain.Of(explain.NotTaken, group, def.Handler, deadline)
}

// startable is the age of a binding after which its instance can no longer start the attempt.
const startable = wire.LeaseTTL + time.Second

// endOverdue ends runs whose instance did not report within the grace period after their timeout. It kills the attempts at the
// instance first, so that the instance does not start an attempt that has ended in the database. While NATS is unavailable, it
// ends nothing, because instances cannot report. After an outage, it waits until their reports are settled.
func (r *Reconciler) endOverdue(ctx context.Context) error {
	if !r.Peers.HeardForLong() {
		return nil
	}
	groups, err := r.Judge.Overdue(ctx)
	if err != nil {
		return err
	}
	for _, group := range groups {
		if r.overdue.Idle(group) {
			r.overdue.Do(ctx, []string{group}, func() error { return r.endOverdueOf(ctx, group) })
		}
	}
	return r.overdue.Err()
}

// endOverdueOf is endOverdue for one group.
func (r *Reconciler) endOverdueOf(ctx context.Context, group string) error {
	runs, err := r.Store.PastGiveUp(ctx, group, batch)
	if err != nil {
		return err
	}
	for b, runs := range peer.ByBoot(runs) {
		reply, err := r.Peers.Ask(ctx, b.Group, b.Instance, wire.Control{Op: wire.OpKill, Runs: peer.Refs(runs), Reason: string(domain.ReasonTimeout)})
		killed := err == nil && reply.BootID == b.ID
		var known map[string]wire.Status
		if killed {
			known = peer.Statuses(reply)
		} else if settled, err := r.Results.AllSettled(ctx, b.Group); err != nil {
			return err
		} else if !settled {
			continue
		}
		var ended []engine.Ended
		for _, run := range runs {
			if st := known[run.ID.String()]; st.Status == wire.StatusDone && st.Result != nil {
				ended = append(ended, r.Recorder.FromStatus(&run, st)...)
				continue
			}
			if !killed && run.BoundAt != nil && r.Store.Now().Sub(*run.BoundAt) < startable {
				continue
			}
			ended = append(ended, r.Recorder.TimedOut(&run))
		}
		r.found(ctx, "timeout", ended)
	}
	return nil
}

// killAfter is the time after which a kill request without confirmation is sent again.
const killAfter = 3 * time.Second

// repeatKills sends kill requests again that no instance has confirmed.
func (r *Reconciler) repeatKills(ctx context.Context) error {
	runs, err := r.Store.UnconfirmedKills(ctx, killAfter, batch)
	if err != nil {
		return err
	}
	var unbound []engine.Ended
	for _, run := range runs {
		if run.Instance == "" {
			unbound = append(unbound, r.Recorder.KilledUnbound(&run))
		}
	}
	r.found(ctx, "kill", unbound)
	var wg sync.WaitGroup
	for _, runs := range peer.ByBoot(runs) {
		r.Recorder.Reconciled("kill", len(runs))
		wg.Go(func() { r.Firer.Release(ctx, r.Killer.Send(ctx, runs, runs[0].KillReason)) })
	}
	wg.Wait()
	return nil
}
