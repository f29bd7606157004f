package sim

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/belfryhq/belfry/internal/domain"
	"github.com/belfryhq/belfry/internal/engine"
	"github.com/belfryhq/belfry/internal/explain"
	"github.com/belfryhq/belfry/internal/sim/memstore"
)

// faultyStore is a process's access to the database, with faults: Postgres is away, a transaction fails, a transaction commits
// and its caller receives an error, or the process crashes before or after the commit.
type faultyStore struct {
	p *process
	*memstore.Store
	choosing atomic.Bool // a transaction calls the process to choose instances
}

var (
	errAway    = domain.NewError(domain.Unavailable, "sim: Postgres is away")
	errFailed  = domain.NewError(domain.Unavailable, "sim: the transaction failed")
	errUnknown = domain.NewError(domain.Unavailable, "sim: the connection broke during the commit")
)

// Now waits while the process is frozen, because a frozen process reads no clock.
func (s *faultyStore) Now() time.Time {
	if !s.choosing.Load() { // else the caller would block the database while it waits
		s.p.awaitThaw()
	}
	return s.Store.Now()
}

// before applies the faults between the call and the transaction.
func (s *faultyStore) before(ctx context.Context, name string) error {
	time.Sleep(s.p.w.dice.between(100*time.Microsecond, 3*time.Millisecond))
	s.p.awaitThaw()
	s.p.reach("before " + name)
	switch {
	case s.p.isDead() || s.p.w.faults.databaseAway():
		return errAway
	case ctx.Err() != nil:
		return ctx.Err()
	case s.p.w.faults.storeFails():
		return errFailed
	}
	return nil
}

// after applies the faults between the transaction and the return.
func (s *faultyStore) after(name string) error {
	s.p.reach("after " + name)
	s.p.awaitThaw()
	switch {
	case s.p.isDead():
		return errAway
	case s.p.w.faults.storeUnknown():
		return errUnknown
	}
	return nil
}

// call runs a transaction with one result.
func call[T any](ctx context.Context, s *faultyStore, name string, f func() (T, error)) (T, error) {
	var none T
	if err := s.before(ctx, name); err != nil {
		return none, err
	}
	out, err := f()
	if err != nil {
		return none, err
	}
	if err := s.after(name); err != nil {
		return none, err
	}
	return out, nil
}

type two[A, B any] struct {
	a A
	b B
}

// call2 runs a transaction with two results.
func call2[A, B any](ctx context.Context, s *faultyStore, name string, f func() (A, B, error)) (A, B, error) {
	out, err := call(ctx, s, name, func() (two[A, B], error) {
		a, b, err := f()
		return two[A, B]{a, b}, err
	})
	return out.a, out.b, err
}

func (s *faultyStore) PlanDue(ctx context.Context, batch int, near bool) (engine.Planned, error) {
	return call(ctx, s, "PlanDue", func() (engine.Planned, error) { return s.Store.PlanDue(ctx, batch, near) })
}

func (s *faultyStore) PlanStranded(ctx context.Context, batch int) (engine.Planned, error) {
	return call(ctx, s, "PlanStranded", func() (engine.Planned, error) { return s.Store.PlanStranded(ctx, batch) })
}

func (s *faultyStore) ClaimNear(ctx context.Context, batch int) ([]engine.Due, int, error) {
	return call2(ctx, s, "ClaimNear", func() ([]engine.Due, int, error) { return s.Store.ClaimNear(ctx, batch) })
}

func (s *faultyStore) HandBack(ctx context.Context, runs []engine.Due) error {
	_, err := call(ctx, s, "HandBack", func() (int, error) { return 0, s.Store.HandBack(ctx, runs) })
	return err
}

func (s *faultyStore) TendPauses(ctx context.Context, batch int) (bool, error) {
	return call(ctx, s, "TendPauses", func() (bool, error) { return s.Store.TendPauses(ctx, batch) })
}

func (s *faultyStore) SyncClock(ctx context.Context) error {
	_, err := call(ctx, s, "SyncClock", func() (int, error) { return 0, s.Store.SyncClock(ctx) })
	return err
}

