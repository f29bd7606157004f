package store

import (
	"context"
	"slices"
	"time"

	"github.com/belfryhq/belfry/internal/domain"
	"github.com/belfryhq/belfry/internal/plan"
	"github.com/belfryhq/belfry/internal/store/sqlcgen"
)

// countDown counts ended shards. When a broadcast has none left, countDown joins it: it plans the children and frees
// the slot.
func (w *settling) countDown(ctx context.Context) error {
	type count struct{ n, succeeded, cancelled int32 }
	counts := make(map[domain.RunID]*count)
	last := make(map[domain.RunID]final)
	for _, f := range w.finals {
		if f.row.BroadcastID == nil {
			continue
		}
		c := counts[*f.row.BroadcastID]
		if c == nil {
			c = &count{}
			counts[*f.row.BroadcastID] = c
		}
		c.n++
		switch {
		case f.state == domain.Succeeded:
			c.succeeded++
		case f.state == domain.Cancelled, f.ended.Reason == domain.ReasonCovered:
			c.cancelled++
		}
		last[*f.row.BroadcastID] = f
	}
	if len(counts) == 0 {
		return nil
	}
	var p sqlcgen.CountDownParams
	for id, c := range counts {
		p.Ids = append(p.Ids, id)
		p.Ns = append(p.Ns, c.n)
		p.Succeededs = append(p.Succeededs, c.succeeded)
		p.Cancelleds = append(p.Cancelleds, c.cancelled)
	}
	rows, err := w.q.CountDown(ctx, p)
	if err != nil {
		return err
	}
	var joined []domain.RunID
	for _, b := range rows {
		if b.Remaining > 0 {
			continue
		}
		joined = append(joined, b.ID)
		f := last[b.ID]
		w.children(f.def, b.ID, joinedState(b), f.ended.FinishedAt)
		w.alerts.ended(f.def, b.ID, joinedState(b), f.ended.FinishedAt)
		if f.def.NeedsSlot() {
			k := slotOf(&f.def.Definition, orZero(f.row.Instance))
			if w.slots.owners[k] == b.ID { // in scope instance, the shards have already left their slots
				w.freed[k] = true
			}
		}
	}
	w.out.Joined = len(joined)
	if len(joined) == 0 {
		return nil
	}
	return w.q.DeleteBroadcasts(ctx, joined)
}

// joinedState returns the state of a broadcast as a whole. It succeeded if all its shards succeeded.
func joinedState(b sqlcgen.Broadcast) domain.State {
	switch {
	case b.Succeeded == b.Total:
		return domain.Succeeded
	case b.Cancelled > 0 && b.Succeeded+b.Cancelled == b.Total:
		return domain.Cancelled
	}
	return domain.Failed
}

// handSlots passes freed slots on to the next held runs. The slots have been locked since before the runs ended, so no
// run can be held behind an owner that has just ended.
func (w *settling) handSlots(ctx context.Context) error {
	if err := w.slots.askBound(ctx, w.q, w.left); err != nil {
		return err
	}
	for k, bound := range w.left {
		if !bound {
			w.freed[k] = true
		}
	}
	if len(w.freed) == 0 {
		return nil
	}
	var p sqlcgen.HandSlotsParams
	for k := range w.freed {
		p.JobIds = append(p.JobIds, int64(k.job))
		p.Instances = append(p.Instances, k.instance)
		w.slots.set(k, domain.NilRunID)
	}
	next, err := w.q.HandSlots(ctx, p)
	if err != nil {
		return err
	}
	stranded, err := w.stranded(ctx, next)
	if err != nil {
		return err
	}
	var released []domain.RunID
	for _, n := range next {
		k := slotKey{domain.JobID(n.JobID), n.Instance}
		if e, found := stranded[k]; found && slices.Compare(e[:], n.NextID[:]) < 0 {
			w.slots.set(k, e)
			continue
		}
		released = append(released, n.NextID)
		if n.Instance == "" {
			w.slots.set(k, n.NextID)
		}
	}
	if err := w.slots.save(ctx, later(w.tx)); err != nil || len(released) == 0 {
		return err
	}
	rows, err := w.q.Release(ctx, released)
	for _, r := range rows {
		run := liveRun(r)
		w.out.Released = append(w.out.Released, run.Due())
	}
	return err
}

// stranded returns the due runs that a dead scheduler did not fire, of the jobs whose next held run would get the slot. Such a
// run gets the slot instead if its id is lower than that of the held run.
func (w *settling) stranded(ctx context.Context, next []sqlcgen.HandSlotsRow) (map[slotKey]domain.RunID, error) {
	if len(next) == 0 {
		return nil, nil
	}
	serial := make(map[int64]bool)
	for k, def := range w.defs {
		serial[int64(k.job)] = serial[int64(k.job)] || def.Block == domain.BlockSerial
	}
	var jobs []int64
	for _, n := range next {
		if n.Instance == "" && serial[n.JobID] {
			jobs = append(jobs, n.JobID)
		}
	}
	if len(jobs) == 0 {
		return nil, nil
	}
	rows, err := w.q.EarliestPending(ctx, sqlcgen.EarliestPendingParams{JobIds: jobs, Before: w.now})
	out := make(map[slotKey]domain.RunID, len(rows))
	for _, r := range rows {
		out[slotKey{job: domain.JobID(r.JobID)}] = r.ID
	}
	return out, err
}

// continueChains sets the next fire of fixed_delay jobs without a live scheduled run.
func (w *settling) continueChains(ctx context.Context) error {
	if len(w.chains) == 0 {
		return nil
	}
	return w.s.chainNext(ctx, w.q, w.chains, w.now)
}

// chainNext plans the next fire of those of the given fixed_delay jobs that have none. The caller holds their locks.
func (s *Store) chainNext(ctx context.Context, q *sqlcgen.Queries, jobs []int64, now time.Time) error {
	idle, err := q.IdleDelayJobs(ctx, jobs)
	if err != nil || len(idle) == 0 {
		return err
	}
	keys := make([]versionKey, len(idle))
	for i, d := range idle {
		keys[i] = versionKey{domain.JobID(d.JobID), int(d.Version)}
	}
	defs, err := s.load(ctx, q, keys)
	if err != nil {
		return err
	}
	var p sqlcgen.ChainNextParams
	for _, k := range keys {
		def := defs[k]
		if def == nil {
			continue
		}
		compiled, err := s.compiled(def)
		if err != nil {
			continue
		}
		var due time.Time
		next := plan.After(compiled, now)
		if !next.IsZero() {
			due = compiled.Due(k.job, next)
		}
		p.JobIds = append(p.JobIds, int64(k.job))
		p.NextFires = append(p.NextFires, epoch(next))
		p.NextDues = append(p.NextDues, epoch(due))
	}
	if len(p.JobIds) == 0 {
		return nil
	}
	if err := q.ChainNext(ctx, p); err != nil {
		return err
	}
	return q.Notify(ctx) // the delay may be shorter than the interval of the pre-read
}
