package store

import (
	"context"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/belfryhq/belfry/internal/domain"
	"github.com/belfryhq/belfry/internal/engine"
	"github.com/belfryhq/belfry/internal/explain"
	"github.com/belfryhq/belfry/internal/store/sqlcgen"
)

// The policy cover_early: the newest due run continues, and all other runs of the job end. The decision is made under
// the lock of the slot, so that of two new runs one sees the other.

func covers(a *Admission, now time.Time) bool {
	return a.Def.Block == domain.BlockCoverEarly && !a.DueAt.After(now)
}

// newest returns, for each slot, the newest of the given runs, which covers all others. It may be one shard of a
// broadcast.
func newest(in []Admission, admitted map[domain.RunID]bool) map[slotKey]Admission {
	out := make(map[slotKey]Admission)
	for _, a := range in {
		k := slotOf(a.Def, a.Instance)
		b, known := out[k]
		o, other := a.Owner(), b.Owner()
		if c := cameDue(&a, admitted).Compare(cameDue(&b, admitted)); !known || c > 0 || (c == 0 && slices.Compare(o[:], other[:]) > 0) {
			out[k] = a
		}
	}
	return out
}

// cameDue returns when a run first came due. The due instant of a run that was admitted before is that of its release
// or its retry, which does not make it newer. For such a run, the time in its id counts.
func cameDue(a *Admission, admitted map[domain.RunID]bool) time.Time {
	if admitted[a.RunID] {
		o := a.Owner()
		return o.Time()
	}
	return a.DueAt
}

// coveredInBatch removes the runs from a batch that another run of the batch covers, because they would lose their slot at
// once. The owner of a slot is not removed; it is covered later, as the owner.
func coveredInBatch(in []Admission, fireable, admitted map[domain.RunID]bool, slots *slotSet, now time.Time) (rest []Admission, ended []engine.Ended) {
	var due []Admission
	for _, a := range in {
		if covers(&a, now) && fireable[a.RunID] && takes(&a) && slots.owners[slotOf(a.Def, a.Instance)] != a.Owner() {
			due = append(due, a)
		}
	}
	if len(due) < 2 {
		return in, nil
	}
	first := newest(due, admitted)
	gone := make(map[domain.RunID]bool)
	for _, a := range due {
		if by := first[slotOf(a.Def, a.Instance)]; by.Owner() != a.Owner() {
			gone[a.RunID] = true
			ended = append(ended, coveredBy(a.RunID, a.Attempt, by.Owner(), now))
		}
	}
	return slices.DeleteFunc(slices.Clone(in), func(a Admission) bool { return gone[a.RunID] }), ended
}

// coveredBy returns the end of a run that has not started.
func coveredBy(id domain.RunID, attempt int, by domain.RunID, now time.Time) engine.Ended {
	return engine.Ended{
		RunID: id, Attempt: attempt, Outcome: domain.OutcomeSkipped, Reason: domain.ReasonCovered,
		Why: coversIt(by), FinishedAt: now,
	}
}

// coversIt explains the end of a covered run.
func coversIt(by domain.RunID) explain.Note { return explain.Of(explain.CoveredBy, by.String()) }

// lockCovered locks, before any slot, the waiting entries that runs of the given jobs may cover. This is the same order
// as in AssignWaiting. A run that becomes owner between this lock and the slot's lock is missed. In the worst case two
// transactions deadlock and Postgres ends one of them.
func lockCovered(ctx context.Context, q *sqlcgen.Queries, defs []*engine.Definition) error {
	var jobs []int64
	for _, d := range defs {
		if d.Block == domain.BlockCoverEarly && d.BlockScope == domain.ScopeCluster { // in scope instance, owners do not wait
			jobs = append(jobs, int64(d.JobID))
		}
	}
	if len(jobs) == 0 {
		return nil
	}
	return q.LockCovered(ctx, jobs)
}

// slotState is the state of a slot when a run comes due.
type slotState struct {
	key     slotKey
	by      Admission        // the newest of the newRuns
	newRuns []Admission      // the runs that come due
	owners  []engine.LiveRun // runs of the owner
	held    []engine.LiveRun
}

