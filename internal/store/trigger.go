package store

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/belfryhq/belfry/executor/wire"
	"github.com/belfryhq/belfry/internal/domain"
	"github.com/belfryhq/belfry/internal/engine"
	"github.com/belfryhq/belfry/internal/store/sqlcgen"
)

// Trigger plans a run of a job that is due now, whether or not the job is enabled. Limited means that the group has too
// many unfinished runs.
func (s *Store) Trigger(ctx context.Context, id domain.JobID, t domain.Trigger) ([]domain.RunID, error) {
	if err := checkTrigger("the trigger", t.Param, t.Instance); err != nil {
		return nil, err
	}
	var run domain.RunID
	err := s.tx(ctx, func(tx pgx.Tx, q *sqlcgen.Queries) error {
		row, err := q.JobRowForRun(ctx, int64(id))
		if err != nil {
			return err
		}
		now := s.Now()
		fire := now
		if t.FireTime != nil {
			fire = t.FireTime.UTC().Truncate(time.Millisecond)
		}
		run = domain.NewRunID(now)
		return s.insertWithRoom(ctx, tx, q, row, sqlcgen.InsertRunParams{
			ID: run, Cause: string(t.Cause), FireTime: &fire, DueAt: now, Param: t.Param, Pin: nullText(t.Instance), Trace: nullText(t.Trace),
		})
	})
	if err != nil {
		return nil, err
	}
	return []domain.RunID{run}, nil
}

// checkTrigger names the faults of a param and an instance.
func checkTrigger(what string, param *string, instance string) error {
	var f domain.Faults
	if param != nil && len(*param) > domain.MaxParamBytes {
		f.Add("param", fmt.Sprintf("is %d bytes long; at most %d are allowed", len(*param), domain.MaxParamBytes))
	}
	if instance != "" && !wire.ValidInstance(instance) {
		f.Add("instance", "is not the name of an instance; the group's instances are listed at GET /api/v1/groups/{name}/instances")
	}
	return f.Err(what + " is not valid")
}

func nullText(v string) *string {
	if v == "" {
		return nil
	}
	return &v
}

// insertWithRoom is insertRun, but returns Limited if the group has no room for the run.
func (s *Store) insertWithRoom(ctx context.Context, tx pgx.Tx, q *sqlcgen.Queries, job sqlcgen.JobRowForRunRow, p sqlcgen.InsertRunParams) error {
	if err := s.takeRoom(ctx, q, job.ID, job.GroupName, domain.Cause(p.Cause), 1); err != nil {
		return err
	}
	_, err := s.insertRun(ctx, tx, q, job, p)
	return err
}

// insertRun plans a run of the current version of the job, and wakes the schedulers. It reports whether the run is new.
func (s *Store) insertRun(ctx context.Context, tx pgx.Tx, q *sqlcgen.Queries, job sqlcgen.JobRowForRunRow, p sqlcgen.InsertRunParams) (bool, error) {
	p.JobID, p.JobVersion, p.GroupName = job.ID, job.Version, job.GroupName
	made, err := q.InsertRun(ctx, p)
	if err != nil {
		return false, err
	}
	finished, err := q.DeleteFinished(ctx, []domain.RunID{p.ID})
	if err != nil {
		return false, err
	}
	return made == 1 && len(finished) == 0, notify(ctx, tx)
}

// RetryRun is RetryRunWith without changes.
func (s *Store) RetryRun(ctx context.Context, id domain.RunID, by string) (domain.RunID, error) {
	return s.RetryRunWith(ctx, id, by, domain.Retry{})
}

// RetryRunWith plans a new run of a final run's job, with the same fire time. The new run has the same param, unless the
// retry has another one. If the retry names an instance, only that instance may run it. For a shard, the new run is that
// shard only; if each instance gets one shard, it is pinned to the same instance by default. Limited means that the group
// has too many unfinished runs. Conflict: the run is not final, or its job is gone.
func (s *Store) RetryRunWith(ctx context.Context, id domain.RunID, _ string, retry domain.Retry) (run domain.RunID, err error) {
	if err := checkTrigger("the retry", retry.Param, retry.Instance); err != nil {
		return run, err
	}
	err = s.tx(ctx, func(tx pgx.Tx, q *sqlcgen.Queries) (err error) {
		run, err = s.retryRun(ctx, tx, q, id, retry, func(string) bool { return true })
		return err
	})
	return run, err
}

