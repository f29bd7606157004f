package store

import (
	"context"
	"slices"

	"github.com/jackc/pgx/v5"

	"github.com/belfryhq/belfry/internal/domain"
	"github.com/belfryhq/belfry/internal/engine"
	"github.com/belfryhq/belfry/internal/event"
	"github.com/belfryhq/belfry/internal/store/sqlcgen"
)

// Tx runs f in a transaction, like the store's own methods: f may run several times, and the error is translated.
func (s *Store) Tx(ctx context.Context, f func(tx pgx.Tx) error) error {
	return s.tx(ctx, func(tx pgx.Tx, _ *sqlcgen.Queries) error { return f(tx) })
}

// PlanEventRunsTx plans the runs that events cause, in the transaction that accepts those events. A repeat changes
// nothing, because the ids are computed. It returns the jobs that were deleted meanwhile; they get no run. Runs of groups
// with too many unfinished runs end at once as skipped/queue_full; the caller passes them to Ended after the commit.
func (s *Store) PlanEventRunsTx(ctx context.Context, tx pgx.Tx, runs []event.Run) (gone map[domain.JobID]bool, ended []engine.Change, err error) {
	if len(runs) == 0 {
		return nil, nil, nil
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
	rooms, err := s.roomsForEvents(ctx, q, ids, len(runs))
	if err != nil {
		return nil, nil, err
	}
	rows, err := q.JobsForEvents(ctx, ids)
	if err != nil {
		return nil, nil, err
	}
	jobs := make(map[domain.JobID]sqlcgen.JobsForEventsRow, len(rows))
	for _, r := range rows {
		delete(gone, domain.JobID(r.ID))
		jobs[domain.JobID(r.ID)] = r
	}
	p := sqlcgen.InsertEventRunsParams{DueAt: s.Now()}
	full := make(map[domain.RunID]*room)
	for _, r := range runs {
		job, ok := jobs[r.JobID]
		if !ok {
			continue
		}
		if group := rooms[job.GroupName]; group != nil { // nil if the job has just moved there
			if group.has(1) {
				s.take(group, 1)
			} else {
				full[r.RunID] = group
			}
		}
		p.Ids = append(p.Ids, r.RunID)
		p.JobIds = append(p.JobIds, job.ID)
		p.JobVersions = append(p.JobVersions, job.Version)
		p.GroupNames = append(p.GroupNames, job.GroupName)
		p.FireTimes = append(p.FireTimes, r.EventID.Time())
		p.Params = append(p.Params, r.Param)
		p.EventIds = append(p.EventIds, r.EventID.String())
		p.Traces = append(p.Traces, r.Trace)
	}
	if len(p.Ids) == 0 {
		return gone, nil, nil
	}
	made, err := q.InsertEventRuns(ctx, p)
	if err != nil {
		return nil, nil, err
	}
	finished, err := q.DeleteFinished(ctx, p.Ids)
	if err != nil {
		return nil, nil, err
	}
	skip := make(map[domain.RunID]*room)
	for _, id := range made {
		if group := full[id]; group != nil && !slices.Contains(finished, id) {
			skip[id] = group
		}
	}
	if ended, err = s.skipFull(ctx, tx, q, domain.CauseEvent, skip); err != nil {
		return nil, nil, err
	}
	return gone, ended, notify(ctx, tx)
}

// roomsForEvents returns the room of the jobs' groups. If one of them may not have room for all runs, it locks the
// planning of the jobs, because skipFull needs that lock, and it comes before table jobs.
func (s *Store) roomsForEvents(ctx context.Context, q *sqlcgen.Queries, ids []int64, runs int) (map[string]*room, error) {
	rooms, err := s.rooms(ctx, q, ids...)
	if err != nil {
		return nil, err
	}
	for _, r := range rooms {
		if !r.has(runs) {
			_, err := q.LockDue(ctx, ids)
			return rooms, err
		}
	}
	return rooms, nil
}
