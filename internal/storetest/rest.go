package storetest

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/belfryhq/belfry/dispatcher/assign"
	"github.com/belfryhq/belfry/dispatcher/glance"
	"github.com/belfryhq/belfry/dispatcher/reconcile"
	"github.com/belfryhq/belfry/internal/domain"
	"github.com/belfryhq/belfry/internal/engine"
	"github.com/belfryhq/belfry/scheduler"
)

// quietOnly fails the test if planning finds something directly after Quiet has said that there is nothing.
type quietOnly struct {
	scheduler.Store
	t *testing.T
}

func (q quietOnly) check(ctx context.Context, what string, find func() ([]engine.Due, error)) error {
	q.t.Helper()
	before := q.Now()
	quiet, err := q.Quiet(ctx)
	if err != nil {
		return err
	}
	runs, err := find()
	// A run at the end of the horizon may have come into it between the two statements.
	if quiet && slices.ContainsFunc(runs, func(d engine.Due) bool { return d.DueAt.Before(before.Add(time.Second)) }) {
		q.t.Errorf("%s found runs although the store was quiet: %+v", what, runs)
	}
	return err
}

// PlanDue implements scheduler.Store.
func (q quietOnly) PlanDue(ctx context.Context, batch int, near bool) (out engine.Planned, err error) {
	err = q.check(ctx, "PlanDue", func() ([]engine.Due, error) {
		out, err = q.Store.PlanDue(ctx, batch, near)
		return out.Runs, err
	})
	return out, err
}

// PlanStranded implements scheduler.Store.
func (q quietOnly) PlanStranded(ctx context.Context, batch int) (out engine.Planned, err error) {
	err = q.check(ctx, "PlanStranded", func() ([]engine.Due, error) {
		out, err = q.Store.PlanStranded(ctx, batch)
		return out.Runs, err
	})
	return out, err
}

// ClaimNear implements scheduler.Store.
func (q quietOnly) ClaimNear(ctx context.Context, batch int) (runs []engine.Due, stranded int, err error) {
	err = q.check(ctx, "ClaimNear", func() ([]engine.Due, error) {
		runs, stranded, err = q.Store.ClaimNear(ctx, batch)
		return runs, err
	})
	return runs, stranded, err
}

// glanced fails the test if a reconciler finds something that a glance directly before did not show.
type glanced struct {
	reconcile.Store
	glance glance.Store
	t      *testing.T
}

func (g glanced) check(ctx context.Context, what string, shows func(engine.Glance) bool, find func() (int, error)) error {
	g.t.Helper()
	seen, err := g.glance.Glance(ctx)
	if err != nil {
		return err
	}
	n, err := find()
	if n > 0 && !shows(seen) {
		g.t.Errorf("%s found %d runs, a glance before showed %+v", what, n, seen)
	}
	return err
}

// PastDeadline implements reconcile.Store.
func (g glanced) PastDeadline(ctx context.Context, limit int) (runs []engine.LiveRun, err error) {
	err = g.check(ctx, "PastDeadline", func(s engine.Glance) bool { return s.Deadlines && s.Live }, func() (int, error) {
		runs, err = g.Store.PastDeadline(ctx, limit)
		return len(runs), err
	})
	return runs, err
}

// UnconfirmedKills implements reconcile.Store.
func (g glanced) UnconfirmedKills(ctx context.Context, after time.Duration, limit int) (runs []engine.LiveRun, err error) {
	err = g.check(ctx, "UnconfirmedKills", func(s engine.Glance) bool { return s.Kills && s.Live }, func() (int, error) {
		runs, err = g.Store.UnconfirmedKills(ctx, after, limit)
		return len(runs), err
	})
	return runs, err
}

// ReplanOverdue implements reconcile.Store.
func (g glanced) ReplanOverdue(ctx context.Context, limit int) (n int, err error) {
	err = g.check(ctx, "ReplanOverdue", func(s engine.Glance) bool { return s.Retries && s.Live }, func() (int, error) {
		n, err = g.Store.ReplanOverdue(ctx, limit)
		return n, err
	})
	return n, err
}

