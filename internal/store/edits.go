package store

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/belfryhq/belfry/internal/domain"
	"github.com/belfryhq/belfry/internal/plan"
	"github.com/belfryhq/belfry/internal/schedule"
	"github.com/belfryhq/belfry/internal/store/sqlcgen"
)

// EditJob changes a job by edit, which receives a copy of its spec. If version is not 0 and not the current version, or if the
// change takes the group beyond one of its limits, EditJob returns Conflict and changes nothing. The change takes effect at
// once, including for fires that are planned and not yet due.
func (s *Store) EditJob(ctx context.Context, id domain.JobID, version int, by string, edit func(*domain.JobSpec) error) (before, after domain.Job, err error) {
	return s.edit(ctx, id, version, by, "edited", edit)
}

// SetEnabled enables or disables a job. If the job already is in that state, its version does not change.
func (s *Store) SetEnabled(ctx context.Context, id domain.JobID, enabled bool, version int, by string) (before, after domain.Job, err error) {
	change := "disabled"
	if enabled {
		change = "enabled"
	}
	return s.edit(ctx, id, version, by, change, func(spec *domain.JobSpec) error {
		spec.Enabled = enabled
		return nil
	})
}

func (s *Store) edit(ctx context.Context, id domain.JobID, version int, by, change string, edit func(*domain.JobSpec) error) (before, after domain.Job, err error) {
	err = s.tx(ctx, func(tx pgx.Tx, q *sqlcgen.Queries) error {
		locked, err := s.lockForEdit(ctx, q, id, version)
		if err != nil {
			return err
		}
		before = locked.job
		spec := cloneSpec(before.JobSpec)
		if err := edit(&spec); err != nil {
			return err
		}
		spec.Normalize()
		spec.ContinueScript(before.Script)
		if spec.Schedule.DaysOff = nil; spec.Schedule.Calendar == before.Schedule.Calendar {
			spec.Schedule.DaysOff = before.Schedule.DaysOff
		}
		old, _, err := encodeSpec(&before.JobSpec)
		if err != nil {
			return err
		}
		changed, _, err := encodeSpec(&spec)
		if err != nil {
			return err
		}
		if string(old) == string(changed) {
			return nil // no change, so no new version
		}
		return s.replan(ctx, tx, q, locked, &spec, by, change)
	})
	if err != nil {
		return before, after, err
	}
	after, err = s.Job(ctx, id)
	before.PauseState = after.PauseState // an edit changes no pause
	return before, after, err
}

func cloneSpec(spec domain.JobSpec) domain.JobSpec {
	spec.Tags = slices.Clone(spec.Tags)
	spec.Children = slices.Clone(spec.Children)
	spec.Alert.Channels = slices.Clone(spec.Alert.Channels)
	spec.Alert.On = slices.Clone(spec.Alert.On)
	if spec.Script != nil {
		script := *spec.Script
		spec.Script = &script
	}
	return spec
}

// lockedEdit is a job whose job_due row is locked by an edit.
type lockedEdit struct {
	job domain.Job
	due sqlcgen.LockJobRow
	now time.Time
}

func (s *Store) lockForEdit(ctx context.Context, q *sqlcgen.Queries, id domain.JobID, version int) (*lockedEdit, error) {
	due, err := q.LockJob(ctx, int64(id))
	if err != nil {
		return nil, err
	}
	row, err := q.JobRow(ctx, int64(id))
	if err != nil {
		return nil, err
	}
	job, err := jobOf(row.ID, row.Spec, row.Version, row.CreatedAt, row.UpdatedAt)
	if err != nil {
		return nil, err
	}
	if version != 0 && version != job.Version {
		return nil, &domain.Error{Code: domain.Conflict, Message: fmt.Sprintf(
			"the job is at version %d, not %d: it was changed meanwhile; read it again and repeat your change", job.Version, version)}
	}
	return &lockedEdit{job: job, due: due, now: due.Now.UTC().Truncate(time.Millisecond)}, nil
}

