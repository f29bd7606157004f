package dispatcher

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/belfryhq/belfry/executor/wire"
	"github.com/belfryhq/belfry/internal/domain"
)

// The reconcilers' periods and patience.
const (
	silentAfter    = 2500 * time.Millisecond // the offer's own timeout, and a little
	silentRounds   = 10
	killAfter      = 3 * time.Second
	reconcileBatch = 500
)

// reconcileLoops runs every reconciler beside the others, so that one which waits for an answer delays none.
func (d *Dispatcher) reconcileLoops(ctx context.Context) {
	every := func(period time.Duration, what string, f func(context.Context) error) func(context.Context) {
		return func(ctx context.Context) {
			for pause(ctx, period) {
				if err := f(ctx); err != nil {
					d.logUnlessDone(ctx, "reconciling "+what+"; trying again", err)
				}
			}
		}
	}
	d.together(ctx,
		every(time.Second, "silent offers", d.askSilent),
		every(time.Second, "dead instances", d.judgeDeaths),
		every(time.Second, "start deadlines", d.endWaiting),
		every(time.Second, "timeouts", d.endOverdue),
		every(time.Second, "kills", d.repeatKills),
		every(time.Second, "retries", d.counted("retry_not_replanned", d.store.ReplanOverdue)),
		every(2*time.Second, "held runs", d.releaseOrphans),
		every(5*time.Second, "running runs", d.askRunning),
		every(5*time.Second, "fixed delays", d.counted("fixed_delay_stopped", d.store.GoOnChains)),
		every(15*time.Second, "stray runs", d.returnStrays),
		every(2*time.Second, "the lag of results", d.measure),
		every(2*time.Second, "the count of waiting runs", d.countWaiting),
	)
}

func (d *Dispatcher) counted(kind string, f func(context.Context, int) (int, error)) func(context.Context) error {
	return func(ctx context.Context) error {
		n, err := f(ctx, reconcileBatch)
		d.metrics.reconciled.WithLabelValues(kind).Add(float64(n))
		return err
	}
}

func (d *Dispatcher) returnStrays(ctx context.Context) error {
	n, err := d.store.ReturnStrays(ctx, reconcileBatch)
	if n > 0 {
		d.metrics.reconciled.WithLabelValues("stray").Add(float64(n))
		signal(d.waiting)
	}
	return err
}

func (d *Dispatcher) releaseOrphans(ctx context.Context) error {
	runs, err := d.store.ReleaseOrphans(ctx, reconcileBatch)
	if err != nil {
		return err
	}
	d.metrics.reconciled.WithLabelValues("held_by_nobody").Add(float64(len(runs)))
	d.fireReleased(ctx, runs)
	return nil
}

func (d *Dispatcher) measure(ctx context.Context) error {
	if !d.steady.connected() {
		return nil
	}
	info, err := d.js.Stream(ctx, wire.StreamResults)
	if err != nil {
		return err
	}
	d.metrics.lag.Set(float64(info.CachedInfo().State.Msgs))
	return nil
}

// endWaiting ends runs that nobody could take by their start deadline. While NATS is away, and for as long
// afterwards as executors need to come back, deadlines pause.
func (d *Dispatcher) endWaiting(ctx context.Context) error {
	if !d.steady.forLong() {
		return nil
	}
	runs, err := d.store.PastDeadline(ctx, reconcileBatch)
	if err != nil {
		return err
	}
	defs, _, err := d.context(ctx, runs)
	if err != nil {
		return err
	}
	var ended []domain.Ended
	for _, r := range runs {
		if def := defs.Of(r.JobID, r.JobVersion); def != nil {
			ended = append(ended, domain.Ended{
				RunID: r.ID, Attempt: r.Attempt, Outcome: domain.OutcomeFailed, Reason: domain.ReasonNoExecutor, Permanent: true,
				Message:    fmt.Sprintf("no instance of group %s that offers %s took it within %s", r.Group, def.Target(), def.StartDeadline.Std()),
				FinishedAt: d.store.Now(),
			})
		}
	}
	d.settleOurs(ctx, "start_deadline", ended)
	return nil
}

