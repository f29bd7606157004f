package memstore

import (
	"context"
	"slices"
	"time"

	"github.com/belfryhq/belfry/internal/domain"
	"github.com/belfryhq/belfry/internal/engine"
	"github.com/belfryhq/belfry/internal/plan"
)

// PlanDue takes jobs that are due within the horizon, inserts their runs and ledger entries, and sets their next fire times.
func (s *Store) PlanDue(_ context.Context, batch int, near bool) (out engine.Planned, err error) {
	db := s.db
	db.tx(func() {
		now, set := db.now(), db.settings
		if near {
			set = set.Nearby()
		}
		var ids []domain.JobID
		for id, d := range db.due {
			if !d.nextDue.IsZero() && !d.nextDue.After(now.Add(set.Horizon)) {
				ids = append(ids, id)
			}
		}
		slices.SortFunc(ids, func(a, b domain.JobID) int { return db.due[a].nextDue.Compare(db.due[b].nextDue) })
		ids = first(ids, batch)
		if len(ids) == batch {
			out.Next = db.due[ids[batch-1]].nextDue
		}
		for _, id := range ids {
			var stranded []*Run
			if next := db.due[id].nextFire; !next.IsZero() && next.Before(now.Add(-db.settings.Tolerance)) {
				stranded = db.stranded(id, now)
			}
			db.decide(id, stranded, now, set, false, &out)
		}
		out.Jobs = len(ids)
	})
	return out, nil
}

// Quiet reports whether TendPauses, PlanDue, ClaimNear and PlanStranded would find nothing.
func (s *Store) Quiet(context.Context) (quiet bool, err error) {
	db := s.db
	db.tx(func() {
		now := db.now()
		quiet = true
		for id, d := range db.due {
			parked := d.parked && domain.PauseAt(db.pausesOf(id, db.jobs[id].spec.Group), now) == nil
			if !d.nextDue.IsZero() && (parked || !d.nextDue.After(now.Add(db.settings.Horizon))) {
				quiet = false
			}
		}
		old := now.Add(-strandedAfter)
		waits := db.liveSorted(func(r *Run) bool {
			return !r.Held && (r.State == domain.Pending || r.State == domain.Retrying) &&
				(r.RungAt.IsZero() && !r.DueAt.After(now.Add(db.settings.Horizon)) || r.DueAt.Before(old))
		})
		quiet = quiet && len(waits) == 0
	})
	return quiet, nil
}

// PlanStranded applies the misfire policy to jobs with planned runs that were not admitted within the tolerance.
func (s *Store) PlanStranded(_ context.Context, batch int) (out engine.Planned, err error) {
	db := s.db
	db.tx(func() {
		now := db.now()
		var ids []domain.JobID
		for id := range db.due {
			if len(db.stranded(id, now)) > 0 {
				ids = append(ids, id)
			}
		}
		slices.Sort(ids)
		ids = first(ids, batch)
		for _, id := range ids {
			db.decide(id, db.stranded(id, now), now, db.settings.Nearby(), false, &out)
		}
		out.Jobs = len(ids)
	})
	return out, nil
}

// stranded returns a job's planned runs that are past due by more than the tolerance and were never admitted.
func (db *DB) stranded(id domain.JobID, now time.Time) []*Run {
	return db.liveSorted(func(r *Run) bool {
		return r.JobID == id && !r.Held && r.DueAt.Before(now.Add(-db.settings.Tolerance)) && r.State == domain.Pending &&
			!r.Admitted && r.Attempt == 1 && r.Cause == domain.CauseSchedule
	})
}

