package memstore

import (
	"context"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/belfryhq/belfry/internal/domain"
	"github.com/belfryhq/belfry/internal/engine"
	"github.com/belfryhq/belfry/internal/explain"
	"github.com/belfryhq/belfry/internal/plan"
)

// Settle records the ends of attempts and their consequences: retries, follow-ups, joined broadcasts and released runs.
func (s *Store) Settle(_ context.Context, ended []engine.Ended) (out engine.SettleResult, err error) {
	s.db.tx(func() { out = s.settle(ended) })
	return out, nil
}

// settling is the work of one settle transaction.
type settling struct {
	s      *Store
	db     *DB
	now    time.Time
	out    engine.SettleResult
	freed  []slotKey
	left   []slotKey // slots in scope instance whose owner, a broadcast, has lost a shard there
	chains []domain.JobID
	// matched holds the runs that this batch has settled, in their previous state.
	matched map[domain.RunID]Run
	joined  map[domain.RunID]*engine.Definition
	last    map[domain.RunID]time.Time // when the last shard of a broadcast ended
}

func (s *Store) settle(in []engine.Ended) engine.SettleResult {
	w := &settling{
		s: s, db: s.db, now: s.Now(), matched: make(map[domain.RunID]Run), joined: make(map[domain.RunID]*engine.Definition),
		last: make(map[domain.RunID]time.Time),
	}
	w.out.Dispositions = make([]engine.Disposition, len(in))
	var rest []int
	for i, e := range in {
		if !w.one(i, e) {
			rest = append(rest, i)
		}
	}
	for _, i := range rest { // after all others, so that a result that this batch has settled counts as a repeat
		w.out.Dispositions[i] = w.disposition(in[i])
		if w.out.Dispositions[i] == engine.Late {
			if k := (attemptKey{in[i].RunID, in[i].Attempt}); w.db.late[k].RunID.IsZero() {
				w.db.late[k] = in[i]
			}
		}
	}
	w.join()
	w.handSlots()
	for _, id := range w.chains {
		w.db.goOn(id, w.now)
	}
	return w.out
}

// one settles a result if its run is still in that attempt, on that boot. It reports whether it is.
func (w *settling) one(i int, e engine.Ended) bool {
	r := w.db.live[e.RunID]
	//sim:seam settle-compare
	if _, repeated := w.matched[e.RunID]; repeated || r == nil || r.Attempt != e.Attempt || r.Instance != e.Instance || r.BootID != e.BootID ||
		!sameRound(&e, r) {
		return false
	}
	if e.Group != "" && e.Group != r.Group {
		w.out.Dispositions[i] = engine.WrongGroup
		return true
	}
	w.matched[e.RunID] = *r
	w.out.Dispositions[i] = engine.Settled
	def := w.db.def(r)
	if def.Schedule.Kind == domain.ScheduleFixedDelay {
		w.chains = append(w.chains, r.JobID)
	}
	w.within(&e, r)
	switch {
	case e.Outcome == domain.OutcomeUnstarted && !r.KillRequested:
		w.requeue(def, r)
	case e.Outcome == domain.OutcomeFailed && !r.KillRequested && !e.Permanent && r.Attempt <= def.Retries && e.Instance != "" && w.db.jobs[r.JobID] != nil:
		w.retry(def, r, e)
	default:
		w.end(def, r, e)
	}
	return true
}

// sameRound reports whether an Ended applies to the run's current offer round: see internal/store.
func sameRound(e *engine.Ended, r *Run) bool {
	switch {
	case e.Instance == "":
		return true
	case e.Outcome == domain.OutcomeUnstarted && e.Bind == 0:
		return r.Bind == 1
	case e.Outcome != domain.OutcomeUnstarted && (e.Group != "" || e.Bind == 0):
		return true
	}
	return e.Bind == r.Bind
}

// within limits the instants of a result, which come from the executor's clock, to the run's lifetime.
func (w *settling) within(e *engine.Ended, r *Run) {
	clamp := func(t time.Time) time.Time {
		switch {
		case t.IsZero() || t.After(w.now):
			return w.now
		case t.Before(r.CreatedAt):
			return r.CreatedAt
		}
		return t
	}
	e.FinishedAt = clamp(e.FinishedAt)
	if !e.StartedAt.IsZero() {
		e.StartedAt = clamp(e.StartedAt)
	}
}

// requeue makes an attempt wait for an instance again.
func (w *settling) requeue(def *engine.Definition, r *Run) {
	w.free(def, r, false)
	r.State, r.Avoid = domain.Queued, r.Instance
	r.Instance, r.BootID, r.BoundAt, r.StartedAt, r.GiveUpAt = "", "", nil, nil, time.Time{}
	r.Waiting = explain.Of(explain.StartFailed)
	w.s.wait(r, def)
	w.out.Waiting = true
	w.out.Changes = append(w.out.Changes, change(r))
}

