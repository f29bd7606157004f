package view

import (
	"context"
	"slices"
	"time"

	"github.com/belfryhq/belfry/internal/domain"
	"github.com/belfryhq/belfry/internal/store/pgerr"
	"github.com/belfryhq/belfry/internal/store/view/sqlcgen"
)

// upcomingScan bounds the jobs that are read for one answer, however few of them the caller may see.
const upcomingScan = 20_000

// Upcoming is the data from which the next fire times are computed.
type Upcoming struct {
	Now    time.Time
	Jobs   []DueJob // by NextDue
	Runs   []PlannedRun
	Pauses []domain.Pause // of them and of their groups
	// Through is the instant up to which the answer is complete: the end of the requested span, or earlier if the read reached
	// one of its bounds.
	Through time.Time
}

// DueJob is a job with its first fire time that is not planned yet.
type DueJob struct {
	ID                domain.JobID
	Group, Name       string
	Schedule          domain.Schedule
	CreatedAt         time.Time
	NextFire, NextDue time.Time
}

// PlannedRun is a run that is planned and not yet due.
type PlannedRun struct {
	ID                domain.RunID
	JobID             domain.JobID
	Group, JobName    string
	FireTime, DueTime time.Time
}

// Upcoming reads the data to list the first limit fire times that are due within a span from now, in the given groups
// (nil: all). Each job returned has at least one fire time, so limit jobs are enough.
func (s *Store) Upcoming(ctx context.Context, groups []string, within time.Duration, limit int) (out Upcoming, err error) {
	if groups != nil && len(groups) == 0 {
		groups = []string{""} // none
	}
	if out.Now, err = s.q.ClockNow(ctx); err != nil {
		return out, pgerr.Translate(err)
	}
	out.Through = out.Now.Add(within)
	if err := s.dueJobs(ctx, &out, groups, limit); err != nil {
		return out, pgerr.Translate(err)
	}
	runs, err := s.q.PlannedRuns(ctx, sqlcgen.PlannedRunsParams{
		FromAt: out.Now, Until: out.Through, Groups: groups, MaxScan: upcomingScan, MaxRows: int32(limit + 1),
	})
	if err != nil {
		return out, pgerr.Translate(err)
	}
	for _, r := range runs {
		out.Runs = append(out.Runs, PlannedRun{
			ID: r.ID, JobID: domain.JobID(r.JobID), Group: r.GroupName, JobName: r.JobName, FireTime: orZero(r.FireTime).UTC(), DueTime: r.DueAt.UTC(),
		})
	}
	var of []string
	jobs := make([]int64, len(out.Jobs))
	for i, j := range out.Jobs {
		jobs[i] = int64(j.ID)
		if !slices.Contains(of, j.Group) {
			of = append(of, j.Group)
		}
	}
	out.Pauses, err = pausesSince(ctx, s.q, of, jobs, out.Now)
	return out, err
}

func (s *Store) dueJobs(ctx context.Context, out *Upcoming, groups []string, limit int) error {
	rows, err := s.q.DueJobs(ctx, sqlcgen.DueJobsParams{Until: out.Through, Groups: groups, MaxScan: upcomingScan, MaxRows: int32(limit + 1)})
	if err != nil {
		return err
	}
	for _, r := range rows {
		j := DueJob{
			ID: domain.JobID(r.JobID), Group: r.GroupName, Name: r.Name, CreatedAt: r.CreatedAt,
			NextFire: orZero(r.NextFireTime).UTC(), NextDue: r.NextDueAt.UTC(),
		}
		if err := domain.DecodeSchedule(r.Schedule, &j.Schedule); err != nil {
			return domain.WrapError(domain.Internal, "a stored job cannot be read", err)
		}
		out.Jobs = append(out.Jobs, j)
	}
	if len(rows) > limit {
		out.Through = rows[limit].NextDueAt.UTC()
		out.Jobs = out.Jobs[:limit]
		return nil
	}
	scanned, err := s.q.DueScanEnd(ctx, sqlcgen.DueScanEndParams{Until: out.Through, MaxScan: upcomingScan})
	if end := fromEpoch(scanned); !end.IsZero() {
		out.Through = end
	}
	return err
}