func (s *faultyStore) Definitions(ctx context.Context, runs []engine.Due) (engine.Definitions, error) {
	if s.p.isDead() { // no other fault: the definitions come from a cache
		return nil, errAway
	}
	return s.Store.Definitions(ctx, runs)
}

func (s *faultyStore) CountRoutes(ctx context.Context, n map[domain.JobID]int) (map[domain.JobID]int64, error) {
	return call(ctx, s, "CountRoutes", func() (map[domain.JobID]int64, error) { return s.Store.CountRoutes(ctx, n) })
}

func (s *faultyStore) ScriptCode(ctx context.Context, job domain.JobID, version int) (string, error) {
	return call(ctx, s, "ScriptCode", func() (string, error) { return s.Store.ScriptCode(ctx, job, version) })
}

func (s *faultyStore) TakeTurns(ctx context.Context, turns map[domain.JobID]engine.Turns) (map[domain.JobID]map[string]int64, error) {
	return call(ctx, s, "TakeTurns", func() (map[domain.JobID]map[string]int64, error) { return s.Store.TakeTurns(ctx, turns) })
}

func (s *faultyStore) ParentOutputs(ctx context.Context, parents []domain.RunID) (map[domain.RunID]string, error) {
	return call(ctx, s, "ParentOutputs", func() (map[domain.RunID]string, error) { return s.Store.ParentOutputs(ctx, parents) })
}

func (s *faultyStore) Admit(ctx context.Context, in []engine.Admission) (engine.Admitted, error) {
	return call(ctx, s, "Admit", func() (engine.Admitted, error) { return s.Store.Admit(ctx, in) })
}

func (s *faultyStore) ExpandBroadcast(ctx context.Context, run engine.Due, def *engine.Definition, to []engine.ShardBinding) (engine.Admitted, error) {
	return call(ctx, s, "ExpandBroadcast", func() (engine.Admitted, error) { return s.Store.ExpandBroadcast(ctx, run, def, to) })
}

func (s *faultyStore) WaitingKeys(ctx context.Context) ([]engine.WaitingKey, error) {
	return call(ctx, s, "WaitingKeys", func() ([]engine.WaitingKey, error) { return s.Store.WaitingKeys(ctx) })
}

func (s *faultyStore) LongWaiting(ctx context.Context, d time.Duration) ([]engine.WaitingKey, error) {
	return call(ctx, s, "LongWaiting", func() ([]engine.WaitingKey, error) { return s.Store.LongWaiting(ctx, d) })
}

func (s *faultyStore) WaitingCounts(ctx context.Context) (map[explain.Code]int, error) {
	return call(ctx, s, "WaitingCounts", func() (map[explain.Code]int, error) { return s.Store.WaitingCounts(ctx) })
}

func (s *faultyStore) AssignWaiting(ctx context.Context, key engine.WaitingKey, limit int, choose func([]engine.WaitingRun) []engine.Binding) ([]engine.LiveRun, engine.Unassigned, error) {
	return call2(ctx, s, "AssignWaiting", func() ([]engine.LiveRun, engine.Unassigned, error) {
		return s.Store.AssignWaiting(ctx, key, limit, func(runs []engine.WaitingRun) []engine.Binding {
			s.choosing.Store(true)
			defer s.choosing.Store(false)
			return choose(runs)
		})
	})
}

func (s *faultyStore) Unbind(ctx context.Context, refused []engine.Refusal) ([]engine.LiveRun, []engine.LiveRun, error) {
	return call2(ctx, s, "Unbind", func() ([]engine.LiveRun, []engine.LiveRun, error) { return s.Store.Unbind(ctx, refused) })
}

func (s *faultyStore) RaiseBinds(ctx context.Context, runs []engine.LiveRun) ([]engine.LiveRun, error) {
	return call(ctx, s, "RaiseBinds", func() ([]engine.LiveRun, error) { return s.Store.RaiseBinds(ctx, runs) })
}

func (s *faultyStore) MarkRunning(ctx context.Context, started []engine.Started) ([]engine.Change, error) {
	return call(ctx, s, "MarkRunning", func() ([]engine.Change, error) { return s.Store.MarkRunning(ctx, started) })
}

