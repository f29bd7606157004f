package memstore

import (
	"slices"
	"time"

	"github.com/belfryhq/belfry/internal/domain"
	"github.com/belfryhq/belfry/internal/engine"
	"github.com/belfryhq/belfry/internal/explain"
)

// later reports whether admission a comes after b, which is for the same slot. Admissions are ordered by their due instant. For
// a run that was admitted before, the instant in its owner's id counts instead.
func (db *DB) later(a, b *engine.Admission) bool {
	came := func(a *engine.Admission) time.Time {
		if o := a.Owner(); db.live[a.RunID].Admitted {
			return o.Time()
		}
		return a.DueAt
	}
	c := came(a).Compare(came(b))
	return c > 0 || (c == 0 && compareID(a.Owner(), b.Owner()) > 0)
}

func (db *DB) newest(in []engine.Admission) map[slotKey]engine.Admission {
	out := make(map[slotKey]engine.Admission)
	for _, a := range in {
		k := slotOf(a.Def, a.Instance)
		if b, known := out[k]; !known || db.later(&a, &b) {
			out[k] = a
		}
	}
	return out
}

// outdone ends those runs of a batch that a newer run of the batch covers, and returns the others.
func (s *Store) outdone(in []engine.Admission, out *engine.Admitted, fireable func(*engine.Admission) bool) []engine.Admission {
	var due []engine.Admission
	now := s.Now()
	for _, a := range in {
		k, takes := slotFor(a.Def, a.Instance)
		if a.Def.Block == domain.BlockCoverEarly && takes && !a.DueAt.After(now) && fireable(&a) && s.db.owner(k) != a.Owner() {
			due = append(due, a)
		}
	}
	first := s.db.newest(due)
	gone := make(map[domain.RunID]bool)
	var ended []engine.Ended
	for _, a := range due {
		if by := first[slotOf(a.Def, a.Instance)]; by.Owner() != a.Owner() {
			gone[a.RunID] = true
			ended = append(ended, coveredBy(a.RunID, a.Attempt, by.Owner(), now))
		}
	}
	s.settleBlocked(ended, out)
	return slices.DeleteFunc(slices.Clone(in), func(a engine.Admission) bool { return gone[a.RunID] })
}

func coveredBy(id domain.RunID, attempt int, by domain.RunID, now time.Time) engine.Ended {
	return engine.Ended{
		RunID: id, Attempt: attempt, Outcome: domain.OutcomeSkipped, Reason: domain.ReasonCovered,
		Why: coversIt(by), FinishedAt: now,
	}
}

func coversIt(by domain.RunID) explain.Note { return explain.Of(explain.CoveredBy, by.String()) }

func (s *Store) settleBlocked(ended []engine.Ended, out *engine.Admitted) {
	if len(ended) == 0 {
		return
	}
	settled := s.settle(ended)
	out.Ended = append(out.Ended, settled.Changes...)
	out.Released = append(out.Released, settled.Released...)
}

// cover applies block policy cover_early at each slot: the newest run ends or kills the slot's owner, ends the other runs,
// and is held until the slot is free. If the owner or a held run is newer still, all new runs end.
func (s *Store) cover(in []engine.Admission, out *engine.Admitted) {
	for k, by := range s.db.newest(in) {
		comers := slices.DeleteFunc(slices.Clone(in), func(a engine.Admission) bool { return slotOf(a.Def, a.Instance) != k })
		s.coverAt(k, by, comers, out)
	}
}

func (s *Store) coverAt(k slotKey, by engine.Admission, comers []engine.Admission, out *engine.Admitted) {
	db, now := s.db, s.Now()
	owner := db.owner(k)
	of := func(r *Run) domain.RunID { due := r.Due(); return due.Owner() }
	owners := db.liveSorted(func(r *Run) bool {
		return r.JobID == k.job && of(r) == owner && (k.instance == "" || r.Instance == k.instance)
	})
	held := db.liveSorted(func(r *Run) bool { return r.Held && r.JobID == k.job && r.HeldOn == k.instance })
	var skipped []engine.Ended
	for _, r := range slices.Concat(owners, held) {
		me := by.Owner()
		if o := of(r); o != me && compareID(me, o) < 0 && (db.live[by.RunID].Admitted || by.DueAt.Before(r.DueAt)) {
			for _, a := range comers {
				skipped = append(skipped, coveredBy(a.RunID, a.Attempt, o, now))
			}
			s.settleBlocked(skipped, out)
			return
		}
	}
	var hold []engine.Admission
	for _, a := range comers {
		if a.Owner() == by.Owner() {
			hold = append(hold, a)
		} else {
			skipped = append(skipped, coveredBy(a.RunID, a.Attempt, by.Owner(), now))
		}
	}
	for _, r := range held {
		if of(r) != by.Owner() {
			skipped = append(skipped, coveredBy(r.ID, r.Attempt, by.Owner(), now))
		}
	}
	s.settleBlocked(skipped, out)
	//sim:seam cover-holds
	ended := s.hold(hold, out)
	for _, r := range owners {
		switch {
		case r.Instance == "":
			e := coveredBy(r.ID, r.Attempt, by.Owner(), now)
			e.Outcome = domain.OutcomeCancelled
			ended = append(ended, e)
		case !r.KillRequested:
			r.KillRequested, r.KillRequestedAt, r.KillReason, r.KillWhy = true, db.now(), domain.ReasonCovered, coversIt(by.Owner())
			out.Kills = append(out.Kills, r.LiveRun)
			out.Bound = slices.DeleteFunc(out.Bound, func(b engine.LiveRun) bool { return b.ID == r.ID })
		}
	}
	s.settleBlocked(ended, out)
}
