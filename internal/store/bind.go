package store

import (
	"context"
	"maps"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/belfryhq/belfry/internal/domain"
	"github.com/belfryhq/belfry/internal/engine"
	"github.com/belfryhq/belfry/internal/explain"
	"github.com/belfryhq/belfry/internal/store/pgerr"
	"github.com/belfryhq/belfry/internal/store/sqlcgen"
)

// WaitingKeys returns the keys of the runs that wait for an instance.
func (s *Store) WaitingKeys(ctx context.Context) ([]WaitingKey, error) {
	return s.waitingKeys(ctx, func(time.Time) bool { return true })
}

// LongWaiting returns the keys with a run that has been due for at least d and still waits.
func (s *Store) LongWaiting(ctx context.Context, d time.Duration) ([]WaitingKey, error) {
	before := s.Now().Add(-d)
	return s.waitingKeys(ctx, func(due time.Time) bool { return due.Before(before) })
}

func (s *Store) waitingKeys(ctx context.Context, keep func(due time.Time) bool) ([]WaitingKey, error) {
	rows, err := s.q.WaitingKeys(ctx)
	if err != nil {
		return nil, pgerr.Translate(err)
	}
	keys := make([]WaitingKey, 0, len(rows))
	for _, r := range rows {
		if keep(r.DueAt) {
			keys = append(keys, WaitingKey{Group: r.GroupName, Target: r.Handler, Pin: r.Pin, Apart: domain.JobID(r.Apart)})
		}
	}
	return keys, nil
}

// WaitingCounts counts waiting runs by the code of the reason why they wait. It reads the first 10,000 of them.
func (s *Store) WaitingCounts(ctx context.Context) (map[explain.Code]int, error) {
	rows, err := s.q.WaitingCounts(ctx)
	if err != nil {
		return nil, pgerr.Translate(err)
	}
	out := make(map[explain.Code]int, len(rows))
	for _, r := range rows {
		code := explain.Text // nothing says why, as in a row that was changed by hand
		if e := explain.Current(explain.Note(r.Note), r.Waiting); e != nil {
			code = e.Code
		}
		out[code] += int(r.Runs)
	}
	return out, nil
}

// AssignWaiting takes up to limit waiting runs in due order, calls choose for their instances, and binds them. A
// Binding without an instance leaves its run waiting. Dispatchers share the waiting runs by SKIP LOCKED. Broadcasts
// that have not been expanded are returned in others, for ExpandBroadcast.
func (s *Store) AssignWaiting(ctx context.Context, key WaitingKey, limit int, choose func([]Waiting) []engine.Binding) (bound []engine.LiveRun, others Unassigned, err error) {
	err = s.tx(ctx, func(tx pgx.Tx, q *sqlcgen.Queries) error {
		bound, others = nil, Unassigned{}
		ids, err := q.ClaimWaiting(ctx, sqlcgen.ClaimWaitingParams{
			GroupName: key.Group, Handler: key.Target, Pin: key.Pin, Apart: int64(key.Apart), Batch: int32(limit),
		})
		if err != nil || len(ids) == 0 {
			return err
		}
		rows, err := q.LiveRuns(ctx, ids)
		if err != nil {
			return err
		}
		if err := deleteStale(ctx, q, ids, rows); err != nil {
			return err
		}
		waiting, err := s.withDefinitions(ctx, q, inOrder(ids, rows))
		if err != nil {
			return err
		}
		var single []Waiting
		for _, w := range waiting {
			if w.Def.Route == domain.RouteBroadcast && w.BroadcastID == nil {
				others.Expand = append(others.Expand, w.LiveRun)
			} else {
				single = append(single, w)
			}
		}
		to := choose(single)
		if bound, err = s.bindWaiting(ctx, tx, q, single, to, &others); err != nil {
			return err
		}
		if key.Apart == 0 { // the others show the reason of the first one
			single = single[:min(1, len(single))]
		}
		return updateWhy(ctx, q, single, to[:len(single)])
	})
	return bound, others, err
}

// updateWhy updates the reasons of runs that still wait, because they change from time to time.
func updateWhy(ctx context.Context, q *sqlcgen.Queries, runs []Waiting, to []engine.Binding) error {
	var p sqlcgen.SayWhyParams
	for i, b := range to {
		if b.Instance == "" && b.Waiting != "" {
			p.Ids = append(p.Ids, runs[i].ID)
			p.Waitings = append(p.Waitings, b.Waiting.English())
			p.WaitingNotes = append(p.WaitingNotes, string(b.Waiting))
		}
	}
	if len(p.Ids) == 0 {
		return nil
	}
	if err := q.LockRunIDs(ctx, p.Ids); err != nil {
		return err
	}
	return q.SayWhy(ctx, p)
}

