package store

import (
	"bytes"
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/belfryhq/belfry/internal/domain"
	"github.com/belfryhq/belfry/internal/engine"
	"github.com/belfryhq/belfry/internal/explain"
	"github.com/belfryhq/belfry/internal/store/sqlcgen"
)

// TimeoutGrace is how long after a run's timeout the dispatcher waits for the instance's report before it ends the run.
const TimeoutGrace = 30 * time.Second

// Admit fires runs: it moves them from pending to queued, bound to the chosen instance before any dispatcher offers
// them. If a job's block policy needs a slot, the run takes it in the same transaction. Ahead of its due instant, a run
// may only take a free slot. If Admit returns an error, the result still holds what was committed.
func (s *Store) Admit(ctx context.Context, in []Admission) (Admitted, error) {
	free := make([]*Admission, 0, len(in))
	var slotted []*Admission
	for i := range in {
		if a := &in[i]; a.Def.NeedsSlot() {
			slotted = append(slotted, a)
		} else {
			free = append(free, a)
		}
	}
	free = distinct(free)
	var out Admitted
	if len(free) > 0 {
		admit := func(q *sqlcgen.Queries) error {
			out = Admitted{}
			return s.admit(ctx, q, free, &out)
		}
		err := error(nil)
		if slices.ContainsFunc(free, func(a *Admission) bool { return a.Instance == "" }) {
			err = s.tx(ctx, func(_ pgx.Tx, q *sqlcgen.Queries) error { return admit(q) }) // waiting runs take two statements
		} else {
			err = s.single(ctx, admit)
		}
		if err != nil {
			return Admitted{}, err
		}
	}
	if len(slotted) == 0 {
		return out, nil
	}
	slots, err := s.admitSlotted(ctx, unrepeated(slotted))
	out.Bound = append(out.Bound, slots.Bound...)
	out.Waiting = append(out.Waiting, slots.Waiting...)
	out.Held, out.Later, out.Ended, out.Kills, out.Released = slots.Held, slots.Later, slots.Ended, slots.Kills, slots.Released
	return out, err
}

// distinct sorts admissions by run and removes repetitions: a ring may hold a run twice, and only one of its routes may
// count. Before and after an edit, two versions of a job may have planned the same run, and one batch may contain both.
// They count as different admissions, because they expect different values in the row.
func distinct(in []*Admission) []*Admission {
	compare := func(a, b *Admission) int {
		if c := bytes.Compare(a.RunID[:], b.RunID[:]); c != 0 {
			return c
		}
		return cmp.Or(cmp.Compare(a.JobVersion, b.JobVersion), cmp.Compare(a.Attempt, b.Attempt), a.DueAt.Compare(b.DueAt))
	}
	slices.SortStableFunc(in, compare)
	return slices.CompactFunc(in, func(a, b *Admission) bool { return compare(a, b) == 0 })
}

// unrepeated removes repetitions and keeps the order in which the others take their slots.
func unrepeated(in []*Admission) []Admission {
	kept := make(map[*Admission]bool, len(in))
	for _, a := range distinct(slices.Clone(in)) {
		kept[a] = true
	}
	out := make([]Admission, 0, len(kept))
	for _, a := range in {
		if kept[a] {
			out = append(out, *a)
		}
	}
	return out
}

// pointers returns pointers to all elements. Admissions are too large to be sorted by value.
func pointers(in []Admission) []*Admission {
	out := make([]*Admission, len(in))
	for i := range in {
		out[i] = &in[i]
	}
	return out
}

// admit writes the admissions that distinct returned. The caller has already taken the slots that they need.
func (s *Store) admit(ctx context.Context, q *sqlcgen.Queries, in []*Admission, out *Admitted) error {
	n := len(in)
	p := sqlcgen.AdmitRunsParams{
		Tolerance: s.plan.Tolerance, N: int32(n), Ids: make([]domain.RunID, n), DueAts: make([]time.Time, n),
		Versions: make([]int32, n), Attempts: make([]int32, n), Waitings: []string{}, WaitingNotes: []string{}, GiveUps: []time.Time{},
	}
	ways, hows := newShared[way](n), newShared[explain.Note](n)
	for k, a := range in {
		p.Ids[k], p.DueAts[k], p.Versions[k], p.Attempts[k] = a.RunID, a.DueAt, int32(a.JobVersion), int32(a.Attempt)
		ways.add(way{a.Instance, a.BootID})
		hows.add(a.Route)
		if a.Waiting != "" {
			p.Waitings = atPlace(p.Waitings, n, k, a.Waiting.English(), "")
			p.WaitingNotes = atPlace(p.WaitingNotes, n, k, string(a.Waiting), "")
		}
		if a.Def.Timeout > 0 {
			p.GiveUps = atPlace(p.GiveUps, n, k, s.giveUp(a.Def, a.DueAt), epoch(time.Time{}))
		}
	}
	p.Ways, p.Hows = ways.places, hows.places
	p.SharedInstances, p.Instances = texts(ways, func(w way) string { return w.instance })
	p.SharedBoots, p.Boots = texts(ways, func(w way) string { return w.boot })
	p.SharedRoutes, p.Routes = texts(hows, explain.Note.English)
	p.SharedRouteNotes, p.RouteNotes = texts(hows, func(route explain.Note) string { return string(route) })
	for k, a := range in {
		if a.Instance == "" {
			p.Ways[k] = 0
		}
	}
	rows, err := q.AdmitRuns(ctx, p)
	if err != nil {
		return err
	}
	out.Bound = slices.Grow(out.Bound, len(rows))
	var wait waitingRows
	for i := range rows {
		r := &rows[i]
		a := in[r.Place-1]
		run := admitted(a, r)
		if run.Instance != "" {
			out.Bound = append(out.Bound, run)
			continue
		}
		out.Waiting = append(out.Waiting, run)
		wait.add(&run, a.Def, s.Now())
	}
	return wait.insert(ctx, q)
}

