package memstore

import (
	"context"
	"fmt"
	"reflect"
	"slices"
	"time"

	"github.com/belfryhq/belfry/internal/domain"
	"github.com/belfryhq/belfry/internal/engine"
	"github.com/belfryhq/belfry/internal/explain"
	"github.com/belfryhq/belfry/internal/plan"
	"github.com/belfryhq/belfry/internal/schedule"
)

// CreateJob stores a new job with its next fire time.
func (s *Store) CreateJob(_ context.Context, spec domain.JobSpec, _ string) (out domain.Job, err error) {
	db := s.db
	db.tx(func() {
		spec.Normalize()
		spec.ContinueScript(nil)
		now := db.now().Truncate(time.Millisecond)
		var compiled *schedule.Schedule
		if compiled, err = compile(&spec, now); err != nil {
			return
		}
		db.lastJob++
		id := db.lastJob
		db.addScript(id, &spec)
		db.jobs[id] = &job{id: id, spec: spec, version: 1, createdAt: now, updatedAt: now}
		d := &dueRow{version: 1, chained: chained(&spec)}
		if spec.Enabled {
			d.nextFire, d.nextDue = plan.First(id, compiled, spec.Schedule.Jitter.Std(), time.Time{}, now)
		}
		db.due[id] = d
		db.addVersion(db.jobs[id], compiled, now, "created")
		if spec.NeedsSlot() && spec.BlockScope == domain.ScopeCluster {
			db.slots[slotKey{id, ""}] = domain.NilRunID
		}
		db.notified = true
		out = db.job(id)
	})
	return out, err
}

func compile(spec *domain.JobSpec, created time.Time) (*schedule.Schedule, error) {
	return schedule.Compile(spec.Schedule, schedule.Options{DefaultZone: time.UTC, CreatedAt: created})
}

func chained(spec *domain.JobSpec) bool {
	return spec.Enabled && spec.Schedule.Kind == domain.ScheduleFixedDelay
}

func (db *DB) addVersion(j *job, compiled *schedule.Schedule, now time.Time, change string) {
	db.versions[versionKey{j.id, j.version}] = &Version{
		Definition: engine.Definition{JobID: j.id, Version: j.version, CreatedAt: j.createdAt, JobSpec: j.spec.WithoutCode()},
		From:       now, Change: change, compiled: compiled,
	}
}

// addScript stores a new script as the next version of the job's script.
func (db *DB) addScript(id domain.JobID, spec *domain.JobSpec) {
	if spec.Script != nil && spec.Script.Version == 0 {
		db.scripts[id] = append(db.scripts[id], spec.Script.Code)
		spec.Script.Version = len(db.scripts[id])
	}
}

// ScriptCode returns the code of one version of a job's script.
func (s *Store) ScriptCode(_ context.Context, job domain.JobID, version int) (code string, err error) {
	s.db.tx(func() {
		if version < 1 || version > len(s.db.scripts[job]) {
			err = domain.NewError(domain.NotFound, fmt.Sprintf("job %d has no script version %d", job, version))
			return
		}
		code = s.db.scripts[job][version-1]
	})
	return code, err
}

func (db *DB) job(id domain.JobID) domain.Job {
	j, d := db.jobs[id], db.due[id]
	out := domain.Job{ID: id, JobSpec: j.spec, Version: j.version, CreatedAt: domain.At(j.createdAt), UpdatedAt: domain.At(j.updatedAt)}
	next := d.nextFire
	if d.nextDue.IsZero() {
		next = time.Time{}
	}
	if !j.spec.Enabled {
		return out // runs that were due before may still be unfired, but there is no next fire time
	}
	for _, r := range db.live {
		if r.JobID == id && r.State == domain.Pending && !r.Held && r.Cause == domain.CauseSchedule && (next.IsZero() || r.FireTime.Before(next)) {
			next = *r.FireTime
		}
	}
	out.NextFireTime = domain.AtPtr(next)
	return out
}

// Job returns the current version of a job. The error is NotFound if there is none.
func (s *Store) Job(_ context.Context, id domain.JobID) (out domain.Job, err error) {
	s.db.tx(func() {
		if s.db.jobs[id] == nil {
			err = noJob(id)
			return
		}
		out = s.db.job(id)
	})
	return out, err
}

func noJob(id domain.JobID) error {
	return domain.NewError(domain.NotFound, fmt.Sprintf("there is no job %d", id))
}

