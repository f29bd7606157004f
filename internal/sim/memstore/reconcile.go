package memstore

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/belfryhq/belfry/internal/domain"
	"github.com/belfryhq/belfry/internal/engine"
)

func (s *Store) find(limit int, keep func(r *Run, now time.Time) bool) (out []engine.LiveRun, err error) {
	s.db.tx(func() {
		now := s.db.now()
		out = liveRuns(first(s.db.liveSorted(func(r *Run) bool { return keep(r, now) }), limit))
	})
	return out, nil
}

func bound(r *Run) bool {
	return r.Instance != "" && (r.State == domain.Queued || r.State == domain.Running)
}

// Silent returns bound runs of which nobody has known for the given time whether they were accepted.
func (s *Store) Silent(_ context.Context, after time.Duration, limit int) ([]engine.LiveRun, error) {
	return s.find(limit, func(r *Run, now time.Time) bool { return silent(r, now.Add(-after)) })
}

// silent reports whether a run is bound, and nobody has said since before that it was started.
func silent(r *Run, before time.Time) bool {
	if r.State != domain.Queued || r.Instance == "" || r.KillRequested {
		return false
	}
	since := r.DueAt
	if r.BoundAt.After(since) {
		since = *r.BoundAt
	}
	return since.Before(before)
}

// BoundBoots returns every boot that unfinished runs are bound to.
func (s *Store) BoundBoots(_ context.Context, silentAfter time.Duration) (out []engine.BoundBoot, err error) {
	s.db.tx(func() {
		now := s.db.now()
		at := make(map[engine.BoundBoot]int)
		for _, r := range s.db.live {
			if !bound(r) {
				continue
			}
			k := engine.BoundBoot{Group: r.Group, Instance: r.Instance, BootID: r.BootID}
			i, known := at[k]
			if !known {
				i = len(out)
				at[k], out = i, append(out, k)
			}
			out[i].Runs++
			if r.State == domain.Running {
				out[i].Running++
			}
			if silent(r, now.Add(-silentAfter)) {
				out[i].Silent++
			}
			if overdue(r, now) {
				out[i].Overdue++
			}
		}
	})
	return out, nil
}

// RunsOf returns runs that are bound to a boot, by id, those after the given one.
func (s *Store) RunsOf(_ context.Context, b engine.BoundBoot, after domain.RunID, limit int) ([]engine.LiveRun, error) {
	return s.find(limit, func(r *Run, _ time.Time) bool {
		return bound(r) && r.Group == b.Group && r.Instance == b.Instance && r.BootID == b.BootID && compareID(r.ID, after) > 0
	})
}

// PastDeadline returns waiting runs whose start deadline has passed.
func (s *Store) PastDeadline(_ context.Context, limit int) ([]engine.LiveRun, error) {
	return s.find(limit, func(r *Run, now time.Time) bool {
		w := s.db.waiting[r.ID]
		return w != nil && w.deadline.Before(now) && r.State == domain.Queued && r.Instance == ""
	})
}

// PastGiveUp returns runs whose timeout and its grace have passed without a result.
func (s *Store) PastGiveUp(_ context.Context, limit int) ([]engine.LiveRun, error) {
	return s.find(limit, overdue)
}

func overdue(r *Run, now time.Time) bool {
	return bound(r) && !r.GiveUpAt.IsZero() && r.GiveUpAt.Before(now)
}

// UnconfirmedKills returns runs whose kill was requested at least after ago and that have not ended.
func (s *Store) UnconfirmedKills(_ context.Context, after time.Duration, limit int) ([]engine.LiveRun, error) {
	return s.find(limit, func(r *Run, now time.Time) bool { return r.KillRequested && r.KillRequestedAt.Before(now.Add(-after)) })
}

// Replan makes attempts that wait for their follow-up ready to be rung.
func (s *Store) Replan(_ context.Context, runs []domain.RunID, attempts []int) (n int, err error) {
	s.db.tx(func() {
		for i, id := range runs {
			n += s.db.replan(id, attempts[i])
		}
	})
	return n, nil
}

func (db *DB) replan(id domain.RunID, attempt int) int {
	r := db.live[id]
	if r == nil || r.Attempt != attempt || r.State != domain.Retrying || r.Replanned {
		return 0
	}
	r.Replanned, r.Attempt, r.RungAt = true, attempt+1, time.Time{}
	db.notified = true
	return 1
}