// way is the instance and boot to which an admission sends its run. It is empty if the run waits.
type way struct{ instance, boot string }

// admitted returns the run that an admission has queued, from the values of the admission and those that only the row
// has. The instance and boot must come from the admission that the row was matched with. Otherwise a run that appears
// twice could be offered to one instance and bound to another.
func admitted(a *Admission, r *sqlcgen.AdmitRunsRow) engine.LiveRun {
	run := engine.LiveRun{
		ID: a.RunID, JobID: a.JobID, JobVersion: a.JobVersion, Group: a.Def.Group, Cause: domain.Cause(r.Cause),
		State: domain.Queued, Attempt: a.Attempt, Bind: int(r.Bind), FireTime: r.FireTime, DueAt: a.DueAt, BoundAt: r.BoundAt,
		Instance: a.Instance, BootID: a.BootID, Pin: a.Pin, Avoid: a.Avoid, Param: r.Param,
		BroadcastID: r.BroadcastID, ParentRunID: r.ParentRunID, Trace: orZero(r.Trace), Def: a.Def,
	}
	if r.ShardIndex != nil && r.ShardTotal != nil {
		run.Shard = &domain.Shard{Index: int(*r.ShardIndex), Total: int(*r.ShardTotal)}
	}
	return run
}

func (s *Store) giveUp(def *engine.Definition, due time.Time) time.Time {
	if def.Timeout == 0 {
		return epoch(time.Time{})
	}
	start := due
	if now := s.Now(); now.After(start) {
		start = now
	}
	return start.Add(def.Timeout.Std() + TimeoutGrace)
}

// waitingRows collects rows of runs_waiting.
type waitingRows struct{ p sqlcgen.InsertWaitingParams }

func (w *waitingRows) add(r *engine.LiveRun, def *engine.Definition, now time.Time) {
	from := r.DueAt // the start deadline counts from the due instant or the release
	if from.Before(now.Add(-def.StartDeadline.Std())) && r.Bind < domain.FairRounds {
		// A run that was admitted late, after an outage, still gets its full start deadline. This stops after
		// FairRounds bindings: otherwise a run that instances accept and hand back repeatedly, because they lack the
		// code of its script, would never reach its deadline.
		from = now
	}
	w.p.RunIds = append(w.p.RunIds, r.ID)
	w.p.JobIds = append(w.p.JobIds, int64(r.JobID))
	key := def.WaitsAs(r.Pin)
	w.p.Groups = append(w.p.Groups, r.Group)
	w.p.Handlers = append(w.p.Handlers, key.Target)
	w.p.Pins = append(w.p.Pins, r.Pin)
	w.p.Aparts = append(w.p.Aparts, int64(key.Apart))
	w.p.DueAts = append(w.p.DueAts, r.DueAt)
	w.p.Deadlines = append(w.p.Deadlines, from.Add(def.StartDeadline.Std()))
}

func (w *waitingRows) insert(ctx context.Context, q *sqlcgen.Queries) error {
	if len(w.p.RunIds) == 0 {
		return nil
	}
	return q.InsertWaiting(ctx, w.p)
}

// takes reports whether an admission takes a slot. In scope instance, a run that waits for an instance owns no slot.
func takes(a *Admission) bool {
	return a.Def.BlockScope == domain.ScopeCluster || a.Instance != ""
}

