package store

import (
	"context"
	"fmt"
	"slices"
	"strings"
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
	if f.Err("") != nil && len(spec.Children) <= domain.MaxChildren {
		if err := checkChildren(ctx, q, &f, id, spec.Children); err != nil {
			return nil, err
		}
	}
	return compiled, f.Err("the job is not valid")
}

// setChildren replaces a job's edges. It refuses a cycle with the path that closes it.
func setChildren(ctx context.Context, q *sqlcgen.Queries, id domain.JobID, children []domain.Child) error {
	if len(children) == 0 {
		return q.DeleteChildren(ctx, int64(id))
	}
	if err := q.LockChildren(ctx); err != nil {
		return err
	}
	var f domain.Faults
	if err := checkChildren(ctx, q, &f, id, children); err != nil {
		return err
	}
	if err := f.Err("the children are not valid"); err != nil {
		return err
	}
	if err := q.DeleteChildren(ctx, int64(id)); err != nil {
		return err
	}
	ids := make([]int64, len(children))
	for i, c := range children {
		ids[i] = int64(c.JobID)
	}
	return q.InsertChildren(ctx, sqlcgen.InsertChildrenParams{ParentID: int64(id), ChildIds: ids})
}

// checkChildren adds the children to f that do not exist or that close a cycle.
func checkChildren(ctx context.Context, q *sqlcgen.Queries, f *domain.Faults, id domain.JobID, children []domain.Child) error {
	ids := make([]int64, len(children))
	for i, c := range children {
		ids[i] = int64(c.JobID)
		if c.JobID <= 0 {
			continue // no job has such an id, and the spec's own validation says so
		}
		at := fmt.Sprintf("children[%d].job_id", i)
		if c.JobID == id {
			f.Add(at, fmt.Sprintf("closes a cycle: %d → %d", id, id))
			continue
		}
		paths, err := q.PathTo(ctx, sqlcgen.PathToParams{FromID: ids[i], ToID: int64(id)})
		if err != nil {
			return err
		}
		if len(paths) > 0 && len(paths[0]) > 0 {
			f.Add(at, fmt.Sprintf("closes a cycle: %d → %s", id, arrows(paths[0])))
		}
	}
	names, err := q.JobNames(ctx, ids)
	if err != nil {
		return err
	}
	for i, c := range children {
		known := slices.ContainsFunc(names, func(n sqlcgen.JobNamesRow) bool { return n.ID == ids[i] })
		if !known && c.JobID > 0 && c.JobID != id {
			f.Add(fmt.Sprintf("children[%d].job_id", i), fmt.Sprintf("there is no job %d", c.JobID))
		}
	}
	return nil
}

func arrows(path []int64) string {
	parts := make([]string, len(path))
	for i, p := range path {
		parts[i] = fmt.Sprint(p)
	}
	return strings.Join(parts, " → ")
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
	if !job.NotePause(domain.Pause{
		Group: job.Group, From: fromEpoch(r.PausedAt), To: fromEpoch(r.PausedUntil), Reason: r.PauseReason, By: r.PausedBy,
	}) {
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
			closing: true,
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
