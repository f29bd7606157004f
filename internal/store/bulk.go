package store

import (
	"context"
	"errors"
	"slices"

	"github.com/jackc/pgx/v5"

	"github.com/belfryhq/belfry/internal/domain"
	"github.com/belfryhq/belfry/internal/engine"
	"github.com/belfryhq/belfry/internal/explain"
	"github.com/belfryhq/belfry/internal/store/pgerr"
	"github.com/belfryhq/belfry/internal/store/sqlcgen"
)

// InTx runs f in a transaction with the store's limits of time. f may run several times.
func (s *Store) InTx(ctx context.Context, f func(tx pgx.Tx) error) error {
	return s.tx(ctx, func(tx pgx.Tx, _ *sqlcgen.Queries) error { return f(tx) })
}

// KillRunsTx is RequestKill for several runs, in the caller's transaction. Runs that have ended or do not exist are in no part
// of the result. Unavailable means that another transaction changes one of the runs; the caller rolls back and tries again.
func (s *Store) KillRunsTx(ctx context.Context, tx pgx.Tx, ids []domain.RunID, by string) (engine.KillResult, error) {
	var out engine.KillResult
	q := s.q.WithTx(tx)
	live, err := q.LiveRuns(ctx, ids)
	if err != nil {
		return out, err
	}
	why := explain.Of(explain.KilledBy, by)
	var ended []engine.Ended
	var bound []domain.RunID
	for _, r := range live {
		if r.Instance != nil {
			bound = append(bound, r.ID)
			continue
		}
		ended = append(ended, engine.Ended{RunID: r.ID, Attempt: int(r.Attempt), Outcome: domain.OutcomeCancelled,
			Reason: domain.ReasonKilled, Why: why, FinishedAt: s.Now()})
	}
	if len(ended) > 0 {
		if out.Result, err = s.settle(ctx, tx, q, ended); err != nil {
			return out, err
		}
	}
	for i, d := range out.Result.Dispositions {
		if d != engine.Settled { // an instance got the run meanwhile, or it has ended
			bound = append(bound, ended[i].RunID)
		}
	}
	slices.SortFunc(bound, func(a, b domain.RunID) int { return slices.Compare(a[:], b[:]) })
	if len(bound) == 0 {
		return out, nil
	}
	if err := q.LockRunIDs(ctx, bound); err != nil {
		return out, err
	}
	reason := string(domain.ReasonKilled)
	p := sqlcgen.RequestKillParams{Ids: bound, Reason: &reason}
	for range bound {
		p.Whys, p.WhyNotes = append(p.Whys, why.English()), append(p.WhyNotes, string(why))
	}
	marked, err := q.RequestKill(ctx, p)
	out.Bound = liveRuns(marked)
	for _, r := range marked {
		if r.Instance == nil { // no instance would confirm the kill
			return out, domain.WrapError(domain.Unavailable, "another transaction is changing a run; try again", errRepeat)
		}
	}
	return out, err
}

// RetryRunsTx is RetryRun for several runs, in the caller's transaction. sees says which groups the caller sees: a job of
// another group counts as deleted. If a group has no room for another run, RetryRunsTx stops there.
func (s *Store) RetryRunsTx(ctx context.Context, tx pgx.Tx, runs []domain.Run, sees func(group string) bool) (engine.RetryResult, error) {
	var out engine.RetryResult
	q := s.q.WithTx(tx)
	jobs := make([]int64, len(runs))
	for i, r := range runs {
		jobs[i] = int64(r.JobID)
	}
	if _, err := q.JobsForRetry(ctx, jobs); err != nil { // locks them by id
		return out, err
	}
	for _, r := range runs {
		id, err := s.retryRun(ctx, tx, q, r.ID, domain.Retry{}, sees)
		var e *domain.Error
		switch err := pgerr.Translate(err); {
		case err == nil:
			out.New = append(out.New, engine.RetriedRun{ID: id})
		case !errors.As(err, &e):
			return out, err
		case e.Code == domain.Limited:
			out.Full = e.Message
			return out, nil
		case e.Code == domain.NotFound || e.Code == domain.Conflict && !errors.Is(err, errRepeat):
			out.New = append(out.New, engine.RetriedRun{Skipped: true})
		case e.Code == domain.Invalid:
			out.New = append(out.New, engine.RetriedRun{Fault: e.Message})
		default:
			return out, err
		}
	}
	return out, nil
}
