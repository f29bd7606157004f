package store

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/belfryhq/belfry/internal/domain"
	"github.com/belfryhq/belfry/internal/engine"
	"github.com/belfryhq/belfry/internal/explain"
	"github.com/belfryhq/belfry/internal/plan"
	"github.com/belfryhq/belfry/internal/schedule"
	"github.com/belfryhq/belfry/internal/store/pgerr"
	"github.com/belfryhq/belfry/internal/store/sqlcgen"
)

// CreateJob stores a new job and plans its first fire. An Invalid error names every faulty field. Conflict means that
// the group already has a job of this name, or that the job takes the group beyond one of its limits.
func (s *Store) CreateJob(ctx context.Context, spec domain.JobSpec, by string) (domain.Job, error) {
	spec.Normalize()
	spec.ContinueScript(nil)
	var id domain.JobID
	err := s.tx(ctx, func(tx pgx.Tx, q *sqlcgen.Queries) error {
		now, err := q.Now(ctx)
		if err != nil {
			return err
		}
		now = now.UTC().Truncate(time.Millisecond)
		compiled, err := s.check(ctx, q, 0, &spec, now, "")
		if err != nil {
			return err
		}
		firstScript(&spec)
		body, lean, err := encodeSpec(&spec)
		if err != nil {
			return err
		}
		raw, err := q.InsertJob(ctx, sqlcgen.InsertJobParams{
			GroupName: spec.Group, Name: spec.Name, Enabled: spec.Enabled, Kind: string(spec.Schedule.Kind),
			Tags: spec.Tags, Calendar: nullText(spec.Schedule.Calendar), Spec: body, Now: now,
			FiresPerMinute: int32(firesPerMinute(&spec, compiled)),
		})
		if err != nil {
			return err
		}
		id = domain.JobID(raw)
		if spec.Script != nil {
			if err := insertScript(ctx, q, id, 1, spec.Script, now, by); err != nil {
				return err
			}
		}
		if err := setChildren(ctx, q, id, spec.Children); err != nil {
			return err
		}
		due := sqlcgen.InsertDueParams{JobID: raw, Version: 1, Chained: chained(&spec)}
		if spec.Enabled {
			due.NextFireTime, due.NextDueAt = instants(plan.First(id, compiled, spec.Schedule.Jitter.Std(), time.Time{}, now))
		}
		if err := q.InsertDue(ctx, due); err != nil {
			return err
		}
		if err := insertVersion(ctx, q, id, 1, lean, now, now, by, "created"); err != nil {
			return err
		}
		if spec.NeedsSlot() && spec.BlockScope == domain.ScopeCluster {
			if err := q.EnsureClusterSlot(ctx, raw); err != nil {
				return err
			}
		}
		if err := notify(ctx, tx); err != nil {
			return err
		}
		return withinLimits(ctx, q, addition{
			group: spec.Group, jobs: true, fires: spec.Enabled && compiled.PerMinute() > 0, scriptVersions: spec.Script != nil,
		})
	})
	if err != nil {
		return domain.Job{}, err
	}
	return s.Job(ctx, id)
}

// chained reports whether the end of the job's scheduled runs sets its next fire time.
func chained(spec *domain.JobSpec) bool {
	return spec.Enabled && spec.Schedule.Kind == domain.ScheduleFixedDelay
}

func instants(fire, due time.Time) (f, d *time.Time) {
	if fire.IsZero() {
		return nil, nil
	}
	return &fire, &due
}

func insertVersion(ctx context.Context, q *sqlcgen.Queries, id domain.JobID, version int, body []byte, created, now time.Time, by, change string) error {
	return q.InsertVersion(ctx, sqlcgen.InsertVersionParams{
		JobID: int64(id), Version: int32(version), Spec: body, CreatedAt: created, ValidFrom: now, ChangedBy: by, Change: change,
	})
}

// check validates a job's spec as a whole, so that the error names all faults at once, and returns its compiled
// schedule. id is 0 for a new job. check copies the current days of the spec's calendar into the spec; calendar is the
// job's previous calendar. If only the children of a spec are faulty, setChildren returns their faults.
func (s *Store) check(ctx context.Context, q *sqlcgen.Queries, id domain.JobID, spec *domain.JobSpec, createdAt time.Time, calendar string) (*schedule.Schedule, error) {
	var f domain.Faults
	f.AddAll("", spec.Validate())
	if err := useCalendar(ctx, q, &f, &spec.Schedule, calendar); err != nil {
		return nil, err
	}
	compiled, err := schedule.Compile(spec.Schedule, schedule.Options{DefaultZone: s.zone, CreatedAt: createdAt})
	f.AddAll("schedule", err)
	if err := checkChannels(ctx, q, &f, &spec.Alert); err != nil {
		return nil, err
	}
	if domain.ValidGroupName(spec.Group) {
		known, err := q.GroupExists(ctx, spec.Group)
		if err != nil {
			return nil, err
		}
		if !known {
			f.Add("group", fmt.Sprintf("there is no group %q; make it first, with belfry group create or POST /api/v1/groups", spec.Group))
		}
	}
	if spec.Script != nil && spec.Script.Language == domain.Groovy {
		open, err := q.GroupOpenToXXLJob(ctx, spec.Group)
		if err != nil {
			return nil, err
		}
		if !open {
			f.Add("script.language", "groovy runs only at executors of XXL-JOB; open the group to them first, with belfry group xxl-token")
		}
	}
	if f.Err("") != nil && len(spec.Children) <= domain.MaxChildren {
		if err := checkChildren(ctx, q, &f, id, spec.Children); err != nil {
			return nil, err
		}
	}
	return compiled, f.Err("the job is not valid")
}

