package store

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/belfryhq/belfry/internal/domain"
	"github.com/belfryhq/belfry/internal/store/pgerr"
	"github.com/belfryhq/belfry/internal/store/sqlcgen"
)

// A pause of a group writes one row, however many jobs the group has. When one of its jobs comes due, PlanDue sees the pause,
// leaves the fire times undecided, and parks the job until the pause is over. Planning takes a lock in shared mode that
// the beginning and the end of a pause take exclusively, so that after them no transaction plans by the previous
// pauses. Runs that were planned before, some seconds ahead, are taken back by TendPauses. It also makes parked jobs
// due for planning after a pause is over. Every scheduler calls it every second, so that no pause depends on the
// process that began or ended it.
//
// A pause of a job needs none of this. The transactions that begin and end it hold the job's lock, as planning does. The first
// takes back the job's planned runs and moves next_due_at to the end of the pause, so that the index that planning reads does
// not contain the job meanwhile. Schedulers of an earlier release therefore respect the pause, too. But an edit, or the end of a
// run of a fixed_delay job, sets next_due_at again. So planning also looks at job_due.paused_until, and reads the pauses of those jobs
// to which it matters. The job's group may be paused at the same time. Planning then parks the job by the one or the other pause
// until neither lasts.

// PauseGroup pauses the schedules of a group's jobs from a quarter of a second on, because runs that are due by then
// may have been admitted. If the group is already paused, the pause gets the new reason and end. The error is NotFound
// if there is no such group.
func (s *Store) PauseGroup(ctx context.Context, group, reason string, until *time.Time, by string) (domain.Pause, error) {
	var out domain.Pause
	err := s.changePause(ctx, group, func(q *sqlcgen.Queries, active *sqlcgen.ActivePauseRow, now time.Time) error {
		if err := domain.CheckPause(reason, until, now); err != nil {
			return err
		}
		out = domain.Pause{Group: group, From: now.Add(domain.PauseAhead), Reason: reason, By: by}
		if until != nil {
			out.To = until.UTC().Truncate(time.Millisecond)
		}
		if active != nil {
			out.From = active.FromAt.UTC()
			return q.ChangePause(ctx, sqlcgen.ChangePauseParams{ID: active.ID, ToAt: nullable(out.To), Reason: reason, PausedBy: by})
		}
		return q.InsertPause(ctx, sqlcgen.InsertPauseParams{
			GroupName: group, FromAt: out.From, ToAt: nullable(out.To), Reason: reason, PausedBy: by,
		})
	})
	if err != nil {
		return domain.Pause{}, err
	}
	// If this takes too long or fails, the schedulers do the rest.
	for more := true; more && err == nil && ctx.Err() == nil; {
		more, err = s.TendPauses(ctx, tendBatch)
	}
	return out, nil
}

// tendBatch bounds the jobs that one transaction takes back.
const tendBatch = 500

// ResumeGroup ends the pause of a group. Conflict means that it is not paused, NotFound that there is no such group.
func (s *Store) ResumeGroup(ctx context.Context, group, by string) (domain.Pause, error) {
	var out domain.Pause
	err := s.changePause(ctx, group, func(q *sqlcgen.Queries, active *sqlcgen.ActivePauseRow, now time.Time) error {
		if active == nil {
			return domain.NewError(domain.Conflict, fmt.Sprintf("group %s is not paused", group))
		}
		out = domain.Pause{Group: group, From: active.FromAt.UTC(), To: now, Reason: active.Reason, By: active.PausedBy, ResumedBy: by}
		return q.EndPause(ctx, sqlcgen.EndPauseParams{ID: active.ID, At: &now, ResumedBy: by})
	})
	return out, err
}

// changePause runs change with the group's current or coming pause, if there is one, while no transaction plans.
func (s *Store) changePause(ctx context.Context, group string, change func(*sqlcgen.Queries, *sqlcgen.ActivePauseRow, time.Time) error) error {
	return s.tx(ctx, func(tx pgx.Tx, q *sqlcgen.Queries) error {
		known, err := q.GroupExists(ctx, group)
		if err != nil {
			return err
		}
		if !known {
			return domain.NewError(domain.NotFound, "there is no group of this name")
		}
		if err := q.LockPauses(ctx); err != nil {
			return err
		}
		now, err := q.Now(ctx)
		if err != nil {
			return err
		}
		now = now.UTC().Truncate(time.Millisecond)
		rows, err := q.ActivePause(ctx, sqlcgen.ActivePauseParams{GroupName: group, Now: now})
		if err != nil {
			return err
		}
		var active *sqlcgen.ActivePauseRow
		if len(rows) > 0 {
			active = &rows[0]
		}
		if err := change(q, active, now); err != nil {
			return err
		}
		return notify(ctx, tx)
	})
}

