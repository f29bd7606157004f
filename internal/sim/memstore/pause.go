package memstore

import (
	"context"
	"time"

	"github.com/belfryhq/belfry/internal/domain"
)

// PauseGroup pauses the schedules of a group's jobs and deletes their planned runs that are due in the pause.
func (s *Store) PauseGroup(_ context.Context, group, reason string, until *time.Time, by string) (out domain.Pause, err error) {
	db := s.db
	db.tx(func() {
		now := db.now().Truncate(time.Millisecond)
		if err = domain.CheckPause(reason, until, now); err != nil {
			return
		}
		out = domain.Pause{Group: group, From: now.Add(domain.PauseAhead), Reason: reason, By: by}
		if until != nil {
			out.To = until.UTC().Truncate(time.Millisecond)
		}
		if active := db.activePause(group, now); active != nil {
			out.From = active.From
			*active = out
		} else {
			db.pauses = append(db.pauses, out)
		}
		db.takeBackPaused(&out, now)
		db.notified = true
	})
	return out, err
}

// activePause returns the pause of a group that is not over, or nil.
func (db *DB) activePause(group string, now time.Time) *domain.Pause {
	for i := range db.pauses {
		if p := &db.pauses[i]; p.Group == group && !p.Over(now) {
			return p
		}
	}
	return nil
}

// takeBackPaused deletes planned runs that are due in a pause, and makes the earliest of them the next fire time of its job.
func (db *DB) takeBackPaused(p *domain.Pause, now time.Time) {
	for id, r := range db.live {
		if r.Group != p.Group || r.State != domain.Pending || r.Attempt > 1 || r.Held || r.Admitted || r.Cause != domain.CauseSchedule || !p.Covers(r.DueAt) {
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
	db := s.db
	db.tx(func() {
		now := db.now().Truncate(time.Millisecond)
		active := db.activePause(group, now)
		if active == nil {
			err = domain.NewError(domain.Conflict, "group "+group+" is not paused")
			return
		}
		active.To, active.ResumedBy = now, by
		out = *active
		db.notified = true
	})
	return out, err
}

// TendPauses makes jobs whose pause is over due for planning.
func (s *Store) TendPauses(context.Context, int) (more bool, err error) {
	db := s.db
	db.tx(func() {
		now := db.now()
		for id, d := range db.due {
			if d.parked && !d.nextDue.IsZero() && domain.PauseAt(db.pausesOf(db.jobs[id].spec.Group), now) == nil {
				d.parked = false
				if d.nextDue.After(now) {
					d.nextDue = now
				}
			}
		}
	})
	return false, nil
}

func (db *DB) pausesOf(group string) (out []domain.Pause) {
	for _, p := range db.pauses {
		if p.Group == group {
			out = append(out, p)
		}
	}
	return out
}