// Job returns a job's current state, or NotFound.
func (s *Store) Job(ctx context.Context, id domain.JobID) (domain.Job, error) {
	r, err := s.q.Job(ctx, int64(id))
	if err != nil {
		return domain.Job{}, pgerr.Translate(err)
	}
	job, err := jobOf(r.ID, r.Spec, r.Version, r.CreatedAt, r.UpdatedAt)
	if err != nil {
		return domain.Job{}, err
	}
	last := r.LiveFire
	if r.PastFire.After(last) {
		last = r.PastFire
	}
	job.LastFireTime = domain.AtPtr(fromEpoch(last))
	// Fire times that are planned ahead are no longer in job_due, but have not fired yet.
	switch {
	case !job.Enabled: // fire times that were due before may still be pending, but no fire time comes next
	case !fromEpoch(r.PlannedFire).IsZero():
		job.NextFireTime = domain.AtPtr(r.PlannedFire)
	case r.NextDueAt != nil:
		job.NextFireTime = domain.AtPtr(orZero(r.NextFireTime))
	}
	own := domain.Pause{JobID: id, From: fromEpoch(r.JobPausedAt), To: fromEpoch(r.JobPausedUntil), Reason: r.JobPauseReason, By: r.JobPausedBy}
	job.PauseState = own.State()
	if !job.NotePauses(domain.Pause{
		Group: job.Group, From: fromEpoch(r.PausedAt), To: fromEpoch(r.PausedUntil), Reason: r.PauseReason, By: r.PausedBy,
	}, own) {
		job.Note = s.note(&job)
	}
	return job, nil
}

// note explains why an enabled job has no next fire time.
func (s *Store) note(j *domain.Job) string {
	if !j.Enabled || j.NextFireTime != nil {
		return ""
	}
	compiled, err := schedule.Compile(j.Schedule, schedule.Options{DefaultZone: s.zone, CreatedAt: j.CreatedAt.Time})
	if err != nil {
		return "its schedule no longer compiles: " + err.Error()
	}
	return compiled.Note(s.Now())
}

func jobOf(id int64, spec []byte, version int32, created, updated time.Time) (domain.Job, error) {
	j := domain.Job{
		ID: domain.JobID(id), Version: int(version), CreatedAt: domain.At(created), UpdatedAt: domain.At(updated),
		JobSpec: domain.DefaultJobSpec(),
	}
	if err := domain.DecodeSpec(spec, &j.JobSpec); err != nil {
		return j, fmt.Errorf("read job %d: %w", id, err)
	}
	return j, nil
}

// DeleteJob deletes a job. Runs that have not started end as cancelled/job_deleted. Runs that an instance may already
// have go on, and past runs stay. The error is Conflict if the job is a child of another job.
func (s *Store) DeleteJob(ctx context.Context, id domain.JobID, version int, by string) (domain.Job, error) {
	var job domain.Job
	var settled SettleResult
	err := s.tx(ctx, func(tx pgx.Tx, q *sqlcgen.Queries) error {
		l, err := s.lockForEdit(ctx, q, id, version)
		if err != nil {
			return err
		}
		job = l.job
		if err := q.LockJobRow(ctx, int64(id)); err != nil {
			return err
		}
		parents, err := q.ParentsOf(ctx, int64(id))
		if err != nil {
			return err
		}
		if len(parents) > 0 {
			return &domain.Error{Code: domain.Conflict, Message: fmt.Sprintf(
				"job %d is a child of job %d (%s); remove it from that job's children first", id, parents[0].ParentID, parents[0].Name)}
		}
		if err := s.takeBack(ctx, tx, q, l); err != nil {
			return err
		}
		unstarted, err := q.UnstartedOf(ctx, int64(id))
		if err != nil {
			return err
		}
		ended := make([]engine.Ended, len(unstarted))
		for i, r := range unstarted {
			ended[i] = engine.Ended{
				RunID: r.ID, Attempt: int(r.Attempt), Outcome: domain.OutcomeCancelled, Reason: domain.ReasonJobDeleted,
				Why: explain.Of(explain.JobDeleted), FinishedAt: l.now,
			}
		}
		if settled, err = s.settle(ctx, tx, q, ended); err != nil {
			return err
		}
		if err := q.CloseVersion(ctx, sqlcgen.CloseVersionParams{JobID: int64(id), Version: int32(job.Version), At: &l.now}); err != nil {
			return err
		}
		_, lean, err := encodeSpec(&job.JobSpec)
		if err != nil {
			return err
		}
		if err := insertVersion(ctx, q, id, job.Version+1, lean, job.CreatedAt.Time, l.now, by, "deleted"); err != nil {
			return err
		}
		if err := q.DeleteJobRow(ctx, int64(id)); err != nil {
			return err
		}
		if err := q.DeleteRouteState(ctx, int64(id)); err != nil {
			return err
		}
		if err := q.DeleteSlots(ctx, int64(id)); err != nil {
			return err
		}
		return notify(ctx, tx)
	})
	if err == nil {
		s.Ended(settled.Changes)
	}
	return job, err
}

// GroupHadJobs reports whether the group has or has ever had a job.
func (s *Store) GroupHadJobs(ctx context.Context, group string) (bool, error) {
	had, err := s.q.GroupHadJobs(ctx, group)
	return had, pgerr.Translate(err)
}