// ReplanOverdue re-plans retries whose follow-up was not worked by their due instant.
func (s *Store) ReplanOverdue(_ context.Context, limit int) (n int, err error) {
	db := s.db
	db.tx(func() {
		now := db.now()
		for _, r := range first(db.liveSorted(func(r *Run) bool {
			return !r.Held && r.DueAt.Before(now) && r.State == domain.Retrying && !r.Replanned
		}), limit) {
			n += db.replan(r.ID, r.Attempt)
		}
	})
	return n, nil
}

// GoOnChains plans the next fire of fixed_delay jobs that have none although nothing of them is live.
func (s *Store) GoOnChains(_ context.Context, limit int) (n int, err error) {
	s.db.tx(func() {
		for id := range s.db.due {
			if n < limit && s.db.goOn(id, s.Now()) {
				n++
			}
		}
	})
	return n, nil
}

// ReleaseOrphans releases the next held run of each slot that nobody owns.
func (s *Store) ReleaseOrphans(_ context.Context, limit int) (out []engine.Due, err error) {
	db := s.db
	db.tx(func() {
		seen := make(map[slotKey]bool)
		for _, r := range db.liveSorted(func(r *Run) bool { return r.Held }) {
			k := slotKey{r.JobID, r.HeldOn}
			if seen[k] || len(out) == limit {
				continue
			}
			seen[k] = true
			if owner := db.owner(k); !owner.IsZero() && owner != r.ID {
				continue // it may be held itself, and comes first then
			}
			if _, exists := db.slots[k]; exists && k.instance == "" {
				db.slots[k] = r.ID
			}
			out = append(out, db.release(r))
		}
	})
	return out, nil
}

// ReturnStrays makes queued, unbound runs wait that are not among those that wait.
func (s *Store) ReturnStrays(_ context.Context, limit int) (n int, err error) {
	db := s.db
	db.tx(func() {
		for _, r := range first(db.liveSorted(func(r *Run) bool {
			return r.State == domain.Queued && r.Instance == "" && db.waiting[r.ID] == nil
		}), limit) {
			s.wait(r, db.def(r))
			n++
		}
	})
	return n, nil
}

// RequestKill asks that an unfinished run ends.
func (s *Store) RequestKill(_ context.Context, id domain.RunID, reason domain.Reason, by string) (out engine.KillResult, err error) {
	db := s.db
	db.tx(func() {
		r := db.live[id]
		switch {
		case r == nil && db.history[id] != nil:
			err = domain.NewError(domain.Conflict, "the run has ended already")
		case r == nil:
			err = domain.NewError(domain.NotFound, fmt.Sprintf("there is no run %s", id))
		case r.Instance == "":
			out.Result = s.settle([]engine.Ended{{
				RunID: id, Attempt: r.Attempt, Outcome: domain.OutcomeCancelled, Reason: reason, Message: "killed by " + by, FinishedAt: s.Now(),
			}})
		default:
			if !r.KillRequested {
				r.KillRequested, r.KillRequestedAt, r.KillReason = true, db.now(), reason
			}
			out.Bound = []engine.LiveRun{r.LiveRun}
		}
	})
	return out, err
}

// PlanChild plans the run of a child, as a worker of follow-ups does. A repeat changes nothing.
func (s *Store) PlanChild(_ context.Context, parent domain.RunID, child domain.JobID, endedAt time.Time) error {
	db := s.db
	db.tx(func() {
		j := db.jobs[child]
		if j == nil {
			return
		}
		now := s.Now()
		db.insert(&Run{LiveRun: engine.LiveRun{
			ID: domain.ChildRunID(parent, child, endedAt), JobID: child, JobVersion: j.version, Group: j.spec.Group,
			Cause: domain.CauseChild, FireTime: at(now), DueAt: now, ParentRunID: &parent,
		}}, db.now())
		db.notified = true
	})
	return nil
}

// TakeFollowUp takes the oldest follow-up, as a worker does; it must be worked or put back.
func (db *DB) TakeFollowUp() (u engine.FollowUp, ok bool) {
	db.tx(func() {
		if len(db.followUps) > 0 {
			u, ok = db.followUps[0], true
			db.followUps = slices.Delete(db.followUps, 0, 1)
		}
	})
	return u, ok
}

// ReturnFollowUp puts a follow-up back, to be worked later or twice.
func (db *DB) ReturnFollowUp(u engine.FollowUp) {
	db.tx(func() { db.followUps = append(db.followUps, u) })
}
