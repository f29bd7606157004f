package memstore

import (
	"context"
	"slices"
	"time"

	"github.com/belfryhq/belfry/internal/domain"
	"github.com/belfryhq/belfry/internal/engine"
	"github.com/belfryhq/belfry/internal/explain"
)

// WaitingKeys returns the kinds of room that runs wait for.
func (s *Store) WaitingKeys(ctx context.Context) ([]engine.WaitingKey, error) {
	return s.waitingKeys(func(time.Time) bool { return true })
}

// LongWaiting returns the kinds of room for which a run still waits although it has been due for longer than d.
func (s *Store) LongWaiting(_ context.Context, d time.Duration) ([]engine.WaitingKey, error) {
	before := s.Now().Add(-d)
	return s.waitingKeys(func(due time.Time) bool { return due.Before(before) })
}

func (s *Store) waitingKeys(keep func(time.Time) bool) (keys []engine.WaitingKey, err error) {
	s.db.tx(func() {
		for _, w := range s.db.waiting {
			if keep(w.dueAt) && !slices.Contains(keys, w.key) {
				keys = append(keys, w.key)
			}
		}
	})
	return keys, nil
}

// WaitingCounts counts waiting runs by the code of the reason why they wait.
func (s *Store) WaitingCounts(context.Context) (map[explain.Code]int, error) {
	out := make(map[explain.Code]int)
	s.db.tx(func() {
		for id := range s.db.waiting {
			if r := s.db.live[id]; r != nil {
				out[r.Waiting.Code()]++
			}
		}
	})
	return out, nil
}

// wait adds a run to the waiting runs, unless it is one already.
func (s *Store) wait(r *Run, def *engine.Definition) {
	if s.db.waiting[r.ID] != nil {
		return
	}
	from, now := r.DueAt, s.Now()
	if from.Before(now.Add(-def.StartDeadline.Std())) && r.Bind < domain.FairRounds {
		from = now // a run that was admitted late, such as after an outage, still gets its whole start deadline
	}
	s.db.waiting[r.ID] = &waitRow{
		key: def.WaitsAs(r.Pin), dueAt: r.DueAt, deadline: from.Add(def.StartDeadline.Std()),
	}
}

// AssignWaiting takes waiting runs in the order of their due instants, calls choose for their instances, and binds them.
func (s *Store) AssignWaiting(_ context.Context, key engine.WaitingKey, limit int, choose func([]engine.WaitingRun) []engine.Binding) (bound []engine.LiveRun, others engine.Unassigned, err error) {
	db := s.db
	db.tx(func() {
		now := db.now()
		var ids []domain.RunID
		for id, w := range db.waiting {
			if w.key == key {
				ids = append(ids, id)
			}
		}
		slices.SortFunc(ids, func(a, b domain.RunID) int {
			if c := db.waiting[a].dueAt.Compare(db.waiting[b].dueAt); c != 0 {
				return c
			}
			return compareID(a, b)
		})
		ids = first(ids, limit)
		if len(ids) == 0 {
			return
		}
		var single []engine.WaitingRun
		for _, id := range ids {
			r := db.live[id]
			switch {
			case r == nil || r.State != domain.Queued || r.Instance != "":
				delete(db.waiting, id)
			case r.KillRequested:
			case db.def(r).Route == domain.RouteBroadcast && r.BroadcastID == nil:
				others.Expand = append(others.Expand, r.LiveRun)
			default:
				single = append(single, engine.WaitingRun{LiveRun: r.LiveRun, Def: db.def(r)})
			}
		}
		var blocked []engine.Admission
		var out engine.Admitted
		to := choose(single)
		s.outdoneWaiting(single, to, &out)
		for i, b := range to {
			r, def := db.live[single[i].ID], single[i].Def
			if r == nil {
				continue // a newer run covered it
			}
			if b.Instance == "" {
				if key.Apart != 0 && b.Waiting != "" {
					r.Waiting = b.Waiting
				}
				continue
			}
			due := r.Due()
			// In scope cluster, the run took its slot when it was admitted.
			if k, takes := slotFor(def, b.Instance); takes && def.BlockScope == domain.ScopeInstance && !db.takeSlot(k, due.Owner()) {
				blocked = append(blocked, engine.Admission{Due: due, Def: def, Binding: b})
				continue
			}
			s.bind(r, def, b, now)
			bound = append(bound, r.LiveRun)
		}
		s.block(blocked, &out)
		for _, id := range out.Held {
			delete(db.waiting, id)
		}
		others.Ended, others.Kills, others.Released, others.Later = out.Ended, out.Kills, out.Released, out.Later
	})
	return bound, others, nil
}

// outdoneWaiting ends those waiting runs that a newer waiting run for the same slot covers.
func (s *Store) outdoneWaiting(runs []engine.WaitingRun, to []engine.Binding, out *engine.Admitted) {
	var in []engine.Admission
	for i, r := range runs {
		if r.Def.BlockScope == domain.ScopeInstance {
			in = append(in, engine.Admission{Due: r.Due(), Def: r.Def, Binding: to[i]})
		}
	}
	s.outdone(in, out, func(*engine.Admission) bool { return true })
}
