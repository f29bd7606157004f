package dispatcher

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/belfryhq/belfry/dispatcher/route"
	"github.com/belfryhq/belfry/internal/domain"
)

const (
	assignPoll  = time.Second
	assignBatch = 500
	// assignExtra is how many runs more than there is room are looked at, so that a few which may not run now, such
	// as those whose instance runs another of their job, do not keep the others from the room.
	assignExtra = 100
)

// Why a run waits, where it is not an instance's or the route's word.
const (
	natsAway     = "NATS is away"
	behindOthers = "behind runs that wait already"
	asked        = "its instances are being asked"
)

// waitClass sorts what waiting runs say into the few labels of the metric.
func waitClass(waiting string) string {
	for prefix, class := range map[string]string{
		natsAway: "nats_away", behindOthers: "behind_others", route.NoInstance: "no_instance", route.NoSlot: "no_slot",
		route.NotThere: "pinned_instance_gone", asked: "asked", route.NoAnswer: "no_answer", route.AllBusy: "busy",
	} {
		if strings.HasPrefix(waiting, prefix) {
			return class
		}
	}
	return "refused"
}

// countWaiting sets the metric of waiting runs.
func (d *Dispatcher) countWaiting(ctx context.Context) error {
	counts, err := d.store.WaitingCounts(ctx)
	if err != nil {
		return err
	}
	d.metrics.waiting.Reset()
	for waiting, n := range counts {
		d.metrics.waiting.WithLabelValues(waitClass(waiting)).Add(float64(n))
	}
	return nil
}

// assignLoop gives waiting runs to instances when there is room: at once when somebody begins to wait, an instance
// joins or says that it has more room, and every second.
func (d *Dispatcher) assignLoop(ctx context.Context) {
	for ctx.Err() == nil {
		next := assignPoll
		if d.steady.connected() {
			early, err := d.assignAll(ctx)
			if err != nil {
				d.logUnlessDone(ctx, "assigning waiting runs; trying again", err)
			}
			if early {
				next = askPause
			}
		}
		timer := time.NewTimer(next)
		select {
		case <-ctx.Done():
		case <-timer.C:
		case <-d.waiting:
		case <-d.roster.Room():
		}
		timer.Stop()
	}
}

// longWait is how long a run has been due before newcomers queue behind it in a process that does not assign. It is
// longer than a run waits that was only queued by this rule itself, or the rule would keep itself in force for ever.
const longWait = 3 * assignPoll

// waitsLoop keeps the hint of what runs wait for in processes that fire and do not assign, so that their runs do not
// overtake those that wait for room.
func (d *Dispatcher) waitsLoop(ctx context.Context) {
	for pause(ctx, assignPoll) {
		keys, err := d.store.LongWaiting(ctx, longWait)
		if err != nil {
			d.logUnlessDone(ctx, "reading what runs wait for; trying again", err)
			continue
		}
		d.setWaits(keys)
	}
}