func (w *settling) retry(def *engine.Definition, r *Run, e engine.Ended) {
	w.free(def, r, false)
	wait := e.RetryAfter
	if wait <= 0 && !e.Reason.RetryAtOnce() {
		wait = def.RetryBackoff.Backoff(e.Attempt, rand.Float64()) //nolint:gosec // jitter is no secret
	}
	w.db.attempts[r.ID] = append(w.db.attempts[r.ID], Attempt{e})
	r.late(e.StartedAt)
	r.State, r.Replanned, r.RungAt, r.DueAt = domain.Retrying, false, time.Time{}, w.now.Add(wait).Truncate(time.Millisecond)
	r.Reason, r.Message, r.Notes, r.Avoid = e.Reason, e.Said(), explain.Join(e.Why), ""
	if e.Reason.AvoidsInstance() {
		r.Avoid = e.Instance
	}
	r.Instance, r.BootID, r.BoundAt, r.StartedAt, r.GiveUpAt, r.Waiting = "", "", nil, nil, time.Time{}, ""
	w.db.followUps = append(w.db.followUps, engine.FollowUp{Retry: true, RunID: r.ID, Attempt: e.Attempt})
	w.out.Changes = append(w.out.Changes, change(r))
}

// end moves a run into the history.
func (w *settling) end(def *engine.Definition, r *Run, e engine.Ended) {
	w.free(def, r, true)
	state := domain.Failed
	switch e.Outcome {
	case domain.OutcomeSucceeded:
		state = domain.Succeeded
	case domain.OutcomeCancelled, domain.OutcomeUnstarted:
		state = domain.Cancelled
	case domain.OutcomeSkipped:
		state = domain.Skipped
	case domain.OutcomeFailed:
	}
	said, notes := e.Said(), explain.Join(e.Why)
	if r.KillRequested && state != domain.Succeeded {
		state = domain.Cancelled
		e.Reason = r.KillReason
		if said != "" {
			said = ": " + said
		}
		said, notes = r.KillWhy.English()+said, explain.Join(r.KillWhy, e.Why)
	}
	r.late(e.StartedAt)
	r.State, r.Reason, r.Message, r.Notes, r.Output, r.FinishedAt = state, e.Reason, said, notes, e.Output, e.FinishedAt
	if !e.StartedAt.IsZero() {
		r.StartedAt = at(e.StartedAt)
	}
	delete(w.db.live, r.ID)
	delete(w.db.waiting, r.ID)
	w.db.history[r.ID] = r
	w.out.Changes = append(w.out.Changes, change(r))
	if r.BroadcastID == nil {
		w.children(def, r.ID, state, e.FinishedAt)
		return
	}
	b := w.db.broadcasts[*r.BroadcastID]
	b.remaining--
	switch {
	case state == domain.Succeeded:
		b.succeeded++
	case state == domain.Cancelled, r.Reason == domain.ReasonCovered:
		b.cancelled++
	}
	w.last[*r.BroadcastID] = e.FinishedAt
	if b.remaining == 0 {
		w.joined[*r.BroadcastID] = def
	}
}

func (w *settling) children(def *engine.Definition, parent domain.RunID, state domain.State, ended time.Time) {
	for _, c := range def.Children {
		if c.On.Matches(state) {
			w.db.followUps = append(w.db.followUps, engine.FollowUp{RunID: parent, ChildJob: c.JobID, EndedAt: ended})
		}
	}
}

// free records that the run gives up its slot. In scope cluster, it does so when it ends. In scope instance, it also does so
// when it loses its instance. A broadcast gives up its slot when its last shard has ended or, in scope instance, has left
// the instance.
func (w *settling) free(def *engine.Definition, r *Run, ended bool) {
	cluster := def.BlockScope == domain.ScopeCluster
	if !def.NeedsSlot() || (cluster && (!ended || r.BroadcastID != nil)) {
		return
	}
	due := r.Due()
	k := slotOf(def, r.Instance)
	switch {
	case w.db.slots[k] != due.Owner():
	case r.BroadcastID != nil:
		w.left = append(w.left, k)
	default:
		w.freed = append(w.freed, k)
	}
}