// retryRun is RetryRun in the caller's transaction. A job whose group the caller does not see counts as deleted.
func (s *Store) retryRun(ctx context.Context, tx pgx.Tx, q *sqlcgen.Queries, id domain.RunID, retry domain.Retry, sees func(group string) bool) (domain.RunID, error) {
	old, err := q.RunForRetry(ctx, id)
	if err != nil {
		return domain.NilRunID, err
	}
	if !domain.State(old.State).Final() {
		return domain.NilRunID, domain.NewError(domain.Conflict, fmt.Sprintf("the run is %s; only a run that has ended can be retried", old.State))
	}
	row, err := q.JobRowForRun(ctx, old.JobID)
	if errors.Is(err, pgx.ErrNoRows) || err == nil && !sees(row.GroupName) {
		return domain.NilRunID, domain.WrapError(domain.Conflict, "the run's job is gone", err)
	}
	if err != nil {
		return domain.NilRunID, err
	}
	now := s.Now()
	run := domain.NewRunID(now)
	p := sqlcgen.InsertRunParams{ID: run, Cause: string(domain.CauseManual), FireTime: old.FireTime, DueAt: now, Param: old.Param,
		Pin: nullText(retry.Instance)}
	if retry.Param != nil {
		p.Param = retry.Param
	}
	if old.ShardIndex == nil || old.ShardTotal == nil {
		return run, s.insertWithRoom(ctx, tx, q, row, p)
	}
	job, err := jobOf(row.ID, row.Spec, row.Version, row.CreatedAt, row.UpdatedAt)
	if err != nil {
		return domain.NilRunID, err
	}
	if job.Route == domain.RouteBroadcast && job.Shards == 0 && p.Pin == nil {
		p.Pin = old.Instance
	}
	if err := s.insertWithRoom(ctx, tx, q, row, p); err != nil {
		return domain.NilRunID, err
	}
	if err := q.InsertBroadcast(ctx, sqlcgen.InsertBroadcastParams{ID: run, JobID: row.ID, Total: 1}); err != nil {
		return domain.NilRunID, err
	}
	return run, q.MakeShard(ctx, sqlcgen.MakeShardParams{ID: run, ShardIndex: old.ShardIndex, ShardTotal: old.ShardTotal})
}

// PlanChildTx plans the run of a child in the transaction that completes its River job. A repeat changes nothing,
// because the run's id is computed. A child that was deleted meanwhile gets no run. If the child's group has too many
// unfinished runs, the run ends at once as skipped/queue_full. The caller passes the ended run to Ended after the commit.
func (s *Store) PlanChildTx(ctx context.Context, tx pgx.Tx, parent domain.RunID, child domain.JobID, endedAt time.Time) (ended []engine.Change, err error) {
	q := s.q.WithTx(tx)
	rooms, err := s.rooms(ctx, q, int64(child))
	if err != nil || len(rooms) == 0 {
		return nil, err
	}
	var r *room
	for _, group := range rooms { // there is one
		r = group
	}
	full := !r.has(1)
	if full {
		if _, err := q.LockDue(ctx, []int64{int64(child)}); err != nil { // locked before table jobs, see doc.go
			return nil, err
		}
	}
	row, err := q.JobRowForRun(ctx, int64(child))
	if err != nil {
		return nil, err
	}
	context, err := traceOfChild(ctx, q, parent)
	if err != nil {
		return nil, err
	}
	now, id := s.Now(), domain.ChildRunID(parent, child, endedAt)
	made, err := s.insertRun(ctx, tx, q, row, sqlcgen.InsertRunParams{
		ID: id, Cause: string(domain.CauseChild), FireTime: &now, DueAt: now, ParentRunID: &parent, Trace: &context,
	})
	switch {
	case err != nil || !made:
		return nil, err
	case full:
		return s.skipFull(ctx, tx, q, domain.CauseChild, map[domain.RunID]*room{id: r})
	}
	s.take(r, 1)
	return nil, nil
}