// TendPauses takes back runs that were planned into a pause before it began, and makes the jobs of ended pauses due for
// planning, up to batch jobs of each pause. It reports whether more is left to do.
func (s *Store) TendPauses(ctx context.Context, batch int) (more bool, err error) {
	begun := s.Now()
	defer func() {
		if err != nil {
			s.clock.planned(begun, err) // schedulers plan only after this
		}
	}()
	pauses, err := s.q.OpenPauses(ctx)
	if err != nil {
		return false, pgerr.Translate(err)
	}
	for _, p := range pauses {
		var rest bool
		if p.Over {
			rest, err = s.release(ctx, p, batch)
		} else {
			rest, err = s.takeBackPaused(ctx, p, batch)
		}
		if err != nil {
			return false, err
		}
		more = more || rest
	}
	return more, nil
}

// takeBackPaused deletes planned runs that are due in a pause and sets their jobs back to the first of them.
func (s *Store) takeBackPaused(ctx context.Context, p sqlcgen.OpenPausesRow, batch int) (more bool, err error) {
	err = s.tx(ctx, func(_ pgx.Tx, q *sqlcgen.Queries) error {
		to := s.Now().AddDate(100, 0, 0)
		if p.ToAt != nil {
			to = *p.ToAt
		}
		jobs, err := q.PlannedInPause(ctx, sqlcgen.PlannedInPauseParams{FromAt: p.FromAt, ToAt: to, GroupName: p.GroupName, Batch: int32(batch)})
		if err != nil {
			return err
		}
		more = len(jobs) == batch
		if len(jobs) > 0 {
			if _, err := q.LockDue(ctx, jobs); err != nil {
				return err
			}
			runs, err := q.TakeBackPaused(ctx, sqlcgen.TakeBackPausedParams{JobIds: jobs, FromAt: p.FromAt, ToAt: to, GroupName: p.GroupName})
			if err != nil {
				return err
			}
			// The first decision that sees the pause sets the next due instant, as for any other job.
			if err := q.RewindDue(ctx, rewound(runs, s.Now())); err != nil {
				return err
			}
		}
		if more {
			return nil
		}
		return q.MarkTakenBack(ctx, sqlcgen.MarkTakenBackParams{ID: p.ID, ToAt: p.ToAt})
	})
	return more, err
}

// rewound sets each job's next fire time to its first fire time that was taken back.
func rewound(runs []sqlcgen.TakeBackPausedRow, now time.Time) sqlcgen.RewindDueParams {
	p := sqlcgen.RewindDueParams{NextDue: now}
	at := make(map[int64]int, len(runs))
	for _, r := range runs {
		fire := orZero(r.FireTime)
		i, known := at[r.JobID]
		switch {
		case !known:
			at[r.JobID] = len(p.JobIds)
			p.JobIds = append(p.JobIds, r.JobID)
			p.Versions = append(p.Versions, r.JobVersion)
			p.Fires = append(p.Fires, fire)
		case fire.Before(p.Fires[i]):
			p.Fires[i] = fire
		}
	}
	return p
}

// release makes the parked jobs of an ended pause due for planning.
func (s *Store) release(ctx context.Context, p sqlcgen.OpenPausesRow, batch int) (more bool, err error) {
	again, err := s.q.PausedNow(ctx, p.GroupName)
	if err != nil {
		return false, pgerr.Translate(err)
	}
	if !again { // otherwise the end of the new pause releases them
		n, err := s.q.ReleaseParked(ctx, sqlcgen.ReleaseParkedParams{GroupName: p.GroupName, Batch: int32(batch)})
		if err != nil {
			return false, pgerr.Translate(err)
		}
		if n == int64(batch) {
			return true, nil
		}
		still, err := s.q.StillParked(ctx, p.GroupName)
		if err != nil || still {
			return false, pgerr.Translate(err) // another transaction holds them: the next call, a second later, releases them
		}
	}
	return false, pgerr.Translate(s.q.MarkReleased(ctx, p.ID))
}

// pausesSince returns the pauses of all groups, and of the given jobs, that are not over or that ended after since. It is part of a
// decision's transaction, which has locked the jobs.
func pausesSince(ctx context.Context, q *sqlcgen.Queries, jobs []int64, since time.Time) (domain.PauseIndex, error) {
	rows, err := q.PausesForPlanning(ctx, sqlcgen.PausesForPlanningParams{Since: since, JobIds: jobs})
	if err != nil || len(rows) == 0 {
		return domain.PauseIndex{}, err
	}
	pauses := make([]domain.Pause, len(rows))
	for i, r := range rows {
		pauses[i] = domain.Pause{
			JobID: domain.JobID(r.JobID), Group: r.GroupName, From: r.FromAt.UTC(), To: orZero(r.ToAt).UTC(),
			Reason: r.Reason, By: r.PausedBy, ResumedBy: r.ResumedBy,
		}
	}
	return domain.IndexPauses(pauses), nil
}