// takeBack decides about fire times that are already due by the jobs' old versions, and deletes the runs planned beyond
// now. All jobs were locked at the same instant. Since then, this transaction may have waited, for example for a lock,
// while Fire admitted more runs of the old versions. These runs stay, so the edit must come after them: takeBack moves
// the edits' now to the due instant of the last of them.
func (s *Store) takeBack(ctx context.Context, tx pgx.Tx, q *sqlcgen.Queries, edits ...*lockedEdit) error {
	if len(edits) == 0 {
		return nil
	}
	ids, jitter := make([]int64, len(edits)), time.Duration(0)
	for i, l := range edits {
		ids[i], jitter = int64(l.job.ID), max(jitter, l.job.Schedule.Jitter.Std())
		if err := s.decideDue(ctx, tx, q, l); err != nil {
			return err
		}
	}
	now := edits[0].now
	if err := q.LockPlannedOf(ctx, sqlcgen.LockPlannedOfParams{JobIds: ids, Now: now}); err != nil {
		return err
	}
	// This is a separate statement, because it must see runs that were admitted while the transaction waited for the
	// lock.
	decided, err := q.DecidedDue(ctx, sqlcgen.DecidedDueParams{JobIds: ids, FirstID: domain.FirstRunID(now.Add(-jitter))})
	if err != nil {
		return err
	}
	if decided = decided.UTC(); decided.After(now) {
		now = decided
		for _, l := range edits {
			l.now = now
			if err := s.decideDue(ctx, tx, q, l); err != nil {
				return err
			}
		}
	}
	return q.DeletePlannedOf(ctx, sqlcgen.DeletePlannedOfParams{JobIds: ids, Now: now})
}

// decideDue decides by the old version about fire times that are already due. Fire times held up by a pause of the
// group are due as well: they are dropped, because making up for them now would fire them during the pause.
func (s *Store) decideDue(ctx context.Context, tx pgx.Tx, q *sqlcgen.Queries, l *lockedEdit) error {
	due := &l.due
	for due.NextDueAt != nil && (!due.NextDueAt.After(l.now) || due.Parked && !orZero(due.NextFireTime).After(l.now)) {
		// The pre-read is behind. Fire times that are due by now belong to the version that was in force then. One
		// decision is bounded, so a long outage takes several.
		jobs := []lockedJob{{
			key: versionKey{l.job.ID, l.job.Version}, next: orZero(due.NextFireTime).UTC(), decided: orZero(due.DecidedThrough).UTC(),
			paused: due.Paused, closing: true,
		}}
		if err := s.addStranded(ctx, q, jobs, l.now); err != nil {
			return err
		}
		if _, err := s.decide(ctx, tx, q, jobs, l.now, s.plan, false); err != nil {
			return err
		}
		before := due.NextFireTime
		var err error
		if *due, err = q.LockJob(ctx, int64(l.job.ID)); err != nil {
			return err
		}
		if before != nil && due.NextFireTime != nil && due.NextFireTime.Equal(*before) {
			break // its due instant is still ahead because of its jitter
		}
	}
	return nil
}

