package store

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/belfryhq/belfry/internal/domain"
	"github.com/belfryhq/belfry/internal/store/sqlcgen"
)

// PauseJob pauses the schedule of one job from a quarter of a second on, because runs that are due by then may have been admitted. If
// the job is already paused, the pause gets the new reason and end. A pause of the job's group is independent of it. The error is
// NotFound if there is no such job, and Invalid if the reason or the end is not valid.
func (s *Store) PauseJob(ctx context.Context, id domain.JobID, reason string, until *time.Time, by string) (domain.Pause, error) {
	var out domain.Pause
	err := s.changeJobPause(ctx, id, func(q *sqlcgen.Queries, job *domain.Job, active *sqlcgen.ActiveJobPauseRow, now time.Time) (err error) {
		if err := domain.CheckPause(reason, until, now); err != nil {
			return err
		}
		out = domain.Pause{JobID: id, From: now.Add(domain.PauseAhead), Reason: reason, By: by}
		if until != nil {
			out.To = until.UTC().Truncate(time.Millisecond)
		}
		if active != nil {
			out.From = active.FromAt.UTC()
			err = q.ChangeJobPause(ctx, sqlcgen.ChangeJobPauseParams{ID: active.ID, ToAt: nullable(out.To), Reason: reason, PausedBy: by})
		} else {
			err = q.InsertJobPause(ctx, sqlcgen.InsertJobPauseParams{
				JobID: int64(id), GroupName: job.Group, FromAt: out.From, ToAt: nullable(out.To), Reason: reason, PausedBy: by,
			})
		}
		if err != nil {
			return err
		}
		return s.parkPaused(ctx, q, job, &out, now)
	})
	return out, err
}

// parkPaused takes back the planned runs of a job that are due in its pause, and keeps the job from being planned until the pause is
// over.
func (s *Store) parkPaused(ctx context.Context, q *sqlcgen.Queries, job *domain.Job, p *domain.Pause, now time.Time) error {
	to := p.To
	if to.IsZero() {
		to = now.AddDate(100, 0, 0)
	}
	runs, err := q.TakeBackPaused(ctx, sqlcgen.TakeBackPausedParams{JobIds: []int64{int64(job.ID)}, FromAt: p.From, ToAt: to, GroupName: job.Group})
	if err != nil {
		return err
	}
	if len(runs) > 0 {
		if err := q.RewindDue(ctx, rewound(runs, now)); err != nil {
			return err
		}
	}
	return q.ParkJob(ctx, sqlcgen.ParkJobParams{JobID: int64(job.ID), ToAt: nullable(p.To), LookAt: s.plan.LookAt(p, now)})
}

// ResumeJob ends the pause of a job and makes the job due for planning. Conflict means that the job itself is not paused, NotFound that
// there is no such job.
func (s *Store) ResumeJob(ctx context.Context, id domain.JobID, by string) (domain.Pause, error) {
	var out domain.Pause
	err := s.changeJobPause(ctx, id, func(q *sqlcgen.Queries, _ *domain.Job, active *sqlcgen.ActiveJobPauseRow, now time.Time) error {
		if active == nil {
			return domain.NewError(domain.Conflict, fmt.Sprintf("job %d is not paused itself", id))
		}
		out = domain.Pause{JobID: id, From: active.FromAt.UTC(), To: now, Reason: active.Reason, By: active.PausedBy, ResumedBy: by}
		if err := q.EndJobPause(ctx, sqlcgen.EndJobPauseParams{ID: active.ID, At: &now, ResumedBy: by}); err != nil {
			return err
		}
		return q.UnparkJob(ctx, sqlcgen.UnparkJobParams{JobID: int64(id), Now: now})
	})
	return out, err
}

// changeJobPause runs change with the job's current or coming pause, if there is one, under the job's lock.
func (s *Store) changeJobPause(ctx context.Context, id domain.JobID,
	change func(*sqlcgen.Queries, *domain.Job, *sqlcgen.ActiveJobPauseRow, time.Time) error) error {
	return s.tx(ctx, func(tx pgx.Tx, q *sqlcgen.Queries) error {
		l, err := s.lockForEdit(ctx, q, id, 0)
		if err != nil {
			return err
		}
		now, err := q.Now(ctx) // after the wait for the lock
		if err != nil {
			return err
		}
		now = now.UTC().Truncate(time.Millisecond)
		rows, err := q.ActiveJobPause(ctx, sqlcgen.ActiveJobPauseParams{JobID: int64(id), Now: now})
		if err != nil {
			return err
		}
		var active *sqlcgen.ActiveJobPauseRow
		if len(rows) > 0 {
			active = &rows[0]
		}
		if err := change(q, &l.job, active, now); err != nil {
			return err
		}
		return notify(ctx, tx)
	})
}
