package memstore

import (
	"slices"
	"time"

	"github.com/belfryhq/belfry/internal/domain"
	"github.com/belfryhq/belfry/internal/engine"
)

func slotOf(def *engine.Definition, instance string) slotKey {
	if def.BlockScope == domain.ScopeInstance {
		return slotKey{def.JobID, instance}
	}
	return slotKey{def.JobID, ""}
}

// slotFor returns the slot that a run of the job takes on an instance. It returns false if the job needs no slot, or if the
// scope is instance and the run has no instance yet.
func slotFor(def *engine.Definition, instance string) (slotKey, bool) {
	if !def.NeedsSlot() || (def.BlockScope == domain.ScopeInstance && instance == "") {
		return slotKey{}, false
	}
	return slotOf(def, instance), true
}

// owner returns the owner of a slot, or the zero id. It frees the slot if the owner has ended or, in scope instance, has no
// run bound to the instance.
func (db *DB) owner(k slotKey) domain.RunID {
	o := db.slots[k]
	switch {
	case o.IsZero():
	case k.instance == "" && db.live[o] == nil && db.broadcasts[o] == nil, k.instance != "" && !db.boundThere(k, o):
		db.slots[k] = domain.NilRunID
	}
	return db.slots[k]
}

// boundThere reports whether the owner of a slot in scope instance has a run bound to that instance.
func (db *DB) boundThere(k slotKey, owner domain.RunID) bool {
	for _, r := range db.live {
		if due := r.Due(); r.JobID == k.job && r.Instance == k.instance && due.Owner() == owner {
			return true
		}
	}
	return false
}

func (db *DB) takeSlot(k slotKey, owner domain.RunID) bool {
	current := db.owner(k)
	if !current.IsZero() && current != owner {
		return false
	}
	db.slots[k] = owner
	return true
}

// reserve gives free slots of serial jobs to earlier runs that were never fired because their scheduler died. The runs of
// this batch are then held until the earlier run has ended.
func (db *DB) reserve(in []engine.Admission) {
	first := make(map[slotKey]time.Time)
	for _, a := range in {
		k := slotOf(a.Def, "")
		if a.Def.Block != domain.BlockSerial || a.Def.BlockScope != domain.ScopeCluster || !db.owner(k).IsZero() {
			continue
		}
		if due, known := first[k]; !known || a.DueAt.Before(due) {
			first[k] = a.DueAt
		}
	}
	for k, due := range first {
		if r := db.earliestPending(k.job); r != nil && r.DueAt.Before(due) {
			db.slots[k] = r.ID
		}
	}
}

// earliestPending returns the job's pending run that is due first and was never admitted.
func (db *DB) earliestPending(id domain.JobID) *Run {
	pending := db.liveSorted(func(r *Run) bool {
		return r.JobID == id && r.State == domain.Pending && !r.Held && !r.Admitted && !r.KillRequested
	})
	if len(pending) == 0 {
		return nil
	}
	return slices.MinFunc(pending, byDue)
}
