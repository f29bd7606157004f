package memstore

import (
	"context"
	"maps"
	"slices"
	"time"

	"github.com/belfryhq/belfry/internal/domain"
	"github.com/belfryhq/belfry/internal/engine"
	"github.com/belfryhq/belfry/internal/explain"
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

func (db *DB) takeSlot(k slotKey, owner domain.RunID) bool {
	current := db.owner(k)
	if !current.IsZero() && current != owner {
		return false
	}
	db.slots[k] = owner
	return true
}

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

// ExpandBroadcast turns a fired or waiting broadcast into its shards.
func (s *Store) ExpandBroadcast(_ context.Context, run engine.Due, def *engine.Definition, to []engine.ShardBinding) (out engine.Admitted, err error) {
	db := s.db
	db.tx(func() {
		now := db.now()
		r := db.live[run.RunID]
		ready := r != nil && r.DueAt.Equal(run.DueAt) && r.JobVersion == run.JobVersion && r.Attempt == run.Attempt && !r.Held &&
			!r.KillRequested && r.BroadcastID == nil &&
			(r.State == domain.Pending || (r.State == domain.Queued && r.Instance == "")) &&
			(r.Cause != domain.CauseSchedule || r.Admitted || !r.DueAt.Before(now.Add(-db.settings.Tolerance)))
		if k, takes := slotFor(def, ""); takes {
			db.reserve([]engine.Admission{{Due: run, Def: def}})
			if owner := db.owner(k); !owner.IsZero() && owner != run.RunID {
				if db.fireable(r, &run, now) {
					s.block([]engine.Admission{{Due: run, Def: def}}, &out)
				}
				return
			}
			if ready {
				db.slots[k] = run.RunID
			}
		}
		if !ready {
			return
		}
		free, blocked := db.shardSlots(run.RunID, def, to)
		if len(blocked) > 0 && run.DueAt.After(s.Now()) {
			run.AtDue = true
			out.Later = append(out.Later, run) // before it is due, it may only take free slots
			return
		}
		var losers []engine.Admission
		delete(db.waiting, r.ID)
		r.State, r.Admitted, r.Replanned = domain.Queued, true, true
		r.BroadcastID = &run.RunID
		db.broadcasts[run.RunID] = &broadcast{total: len(to), remaining: len(to)}
		for _, k := range free {
			db.slots[k] = run.RunID
		}
		for i, b := range to {
			shard := r
			if i > 0 {
				shard = &Run{LiveRun: r.LiveRun, Admitted: true, Replanned: true, RungAt: r.RungAt, CreatedAt: r.CreatedAt}
				shard.ID, shard.Bind = domain.ShardRunID(run.RunID, i), 0
				db.live[shard.ID] = shard
			}
			shard.Shard = &domain.Shard{Index: i, Total: len(to)}
			shard.Pin = b.Pin
			if on, held := blocked[i]; held {
				losers = append(losers, engine.Admission{Due: shard.Due(), Def: def, Binding: engine.Binding{Instance: on}})
				continue
			}
			s.bind(shard, def, b.Binding, now)
			if shard.Instance != "" {
				out.Bound = append(out.Bound, shard.LiveRun)
			} else {
				out.Waiting = append(out.Waiting, shard.LiveRun)
			}
		}
		s.block(losers, &out)
	})
	return out, nil
}

// shardSlots returns, in scope instance, the slots that the shards of a broadcast take, and the instances of the shards whose
// slot is taken, by shard index. Shards of one broadcast share the slot of an instance.
func (db *DB) shardSlots(id domain.RunID, def *engine.Definition, to []engine.ShardBinding) (free []slotKey, blocked map[int]string) {
	blocked = make(map[int]string)
	if !def.NeedsSlot() || def.BlockScope != domain.ScopeInstance {
		return nil, blocked
	}
	for i, b := range to {
		if b.Instance == "" {
			continue
		}
		k := slotOf(def, b.Instance)
		if owner := db.owner(k); !owner.IsZero() && owner != id {
			blocked[i] = b.Instance
			continue
		}
		free = append(free, k)
	}
	return free, blocked
}

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

// Unbind makes attempts wait again that their instances refused. It returns runs with a kill request as killed instead.
func (s *Store) Unbind(_ context.Context, refused []engine.Refusal) (waiting, killed []engine.LiveRun, err error) {
	db := s.db
	db.tx(func() {
		for _, f := range refused {
			r := db.live[f.RunID]
			//sim:seam unbind-compare
			if r == nil || r.Attempt != f.Attempt || r.Bind != f.Bind || r.State != domain.Queued || r.Instance == "" {
				continue
			}
			def, k := db.def(r), slotKey{r.JobID, r.Instance}
			r.Instance, r.BootID, r.BoundAt, r.GiveUpAt, r.Waiting = "", "", nil, time.Time{}, f.Why
			if db.slots[k] != domain.NilRunID {
				db.owner(k) // frees the slot if no run of its owner is left there; a reconciler releases the held runs
			}
			if f.Avoid != "" {
				r.Avoid = f.Avoid
			}
			if r.KillRequested {
				killed = append(killed, r.LiveRun)
				continue
			}
			s.wait(r, def)
			waiting = append(waiting, r.LiveRun)
		}
	})
	return waiting, killed, nil
}

// RaiseBinds begins a new offer round for attempts, with the boots that they are bound to.
func (s *Store) RaiseBinds(_ context.Context, runs []engine.LiveRun) (out []engine.LiveRun, err error) {
	db := s.db
	db.tx(func() {
		for _, known := range runs {
			r := db.live[known.ID]
			if r == nil || r.Attempt != known.Attempt || r.Bind != known.Bind || r.State != domain.Queued || r.Instance == "" {
				continue
			}
			r.Bind++
			r.BoundAt = at(db.now())
			out = append(out, r.LiveRun)
		}
	})
	return out, nil
}

// MarkRunning records attempts as running.
func (s *Store) MarkRunning(_ context.Context, started []engine.Started) (out []engine.Change, err error) {
	db := s.db
	db.tx(func() {
		for _, st := range started {
			r := db.live[st.RunID]
			if r == nil || r.Attempt != st.Attempt || r.Instance != st.Instance || r.BootID != st.BootID || r.Bind != st.Bind || r.State != domain.Queued {
				continue
			}
			r.State, r.StartedAt, r.Waiting = domain.Running, at(st.StartedAt), ""
			r.late(st.StartedAt)
			out = append(out, change(r))
		}
	})
	return out, nil
}

// late records the lateness of the run's first start.
func (r *Run) late(start time.Time) {
	if r.LatenessMS == nil && !start.IsZero() {
		ms := start.Sub(r.DueAt).Milliseconds()
		r.LatenessMS = &ms
	}
}

// CountRoutes adds n to the shared counters of round_robin jobs and returns their previous values.
func (s *Store) CountRoutes(_ context.Context, n map[domain.JobID]int) (map[domain.JobID]int64, error) {
	out := make(map[domain.JobID]int64)
	s.db.tx(func() {
		for id, k := range n {
			out[id] = s.db.routes[id]
			s.db.routes[id] += int64(k)
		}
	})
	return out, nil
}

// uses holds a number per instance of a job. For route least_frequently_used it counts the day's runs; otherwise it orders
// the instances by their last use.
type uses struct {
	route   domain.Route
	day     string
	numbers map[string]int64
}

// TakeTurns records the use of instances by runs that are about to be routed, and returns the previous numbers.
func (s *Store) TakeTurns(_ context.Context, turns map[domain.JobID]engine.Turns) (map[domain.JobID]map[string]int64, error) {
	out := make(map[domain.JobID]map[string]int64)
	db := s.db
	db.tx(func() {
		for id, t := range turns {
			counts, day := t.Route == domain.RouteLeastFrequentlyUsed, db.now().Format(time.DateOnly)
			u := db.uses[id]
			if u.route != t.Route || (counts && u.day != day) {
				u.numbers = nil
			}
			found := u.found(t.Known, counts)
			out[id] = found
			u = uses{route: t.Route, day: day, numbers: maps.Clone(found)}
			for range t.Runs {
				u.take(t.Open, counts)
			}
			db.uses[id] = u
		}
	})
	return out, nil
}

// found returns the numbers of the known instances. If uses are counted, a new instance gets the lowest number of the others;
// otherwise it gets 0.
func (u uses) found(known []string, counts bool) map[string]int64 {
	lowest := int64(-1)
	for _, k := range known {
		if n, ok := u.numbers[k]; ok && (lowest < 0 || n < lowest) {
			lowest = n
		}
	}
	if lowest < 0 || !counts {
		lowest = 0
	}
	out := make(map[string]int64, len(known))
	for _, k := range known {
		n, ok := u.numbers[k]
		if !ok {
			n = lowest
		}
		out[k] = n
	}
	return out
}

func (u uses) take(open []string, counts bool) {
	best := ""
	for _, o := range open {
		if n, b := u.numbers[o], u.numbers[best]; best == "" || n < b || (n == b && o < best) {
			best = o
		}
	}
	switch {
	case best == "":
	case counts:
		u.numbers[best]++
	default:
		var top int64
		for _, n := range u.numbers {
			top = max(top, n)
		}
		u.numbers[best] = top + 1
	}
}

// ParentOutputs returns the outputs of finished parent runs, for the handlers of their child runs.
func (s *Store) ParentOutputs(_ context.Context, parents []domain.RunID) (map[domain.RunID]string, error) {
	out := make(map[domain.RunID]string)
	s.db.tx(func() {
		for _, id := range parents {
			if r := s.db.history[id]; r != nil {
				out[id] = r.Output
			}
		}
	})
	return out, nil
}