// admitSlotted takes the slots and admits the runs that got theirs. The others are held, ended, or returned as Later to
// come back at their due instant.
func (s *Store) admitSlotted(ctx context.Context, in []Admission) (Admitted, error) {
	var out Admitted
	for range 3 {
		err := s.tx(ctx, func(tx pgx.Tx, q *sqlcgen.Queries) error {
			out = Admitted{}
			return s.admitUnderSlots(ctx, tx, q, in, &out)
		})
		if err == nil {
			return out, nil
		}
		if domain.CodeOf(err) != domain.Conflict {
			return Admitted{}, err
		}
	}
	// In each try, another transaction changed one of the runs or slots first. If runs are admitted one at a time, a conflict
	// affects one run only. Runs that still conflict are left to the reconcilers.
	var all Admitted
	for i := range in {
		err := s.tx(ctx, func(tx pgx.Tx, q *sqlcgen.Queries) error {
			out = Admitted{}
			return s.admitUnderSlots(ctx, tx, q, in[i:i+1], &out)
		})
		if domain.CodeOf(err) == domain.Conflict {
			continue
		}
		if err != nil {
			return all, err
		}
		all.Bound = append(all.Bound, out.Bound...)
		all.Waiting = append(all.Waiting, out.Waiting...)
		all.Held = append(all.Held, out.Held...)
		all.Later = append(all.Later, out.Later...)
		all.Ended = append(all.Ended, out.Ended...)
		all.Kills = append(all.Kills, out.Kills...)
		all.Released = append(all.Released, out.Released...)
	}
	return all, nil
}

func (s *Store) admitUnderSlots(ctx context.Context, tx pgx.Tx, q *sqlcgen.Queries, in []Admission, out *Admitted) error {
	var keys []slotKey
	defs := make([]*engine.Definition, len(in))
	for i := range in {
		defs[i] = in[i].Def
		if takes(&in[i]) {
			keys = append(keys, slotOf(in[i].Def, in[i].Instance))
		}
	}
	if err := lockChains(ctx, q, defs); err != nil {
		return err
	}
	if err := lockCovered(ctx, q, defs); err != nil {
		return err
	}
	slots, err := lockSlots(ctx, q, keys, true)
	if err != nil {
		return err
	}
	if err := slots.forget(ctx, q); err != nil {
		return err
	}
	if err := slots.reserve(ctx, q, in); err != nil {
		return err
	}
	fireable, admitted, err := s.fireable(ctx, q, in)
	if err != nil {
		return err
	}
	now := s.Now()
	in, ended := coveredInBatch(in, fireable, admitted, slots, now)
	winners, losers := share(in, fireable, slots)
	if err := slots.save(ctx, later(tx)); err != nil {
		return err
	}
	if err := s.admit(ctx, q, distinct(pointers(winners)), out); err != nil {
		return err
	}
	if len(out.Bound)+len(out.Waiting) != len(winners) {
		// A kill or an edit won the compare-and-set. Roll back, because otherwise the slot would stay taken.
		return domain.WrapError(domain.Conflict, "fire", errRepeat)
	}
	if err := s.settleBlocked(ctx, tx, q, ended, out); err != nil {
		return err
	}
	return s.blocked(ctx, tx, q, losers, slots, now, out)
}

// lockChains locks the planning of fixed_delay jobs before anything else, because the end of a run by the block policy
// sets its job's next fire time.
func lockChains(ctx context.Context, q *sqlcgen.Queries, defs []*engine.Definition) error {
	var jobs []int64
	for _, d := range defs {
		if d.Schedule.Kind == domain.ScheduleFixedDelay {
			jobs = append(jobs, int64(d.JobID))
		}
	}
	if len(jobs) == 0 {
		return nil
	}
	_, err := q.LockDue(ctx, jobs)
	return err
}

// fireable returns the runs that still match their ring entries, and which of them were admitted before.
func (s *Store) fireable(ctx context.Context, q *sqlcgen.Queries, in []Admission) (fireable, admitted map[domain.RunID]bool, err error) {
	p := sqlcgen.FireableParams{Tolerance: s.plan.Tolerance}
	for _, a := range in {
		p.Ids = append(p.Ids, a.RunID)
		p.DueAts = append(p.DueAts, a.DueAt)
		p.Versions = append(p.Versions, int32(a.JobVersion))
		p.Attempts = append(p.Attempts, int32(a.Attempt))
	}
	rows, err := q.Fireable(ctx, p)
	if err != nil {
		return nil, nil, err
	}
	fireable, admitted = make(map[domain.RunID]bool, len(rows)), make(map[domain.RunID]bool)
	for _, r := range rows {
		fireable[r.ID], admitted[r.ID] = true, r.Admitted
	}
	return fireable, admitted, nil
}