// join ends broadcasts whose last shard has ended.
func (w *settling) join() {
	for id, def := range w.joined {
		b := w.db.broadcasts[id]
		state := domain.Failed
		switch {
		case b.succeeded == b.total:
			state = domain.Succeeded
		case b.cancelled > 0 && b.succeeded+b.cancelled == b.total:
			state = domain.Cancelled
		}
		delete(w.db.broadcasts, id)
		w.out.Joined++
		w.children(def, id, state, w.last[id])
		if def.NeedsSlot() {
			if k := slotOf(def, ""); w.db.slots[k] == id {
				w.freed = append(w.freed, k)
			}
		}
	}
}

// handSlots passes freed slots on to the next held runs.
func (w *settling) handSlots() {
	for _, k := range w.left {
		if owner := w.db.slots[k]; !owner.IsZero() && !w.db.boundThere(k, owner) {
			w.freed = append(w.freed, k)
			w.db.slots[k] = domain.NilRunID // so that the slot is not freed twice
		}
	}
	for _, k := range w.freed {
		w.db.slots[k] = domain.NilRunID
		held := w.db.liveSorted(func(r *Run) bool { return r.Held && r.JobID == k.job && r.HeldOn == k.instance })
		if len(held) == 0 {
			continue
		}
		if e := w.db.earliestPending(k.job); k.instance == "" && e != nil && w.db.def(held[0]).Block == domain.BlockSerial && e.DueAt.Before(w.now) && compareID(e.ID, held[0].ID) < 0 {
			w.db.slots[k] = e.ID // an earlier run is due and was not fired because its scheduler died: it goes first
			continue
		}
		if k.instance == "" { // in scope instance, the run is routed again and takes its slot then
			w.db.slots[k] = held[0].ID
		}
		w.out.Released = append(w.out.Released, w.db.release(held[0]))
	}
}

func (db *DB) release(r *Run) engine.Due {
	now := db.now()
	r.Held, r.HeldBy, r.HeldOn, r.Waiting = false, domain.NilRunID, "", ""
	r.RungAt = now
	if due := now.Truncate(time.Millisecond); due.After(r.DueAt) {
		r.DueAt = due
	}
	return r.Due()
}

// goOn plans the next fire of a fixed_delay job that has neither a next fire time nor an unfinished scheduled run.
func (db *DB) goOn(id domain.JobID, now time.Time) bool {
	d := db.due[id]
	if d == nil || !d.chained || !d.nextDue.IsZero() || db.liveScheduled(id) {
		return false
	}
	v := db.versions[versionKey{id, d.version}]
	d.nextFire, d.nextDue = plan.After(v.compiled, now), time.Time{}
	if !d.nextFire.IsZero() {
		d.nextDue = v.compiled.Due(id, d.nextFire)
	}
	d.chained = !d.nextFire.IsZero()
	db.notified = true
	return true
}

func (db *DB) liveScheduled(id domain.JobID) bool {
	for _, r := range db.live {
		if r.JobID == id && (r.Cause == domain.CauseSchedule || r.Cause == domain.CauseMisfire) {
			return true
		}
	}
	return false
}

// disposition classifies a result that the method one did not settle.
func (w *settling) disposition(e engine.Ended) engine.Disposition {
	if e.Group == "" {
		return engine.Raced
	}
	past := w.db.history[e.RunID]
	if before, ok := w.matched[e.RunID]; ok {
		if before.Group != e.Group {
			return engine.WrongGroup
		}
		if before.Attempt == e.Attempt && before.Instance == e.Instance && before.BootID == e.BootID {
			return engine.Repeat
		}
	}
	live := w.db.live[e.RunID]
	if past != nil && past.Group != e.Group || live != nil && live.Group != e.Group {
		return engine.WrongGroup
	}
	attempts := w.db.attempts[e.RunID]
	if i := slices.IndexFunc(attempts, func(a Attempt) bool { return a.Attempt == e.Attempt }); i >= 0 {
		a := attempts[i]
		return repeatOrLate(e, a.Instance, a.BootID, string(a.Outcome), a.Reason)
	}
	if past != nil && past.Attempt == e.Attempt {
		return repeatOrLate(e, past.Instance, past.BootID, string(past.State), past.Reason)
	}
	switch {
	case past == nil && live == nil:
		return engine.UnknownRun
	case e.Outcome == domain.OutcomeUnstarted:
		return engine.Repeat
	}
	return engine.Late
}

func repeatOrLate(e engine.Ended, instance, boot, outcome string, reason domain.Reason) engine.Disposition {
	same := string(e.Outcome) == outcome || (outcome == string(domain.Cancelled) && e.Outcome != domain.OutcomeSucceeded)
	if e.Outcome == domain.OutcomeUnstarted || (instance == e.Instance && boot == e.BootID && same && reason != domain.ReasonLost) {
		return engine.Repeat
	}
	return engine.Late
}