// EditJob changes a job by edit, which receives a copy of the job's spec.
func (s *Store) EditJob(_ context.Context, id domain.JobID, version int, _ string, edit func(*domain.JobSpec) error) (before, after domain.Job, err error) {
	return s.edit(id, version, "edited", edit)
}

// SetEnabled enables or disables a job. If the job already is in that state, its version does not change.
func (s *Store) SetEnabled(_ context.Context, id domain.JobID, enabled bool, version int, _ string) (before, after domain.Job, err error) {
	change := "disabled"
	if enabled {
		change = "enabled"
	}
	return s.edit(id, version, change, func(spec *domain.JobSpec) error {
		spec.Enabled = enabled
		return nil
	})
}

func (db *DB) lockJob(id domain.JobID, version int) (*job, error) {
	j := db.jobs[id]
	switch {
	case j == nil:
		return nil, noJob(id)
	case version != 0 && version != j.version:
		return nil, domain.NewError(domain.Conflict, fmt.Sprintf("the job is at version %d, not %d", j.version, version))
	}
	return j, nil
}

func (s *Store) edit(id domain.JobID, version int, change string, edit func(*domain.JobSpec) error) (before, after domain.Job, err error) {
	db := s.db
	db.tx(func() {
		var j *job
		if j, err = db.lockJob(id, version); err != nil {
			return
		}
		before = db.job(id)
		after = before
		spec := j.spec
		spec.Tags, spec.Children = slices.Clone(spec.Tags), slices.Clone(spec.Children)
		if spec.Script != nil {
			script := *spec.Script
			spec.Script = &script
		}
		if err = edit(&spec); err != nil {
			return
		}
		spec.Normalize()
		spec.ContinueScript(j.spec.Script)
		if reflect.DeepEqual(spec, j.spec) {
			return
		}
		var compiled *schedule.Schedule
		if compiled, err = compile(&spec, j.createdAt); err != nil {
			return
		}
		db.edit(j, spec, compiled, change)
		after = db.job(id)
	})
	return before, after, err
}

// takeBack decides about the fire times that are already due, by the job's current version, and deletes the planned runs
// that are due later.
func (db *DB) takeBack(id domain.JobID, now time.Time) {
	for d := db.due[id]; !d.nextDue.IsZero() && (!d.nextDue.After(now) || d.parked && !d.nextFire.After(now)); {
		before := d.nextFire
		var stranded []*Run
		if d.nextFire.Before(now.Add(-db.settings.Tolerance)) {
			stranded = db.stranded(id, now)
		}
		var out engine.Planned
		db.decide(id, stranded, now, db.settings, true, &out)
		if d.nextFire.Equal(before) {
			break // because of jitter, its due instant is in the future
		}
	}
	for _, r := range db.live {
		//sim:seam edit-removes
		if r.JobID == id && r.State == domain.Pending && r.Attempt == 1 && !r.Held && !r.Admitted && r.Cause == domain.CauseSchedule && r.DueAt.After(now) {
			delete(db.live, r.ID)
		}
	}
}

// edit makes spec the job's next version. Its first fire time is the first one that no earlier version has decided about and
// whose due instant is in the future, or the one that carried returns.
func (db *DB) edit(j *job, spec domain.JobSpec, compiled *schedule.Schedule, change string) {
	id, now := j.id, db.now().Truncate(time.Millisecond)
	db.addScript(id, &spec)
	wasDelay := j.spec.Schedule.Kind == domain.ScheduleFixedDelay
	db.takeBack(id, now)
	through, ended := db.keptThrough(id, now)
	d := db.due[id]
	*d = dueRow{version: j.version + 1, decided: through, chained: chained(&spec)}
	waitForEnd := d.chained && wasDelay && db.liveScheduled(id)
	if spec.Enabled && !waitForEnd {
		d.nextFire, d.nextDue = db.carried(j, compiled, through, now)
		if d.nextFire.IsZero() {
			d.nextFire, d.nextDue = plan.First(id, compiled, spec.Schedule.Jitter.Std(), through, now)
		}
		if d.chained && !d.nextFire.IsZero() {
			// An edit does not shorten the delay after the last run.
			if after := plan.After(compiled, ended); after.IsZero() || after.After(d.nextFire) {
				d.nextFire, d.nextDue = after, compiled.Due(id, after)
			}
		}
		if d.nextFire.IsZero() {
			d.nextDue = time.Time{}
		}
	}
	db.versions[versionKey{id, j.version}].To = now
	j.spec, j.version, j.updatedAt = spec, j.version+1, now
	db.addVersion(j, compiled, now, change)
	if spec.NeedsSlot() && spec.BlockScope == domain.ScopeCluster {
		if k := (slotKey{id, ""}); db.slots[k].IsZero() {
			db.slots[k] = domain.NilRunID
		}
	}
	db.notified = true
}