// share gives free slots to the runs that are due first. A run that already owns its slot keeps it.
func share(in []Admission, fireable map[domain.RunID]bool, slots *slotSet) (winners, losers []Admission) {
	in = slices.Clone(in)
	slices.SortStableFunc(in, func(a, b Admission) int {
		if c := a.DueAt.Compare(b.DueAt); c != 0 {
			return c
		}
		return slices.Compare(a.RunID[:], b.RunID[:])
	})
	for _, a := range in {
		switch {
		case !fireable[a.RunID]:
		case !takes(&a):
			winners = append(winners, a)
		case slots.take(slotOf(a.Def, a.Instance), a.Owner()):
			winners = append(winners, a)
		default:
			losers = append(losers, a)
		}
	}
	return winners, losers
}

// blocked applies the block policy to due runs whose slot is taken. The caller holds the slots' locks, so an owner that
// ends at the same time finds the runs held.
func (s *Store) blocked(ctx context.Context, tx pgx.Tx, q *sqlcgen.Queries, losers []Admission, slots *slotSet, now time.Time, out *Admitted) error {
	var hold, cover []Admission
	var ended []engine.Ended
	for _, a := range losers {
		switch {
		case a.DueAt.After(now):
			later := a.Due
			later.AtDue = true
			out.Later = append(out.Later, later)
		case a.Def.Block == domain.BlockDiscardLater:
			ended = append(ended, engine.Ended{
				RunID: a.RunID, Attempt: a.Attempt, Outcome: domain.OutcomeSkipped, Reason: domain.ReasonDiscarded,
				Why: explain.Of(explain.EarlierUnfinished, slots.owners[slotOf(a.Def, a.Instance)].String()), FinishedAt: now,
			})
		case a.Def.Block == domain.BlockCoverEarly:
			cover = append(cover, a)
		default:
			hold = append(hold, a)
		}
	}
	if len(cover) > 0 {
		if err := s.cover(ctx, tx, q, cover, slots, now, out); err != nil {
			return err
		}
	}
	full, err := s.hold(ctx, q, hold, slots, out)
	if err != nil {
		return err
	}
	return s.settleBlocked(ctx, tx, q, append(ended, queueFull(full, now)...), out)
}

func queueFull(full []Admission, now time.Time) (ended []engine.Ended) {
	for _, a := range full {
		ended = append(ended, engine.Ended{
			RunID: a.RunID, Attempt: a.Attempt, Outcome: domain.OutcomeFailed, Reason: domain.ReasonQueueFull, Permanent: true,
			Why: explain.Of(explain.TooManyHeld, domain.MaxHeldRuns), FinishedAt: now,
		})
	}
	return ended
}

// settleBlocked ends runs because of their block policy.
func (s *Store) settleBlocked(ctx context.Context, tx pgx.Tx, q *sqlcgen.Queries, ended []engine.Ended, out *Admitted) error {
	if len(ended) == 0 {
		return nil
	}
	settled, err := s.settle(ctx, tx, q, ended)
	out.Ended = append(out.Ended, settled.Changes...)
	out.Released = append(out.Released, settled.Released...)
	return err
}

// waitsBehind returns what a held run waits for. Column held_by names the run that holds it.
func waitsBehind(def *engine.Definition) explain.Note {
	if def.Block == domain.BlockCoverEarly {
		return explain.Of(explain.CoveredRun)
	}
	return explain.Of(explain.EarlierRun)
}

// hold holds runs back. It returns those that exceed the bound on held runs of a job.
func (s *Store) hold(ctx context.Context, q *sqlcgen.Queries, in []Admission, slots *slotSet, out *Admitted) (full []Admission, err error) {
	if len(in) == 0 {
		return nil, nil
	}
	var jobs []int64
	for _, a := range in {
		jobs = append(jobs, int64(a.JobID))
	}
	counts, err := q.HeldCounts(ctx, jobs)
	if err != nil {
		return nil, err
	}
	held := make(map[domain.JobID]int64, len(counts))
	for _, c := range counts {
		held[domain.JobID(c.JobID)] = c.Held
	}
	var p sqlcgen.HoldRunsParams
	for _, a := range in {
		if held[a.JobID] >= domain.MaxHeldRuns {
			full = append(full, a)
			continue
		}
		held[a.JobID]++
		p.Ids = append(p.Ids, a.RunID)
		p.DueAts = append(p.DueAts, a.DueAt)
		p.Attempts = append(p.Attempts, int32(a.Attempt))
		k := slotOf(a.Def, a.Instance)
		p.Owners = append(p.Owners, slots.owners[k])
		p.Instances = append(p.Instances, k.instance)
		waits := waitsBehind(a.Def)
		p.Waitings = append(p.Waitings, waits.English())
		p.WaitingNotes = append(p.WaitingNotes, string(waits))
	}
	rows, err := q.HoldRuns(ctx, p)
	for _, r := range rows {
		out.Held = append(out.Held, r.ID)
	}
	return full, err
}
