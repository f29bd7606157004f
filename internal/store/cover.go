package store

import (
	"context"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/belfryhq/belfry/internal/domain"
	"github.com/belfryhq/belfry/internal/store/sqlcgen"
)

// The policy cover_early: the newest run that is due goes on, and whatever else there is of the job ends. All of it is decided
// under the lock of the slot, so that of two newcomers one sees the other.

func covers(a *Admission, now time.Time) bool {
	return a.Def.Block == domain.BlockCoverEarly && !a.DueAt.After(now)
}

// newest returns those of the given runs that cover all others, for each slot: a run, or the shards of a broadcast.
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

// cameDue is when a run first came due. The due instant of one that was admitted before says when it was released or is tried
// again, which makes it no newer: of such a run the id has the say.
func cameDue(a *Admission, admitted map[domain.RunID]bool) time.Time {
	if admitted[a.RunID] {
		o := a.Owner()
		return o.Time()
	}
	return a.DueAt
}

// outdone takes those runs out of a batch that another one of it covers: they would take a slot to lose it at once. An owner
// keeps its own until it is covered as such.
func outdone(in []Admission, fireable, admitted map[domain.RunID]bool, slots *slotSet, now time.Time) (rest []Admission, ended []domain.Ended) {
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

// coveredBy ends a run that has not started.
func coveredBy(id domain.RunID, attempt int, by domain.RunID, now time.Time) domain.Ended {
	return domain.Ended{
		RunID: id, Attempt: attempt, Outcome: domain.OutcomeSkipped, Reason: domain.ReasonCovered,
		Message: coversIt(by), FinishedAt: now,
	}
}

// coversIt is the message of a run that another one covers.
func coversIt(by domain.RunID) string { return "run " + by.String() + " of the job covers it" }

// lockCovered locks, before any slot, what waits for an instance and may be covered by runs of the given jobs: the order that
// those have who assign what waits. An owner that comes between this and the slot's lock is missed; at worst Postgres ends
// one of two that wait for each other then.
func lockCovered(ctx context.Context, q *sqlcgen.Queries, defs []*domain.Definition) error {
	var jobs []int64
	for _, d := range defs {
		if d.Block == domain.BlockCoverEarly && d.BlockScope == domain.ScopeCluster { // in scope instance owners do not wait
			jobs = append(jobs, int64(d.JobID))
		}
	}
	if len(jobs) == 0 {
		return nil
	}
	return q.LockCovered(ctx, jobs)
}

// scene is what there is at a slot when a run comes due.
type scene struct {
	key    slotKey
	by     Admission // the newest of those that come
	comers []Admission
	owners []domain.LiveRun // runs of the owner
	held   []domain.LiveRun
}

// cover ends what runs that are due find at their slot: those held as skipped, those of the owner as cancelled, where an
// instance has them by way of a kill. The newest is held until the owner has ended. What is older than what it finds, such as a
// run whose scheduler died, is covered itself.
func (s *Store) cover(ctx context.Context, tx pgx.Tx, q *sqlcgen.Queries, in []Admission, slots *slotSet, now time.Time, out *Admitted) error {
	scenes, admitted, err := lookAround(ctx, q, in, slots)
	if err != nil {
		return err
	}
	var skipped, ended []domain.Ended
	var hold []Admission
	var kill []domain.RunID
	var whys []string
	for _, sc := range scenes {
		if elder := sc.olderThan(admitted[sc.by.RunID]); !elder.IsZero() {
			for _, a := range sc.comers {
				skipped = append(skipped, coveredBy(a.RunID, a.Attempt, elder, now))
			}
			continue
		}
		for _, a := range sc.comers {
			if a.Owner() == sc.by.Owner() {
				hold = append(hold, a)
			} else {
				skipped = append(skipped, coveredBy(a.RunID, a.Attempt, sc.by.Owner(), now))
			}
		}
		for _, r := range sc.held {
			if due := r.Due(); due.Owner() != sc.by.Owner() {
				skipped = append(skipped, coveredBy(r.ID, r.Attempt, sc.by.Owner(), now))
			}
		}
		for _, r := range sc.owners {
			switch {
			case r.Instance == "":
				e := coveredBy(r.ID, r.Attempt, sc.by.Owner(), now)
				e.Outcome = domain.OutcomeCancelled
				ended = append(ended, e)
			case !r.KillRequested:
				kill, whys = append(kill, r.ID), append(whys, coversIt(sc.by.Owner()))
			}
		}
	}
	// Those that were held make room first, and who comes is held before the owner's end hands the slot on.
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
	marked, err := q.RequestKill(ctx, sqlcgen.RequestKillParams{Ids: kill, Whys: whys, Reason: ptr(string(domain.ReasonCovered))})
	out.Kills = append(out.Kills, liveRuns(marked)...)
	// What was bound by this very transaction is not offered any more.
	out.Bound = slices.DeleteFunc(out.Bound, func(r domain.LiveRun) bool { return slices.Contains(kill, r.ID) })
	return err
}

// lookAround reads what there is at the slots of the given runs, and which of these runs Fire has decided about before.
func lookAround(ctx context.Context, q *sqlcgen.Queries, in []Admission, slots *slotSet) ([]*scene, map[domain.RunID]bool, error) {
	byKey := make(map[slotKey]*scene)
	var scenes []*scene
	var p sqlcgen.OwnerRunsParams
	ids := make([]domain.RunID, len(in))
	for i, a := range in {
		ids[i] = a.RunID
	}
	comers, err := q.LiveRuns(ctx, ids)
	if err != nil {
		return nil, nil, err
	}
	admitted := make(map[domain.RunID]bool, len(comers))
	for _, r := range comers {
		admitted[r.ID] = r.Admitted
	}
	for k, by := range newest(in, admitted) {
		sc := &scene{key: k, by: by}
		byKey[k], scenes = sc, append(scenes, sc)
		p.JobIds = append(p.JobIds, int64(k.job))
		p.Instances = append(p.Instances, k.instance)
		p.Owners = append(p.Owners, slots.owners[k])
	}
	for _, a := range in {
		sc := byKey[slotOf(a.Def, a.Instance)]
		sc.comers = append(sc.comers, a)
	}
	rows, err := q.OwnerRuns(ctx, p)
	if err != nil {
		return nil, nil, err
	}
	for _, r := range rows {
		sc := byKey[slotKey{domain.JobID(r.JobID), ""}]
		if sc == nil {
			sc = byKey[slotKey{domain.JobID(r.JobID), orZero(r.Instance)}]
		}
		if sc != nil {
			sc.owners = append(sc.owners, liveRun(r))
		}
	}
	held, err := q.HeldAt(ctx, sqlcgen.HeldAtParams{JobIds: p.JobIds, Instances: p.Instances})
	if err != nil {
		return nil, nil, err
	}
	for _, r := range held {
		sc := byKey[slotKey{domain.JobID(r.JobID), orZero(r.HeldOn)}]
		sc.held = append(sc.held, liveRun(r))
	}
	return scenes, admitted, nil
}

// olderThan returns a run at the slot that is newer than the one which comes. Ids sort by time; but of a fire with jitter or
// an id of a time long past, the due instant has the say. That of a run which was admitted before says when it was
// released or is tried again.
func (sc *scene) olderThan(admitted bool) domain.RunID {
	for _, r := range slices.Concat(sc.owners, sc.held) {
		due := r.Due()
		o, by := due.Owner(), sc.by.Owner()
		if o != by && slices.Compare(by[:], o[:]) < 0 && (admitted || sc.by.DueAt.Before(r.DueAt)) {
			return o
		}
	}
	return domain.NilRunID
}