// waits reports whether a run waits for an instance.
func waits(r *sqlcgen.RunsLive) bool { return r.State == string(domain.Queued) && r.Instance == nil }

// deleteStale deletes claimed entries whose run no longer waits. Otherwise they would stay in front of the other
// entries and be claimed every time. If such a run has to wait again, its entry is inserted after this transaction.
func deleteStale(ctx context.Context, q *sqlcgen.Queries, ids []domain.RunID, rows []sqlcgen.RunsLive) error {
	stale := make(map[domain.RunID]bool, len(ids))
	for _, id := range ids {
		stale[id] = true
	}
	for _, r := range rows {
		if waits(&r) {
			delete(stale, r.ID)
		}
	}
	if len(stale) == 0 {
		return nil
	}
	return q.DeleteWaiting(ctx, slices.Collect(maps.Keys(stale)))
}

// inOrder returns the rows of waiting runs in the order of ids.
func inOrder(ids []domain.RunID, rows []sqlcgen.RunsLive) []engine.LiveRun {
	byID := make(map[domain.RunID]sqlcgen.RunsLive, len(rows))
	for _, r := range rows {
		byID[r.ID] = r
	}
	out := make([]engine.LiveRun, 0, len(rows))
	for _, id := range ids {
		if r, ok := byID[id]; ok && waits(&r) && r.KillRequestedAt == nil {
			out = append(out, liveRun(r))
		}
	}
	return out
}

func (s *Store) withDefinitions(ctx context.Context, q *sqlcgen.Queries, runs []engine.LiveRun) ([]Waiting, error) {
	keys := make([]versionKey, len(runs))
	for i, r := range runs {
		keys[i] = versionKey{r.JobID, r.JobVersion}
	}
	defs, err := s.load(ctx, q, keys)
	if err != nil {
		return nil, err
	}
	out := make([]Waiting, 0, len(runs))
	for i, r := range runs {
		if d := defs[keys[i]]; d != nil {
			out = append(out, Waiting{LiveRun: r, Def: &d.Definition})
		}
	}
	return out, nil
}

func (s *Store) bindWaiting(ctx context.Context, tx pgx.Tx, q *sqlcgen.Queries, runs []Waiting, to []engine.Binding, others *Unassigned) ([]engine.LiveRun, error) {
	var keys []slotKey
	for i, r := range runs {
		if to[i].Instance != "" && r.Def.NeedsSlot() && r.Def.BlockScope == domain.ScopeInstance {
			keys = append(keys, slotOf(r.Def, to[i].Instance))
		}
	}
	slots, err := lockSlots(ctx, q, keys, true)
	if err != nil {
		return nil, err
	}
	if err := slots.forget(ctx, q); err != nil {
		return nil, err
	}
	ended := coveredWaiting(runs, to, slots, s.Now())
	gone := make(map[domain.RunID]bool, len(ended))
	for _, e := range ended {
		gone[e.RunID] = true
	}
	var p sqlcgen.BindWaitingParams
	var blocked []Admission
	for i, r := range runs {
		if to[i].Instance == "" || gone[r.ID] {
			continue
		}
		due := r.Due()
		if r.Def.NeedsSlot() && r.Def.BlockScope == domain.ScopeInstance && !slots.take(slotOf(r.Def, to[i].Instance), due.Owner()) {
			blocked = append(blocked, Admission{Due: due, Def: r.Def, Binding: to[i]})
			continue
		}
		p.Ids = append(p.Ids, r.ID)
		p.Attempts = append(p.Attempts, int32(r.Attempt))
		p.Instances = append(p.Instances, to[i].Instance)
		p.Boots = append(p.Boots, to[i].BootID)
		p.Routes = append(p.Routes, to[i].Route.English())
		p.RouteNotes = append(p.RouteNotes, string(to[i].Route))
		p.GiveUps = append(p.GiveUps, s.giveUp(r.Def, r.DueAt))
	}
	if err := slots.save(ctx, q); err != nil {
		return nil, err
	}
	if err := s.blockWaiting(ctx, tx, q, blocked, ended, slots, others); err != nil || len(p.Ids) == 0 {
		return nil, err
	}
	if err := q.LockRunIDs(ctx, p.Ids); err != nil {
		return nil, err
	}
	rows, err := q.BindWaiting(ctx, p)
	if err != nil {
		return nil, err
	}
	if len(keys) > 0 && len(rows) != len(p.Ids) {
		return nil, domain.WrapError(domain.Conflict, "assign", errRepeat) // otherwise a slot would stay taken
	}
	done := make([]domain.RunID, len(rows))
	for i, r := range rows {
		done[i] = r.ID
	}
	return liveRuns(rows), q.DeleteWaiting(ctx, done)
}