// decide calls plan.Decide for a job and applies the decision.
func (db *DB) decide(id domain.JobID, stranded []*Run, now time.Time, set plan.Settings, closing bool, out *engine.Planned) {
	due := db.due[id]
	v := db.versions[versionKey{id, due.version}]
	enabled := !due.nextDue.IsZero()
	in := plan.Job{ID: id, Schedule: v.compiled, Misfire: v.Misfire, Decided: due.decided, Paused: db.pausesOf(id, v.Group), Closing: closing, Disturbed: db.steps}
	if enabled {
		in.NextFire = due.nextFire
	}
	for _, r := range stranded {
		in.Stranded = append(in.Stranded, plan.Stranded{RunID: r.ID, FireTime: *r.FireTime})
	}
	d := plan.Decide(in, now, set)
	for _, r := range d.Runs {
		db.insert(&Run{
			LiveRun: engine.LiveRun{
				ID: r.ID, JobID: id, JobVersion: due.version, Group: v.Group, Cause: r.Cause, FireTime: at(r.FireTime), DueAt: r.DueAt,
			},
			RungAt: now,
		}, now)
		out.Runs = append(out.Runs, engine.Due{RunID: r.ID, JobID: id, JobVersion: due.version, Attempt: 1, DueAt: r.DueAt})
	}
	if m := d.Missed; m != nil {
		out.Missed += m.Count
		db.missed[id] = append(db.missed[id], *m)
	}
	for _, run := range d.Drop {
		delete(db.live, run)
	}
	for _, run := range d.Revive {
		r := db.live[run]
		r.Cause, r.DueAt, r.RungAt = domain.CauseMisfire, now.Truncate(time.Millisecond), now
		entry := r.Due()
		entry.AtDue = false
		out.Runs = append(out.Runs, entry)
	}
	if !d.NextDue.IsZero() && !d.NextDue.After(now.Add(set.Horizon)) {
		out.More = true
	}
	due.decided = d.DecidedThrough
	if enabled {
		due.nextFire, due.nextDue = d.NextFire, d.NextDue
		due.parked = d.ParkedBy != nil
	}
}

// insert adds a pending run, unless there is a run with its id, unfinished or final.
func (db *DB) insert(r *Run, now time.Time) {
	if db.live[r.ID] != nil || db.history[r.ID] != nil {
		return
	}
	r.State, r.Attempt, r.Replanned, r.CreatedAt = domain.Pending, 1, true, now
	db.live[r.ID] = r
}

// ClaimNear takes planned runs that are due within the horizon and are in no time ring, or in the ring of a dead scheduler.
func (s *Store) ClaimNear(_ context.Context, batch int) (runs []engine.Due, stranded int, err error) {
	db := s.db
	db.tx(func() {
		now := db.now()
		old := now.Add(-strandedAfter)
		near := db.liveSorted(func(r *Run) bool {
			return !r.Held && !r.DueAt.After(now.Add(db.settings.Horizon)) && (r.State == domain.Pending || r.State == domain.Retrying) &&
				r.Replanned && !r.KillRequested && (r.RungAt.IsZero() || (r.DueAt.Before(old) && r.RungAt.Before(old))) &&
				db.inTolerance(r, now)
		})
		slices.SortFunc(near, byDue)
		for _, r := range first(near, batch) {
			r.RungAt = now
			entry := r.Due()
			entry.AtDue = false
			runs = append(runs, entry)
			if r.DueAt.Before(old) {
				stranded++
			}
		}
	})
	return runs, stranded, nil
}

// HandBack takes runs out of the ring of a scheduler that stops.
func (s *Store) HandBack(_ context.Context, runs []engine.Due) error {
	db := s.db
	db.tx(func() {
		for _, d := range runs {
			r := db.live[d.RunID]
			if r != nil && r.DueAt.Equal(d.DueAt) && r.JobVersion == d.JobVersion && r.Attempt == d.Attempt &&
				(r.State == domain.Pending || r.State == domain.Retrying) && r.Replanned && !r.Held {
				r.RungAt, db.notified = time.Time{}, true
			}
		}
	})
	return nil
}

// inTolerance reports false for scheduled runs that are too late and were never admitted: the misfire policy decides about
// them.
func (db *DB) inTolerance(r *Run, now time.Time) bool {
	return r.Cause != domain.CauseSchedule || r.Admitted || r.Attempt > 1 || !r.DueAt.Before(now.Add(-db.settings.Tolerance))
}