func (d *Dispatcher) setWaits(keys []domain.WaitingKey) {
	waits := make(map[domain.WaitingKey]bool, len(keys))
	for _, k := range keys {
		waits[k] = true
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.waits = waits
}

// assignAll looks at all kinds of waiting runs. Early says that some are to be asked for again soon.
func (d *Dispatcher) assignAll(ctx context.Context) (early bool, err error) {
	keys, err := d.store.WaitingKeys(ctx)
	if err != nil {
		return false, err
	}
	d.setWaits(keys)
	d.forgetAsked()
	var errs []error // of one kind; the others are assigned all the same
	for _, k := range keys {
		if k.Apart != 0 {
			early = d.askAgain(ctx, k) || early
			continue
		}
		for more := true; more && ctx.Err() == nil; {
			if more, err = d.assign(ctx, k); err != nil {
				errs = append(errs, err)
			}
		}
		if domain.CodeOf(err) == domain.Unavailable {
			break
		}
	}
	return early, errors.Join(errs...)
}

// assign binds and offers waiting runs of one kind while there is room, and reports whether it is worth going on.
func (d *Dispatcher) assign(ctx context.Context, k domain.WaitingKey) (more bool, err error) {
	r := d.newRouting()
	r.turnCame = true
	cands := r.candidates(k.Group, k.Target)
	room := 0
	for _, c := range cands {
		if k.Pin == "" || c.Instance == k.Pin {
			room += c.Room()
		}
	}
	if room == 0 {
		d.endLostShards(ctx, k, cands)
		return false, nil
	}
	limit := min(room+assignExtra, assignBatch)
	looked, all := 0, 0
	var uncounted []domain.Due
	defs := make(domain.Definitions)
	choose := func(runs []domain.WaitingRun) []domain.Binding {
		looked = len(runs)
		out := make([]domain.Binding, len(runs))
		uncounted = nil
		for i, w := range runs {
			if r.uncounted(w.Pin, w.Def) {
				uncounted = append(uncounted, w.Due())
				defs[domain.VersionKey{Job: w.JobID, Version: w.JobVersion}] = w.Def
			}
			if len(uncounted) == 0 {
				out[i] = r.pick(w.Due(), w.Def)
			}
		}
		return out
	}
	for pass := 0; pass < 2; pass++ {
		bound, others, err := d.store.AssignWaiting(ctx, k, limit, choose)
		if err != nil {
			return false, err
		}
		all += len(bound)
		d.offer(ctx, bound, r.beats, true)
		d.unassigned(ctx, others)
		if len(uncounted) == 0 {
			if looked+len(others.Expand) < limit {
				d.mu.Lock()
				delete(d.waits, k) // all of them were looked at: newcomers need not queue behind them
				d.mu.Unlock()
			}
			break
		}
		// From these on, the runs waited for their jobs' shared numbers, which cannot be read within the transaction.
		if err := r.count(ctx, uncounted, defs); err != nil {
			return false, err
		}
	}
	return all >= limit || (len(uncounted) > 0 && all > 0), nil
}

// unassigned acts on what became of waiting runs that were not bound.
func (d *Dispatcher) unassigned(ctx context.Context, others domain.Unassigned) {
	for _, b := range others.Expand {
		d.expandWaiting(ctx, b)
	}
	d.tell(others.Ended)
	d.dropped(others.Ended)
	d.covered(ctx, others.Kills, others.Released)
}

// endLostShards ends shards that may run on one instance only, which is gone: they wait for nobody.
func (d *Dispatcher) endLostShards(ctx context.Context, k domain.WaitingKey, cands []*route.Candidate) {
	if k.Pin == "" || !d.steady.forLong() {
		return
	}
	for _, c := range cands {
		if c.Instance == k.Pin {
			return // only full
		}
	}
	if _, alive := d.roster.Boot(k.Group, k.Pin); alive {
		return // draining, or about to register the handler
	}
	// The roster forgets who did not answer for a moment; the lease does not.
	if leased, err := d.leasedBoot(ctx, domain.BoundBoot{Group: k.Group, Instance: k.Pin}); err != nil || leased != "" {
		return
	}
	var ended []domain.Ended
	_, _, err := d.store.AssignWaiting(ctx, k, assignBatch, func(runs []domain.WaitingRun) []domain.Binding {
		ended = nil
		for _, w := range runs {
			if w.BroadcastID != nil && w.Def.Shards == 0 {
				ended = append(ended, domain.Ended{
					RunID: w.ID, Attempt: w.Attempt, Outcome: domain.OutcomeFailed, Reason: domain.ReasonNoExecutor, Permanent: true,
					Message: "the shard was for " + k.Pin + ", which is gone", FinishedAt: d.store.Now(),
				})
			}
		}
		return make([]domain.Binding, len(runs))
	})
	if err != nil {
		d.logUnlessDone(ctx, "looking for shards of gone instances", err)
		return
	}
	d.settleOurs(ctx, "shard_of_gone_instance", ended)
}

// expandWaiting expands a broadcast that found no instance when it fired.
func (d *Dispatcher) expandWaiting(ctx context.Context, run domain.LiveRun) {
	defs, err := d.store.Definitions(ctx, []domain.Due{run.Due()})
	if err != nil {
		d.logUnlessDone(ctx, "reading the job of a waiting broadcast", err)
		return
	}
	def := defs.Of(run.JobID, run.JobVersion)
	if def == nil {
		return
	}
	r := d.newRouting()
	to := route.Shards(r.candidates(def.Group, def.Target()), def.Shards, run.Pin)
	if len(to) == 0 {
		return
	}
	out, err := d.store.ExpandBroadcast(ctx, run.Due(), def, to)
	if err != nil {
		d.logUnlessDone(ctx, "expanding a waiting broadcast", err)
		return
	}
	d.admitted(ctx, out, r.beats)
}