// coveredWaiting ends waiting runs that are covered by another run for the same slot.
func coveredWaiting(runs []Waiting, to []engine.Binding, slots *slotSet, now time.Time) []engine.Ended {
	var in []Admission
	all := make(map[domain.RunID]bool) // every waiting run was admitted before
	for i, r := range runs {
		if to[i].Instance != "" && r.Def.Block == domain.BlockCoverEarly && r.Def.BlockScope == domain.ScopeInstance {
			in = append(in, Admission{Due: r.Due(), Def: r.Def, Binding: to[i]})
			all[r.ID] = true
		}
	}
	_, ended := coveredInBatch(in, all, all, slots, now)
	return ended
}

// blockWaiting applies the block policy to waiting runs whose chosen instance runs another run of their job. They leave
// the waiting runs, because they would stay in front of runs that can be bound.
func (s *Store) blockWaiting(ctx context.Context, tx pgx.Tx, q *sqlcgen.Queries, in []Admission, ended []engine.Ended, slots *slotSet, others *Unassigned) error {
	if len(in)+len(ended) == 0 {
		return nil
	}
	var out Admitted
	if err := s.settleBlocked(ctx, tx, q, ended, &out); err != nil {
		return err
	}
	if err := s.blocked(ctx, tx, q, in, slots, s.Now(), &out); err != nil {
		return err
	}
	others.Ended, others.Kills, others.Released, others.Later = out.Ended, out.Kills, out.Released, out.Later
	return q.DeleteWaiting(ctx, out.Held)
}

// Unbind takes attempts from instances that refused them and makes them wait for another instance. Runs whose kill was
// requested meanwhile are returned in killed. No instance will start them, so the caller can end them.
func (s *Store) Unbind(ctx context.Context, refused []Refusal) (waiting, killed []engine.LiveRun, err error) {
	err = s.tx(ctx, func(_ pgx.Tx, q *sqlcgen.Queries) error {
		waiting, killed = nil, nil
		ids := make([]domain.RunID, len(refused))
		var p sqlcgen.UnbindParams
		for i, r := range refused {
			ids[i] = r.RunID
			p.Ids = append(p.Ids, r.RunID)
			p.Attempts = append(p.Attempts, int32(r.Attempt))
			p.Binds = append(p.Binds, int32(r.Bind))
			p.Waitings = append(p.Waitings, r.Why.English())
			p.WaitingNotes = append(p.WaitingNotes, string(r.Why))
			p.Avoids = append(p.Avoids, r.Avoid)
		}
		before, err := q.LiveRuns(ctx, ids)
		if err != nil {
			return err
		}
		slots, err := s.instanceSlots(ctx, q, before)
		if err != nil {
			return err
		}
		if err := q.LockRunIDs(ctx, ids); err != nil {
			return err
		}
		rows, err := q.Unbind(ctx, p)
		if err != nil {
			return err
		}
		runs, err := s.withDefinitions(ctx, q, liveRuns(rows))
		if err != nil {
			return err
		}
		var wait waitingRows
		for _, r := range runs {
			if r.KillRequested {
				killed = append(killed, r.LiveRun)
				continue
			}
			wait.add(&r.LiveRun, r.Def, s.Now())
			waiting = append(waiting, r.LiveRun)
		}
		// If a slot becomes free here, the reconciler finds the runs held behind it.
		if err := slots.forget(ctx, q); err != nil {
			return err
		}
		if err := slots.save(ctx, q); err != nil {
			return err
		}
		return wait.insert(ctx, q)
	})
	return waiting, killed, err
}

// instanceSlots locks the slots of scope instance that the bound runs own.
func (s *Store) instanceSlots(ctx context.Context, q *sqlcgen.Queries, rows []sqlcgen.RunsLive) (*slotSet, error) {
	runs, err := s.withDefinitions(ctx, q, liveRuns(rows))
	if err != nil {
		return nil, err
	}
	var keys []slotKey
	for _, r := range runs {
		if r.Def.NeedsSlot() && r.Def.BlockScope == domain.ScopeInstance && r.Instance != "" {
			keys = append(keys, slotOf(r.Def, r.Instance))
		}
	}
	return lockSlots(ctx, q, keys, false)
}