// replan makes spec the job's next version. It plans the job from the first fire time that no earlier version has
// decided about and that is not due yet.
func (s *Store) replan(ctx context.Context, tx pgx.Tx, q *sqlcgen.Queries, l *lockedEdit, spec *domain.JobSpec, by, change string) error {
	id, next := l.job.ID, l.job.Version+1
	compiled, err := s.check(ctx, q, id, spec, l.job.CreatedAt.Time, l.job.Schedule.Calendar)
	if err != nil {
		return err
	}
	newScript := spec.Script != nil && spec.Script.Version == 0
	if newScript {
		if err := insertScript(ctx, q, id, next, spec.Script, l.now, by); err != nil {
			return err
		}
	}
	body, lean, err := encodeSpec(spec)
	if err != nil {
		return err
	}
	if err := setChildren(ctx, q, id, spec.Children); err != nil {
		return err
	}
	if err := s.takeBack(ctx, tx, q, l); err != nil {
		return err
	}
	through, err := q.KeptThrough(ctx, sqlcgen.KeptThroughParams{JobID: int64(id), Now: l.now})
	if err != nil {
		return err
	}
	through = fromEpoch(through)
	due := sqlcgen.SetDueParams{JobID: int64(id), Version: int32(next), DecidedThrough: nullable(through), Chained: chained(spec)}
	waitForEnd := false
	if due.Chained && l.job.Schedule.Kind == domain.ScheduleFixedDelay {
		// The end of the live run sets the next fire.
		if waitForEnd, err = q.LiveScheduled(ctx, int64(id)); err != nil {
			return err
		}
	}
	if spec.Enabled && !waitForEnd {
		fire, at := s.firstAfter(l, compiled, spec.Schedule.Jitter.Std(), through)
		if due.Chained && !fire.IsZero() {
			ended, err := q.LastEnd(ctx, int64(id))
			if err != nil {
				return err
			}
			// An edit does not shorten the delay since the last run.
			if after := plan.After(compiled, ended); after.IsZero() || after.After(fire) {
				fire, at = after, compiled.Due(id, after)
			}
		}
		due.NextFireTime, due.NextDueAt = instants(fire, at)
	}
	if err := q.SetDue(ctx, due); err != nil {
		return err
	}
	if err := q.UpdateJob(ctx, sqlcgen.UpdateJobParams{
		ID: int64(id), GroupName: spec.Group, Name: spec.Name, Enabled: spec.Enabled, Kind: string(spec.Schedule.Kind),
		Tags: spec.Tags, Calendar: nullText(spec.Schedule.Calendar), Spec: body, Version: int32(next), Now: l.now,
		FiresPerMinute: int32(firesPerMinute(spec, compiled)),
	}); err != nil {
		return err
	}
	if err := q.CloseVersion(ctx, sqlcgen.CloseVersionParams{JobID: int64(id), Version: int32(l.job.Version), At: &l.now}); err != nil {
		return err
	}
	if err := insertVersion(ctx, q, id, next, lean, l.job.CreatedAt.Time, l.now, by, change); err != nil {
		return err
	}
	if spec.NeedsSlot() && spec.BlockScope == domain.ScopeCluster {
		if err := q.EnsureClusterSlot(ctx, int64(id)); err != nil {
			return err
		}
	}
	if err := notify(ctx, tx); err != nil {
		return err
	}
	// The script was stored while the job was still in its former group.
	moved := spec.Group != l.job.Group
	return withinLimits(ctx, q, addition{group: l.job.Group, scriptVersions: newScript},
		addition{group: spec.Group, jobs: moved, fires: s.moreFires(l, spec, compiled, moved)})
}

// moreFires reports whether an edit adds to the fires per minute of the job's group.
func (s *Store) moreFires(l *lockedEdit, spec *domain.JobSpec, compiled *schedule.Schedule, moved bool) bool {
	fires, before := 0, 0
	if spec.Enabled {
		fires = firesPerMinute(spec, compiled)
	}
	if l.job.Enabled && !moved {
		old, err := schedule.Compile(l.job.Schedule, schedule.Options{DefaultZone: s.zone, CreatedAt: l.job.CreatedAt.Time})
		if err == nil {
			before = firesPerMinute(&l.job.JobSpec, old)
		}
	}
	return fires > before
}

// firstAfter returns the fire time from which a locked job is planned by its edited schedule.
func (s *Store) firstAfter(l *lockedEdit, edited *schedule.Schedule, jitter time.Duration, through time.Time) (fire, due time.Time) {
	if fire, due = s.carried(l, edited, through); !fire.IsZero() {
		return fire, due
	}
	return plan.First(l.job.ID, edited, jitter, through, l.now)
}

// carried returns the fire time that would be lost between the job's version and the edited one, see plan.Carried. There is
// none if the old version was disabled or its schedule no longer compiles.
func (s *Store) carried(l *lockedEdit, edited *schedule.Schedule, through time.Time) (fire, due time.Time) {
	if !l.job.Enabled {
		return time.Time{}, time.Time{}
	}
	old, err := schedule.Compile(l.job.Schedule, schedule.Options{DefaultZone: s.zone, CreatedAt: l.job.CreatedAt.Time})
	if err != nil {
		return time.Time{}, time.Time{}
	}
	return plan.Carried(l.job.ID, old, edited, l.job.Schedule.Jitter.Std(), through, l.now)
}