// endOverdue ends runs whose instance did not report within a grace period after their timeout. It kills the attempts at the
// instance first, so that the instance does not start an attempt that has ended in the database. While NATS is unavailable,
// it ends nothing, because instances cannot report; afterwards it waits until their reports are settled.
func (d *Dispatcher) endOverdue(ctx context.Context) error {
	if !d.steady.forLong() {
		return nil
	}
	if some, err := d.anyBound(ctx, lookOld, func(b domain.BoundBoot) int { return b.Overdue }); err != nil || !some {
		return err
	}
	runs, err := d.store.PastGiveUp(ctx, reconcileBatch)
	if err != nil {
		return err
	}
	for b, runs := range byBoot(runs) {
		reply, err := d.control(ctx, b.group, b.instance, wire.Control{Op: wire.OpKill, Runs: refs(runs), Reason: string(domain.ReasonTimeout)})
		told := err == nil && reply.BootID == b.id
		var known map[string]wire.Status
		if told {
			known = statuses(reply)
		} else if settled, err := d.settledAll(ctx); err != nil {
			return err
		} else if !settled {
			continue
		}
		var ended []domain.Ended
		for _, r := range runs {
			if st := known[r.ID.String()]; st.Status == wire.StatusDone && st.Result != nil {
				ended = append(ended, d.fromSpool(&r, st)...)
				continue
			}
			if !told && r.BoundAt != nil && d.store.Now().Sub(*r.BoundAt) < silentBound {
				continue // it may still start
			}
			ended = append(ended, domain.Ended{
				RunID: r.ID, Attempt: r.Attempt, Instance: r.Instance, BootID: r.BootID, Bind: r.Bind, Outcome: domain.OutcomeFailed,
				Reason: domain.ReasonTimeout, Message: "its instance did not report its end in time", FinishedAt: d.store.Now(),
			})
		}
		d.settleOurs(ctx, "timeout", ended)
	}
	return nil
}

// silentBound is the age from which a binding is too old for its instance to start the attempt.
const silentBound = wire.LeaseTTL + time.Second

// repeatKills sends kills again that are not confirmed.
func (d *Dispatcher) repeatKills(ctx context.Context) error {
	runs, err := d.store.UnconfirmedKills(ctx, killAfter, reconcileBatch)
	if err != nil {
		return err
	}
	var unbound []domain.Ended
	for _, r := range runs {
		if r.Instance == "" {
			unbound = append(unbound, domain.Ended{
				RunID: r.ID, Attempt: r.Attempt, Outcome: domain.OutcomeCancelled, Reason: r.KillReason,
				Message: "it had not started", FinishedAt: d.store.Now(),
			})
		}
	}
	d.settleOurs(ctx, "kill", unbound)
	var wg sync.WaitGroup
	for _, runs := range byBoot(runs) {
		d.metrics.reconciled.WithLabelValues("kill").Add(float64(len(runs)))
		wg.Go(func() { d.sendKills(ctx, runs, string(runs[0].KillReason)) })
	}
	wg.Wait()
	return nil
}

// askSilent asks instances about attempts that were offered, or were to be, and of which nothing is known: those that
// run are written as running.
func (d *Dispatcher) askSilent(ctx context.Context) error {
	if !d.steady.connected() {
		return nil
	}
	if some, err := d.anyBound(ctx, 0, func(b domain.BoundBoot) int { return b.Silent }); err != nil || !some {
		return err
	}
	for range silentRounds {
		runs, err := d.store.Silent(ctx, d.lasting(), reconcileBatch)
		if err != nil {
			return err
		}
		var wg sync.WaitGroup
		for b, runs := range byBoot(runs) {
			wg.Go(func() { d.askAbout(ctx, b, runs, true) })
		}
		wg.Wait()
		if len(runs) < reconcileBatch {
			break
		}
	}
	return nil
}

// askRunning asks live instances about what they are said to run, so that a run whose result was lost together with
// what the instance knew of it does not stay running for ever.
func (d *Dispatcher) askRunning(ctx context.Context) error {
	if !d.steady.forLong() {
		return nil
	}
	boots, err := d.boundBoots(ctx, lookOld)
	if err != nil {
		return err
	}
	for _, b := range boots {
		if id, alive := d.roster.Boot(b.Group, b.Instance); b.Running == 0 || !alive || id != b.BootID {
			continue // nothing to ask about, or for the death verdict
		}
		var after domain.RunID
		for {
			runs, err := d.store.RunsOf(ctx, b, after, controlBatch)
			if err != nil {
				return err
			}
			var long []domain.LiveRun
			for _, r := range runs {
				if r.State == domain.Running {
					long = append(long, r)
				}
			}
			if len(long) > 0 {
				d.askAbout(ctx, boot{b.Group, b.Instance, b.BootID}, long, false)
			}
			if len(runs) < controlBatch {
				break
			}
			after = runs[len(runs)-1].ID
		}
	}
	return nil
}