// cover ends the runs at the slot of due runs: held runs as skipped, and the owner's runs as cancelled, by a kill if an
// instance has them. The newest run is held until the owner has ended. A run that is older than a run at the slot, for
// example because its scheduler died, is covered itself.
func (s *Store) cover(ctx context.Context, tx pgx.Tx, q *sqlcgen.Queries, in []Admission, slots *slotSet, now time.Time, out *Admitted) error {
	states, admitted, err := readSlots(ctx, q, in, slots)
	if err != nil {
		return err
	}
	var skipped, ended []engine.Ended
	var hold []Admission
	var kill []domain.RunID
	var whys, notes []string
	for _, st := range states {
		if newer := st.newerThanBy(admitted[st.by.RunID]); !newer.IsZero() {
			for _, a := range st.newRuns {
				skipped = append(skipped, coveredBy(a.RunID, a.Attempt, newer, now))
			}
			continue
		}
		for _, a := range st.newRuns {
			if a.Owner() == st.by.Owner() {
				hold = append(hold, a)
			} else {
				skipped = append(skipped, coveredBy(a.RunID, a.Attempt, st.by.Owner(), now))
			}
		}
		for _, r := range st.held {
			if due := r.Due(); due.Owner() != st.by.Owner() {
				skipped = append(skipped, coveredBy(r.ID, r.Attempt, st.by.Owner(), now))
			}
		}
		for _, r := range st.owners {
			switch {
			case r.Instance == "":
				e := coveredBy(r.ID, r.Attempt, st.by.Owner(), now)
				e.Outcome = domain.OutcomeCancelled
				ended = append(ended, e)
			case !r.KillRequested:
				why := coversIt(st.by.Owner())
				kill, whys, notes = append(kill, r.ID), append(whys, why.English()), append(notes, string(why))
			}
		}
	}
	// Held runs end first and make room. The new run is held before the end of the owner passes the slot on.
	if err := s.settleBlocked(ctx, tx, q, skipped, out); err != nil {
		return err
	}
	full, err := s.hold(ctx, q, hold, slots, out)
	if err != nil {
		return err
	}
	if err := s.settleBlocked(ctx, tx, q, append(ended, queueFull(full, now)...), out); err != nil {
		return err
	}
	if len(kill) == 0 {
		return nil
	}
	marked, err := q.RequestKill(ctx, sqlcgen.RequestKillParams{Ids: kill, Whys: whys, WhyNotes: notes, Reason: ptr(string(domain.ReasonCovered))})
	out.Kills = append(out.Kills, liveRuns(marked)...)
	// A run that this same transaction has bound must not be offered any more.
	out.Bound = slices.DeleteFunc(out.Bound, func(r engine.LiveRun) bool { return slices.Contains(kill, r.ID) })
	return err
}

// readSlots reads the state of the given runs' slots, and which of these runs were admitted before.
func readSlots(ctx context.Context, q *sqlcgen.Queries, in []Admission, slots *slotSet) ([]*slotState, map[domain.RunID]bool, error) {
	byKey := make(map[slotKey]*slotState)
	var states []*slotState
	var p sqlcgen.OwnerRunsParams
	ids := make([]domain.RunID, len(in))
	for i, a := range in {
		ids[i] = a.RunID
	}
	newRuns, err := q.LiveRuns(ctx, ids)
	if err != nil {
		return nil, nil, err
	}
	admitted := make(map[domain.RunID]bool, len(newRuns))
	for _, r := range newRuns {
		admitted[r.ID] = r.Admitted
	}
	for k, by := range newest(in, admitted) {
		st := &slotState{key: k, by: by}
		byKey[k], states = st, append(states, st)
		p.JobIds = append(p.JobIds, int64(k.job))
		p.Instances = append(p.Instances, k.instance)
		p.Owners = append(p.Owners, slots.owners[k])
	}
	for _, a := range in {
		st := byKey[slotOf(a.Def, a.Instance)]
		st.newRuns = append(st.newRuns, a)
	}
	rows, err := q.OwnerRuns(ctx, p)
	if err != nil {
		return nil, nil, err
	}
	for _, r := range rows {
		st := byKey[slotKey{domain.JobID(r.JobID), ""}]
		if st == nil {
			st = byKey[slotKey{domain.JobID(r.JobID), orZero(r.Instance)}]
		}
		if st != nil {
			st.owners = append(st.owners, liveRun(r))
		}
	}
	held, err := q.HeldAt(ctx, sqlcgen.HeldAtParams{JobIds: p.JobIds, Instances: p.Instances})
	if err != nil {
		return nil, nil, err
	}
	for _, r := range held {
		st := byKey[slotKey{domain.JobID(r.JobID), orZero(r.HeldOn)}]
		st.held = append(st.held, liveRun(r))
	}
	return states, admitted, nil
}

// newerThanBy returns the owner of a run at the slot that is newer than st.by, or NilRunID. Ids sort by time. With
// jitter, or with an id of the distant past, the due instant must agree. The due instant of a run that was admitted
// before does not count, because it is that of its release or its retry.
func (st *slotState) newerThanBy(admitted bool) domain.RunID {
	for _, r := range slices.Concat(st.owners, st.held) {
		due := r.Due()
		o, by := due.Owner(), st.by.Owner()
		if o != by && slices.Compare(by[:], o[:]) < 0 && (admitted || st.by.DueAt.Before(r.DueAt)) {
			return o
		}
	}
	return domain.NilRunID
}
