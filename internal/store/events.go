package store

import (
	"context"

	"github.com/jackc/pgx/v5"

	"github.com/belfryhq/belfry/internal/domain"
	"github.com/belfryhq/belfry/internal/event"
	"github.com/belfryhq/belfry/internal/store/sqlcgen"
)

// Tx runs f in a transaction, like the store's own methods: f may run several times, and the error is translated.
func (s *Store) Tx(ctx context.Context, f func(tx pgx.Tx) error) error {
	return s.tx(ctx, func(tx pgx.Tx, _ *sqlcgen.Queries) error { return f(tx) })
}

// PlanEventRunsTx plans the runs that events cause, in the transaction that accepts those events. A repeat changes
// nothing, because the ids are computed. It returns the jobs that were deleted meanwhile; they get no run.
func (s *Store) PlanEventRunsTx(ctx context.Context, tx pgx.Tx, runs []event.Run) (gone map[domain.JobID]bool, err error) {
	if len(runs) == 0 {
		return nil, nil
	}
	q := s.q.WithTx(tx)
	gone = make(map[domain.JobID]bool)
	var ids []int64
	for _, r := range runs {
		if !gone[r.JobID] {
			gone[r.JobID] = true
			ids = append(ids, int64(r.JobID))
		}
	}
	rows, err := q.JobsForEvents(ctx, ids)
	if err != nil {
		return nil, err
	}
	jobs := make(map[domain.JobID]sqlcgen.JobsForEventsRow, len(rows))
	for _, r := range rows {
		delete(gone, domain.JobID(r.ID))
		jobs[domain.JobID(r.ID)] = r
	}
	p := sqlcgen.InsertEventRunsParams{DueAt: s.Now()}
	for _, r := range runs {
		job, ok := jobs[r.JobID]
		if !ok {
			continue
		}
		p.Ids = append(p.Ids, r.RunID)
		p.JobIds = append(p.JobIds, job.ID)
		p.JobVersions = append(p.JobVersions, job.Version)
		p.GroupNames = append(p.GroupNames, job.GroupName)
		p.FireTimes = append(p.FireTimes, r.EventID.Time())
		p.Params = append(p.Params, r.Param)
		p.EventIds = append(p.EventIds, r.EventID.String())
	}
	if len(p.Ids) == 0 {
		return gone, nil
	}
	if err := q.InsertEventRuns(ctx, p); err != nil {
		return nil, err
	}
	if err := q.DeleteFinished(ctx, p.Ids); err != nil {
		return nil, err
	}
	return gone, notify(ctx, tx)
}