// carried returns the fire time that would be lost between the old and the edited version, or zero: see plan.Carried.
func (db *DB) carried(j *job, edited *schedule.Schedule, through, now time.Time) (fire, due time.Time) {
	if !j.spec.Enabled {
		return time.Time{}, time.Time{}
	}
	old, err := compile(&j.spec, j.createdAt)
	if err != nil {
		return time.Time{}, time.Time{}
	}
	return plan.Carried(j.id, old, edited, j.spec.Schedule.Jitter.Std(), through, now)
}

// keptThrough returns the newest fire time of the job that has a run or an entry in the missed ledger, and the end of the
// newest scheduled run that is final. A run that was killed before it was due does not count for the fire time.
func (db *DB) keptThrough(id domain.JobID, now time.Time) (through, ended time.Time) {
	ended = time.Unix(0, 0).UTC()
	scheduled := func(r *Run) bool {
		return r.JobID == id && (r.Cause == domain.CauseSchedule || r.Cause == domain.CauseMisfire)
	}
	later := func(t time.Time) {
		if t.After(through) {
			through = t
		}
	}
	for _, r := range db.live {
		if scheduled(r) {
			later(*r.FireTime)
		}
	}
	var newest *Run
	for _, r := range db.history {
		if scheduled(r) && (newest == nil || compareID(r.ID, newest.ID) > 0) {
			newest = r
		}
		if scheduled(r) && !r.DueAt.After(now) {
			later(*r.FireTime)
		}
	}
	if newest != nil {
		ended = newest.FinishedAt
	}
	if m := db.missed[id]; len(m) > 0 {
		later(m[len(m)-1].Last.Time)
	}
	return through, ended
}

// DeleteJob deletes a job and ends its runs that are not bound to an instance.
func (s *Store) DeleteJob(_ context.Context, id domain.JobID, version int, _ string) (out domain.Job, err error) {
	db := s.db
	db.tx(func() {
		var j *job
		if j, err = db.lockJob(id, version); err != nil {
			return
		}
		for _, other := range db.jobs {
			if other.id != id && slices.ContainsFunc(other.spec.Children, func(c domain.Child) bool { return c.JobID == id }) {
				err = domain.NewError(domain.Conflict, fmt.Sprintf("job %d is a child of job %d", id, other.id))
				return
			}
		}
		out = db.job(id)
		now := db.now().Truncate(time.Millisecond)
		db.takeBack(id, now)
		var ended []engine.Ended
		for _, r := range db.liveSorted(func(r *Run) bool {
			return r.JobID == id && (r.State == domain.Pending || r.State == domain.Retrying || (r.State == domain.Queued && r.Instance == ""))
		}) {
			ended = append(ended, engine.Ended{
				RunID: r.ID, Attempt: r.Attempt, Outcome: domain.OutcomeCancelled, Reason: domain.ReasonJobDeleted,
				Why: explain.Of(explain.JobDeleted), FinishedAt: now,
			})
		}
		s.settle(ended)
		old := db.versions[versionKey{id, j.version}]
		old.To = now
		j.version++
		db.addVersion(j, old.compiled, now, "deleted")
		delete(db.jobs, id)
		delete(db.due, id)
		delete(db.routes, id)
		for k, owner := range db.slots {
			if k.job == id && owner.IsZero() {
				delete(db.slots, k)
			}
		}
		db.notified = true
	})
	return out, err
}

// Trigger plans a run of a job now, whether or not the job is enabled.
func (s *Store) Trigger(_ context.Context, id domain.JobID, t domain.Trigger) (ids []domain.RunID, err error) {
	db := s.db
	db.tx(func() {
		j := db.jobs[id]
		if j == nil {
			err = noJob(id)
			return
		}
		now := s.Now()
		fire := now
		if t.FireTime != nil {
			fire = t.FireTime.UTC().Truncate(time.Millisecond)
		}
		run := domain.NewRunID(now)
		db.insert(&Run{LiveRun: engine.LiveRun{
			ID: run, JobID: id, JobVersion: j.version, Group: j.spec.Group, Cause: t.Cause, FireTime: at(fire), DueAt: now,
			Param: t.Param, Pin: t.Instance, Trace: t.Trace,
		}}, db.now())
		db.notified = true
		ids = []domain.RunID{run}
	})
	return ids, err
}