func (s *faultyStore) Settle(ctx context.Context, ended []engine.Ended) (engine.SettleResult, error) {
	return call(ctx, s, "Settle", func() (engine.SettleResult, error) { return s.Store.Settle(ctx, ended) })
}

func (s *faultyStore) RequestKill(ctx context.Context, id domain.RunID, reason domain.Reason, by string) (engine.KillResult, error) {
	return call(ctx, s, "RequestKill", func() (engine.KillResult, error) { return s.Store.RequestKill(ctx, id, reason, by) })
}

func (s *faultyStore) Silent(ctx context.Context, groups []string, after time.Duration, limit int) ([]engine.LiveRun, error) {
	return call(ctx, s, "Silent", func() ([]engine.LiveRun, error) { return s.Store.Silent(ctx, groups, after, limit) })
}

func (s *faultyStore) Quiet(ctx context.Context) (bool, error) {
	return call(ctx, s, "Quiet", func() (bool, error) { return s.Store.Quiet(ctx) })
}

func (s *faultyStore) Glance(ctx context.Context) (engine.Glance, error) {
	return call(ctx, s, "Glance", func() (engine.Glance, error) { return s.Store.Glance(ctx) })
}

func (s *faultyStore) BoundBoots(ctx context.Context, silentAfter time.Duration) ([]engine.BoundBoot, error) {
	return call(ctx, s, "BoundBoots", func() ([]engine.BoundBoot, error) { return s.Store.BoundBoots(ctx, silentAfter) })
}

func (s *faultyStore) RunsOf(ctx context.Context, b engine.BoundBoot, after domain.RunID, limit int) ([]engine.LiveRun, error) {
	return call(ctx, s, "RunsOf", func() ([]engine.LiveRun, error) { return s.Store.RunsOf(ctx, b, after, limit) })
}

func (s *faultyStore) PastDeadline(ctx context.Context, limit int) ([]engine.LiveRun, error) {
	return call(ctx, s, "PastDeadline", func() ([]engine.LiveRun, error) { return s.Store.PastDeadline(ctx, limit) })
}

func (s *faultyStore) PastGiveUp(ctx context.Context, group string, limit int) ([]engine.LiveRun, error) {
	return call(ctx, s, "PastGiveUp", func() ([]engine.LiveRun, error) { return s.Store.PastGiveUp(ctx, group, limit) })
}

func (s *faultyStore) UnconfirmedKills(ctx context.Context, after time.Duration, limit int) ([]engine.LiveRun, error) {
	return call(ctx, s, "UnconfirmedKills", func() ([]engine.LiveRun, error) { return s.Store.UnconfirmedKills(ctx, after, limit) })
}

func (s *faultyStore) ReplanOverdue(ctx context.Context, limit int) (int, error) {
	return call(ctx, s, "ReplanOverdue", func() (int, error) { return s.Store.ReplanOverdue(ctx, limit) })
}

func (s *faultyStore) GoOnChains(ctx context.Context, limit int) (int, error) {
	return call(ctx, s, "GoOnChains", func() (int, error) { return s.Store.GoOnChains(ctx, limit) })
}

func (s *faultyStore) ReleaseOrphans(ctx context.Context, limit int) ([]engine.Due, error) {
	return call(ctx, s, "ReleaseOrphans", func() ([]engine.Due, error) { return s.Store.ReleaseOrphans(ctx, limit) })
}

func (s *faultyStore) ReturnStrays(ctx context.Context, limit int) (int, error) {
	return call(ctx, s, "ReturnStrays", func() (int, error) { return s.Store.ReturnStrays(ctx, limit) })
}

// Replan is a transaction of the workers of follow-ups.
func (s *faultyStore) Replan(ctx context.Context, runs []domain.RunID, attempts []int) (int, error) {
	return call(ctx, s, "Replan", func() (int, error) { return s.Store.Replan(ctx, runs, attempts) })
}

// PlanChild is a transaction of the workers of follow-ups.
func (s *faultyStore) PlanChild(ctx context.Context, parent domain.RunID, child domain.JobID, endedAt time.Time) error {
	_, err := call(ctx, s, "PlanChild", func() (int, error) { return 0, s.Store.PlanChild(ctx, parent, child, endedAt) })
	return err
}
