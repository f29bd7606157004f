package dispatcher

import (
	"context"

	"github.com/belfryhq/belfry/dispatcher/assign"
	"github.com/belfryhq/belfry/dispatcher/reconcile"
	"github.com/belfryhq/belfry/dispatcher/results"
	"github.com/belfryhq/belfry/dispatcher/verdict"
	"github.com/belfryhq/belfry/internal/lifecycle"
)

// Role is the work of the dispatcher role: it settles results, assigns waiting runs and reconciles. Create one with NewRole.
type Role struct {
	results    *results.Consumer
	assigner   *assign.Assigner
	judge      *verdict.Judge
	reconciler *reconcile.Reconciler
	upkeep     upkeep
}

// NewRole adds the work of the dispatcher role to a process that fires.
func NewRole(f *Firing) *Role {
	cfg := f.cfg
	r := &Role{upkeep: upkeep{cfg.Store, cfg.Log}}
	r.results = results.New(results.Config{
		JetStream: f.js, Conn: cfg.Conn, Peers: f.Peers, Roster: f.roster, Recorder: f.recorder, Letters: f.DeadLetters,
		Log: cfg.Log, Registry: cfg.Registry, Release: f.release,
	})
	r.assigner = assign.New(assign.Config{
		Store: cfg.Store, Peers: f.Peers, Roster: f.roster, Firer: f.firer, Sender: f.sender, Recorder: f.recorder,
		Waiting: f.waiting, Log: cfg.Log, Registry: cfg.Registry,
	})
	r.judge = verdict.New(verdict.Config{
		Store: cfg.Store, Peers: f.Peers, Roster: f.roster, Sender: f.sender, Firer: f.firer, Recorder: f.recorder,
		Results: r.results, Waiting: f.waiting, Log: cfg.Log, LostAfter: cfg.LostAfter,
	})
	r.reconciler = reconcile.New(reconcile.Config{
		Store: cfg.Store, Peers: f.Peers, Firer: f.firer, Killer: f.killer, Recorder: f.recorder, Results: r.results,
		Judge: r.judge, Waiting: f.waiting, Log: cfg.Log,
	})
	return r
}

// Run does the work of the role. Firing.Watch has to run too. It blocks until ctx ends and the work under way is done.
func (r *Role) Run(ctx context.Context) error {
	lifecycle.Together(ctx, r.results.Run, r.assigner.Run, r.judge.Run, r.reconciler.Run, r.upkeep.daysLoop, r.upkeep.vacuumLoop)
	return nil
}
