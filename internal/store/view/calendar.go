package view

import (
	"context"
	"slices"
	"time"

	"github.com/belfryhq/belfry/internal/domain"
	"github.com/belfryhq/belfry/internal/store/pgerr"
	"github.com/belfryhq/belfry/internal/store/view/sqlcgen"
)

// Scheduled is a sample of the jobs whose schedules fire.
type Scheduled struct {
	Now    time.Time
	All    int64 // the number of jobs that fire; Jobs are all of them or a sample
	Jobs   []ScheduledJob
	Pauses []domain.Pause // of them and of their groups
}

// ScheduledJob is a job whose schedule fires.
type ScheduledJob struct {
	ID        domain.JobID
	Group     string
	Schedule  domain.Schedule
	CreatedAt time.Time
	NextFire  time.Time // zero if unknown
}

// Scheduled reads the jobs of the groups (nil: all) whose schedules fire. If there are more than about most, it reads
// an even sample of them.
func (s *Store) Scheduled(ctx context.Context, groups []string, most int) (out Scheduled, err error) {
	if out.Now, err = s.q.ClockNow(ctx); err != nil {
		return out, pgerr.Translate(err)
	}
	if groups == nil {
		out.All, err = s.q.CountScheduled(ctx)
	} else {
		out.All, err = s.q.CountScheduledOf(ctx, groups)
	}
	if err != nil || out.All == 0 {
		return out, pgerr.Translate(err)
	}
	oneIn := (out.All + int64(most) - 1) / int64(most)
	rows, err := s.q.ScheduledJobs(ctx, sqlcgen.ScheduledJobsParams{OneIn: oneIn, Groups: groups, MaxRows: int32(2 * most)})
	if err != nil {
		return out, pgerr.Translate(err)
	}
	var of []string
	jobs := make([]int64, len(rows))
	for i, r := range rows {
		jobs[i] = r.ID
		j := ScheduledJob{ID: domain.JobID(r.ID), Group: r.GroupName, CreatedAt: r.CreatedAt, NextFire: fromEpoch(r.NextFireTime)}
		if err := domain.DecodeSchedule(r.Schedule, &j.Schedule); err != nil {
			return out, domain.WrapError(domain.Internal, "a stored job cannot be read", err)
		}
		out.Jobs = append(out.Jobs, j)
		if !slices.Contains(of, j.Group) {
			of = append(of, j.Group)
		}
	}
	if oneIn == 1 {
		out.All = int64(len(out.Jobs)) // some were added or removed since the count
	}
	out.Pauses, err = pausesSince(ctx, s.q, of, jobs, out.Now)
	return out, err
}
