package memstore

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/belfryhq/belfry/internal/domain"
	"github.com/belfryhq/belfry/internal/engine"
	"github.com/belfryhq/belfry/internal/explain"
	"github.com/belfryhq/belfry/internal/trace"
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

// Silent returns queued, bound runs of groups for which no start has been recorded in the given time.
func (s *Store) Silent(_ context.Context, groups []string, after time.Duration, limit int) ([]engine.LiveRun, error) {
	return s.find(limit, func(r *Run, now time.Time) bool {
		return slices.Contains(groups, r.Group) && silent(r, now.Add(-after))
	})
}

// silent reports whether a run is bound and queued, and was so already at the given instant, after it was due.
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

// Glance reports what the loops of a dispatcher may find.
func (s *Store) Glance(context.Context) (g engine.Glance, err error) {
	db := s.db
	db.tx(func() {
		now := db.now()
		g.Waiting = len(db.waiting) > 0
		for _, w := range db.waiting {
			g.Deadlines = g.Deadlines || w.deadline.Before(now)
		}
		for _, r := range db.live {
			due := !r.Held && r.DueAt.Before(now)
			g.Live = true
			g.Held = g.Held || r.Held
			g.Kills = g.Kills || r.KillRequested && r.KillRequestedAt.Before(now)
			g.Retries = g.Retries || due && r.State == domain.Retrying && !r.Replanned
			g.Bound = g.Bound || due && bound(r)
		}
	})
	return g, nil
}

// BoundBoots returns each boot that unfinished runs are bound to, with the numbers of these runs.
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

// RunsOf returns the runs that are bound to a boot and have an id above after, sorted by id.
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

// PastGiveUp returns runs of a group whose timeout and its grace have passed without a result.
func (s *Store) PastGiveUp(_ context.Context, group string, limit int) ([]engine.LiveRun, error) {
	return s.find(limit, func(r *Run, now time.Time) bool { return r.Group == group && overdue(r, now) })
}

func overdue(r *Run, now time.Time) bool {
	return bound(r) && !r.GiveUpAt.IsZero() && r.GiveUpAt.Before(now)
}

// UnconfirmedKills returns unfinished runs whose kill was requested longer ago than after.
func (s *Store) UnconfirmedKills(_ context.Context, after time.Duration, limit int) ([]engine.LiveRun, error) {
	return s.find(limit, func(r *Run, now time.Time) bool { return r.KillRequested && r.KillRequestedAt.Before(now.Add(-after)) })
}

// Replan plans the next attempts of retrying runs, so that a scheduler can take them into its time ring.
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

// ReplanOverdue replans retries whose follow-up was not processed before their due instant.
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

// GoOnChains plans the next fire of fixed_delay jobs that have neither a next fire time nor an unfinished scheduled run.
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

// ReleaseOrphans releases the next held run of each slot that has no owner.
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
				continue // the owner may be held itself, and is then released first
			}
			if _, exists := db.slots[k]; exists && k.instance == "" {
				db.slots[k] = r.ID
			}
			out = append(out, db.release(r))
		}
	})
	return out, nil
}

// ReturnStrays adds queued, unbound runs to the waiting runs if they are missing there.
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

// RequestKill requests the end of an unfinished run. A run without an instance ends at once.
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
				RunID: id, Attempt: r.Attempt, Outcome: domain.OutcomeCancelled, Reason: reason, Why: explain.Of(explain.KilledBy, by), FinishedAt: s.Now(),
			}})
		default:
			if !r.KillRequested {
				r.KillRequested, r.KillRequestedAt, r.KillReason, r.KillWhy = true, db.now(), reason, explain.Of(explain.KilledBy, by)
			}
			out.Bound = []engine.LiveRun{r.LiveRun}
		}
	})
	return out, err
}

// PlanChild plans the run of a child job, as a worker of follow-ups does. A repeated call changes nothing.
func (s *Store) PlanChild(_ context.Context, parent domain.RunID, child domain.JobID, endedAt time.Time) error {
	db := s.db
	db.tx(func() {
		j := db.jobs[child]
		if j == nil {
			return
		}
		stored, first := "", parent
		if p := db.history[parent]; p != nil {
			stored = p.Trace
			if p.BroadcastID != nil {
				first = *p.BroadcastID
			}
		}
		now := s.Now()
		db.insert(&Run{LiveRun: engine.LiveRun{
			ID: domain.ChildRunID(parent, child, endedAt), JobID: child, JobVersion: j.version, Group: j.spec.Group,
			Cause: domain.CauseChild, FireTime: at(now), DueAt: now, ParentRunID: &parent,
			Trace: trace.OfChild(stored, first, parent).String(),
		}}, db.now())
		db.notified = true
	})
	return nil
}

// TakeFollowUp removes and returns the oldest follow-up. The caller processes it or passes it to ReturnFollowUp.
func (db *DB) TakeFollowUp() (u engine.FollowUp, ok bool) {
	db.tx(func() {
		if len(db.followUps) > 0 {
			u, ok = db.followUps[0], true
			db.followUps = slices.Delete(db.followUps, 0, 1)
		}
	})
	return u, ok
}

// ReturnFollowUp puts a follow-up back, so that it is processed later or a second time.
func (db *DB) ReturnFollowUp(u engine.FollowUp) {
	db.tx(func() { db.followUps = append(db.followUps, u) })
}
