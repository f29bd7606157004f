package memstore

import (
	"github.com/belfryhq/belfry/internal/domain"
	"github.com/belfryhq/belfry/internal/engine"
	"github.com/belfryhq/belfry/internal/explain"
)

// block applies the block policy to runs whose slot is taken. Runs that are not due yet are returned in out.Later.
func (s *Store) block(in []engine.Admission, out *engine.Admitted) {
	db := s.db
	now := s.Now()
	var ended []engine.Ended
	var hold, cover []engine.Admission
	for _, a := range in {
		k := slotOf(a.Def, a.Instance)
		switch {
		case a.DueAt.After(now):
			later := a.Due
			later.AtDue = true
			out.Later = append(out.Later, later)
		case a.Def.Block == domain.BlockDiscardLater:
			ended = append(ended, engine.Ended{
				RunID: a.RunID, Attempt: a.Attempt, Outcome: domain.OutcomeSkipped, Reason: domain.ReasonDiscarded, FinishedAt: now,
				Why: explain.Of(explain.EarlierUnfinished, db.owner(k).String()),
			})
		case a.Def.Block == domain.BlockCoverEarly:
			cover = append(cover, a)
		default:
			hold = append(hold, a)
		}
	}
	s.cover(cover, out)
	s.settleBlocked(append(ended, s.hold(hold, out)...), out)
}

// hold holds runs until their slot is free. It returns results for the runs that exceed the limit of held runs.
func (s *Store) hold(in []engine.Admission, out *engine.Admitted) (full []engine.Ended) {
	db := s.db
	for _, a := range in {
		k := slotOf(a.Def, a.Instance)
		r := db.live[a.RunID]
		switch {
		case db.heldCount(a.JobID) >= domain.MaxHeldRuns:
			full = append(full, engine.Ended{
				RunID: a.RunID, Attempt: a.Attempt, Outcome: domain.OutcomeFailed, Reason: domain.ReasonQueueFull, Permanent: true,
				FinishedAt: s.Now(), Why: explain.Of(explain.TooManyHeld, domain.MaxHeldRuns),
			})
		case r.Held || r.KillRequested || r.Instance != "" && r.State == domain.Queued:
		default:
			if r.State == domain.Queued {
				r.State = domain.Pending
			}
			r.Held, r.Admitted, r.HeldBy, r.HeldOn = true, true, db.owner(k), k.instance
			r.Waiting = explain.Of(explain.EarlierRun)
			if a.Def.Block == domain.BlockCoverEarly {
				r.Waiting = explain.Of(explain.CoveredRun)
			}
			out.Held = append(out.Held, r.ID)
		}
	}
	return full
}

func (db *DB) heldCount(id domain.JobID) (n int) {
	for _, r := range db.live {
		if r.Held && r.JobID == id {
			n++
		}
	}
	return n
}