// RaiseBinds starts a new offer round of attempts for the boots that they are bound to.
func (s *Store) RaiseBinds(ctx context.Context, runs []engine.LiveRun) ([]engine.LiveRun, error) {
	var p sqlcgen.RaiseBindsParams
	for _, r := range runs {
		p.Ids = append(p.Ids, r.ID)
		p.Attempts = append(p.Attempts, int32(r.Attempt))
		p.Binds = append(p.Binds, int32(r.Bind))
	}
	var rows []sqlcgen.RunsLive
	err := s.tx(ctx, func(_ pgx.Tx, q *sqlcgen.Queries) (err error) {
		if err := q.LockRunIDs(ctx, p.Ids); err != nil {
			return err
		}
		rows, err = q.RaiseBinds(ctx, p)
		return err
	})
	return liveRuns(rows), err
}

// MarkRunning marks attempts as running. Attempts that have ended meanwhile do not change.
func (s *Store) MarkRunning(ctx context.Context, started []Started) ([]engine.Change, error) {
	slices.SortFunc(started, func(a, b Started) int { return slices.Compare(a.RunID[:], b.RunID[:]) })
	var p sqlcgen.MarkRunningParams
	for _, r := range started {
		p.Ids = append(p.Ids, r.RunID)
		p.Attempts = append(p.Attempts, int32(r.Attempt))
		p.Instances = append(p.Instances, r.Instance)
		p.Boots = append(p.Boots, r.BootID)
		p.Binds = append(p.Binds, int32(r.Bind))
		p.StartedAts = append(p.StartedAts, r.StartedAt)
	}
	var rows []sqlcgen.RunsLive
	err := s.tx(ctx, func(tx pgx.Tx, q *sqlcgen.Queries) (err error) {
		if rows, err = q.MarkRunning(ctx, p); err != nil {
			return err
		}
		return s.tellLate(ctx, tx, q, rows)
	})
	if err != nil {
		return nil, err
	}
	out := make([]engine.Change, len(rows))
	for i, r := range rows {
		out[i] = change(r)
	}
	return out, nil
}

// ExpandBroadcast replaces a fired or waiting broadcast by its shards, one for each of to, in one transaction. If
// another dispatcher has taken the broadcast, ExpandBroadcast changes nothing and returns an empty result.
func (s *Store) ExpandBroadcast(ctx context.Context, run engine.Due, def *engine.Definition, to []ShardBinding) (Admitted, error) {
	var out Admitted
	err := s.tx(ctx, func(tx pgx.Tx, q *sqlcgen.Queries) error {
		out = Admitted{}
		if err := lockChains(ctx, q, []*engine.Definition{def}); err != nil {
			return err
		}
		if err := q.LockWaiting(ctx, []domain.RunID{run.RunID}); err != nil {
			return err
		}
		if err := lockCovered(ctx, q, []*engine.Definition{def}); err != nil {
			return err
		}
		if def.NeedsSlot() && def.BlockScope == domain.ScopeCluster {
			taken, err := s.takeForBroadcast(ctx, tx, q, run, def, &out)
			if err != nil || !taken {
				return err
			}
		}
		to, blocked, slots, err := s.takeForShards(ctx, q, run.RunID, def, to)
		if err != nil {
			return err
		}
		now := s.Now()
		if len(blocked) > 0 && run.DueAt.After(now) {
			run.AtDue = true
			out.Later = append(out.Later, run) // ahead of its due instant, a broadcast may only take free slots
			return nil
		}
		if err := slots.save(ctx, q); err != nil {
			return err
		}
		first, err := q.ExpandFirst(ctx, sqlcgen.ExpandFirstParams{
			ID: run.RunID, DueAt: run.DueAt, Version: int32(run.JobVersion), Attempt: int32(run.Attempt), Total: ptr(int32(len(to))),
			Pin: to[0].Pin, Instance: to[0].Instance, Boot: to[0].BootID, Route: to[0].Route.English(), RouteNote: string(to[0].Route),
			Waiting: to[0].Waiting.English(), WaitingNote: string(to[0].Waiting),
			GiveUp: s.giveUp(def, run.DueAt), Tolerance: s.plan.Tolerance,
		})
		if err != nil {
			return err
		}
		if len(first) == 0 {
			return domain.WrapError(domain.Conflict, "expand", errRepeat)
		}
		shards := first
		if len(to) > 1 {
			rest, err := s.insertShards(ctx, q, run.RunID, def, to)
			if err != nil {
				return err
			}
			shards = append(shards, rest...)
		}
		if err := q.InsertBroadcast(ctx, sqlcgen.InsertBroadcastParams{ID: run.RunID, JobID: int64(run.JobID), Total: int32(len(to))}); err != nil {
			return err
		}
		if err := q.DeleteWaiting(ctx, []domain.RunID{run.RunID}); err != nil {
			return err
		}
		var wait waitingRows
		var losers []Admission
		for _, r := range liveRuns(shards) {
			switch on, held := blocked[r.Shard.Index]; {
			case r.Instance != "":
				out.Bound = append(out.Bound, r)
			case held:
				losers = append(losers, Admission{Due: r.Due(), Def: def, Binding: engine.Binding{Instance: on}})
			default:
				out.Waiting = append(out.Waiting, r)
				wait.add(&r, def, now)
			}
		}
		if err := wait.insert(ctx, q); err != nil {
			return err
		}
		return s.blocked(ctx, tx, q, losers, slots, now, &out)
	})
	if domain.CodeOf(err) == domain.Conflict {
		return Admitted{}, nil
	}
	return out, err
}