// ReleaseOrphans implements reconcile.Store.
func (g glanced) ReleaseOrphans(ctx context.Context, limit int) (runs []engine.Due, err error) {
	err = g.check(ctx, "ReleaseOrphans", func(s engine.Glance) bool { return s.Held && s.Live }, func() (int, error) {
		runs, err = g.Store.ReleaseOrphans(ctx, limit)
		return len(runs), err
	})
	return runs, err
}

// glancedKeys does the same for the assigner.
type glancedKeys struct {
	assign.Store
	look glanced
}

// WaitingKeys implements assign.Store.
func (g glancedKeys) WaitingKeys(ctx context.Context) (keys []engine.WaitingKey, err error) {
	err = g.look.check(ctx, "WaitingKeys", func(s engine.Glance) bool { return s.Waiting && s.Live }, func() (int, error) {
		keys, err = g.Store.WaitingKeys(ctx)
		return len(keys), err
	})
	return keys, err
}

// atRest looks at a database while nothing is due, and while something is.
func atRest(t *testing.T, s *suite) {
	looks := func(when string, quiet bool, want engine.Glance) {
		t.Helper()
		q, err := s.Scheduler.Quiet(t.Context())
		s.must(err)
		equal(t, "quiet "+when, q, quiet)
		g, err := s.Glance.Glance(t.Context())
		s.must(err)
		g.Dead, g.ManyDead = false, false // Postgres counts dead rows some time later
		equal(t, "a glance "+when, g, want)
	}
	looks("without jobs", true, engine.Glance{})
	later := s.job("later", everyMinuteFromNow)
	looks("with a job that is not due soon", true, engine.Glance{})
	s.Advance(t, 58*time.Second)
	looks("with a job that is due soon", false, engine.Glance{})
	s.plan()
	looks("with a planned run", true, engine.Glance{Live: true})
	job := s.job("a", retries(1))
	s.trigger(job.ID, 2)
	looks("with a run that is in no ring", false, engine.Glance{Live: true})
	due := s.claim()
	looks("with runs in a ring", true, engine.Glance{Live: true})
	run := s.one(s.admit(due[:1], "i1").Bound)
	s.Advance(t, 10*time.Millisecond)
	looks("with a bound run", true, engine.Glance{Live: true, Bound: true})
	s.admit(due[1:], "i1")
	looks("with a run that is held", true, engine.Glance{Live: true, Bound: true, Held: true})
	_, err := s.Kill.RequestKill(t.Context(), run.ID, domain.ReasonKilled, "test")
	s.must(err)
	s.Advance(t, 10*time.Millisecond)
	looks("with a kill", true, engine.Glance{Live: true, Bound: true, Held: true, Kills: true})
	s.trigger(s.job("waits").ID, 1)
	s.admit(s.claim(), "")
	looks("with a run that waits", true, engine.Glance{Live: true, Bound: true, Held: true, Kills: true, Waiting: true})
	s.settle(engine.Settled, s.result(run, domain.OutcomeFailed))
	_, err = s.Pauses.PauseGroup(t.Context(), "g", "moving house", nil, "ann")
	s.must(err)
	if q, err := s.Scheduler.Quiet(t.Context()); err != nil || q && len(s.Runs(t, later.ID)) > 0 {
		t.Errorf("quiet at the beginning of a pause: %t, %v", q, err)
	}
	s.tend()
	s.Advance(t, 10*time.Second)
	if q, err := s.Scheduler.Quiet(t.Context()); err != nil || q {
		t.Errorf("quiet with a run that its scheduler has left: %t, %v", q, err)
	}
	if runs := s.Runs(t, later.ID); len(runs) > 1 {
		t.Errorf("%d runs of the job that is due once", len(runs))
	}
}
