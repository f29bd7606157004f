package memstore

import (
	"context"
	"slices"
	"time"

	"github.com/belfryhq/belfry/internal/domain"
	"github.com/belfryhq/belfry/internal/engine"
)

// Admit fires runs: it makes them queued and binds them to the chosen instances. A run that needs a block slot takes it, or
// its block policy applies.
func (s *Store) Admit(_ context.Context, in []engine.Admission) (out engine.Admitted, err error) {
	db := s.db
	db.tx(func() {
		now := db.now()
		in = slices.Clone(in)
		slices.SortStableFunc(in, func(a, b engine.Admission) int {
			if c := a.DueAt.Compare(b.DueAt); c != 0 {
				return c
			}
			return compareID(a.RunID, b.RunID)
		})
		in = s.outdone(in, &out, func(a *engine.Admission) bool { return db.fireable(db.live[a.RunID], &a.Due, now) })
		db.reserve(in)
		var blocked []engine.Admission
		for _, a := range in {
			r := db.live[a.RunID]
			if !db.fireable(r, &a.Due, now) {
				continue
			}
			if k, takes := slotFor(a.Def, a.Instance); takes && !db.takeSlot(k, a.Owner()) {
				blocked = append(blocked, a)
				continue
			}
			r.State, r.Admitted = domain.Queued, true
			s.bind(r, a.Def, a.Binding, now)
			if r.Instance != "" {
				out.Bound = append(out.Bound, r.LiveRun)
			} else {
				out.Waiting = append(out.Waiting, r.LiveRun)
			}
		}
		s.block(blocked, &out)
	})
	return out, nil
}

// fireable reports whether a run may be fired and still matches its ring entry.
func (db *DB) fireable(r *Run, d *engine.Due, now time.Time) bool {
	return r != nil && r.DueAt.Equal(d.DueAt) && r.JobVersion == d.JobVersion && r.Attempt == d.Attempt &&
		(r.State == domain.Pending || r.State == domain.Retrying) && r.Replanned && !r.Held && !r.KillRequested && db.inTolerance(r, now)
}

// bind gives a queued run to an instance, or makes it wait.
func (s *Store) bind(r *Run, def *engine.Definition, to engine.Binding, now time.Time) {
	r.Waiting = to.Waiting
	r.Instance, r.BootID = to.Instance, to.BootID
	if to.Instance == "" {
		r.BoundAt, r.GiveUpAt = nil, time.Time{}
		s.wait(r, def)
		return
	}
	delete(s.db.waiting, r.ID)
	r.Bind++
	r.BoundAt = at(now)
	r.GiveUpAt = s.giveUp(def, r.DueAt)
}

func (s *Store) giveUp(def *engine.Definition, due time.Time) time.Time {
	if def.Timeout == 0 {
		return time.Time{}
	}
	if now := s.Now(); now.After(due) {
		due = now
	}
	return due.Add(def.Timeout.Std() + timeoutGrace)
}