// askAbout asks an instance what it knows of attempts that are bound to its boot, and acts on the answer. Those that
// it does not know are offered again if they were silent for long; if they were said to run, they are lost.
func (d *Dispatcher) askAbout(ctx context.Context, b boot, runs []domain.LiveRun, silent bool) {
	reply, err := d.control(ctx, b.group, b.instance, wire.Control{Op: wire.OpStatus, Runs: refs(runs)})
	if err != nil || reply.BootID != b.id {
		return // no answer, or the boot is dead: that is for the death verdict
	}
	d.roster.Load(b.group, b.instance, b.id, reply.Load)
	known := statuses(reply)
	var ended []domain.Ended
	var running []domain.Started
	var again, refused []domain.LiveRun
	patient := d.store.Now().Add(-silentAfter)
	for _, r := range runs {
		st := known[r.ID.String()]
		early := silent && !(r.BoundAt != nil && r.BoundAt.Before(patient) && r.DueAt.Before(patient))
		if early && st.Status != wire.StatusRunning {
			continue // its offer, or the answer, or its result is on the way
		}
		switch st.Status {
		case wire.StatusRunning:
			if silent && !early {
				d.metrics.reconciled.WithLabelValues("unanswered_offer").Inc()
			}
			running = append(running, d.startedOf(&r, st))
		case wire.StatusDone:
			switch {
			case st.Result != nil:
				ended = append(ended, d.fromSpool(&r, st)...)
			case silent:
				again = append(again, r) // it may be done with an earlier round, which it handed back
			case st.Outcome != "":
				// Instances learn that a result is settled after the commit. So the database has lost that commit, or the run
				// is not in this attempt any more, which settling finds out.
				ended = append(ended, endedBefore(&r, st.Outcome, d.store.Now()))
			default:
				ended = append(ended, lost(&r, "its instance is done with it, and its result is gone", d.store.Now()))
			}
		case wire.StatusBarred:
			if silent {
				refused = append(refused, r)
				continue
			}
			ended = append(ended, lost(&r, "its instance lives, but will not start it", d.store.Now()))
		case wire.StatusRefused, wire.StatusUnknown:
			// A refusal may be of an earlier round, while the offer of this one is still on its way. What the
			// instance says to a new round counts.
			if silent {
				again = append(again, r)
				continue
			}
			ended = append(ended, lost(&r, "its instance lives, but knows nothing of it", d.store.Now()))
		}
	}
	kind := "unanswered_offer"
	if !silent {
		kind = "unknown_to_instance"
	}
	d.settleOurs(ctx, kind, ended)
	if silent && len(running) > 0 {
		d.markRunning(ctx, running)
	}
	if silent && len(refused) > 0 {
		d.metrics.reconciled.WithLabelValues(kind).Add(float64(len(refused)))
		d.refused(ctx, refused, func(domain.RunID) string { return b.instance + " will not start it" }, true)
		signal(d.waiting)
	}
	if len(again) == 0 {
		return
	}
	d.metrics.reconciled.WithLabelValues(kind).Add(float64(len(again)))
	// Read before the binding: an offer may not rely on a heartbeat that was sent after it.
	beat, fresh := d.roster.Beat(b.group, b.instance, b.id)
	if !fresh {
		return // its next heartbeat is near, or the instance is dead
	}
	raised, err := d.store.RaiseBinds(ctx, again)
	if err != nil {
		d.logUnlessDone(ctx, "offering again; trying again", err)
		return
	}
	d.offer(ctx, raised, beats{b: beat}, false)
}

// lost ends the attempt that a run is in.
func lost(r *domain.LiveRun, why string, now time.Time) domain.Ended {
	return domain.Ended{
		RunID: r.ID, Attempt: r.Attempt, Instance: r.Instance, BootID: r.BootID, Bind: r.Bind, Outcome: domain.OutcomeFailed,
		Reason: domain.ReasonLost, Message: why, FinishedAt: now,
	}
}