// takeForBroadcast takes the job's slot for a broadcast, or applies the block policy.
func (s *Store) takeForBroadcast(ctx context.Context, tx pgx.Tx, q *sqlcgen.Queries, run engine.Due, def *engine.Definition, out *Admitted) (bool, error) {
	k := slotOf(def, "")
	slots, err := lockSlots(ctx, q, []slotKey{k}, true)
	if err != nil {
		return false, err
	}
	if err := slots.forget(ctx, q); err != nil {
		return false, err
	}
	in := []Admission{{Due: run, Def: def}}
	if err := slots.reserve(ctx, q, in); err != nil {
		return false, err
	}
	if !slots.take(k, run.RunID) {
		fireable, _, err := s.fireable(ctx, q, in)
		if err != nil || !fireable[run.RunID] {
			return false, err
		}
		return false, s.blocked(ctx, tx, q, in, slots, s.Now(), out)
	}
	return true, slots.save(ctx, q)
}

// takeForShards takes, in scope instance, the slots of the shards' instances. The shards of one broadcast share an
// instance's slot and keep it while one of them is bound there, so that no broadcast owns a slot while it waits for a
// slot of another broadcast. takeForShards returns the bindings without the shards whose slot was taken, and the
// instances of those shards by shard index.
func (s *Store) takeForShards(ctx context.Context, q *sqlcgen.Queries, broadcast domain.RunID, def *engine.Definition, to []ShardBinding) ([]ShardBinding, map[int]string, *slotSet, error) {
	if !def.NeedsSlot() || def.BlockScope != domain.ScopeInstance {
		return to, nil, &slotSet{}, nil
	}
	var keys []slotKey
	for _, b := range to {
		if b.Instance != "" {
			keys = append(keys, slotOf(def, b.Instance))
		}
	}
	slots, err := lockSlots(ctx, q, keys, true)
	if err != nil {
		return nil, nil, nil, err
	}
	if err := slots.forget(ctx, q); err != nil {
		return nil, nil, nil, err
	}
	to = slices.Clone(to)
	blocked := make(map[int]string)
	for i, b := range to {
		if b.Instance != "" && !slots.take(slotOf(def, b.Instance), broadcast) {
			blocked[i] = b.Instance
			to[i].Instance, to[i].BootID = "", ""
		}
	}
	return to, blocked, slots, nil
}

func (s *Store) insertShards(ctx context.Context, q *sqlcgen.Queries, first domain.RunID, def *engine.Definition, to []ShardBinding) ([]sqlcgen.RunsLive, error) {
	p := sqlcgen.InsertShardsParams{FirstID: first, GiveUp: s.giveUp(def, s.Now())}
	for i, b := range to[1:] {
		p.Ids = append(p.Ids, domain.ShardRunID(first, i+1))
		p.Shards = append(p.Shards, int32(i+1))
		p.Instances = append(p.Instances, b.Instance)
		p.Boots = append(p.Boots, b.BootID)
		p.Pins = append(p.Pins, b.Pin)
		p.Routes = append(p.Routes, b.Route.English())
		p.RouteNotes = append(p.RouteNotes, string(b.Route))
		p.Waitings = append(p.Waitings, b.Waiting.English())
		p.WaitingNotes = append(p.WaitingNotes, string(b.Waiting))
	}
	return q.InsertShards(ctx, p)
}

func ptr[T any](v T) *T { return &v }

// ParentOutputs returns the outputs of parents that the handlers of child runs may read.
func (s *Store) ParentOutputs(ctx context.Context, parents []domain.RunID) (map[domain.RunID]string, error) {
	rows, err := s.q.ParentOutputs(ctx, parents)
	if err != nil {
		return nil, pgerr.Translate(err)
	}
	out := make(map[domain.RunID]string, len(rows))
	for _, r := range rows {
		out[r.ID] = r.Output
	}
	return out, nil
}
