package store

import (
	"context"
	"errors"

	"github.com/jackc/pgx/v5"

	"github.com/belfryhq/belfry/internal/domain"
	"github.com/belfryhq/belfry/internal/engine"
	"github.com/belfryhq/belfry/internal/store/sqlcgen"
	"github.com/belfryhq/belfry/internal/trace"
)

// traceOfChild returns the trace that a child of a final run stores. A parent that retention has already deleted counts as one that
// began its trace.
func traceOfChild(ctx context.Context, q *sqlcgen.Queries, parent domain.RunID) (string, error) {
	row, err := q.TraceOfRun(ctx, parent)
	if err != nil && !errors.Is(err, pgx.ErrNoRows) {
		return "", err
	}
	first := parent
	if row.BroadcastID != nil {
		first = *row.BroadcastID
	}
	return trace.OfChild(orZero(row.Trace), first, parent).String(), nil
}

// TracedRuns returns those of the given runs that are final, as their spans show them.
func (s *Store) TracedRuns(ctx context.Context, ids []domain.RunID) ([]engine.TracedRun, error) {
	var runs []engine.TracedRun
	err := s.tx(ctx, func(_ pgx.Tx, q *sqlcgen.Queries) error {
		rows, err := q.TracedRuns(ctx, ids)
		if err != nil {
			return err
		}
		attempts, err := q.TracedAttempts(ctx, ids)
		if err != nil {
			return err
		}
		keys := make([]versionKey, len(rows))
		for i, r := range rows {
			keys[i] = versionKey{domain.JobID(r.JobID), int(r.JobVersion)}
		}
		defs, err := s.load(ctx, q, keys)
		if err != nil {
			return err
		}
		runs = make([]engine.TracedRun, len(rows))
		at := make(map[domain.RunID]*engine.TracedRun, len(rows))
		for i := range rows {
			runs[i] = tracedRun(&rows[i])
			if def := defs[keys[i]]; def != nil {
				runs[i].JobName = def.Name
			}
			at[runs[i].ID] = &runs[i]
		}
		for _, a := range attempts {
			if run := at[a.RunID]; run != nil {
				run.Attempts = append(run.Attempts, engine.TracedAttempt{
					Attempt: int(a.Attempt), Instance: a.Instance, Outcome: domain.State(a.Outcome), Reason: domain.Reason(a.Reason),
					DispatchedAt: orZero(a.DispatchedAt), StartedAt: orZero(a.StartedAt), FinishedAt: a.FinishedAt,
				})
			}
		}
		for i := range rows {
			runs[i].Attempts = append(runs[i].Attempts, engine.TracedAttempt{
				Attempt: runs[i].Attempt, Instance: rows[i].Instance, Outcome: runs[i].State, Reason: runs[i].Reason,
				DispatchedAt: orZero(rows[i].DispatchedAt), StartedAt: orZero(rows[i].StartedAt), FinishedAt: runs[i].FinishedAt,
			})
		}
		return nil
	})
	return runs, err
}

func tracedRun(r *sqlcgen.TracedRunsRow) engine.TracedRun {
	out := engine.TracedRun{
		ID: r.ID, First: r.ID, ParentRunID: r.ParentRunID, Trace: orZero(r.Trace), JobID: domain.JobID(r.JobID), JobVersion: int(r.JobVersion),
		Group: r.GroupName, Cause: domain.Cause(r.Cause), State: domain.State(r.State), Reason: domain.Reason(r.Reason), Attempt: int(r.Attempt),
		FireTime: orZero(r.FireTime), CreatedAt: r.CreatedAt, FinishedAt: r.FinishedAt, LatenessMS: r.LatenessMs,
	}
	if r.BroadcastID != nil {
		out.First = *r.BroadcastID
	}
	if r.ShardIndex != nil {
		index := int(*r.ShardIndex)
		out.Shard = &index
	}
	return out
}
