package dispatcher

import (
	"context"

	"github.com/belfryhq/belfry/dispatcher/assign"
	"github.com/belfryhq/belfry/dispatcher/glance"
	"github.com/belfryhq/belfry/dispatcher/reconcile"
	"github.com/belfryhq/belfry/dispatcher/results"
	"github.com/belfryhq/belfry/dispatcher/roster"
	"github.com/belfryhq/belfry/dispatcher/verdict"
	"github.com/belfryhq/belfry/internal/lifecycle"
)

// RoleStores holds the database operations that the dispatcher role needs in addition to Stores.
type RoleStores struct {
	Assign    assign.Store
	Verdict   verdict.Store
	Reconcile reconcile.Store
	Upkeep    UpkeepStore
	Glance    glance.Store
}

// Role is the work of the dispatcher role: it settles results, assigns waiting runs and reconciles. Create one with NewRole.
type Role struct {
	results    *results.Consumer
	assigner   *assign.Assigner
	judge      *verdict.Judge
	reconciler *reconcile.Reconciler
	upkeep     upkeep
	guard      *roster.Guard
	hear       func(context.Context)
}

// NewRole adds the work of the dispatcher role to a process that fires.
func NewRole(f *Firing, stores RoleStores) *Role {
	cfg := f.cfg
	look := glance.New(stores.Glance)
	r := &Role{upkeep: upkeep{stores.Upkeep, look, cfg.Log}, hear: f.hearLoop}
	r.guard = roster.NewGuard(roster.GuardConfig{Roster: f.roster, JetStream: f.js, Closed: cfg.Closed, Log: cfg.Log, Registry: cfg.Registry})
	r.results = results.New(results.Config{
		JetStream: f.js, Conn: cfg.Conn, Peers: f.peers, Roster: f.roster, Recorder: f.recorder, Letters: f.letters,
		Log: cfg.Log, Registry: cfg.Registry, Release: f.release, Bounds: cfg.Bounds,
	})
	r.assigner = assign.New(assign.Config{
		Store: stores.Assign, Peers: f.peers, Roster: f.roster, Firer: f.firer, Sender: f.sender, Recorder: f.recorder,
		Waiting: f.waiting, Glance: look, Log: cfg.Log, Registry: cfg.Registry,
	})
	r.judge = verdict.New(verdict.Config{
		Store: stores.Verdict, Peers: f.peers, Roster: f.roster, Sender: f.sender, Firer: f.firer, Recorder: f.recorder,
		Results: r.results, Waiting: f.waiting, Glance: look, Log: cfg.Log, LostAfter: cfg.LostAfter,
	})
	r.reconciler = reconcile.New(reconcile.Config{
		Store: stores.Reconcile, Peers: f.peers, Firer: f.firer, Killer: f.killer, Recorder: f.recorder, Results: r.results,
		Judge: r.judge, Waiting: f.waiting, Glance: look, Log: cfg.Log,
	})
	return r
}

// Run does the work of the role while Firing.Watch runs. It blocks until ctx ends and the work in progress is done.
func (r *Role) Run(ctx context.Context) error {
	lifecycle.Together(ctx, r.hear, r.results.Run, r.assigner.Run, r.judge.Run, r.reconciler.Run, r.guard.Run, r.upkeep.daysLoop, r.upkeep.vacuumLoop,
		r.upkeep.usageLoop, r.upkeep.countLoop)
	return nil
}
