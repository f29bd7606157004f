package memstore

import (
	"context"
	"fmt"
	"time"

	"github.com/belfryhq/belfry/internal/domain"
)

// PauseGroup pauses the schedules of a group's jobs and deletes their planned runs that are due in the pause.
func (s *Store) PauseGroup(_ context.Context, group, reason string, until *time.Time, by string) (out domain.Pause, err error) {
	s.db.tx(func() { out, err = s.db.pause(domain.Pause{Group: group, Reason: reason, By: by}, until) })
	return out, err
}

// PauseJob is PauseGroup for the schedule of one job. The error is NotFound if there is no such job.
func (s *Store) PauseJob(_ context.Context, id domain.JobID, reason string, until *time.Time, by string) (out domain.Pause, err error) {
	s.db.tx(func() {
		if s.db.jobs[id] == nil {
			err = noJob(id)
			return
		}
		out, err = s.db.pause(domain.Pause{JobID: id, Reason: reason, By: by}, until)
	})
	return out, err
}

// pause starts the pause p, or gives the reason and the end to the one that lasts.
func (db *DB) pause(p domain.Pause, until *time.Time) (domain.Pause, error) {
	now := db.now().Truncate(time.Millisecond)
	if err := domain.CheckPause(p.Reason, until, now); err != nil {
		return p, err
	}
	p.From = now.Add(domain.PauseAhead)
	if until != nil {
		p.To = until.UTC().Truncate(time.Millisecond)
	}
	if active := db.activePause(p.JobID, p.Group, now); active != nil {
		p.From = active.From
		*active = p
	} else {
		db.pauses = append(db.pauses, p)
	}
	db.takeBackPaused(&p, now)
	db.notified = true
	return p, nil
}

// activePause returns the pause of a job, or of a group if job is 0, that is not over, or nil.
func (db *DB) activePause(job domain.JobID, group string, now time.Time) *domain.Pause {
	for i := range db.pauses {
		if p := &db.pauses[i]; p.JobID == job && p.Group == group && !p.Over(now) {
			return p
		}
	}
	return nil
}

// takeBackPaused deletes planned runs that are due in a pause, and makes the earliest of them the next fire time of its job.
func (db *DB) takeBackPaused(p *domain.Pause, now time.Time) {
	for id, r := range db.live {
		if !p.Of(r.JobID, r.Group) || r.State != domain.Pending || r.Attempt > 1 || r.Held || r.Admitted || r.Cause != domain.CauseSchedule || !p.Covers(r.DueAt) {
			continue
		}
		d := db.due[r.JobID]
		if d == nil || d.version != r.JobVersion {
			continue // planning would not make this run again
		}
		delete(db.live, id)
		if d.nextDue.IsZero() || d.nextFire.IsZero() || r.FireTime.Before(d.nextFire) {
			d.nextFire, d.nextDue, d.decided = *r.FireTime, now, r.FireTime.Add(-time.Millisecond)
		}
	}
}

// ResumeGroup ends the pause of a group. The error is Conflict if the group is not paused.
func (s *Store) ResumeGroup(_ context.Context, group, by string) (out domain.Pause, err error) {
	s.db.tx(func() { out, err = s.db.resume(0, group, "group "+group, by) })
	return out, err
}

// ResumeJob ends the pause of a job. The error is Conflict if the job itself is not paused.
func (s *Store) ResumeJob(_ context.Context, id domain.JobID, by string) (out domain.Pause, err error) {
	s.db.tx(func() { out, err = s.db.resume(id, "", fmt.Sprintf("job %d", id), by) })
	return out, err
}

func (db *DB) resume(job domain.JobID, group, what, by string) (domain.Pause, error) {
	now := db.now().Truncate(time.Millisecond)
	active := db.activePause(job, group, now)
	if active == nil {
		return domain.Pause{}, domain.NewError(domain.Conflict, what+" is not paused")
	}
	active.To, active.ResumedBy = now, by
	db.notified = true
	return *active, nil
}

// TendPauses makes jobs whose pause is over due for planning.
func (s *Store) TendPauses(context.Context, int) (more bool, err error) {
	db := s.db
	db.tx(func() {
		now := db.now()
		for id, d := range db.due {
			if d.parked && !d.nextDue.IsZero() && domain.PauseAt(db.pausesOf(id, db.jobs[id].spec.Group), now) == nil {
				d.parked = false
				if d.nextDue.After(now) {
					d.nextDue = now
				}
			}
		}
	})
	return false, nil
}

func (db *DB) pausesOf(job domain.JobID, group string) []domain.Pause {
	return domain.IndexPauses(db.pauses).Of(job, group)
}
