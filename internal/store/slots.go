package store

import (
	"context"
	"slices"
	"time"

	"github.com/belfryhq/belfry/internal/domain"
	"github.com/belfryhq/belfry/internal/engine"
	"github.com/belfryhq/belfry/internal/store/sqlcgen"
)

// slotKey identifies a block slot.
type slotKey struct {
	job      domain.JobID
	instance string // "" in scope cluster
}

func slotOf(def *engine.Definition, instance string) slotKey {
	if def.BlockScope == domain.ScopeInstance {
		return slotKey{def.JobID, instance}
	}
	return slotKey{def.JobID, ""}
}

// slotSet holds the locked slots of one transaction and the changes to them.
type slotSet struct {
	owners  map[slotKey]domain.RunID // NilRunID: the slot is free
	changed map[slotKey]bool
}

// lockSlots locks slots in order. If makeMissing is set, it first inserts missing slots; otherwise it leaves them out.
func lockSlots(ctx context.Context, q *sqlcgen.Queries, keys []slotKey, makeMissing bool) (*slotSet, error) {
	set := &slotSet{owners: make(map[slotKey]domain.RunID, len(keys)), changed: make(map[slotKey]bool)}
	if len(keys) == 0 {
		return set, nil
	}
	keys = slices.Clone(keys)
	slices.SortFunc(keys, func(a, b slotKey) int {
		if a.job != b.job {
			return int(min(max(a.job-b.job, -1), 1))
		}
		return slices.Compare([]byte(a.instance), []byte(b.instance))
	})
	keys = slices.Compact(keys)
	var jobs []int64
	var instances []string
	for _, k := range keys {
		jobs = append(jobs, int64(k.job))
		instances = append(instances, k.instance)
	}
	rows, err := q.LockSlots(ctx, sqlcgen.LockSlotsParams{JobIds: jobs, Instances: instances})
	if err == nil && makeMissing && len(rows) < len(keys) {
		if err = q.EnsureSlots(ctx, sqlcgen.EnsureSlotsParams{JobIds: jobs, Instances: instances}); err == nil {
			rows, err = q.LockSlots(ctx, sqlcgen.LockSlotsParams{JobIds: jobs, Instances: instances})
		}
	}
	if err != nil {
		return nil, err
	}
	for _, r := range rows {
		set.owners[slotKey{domain.JobID(r.JobID), r.Instance}] = orZero(r.Owner)
	}
	return set, nil
}

// forget frees the slots whose owner is no longer live. In scope instance, it frees the slots whose owner has no run
// bound to the instance. It must run after the slots are locked, with a newer snapshot: an owner that the older
// snapshot does not contain must not count as dead.
func (s *slotSet) forget(ctx context.Context, q *sqlcgen.Queries) error {
	var owners []domain.RunID
	bound := make(map[slotKey]bool)
	for k, o := range s.owners {
		switch {
		case o.IsZero():
		case k.instance == "":
			owners = append(owners, o)
		default:
			bound[k] = false
		}
	}
	alive := make(map[domain.RunID]bool, len(owners))
	if len(owners) > 0 {
		live, err := q.LiveOwners(ctx, owners)
		if err != nil {
			return err
		}
		for _, o := range live {
			alive[o] = true
		}
	}
	if err := s.askBound(ctx, q, bound); err != nil {
		return err
	}
	for k, o := range s.owners {
		if !o.IsZero() && !alive[o] && !bound[k] {
			s.set(k, domain.NilRunID)
		}
	}
	return nil
}

// reserve gives free slots of serial jobs to a pending run that is due before the candidates and was not fired, because
// its scheduler died. The candidates are then held behind it, so that the runs stay in order until another scheduler
// takes the stranded run over.
func (s *slotSet) reserve(ctx context.Context, q *sqlcgen.Queries, in []Admission) error {
	first := make(map[slotKey]engine.Due)
	var before time.Time
	for _, a := range in {
		k := slotOf(a.Def, "")
		if a.Def.Block != domain.BlockSerial || a.Def.BlockScope != domain.ScopeCluster || !s.owners[k].IsZero() {
			continue
		}
		if due, known := first[k]; !known || a.DueAt.Before(due.DueAt) {
			first[k] = a.Due
		}
		if a.DueAt.After(before) {
			before = a.DueAt
		}
	}
	if len(first) == 0 {
		return nil
	}
	jobs := make([]int64, 0, len(first))
	for k := range first {
		jobs = append(jobs, int64(k.job))
	}
	rows, err := q.EarliestPending(ctx, sqlcgen.EarliestPendingParams{JobIds: jobs, Before: before})
	for _, r := range rows {
		k := slotKey{job: domain.JobID(r.JobID)}
		if r.DueAt.Before(first[k].DueAt) {
			s.set(k, r.ID)
		}
	}
	return err
}

// askBound sets the value of each slot of scope instance to whether its owner has a run bound to the instance.
func (s *slotSet) askBound(ctx context.Context, q *sqlcgen.Queries, slots map[slotKey]bool) error {
	if len(slots) == 0 {
		return nil
	}
	var p sqlcgen.BoundOwnersParams
	for k := range slots {
		p.JobIds = append(p.JobIds, int64(k.job))
		p.Instances = append(p.Instances, k.instance)
		p.Owners = append(p.Owners, s.owners[k])
	}
	rows, err := q.BoundOwners(ctx, p)
	for _, r := range rows {
		slots[slotKey{domain.JobID(r.JobID), r.Instance}] = true
	}
	return err
}

func (s *slotSet) set(k slotKey, owner domain.RunID) {
	s.owners[k] = owner
	s.changed[k] = true
}

// take gives the slot to owner if it is free. It reports whether owner now owns it.
func (s *slotSet) take(k slotKey, owner domain.RunID) bool {
	current, locked := s.owners[k]
	switch {
	case !locked:
		return false
	case current == owner:
		return true
	case current.IsZero():
		s.set(k, owner)
		return true
	}
	return false
}

func (s *slotSet) save(ctx context.Context, q *sqlcgen.Queries) error {
	var p sqlcgen.SetSlotOwnersParams
	for k := range s.changed {
		p.JobIds = append(p.JobIds, int64(k.job))
		p.Instances = append(p.Instances, k.instance)
		p.Owners = append(p.Owners, s.owners[k])
	}
	clear(s.changed)
	if len(p.JobIds) == 0 {
		return nil
	}
	return q.SetSlotOwners(ctx, p)
}
