package dispatcher

import (
	"context"
	"errors"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/belfryhq/belfry/internal/domain"
	"github.com/belfryhq/belfry/internal/wire"
)

// offerTimeout is how long an answer is awaited. After it nothing is known, and the reconciler asks.
const offerTimeout = 2 * time.Second

// boot names the receiver of a batch of offers.
type boot struct{ group, instance, id string }

func bootOf(r *domain.LiveRun) boot { return boot{r.Group, r.Instance, r.BootID} }

// offer sends bound runs to their instances, and returns when all are sent. First says that these bindings were
// never offered before: then an offer that reached nobody surely started nothing.
func (d *Dispatcher) offer(ctx context.Context, runs []domain.LiveRun, first bool) {
	if len(runs) == 0 {
		return
	}
	d.trace("bound")
	defs, parents, err := d.context(ctx, runs)
	if err != nil {
		d.logUnlessDone(ctx, "preparing offers; the reconciler makes them", err)
		return
	}
	byBoot := make(map[boot][]domain.LiveRun)
	for _, r := range runs {
		if defs[r.JobID][r.JobVersion] != nil {
			byBoot[bootOf(&r)] = append(byBoot[bootOf(&r)], r)
		}
	}
	for b, runs := range byBoot {
		for len(runs) > 0 {
			n := min(len(runs), wire.MaxOffers)
			batch := runs[:n]
			runs = runs[n:]
			select {
			case d.inFlight <- struct{}{}:
			default:
				d.metrics.offers.WithLabelValues("unsent").Add(float64(n))
				continue
			}
			d.roster.Offered(b.group, b.instance, b.id, n)
			msg := d.offerMessage(b, batch, defs, parents)
			// The answer must be heard also when whoever fired has gone: ctx ends what is taken, not what is under way.
			d.offers.Go(func() {
				defer func() { <-d.inFlight }()
				d.await(context.WithoutCancel(ctx), b, batch, msg, first)
			})
		}
	}
}

// context reads what offers carry besides the runs.
func (d *Dispatcher) context(ctx context.Context, runs []domain.LiveRun) (map[domain.JobID]map[int]*domain.Definition, map[domain.RunID]string, error) {
	keys := make([]domain.Due, len(runs))
	var parentIDs []domain.RunID
	for i, r := range runs {
		keys[i] = domain.Due{JobID: r.JobID, JobVersion: r.JobVersion}
		if r.ParentRunID != nil {
			parentIDs = append(parentIDs, *r.ParentRunID)
		}
	}
	defs, err := d.store.Definitions(ctx, keys)
	if err != nil || len(parentIDs) == 0 {
		return defs, nil, err
	}
	parents, err := d.store.ParentOutputs(ctx, parentIDs)
	return defs, parents, err
}

func (d *Dispatcher) offerMessage(b boot, runs []domain.LiveRun, defs map[domain.JobID]map[int]*domain.Definition, parents map[domain.RunID]string) []byte {
	msg := wire.Offers{V: wire.Version, BootID: b.id, Offers: make([]wire.Offer, len(runs))}
	now := wire.Time{Time: d.store.Now()}
	for i, r := range runs {
		def := defs[r.JobID][r.JobVersion]
		o := wire.Offer{
			RunID: r.ID.String(), Attempt: r.Attempt, Bind: r.Bind, BoundAt: wireTime(r.BoundAt), JobID: int64(r.JobID),
			JobName: def.Name, Group: r.Group, Handler: def.Handler, Param: def.Param, Cause: string(r.Cause),
			FireTime: wireTime(r.FireTime), DueAt: wire.Time{Time: r.DueAt}, Now: now,
			TimeoutMS: def.Timeout.Std().Milliseconds(), Shard: wire.Shard{Total: 1},
		}
		if r.Param != nil {
			o.Param = *r.Param
		}
		if r.Shard != nil {
			o.Shard = wire.Shard{Index: r.Shard.Index, Total: r.Shard.Total}
		}
		if r.ParentRunID != nil {
			o.Parent = &wire.Parent{RunID: r.ParentRunID.String(), Output: parents[*r.ParentRunID]}
		}
		msg.Offers[i] = o
	}
	return wire.Encode(msg)
}

func wireTime(t *time.Time) wire.Time {
	if t == nil {
		return wire.Time{}
	}
	return wire.Time{Time: *t}
}

// await sends one message of offers and acts on its answer.
func (d *Dispatcher) await(ctx context.Context, b boot, runs []domain.LiveRun, msg []byte, first bool) {
	ask, cancel := context.WithTimeout(ctx, offerTimeout)
	reply, err := d.nc.RequestWithContext(ask, wire.TriggerSubject(b.group, b.instance), msg)
	cancel()
	d.trace("offered")
	act, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	switch {
	case errors.Is(err, nats.ErrNoResponders):
		d.metrics.offers.WithLabelValues("no_responders").Add(float64(len(runs)))
		d.roster.Drop(b.group, b.instance, b.id)
		if first {
			d.refused(act, runs, func(domain.RunID) string { return b.instance + " was not there" }, false)
		}
		return
	case err != nil:
		// Sent or not, nothing is known. The reconciler asks the instance.
		d.metrics.offers.WithLabelValues("no_answer").Add(float64(len(runs)))
		return
	}
	var a wire.Answer
	if err := wire.Decode(reply.Data, &a); err != nil || a.Instance != b.instance {
		d.log.WarnContext(ctx, "an instance's answer cannot be read", "group", b.group, "instance", b.instance, "err", err)
		d.metrics.offers.WithLabelValues("bad_answer").Add(float64(len(runs)))
		return
	}
	d.answered(act, b, runs, &a, first)
}

// answered acts on an instance's verdicts.
func (d *Dispatcher) answered(ctx context.Context, b boot, runs []domain.LiveRun, a *wire.Answer, first bool) {
	if a.BootID != b.id {
		// The boot that the runs are bound to is no more. It had heard of them only by an earlier offer.
		d.metrics.offers.WithLabelValues("other_boot").Add(float64(len(runs)))
		d.roster.Drop(b.group, b.instance, b.id)
		if first {
			d.refused(ctx, runs, func(domain.RunID) string { return b.instance + " had been started anew" }, false)
		}
		return
	}
	d.roster.Load(b.group, b.instance, b.id, a.Load)
	verdicts := make(map[string]wire.Verdict, len(a.Verdicts))
	for _, v := range a.Verdicts {
		verdicts[v.RunID] = v
	}
	var momentary, lasting []domain.LiveRun
	why := make(map[domain.RunID]string)
	for _, r := range runs {
		v, said := verdicts[r.ID.String()]
		switch {
		case !said || v.Attempt != r.Attempt:
			d.metrics.offers.WithLabelValues("no_verdict").Inc()
		case v.Verdict == wire.Accepted:
			d.metrics.offers.WithLabelValues(wire.Accepted).Inc()
			d.started.accepted(&r, d.store.Now())
		case v.Verdict == wire.Refused:
			reason := knownRefusal(v.Reason)
			d.metrics.offers.WithLabelValues("refused_" + reason).Inc()
			why[r.ID] = b.instance + " refused: " + reason
			switch reason {
			case wire.RefusedFull, wire.RefusedLease, wire.RefusedStale:
				momentary = append(momentary, r)
			default:
				lasting = append(lasting, r)
			}
		}
	}
	if len(momentary)+len(lasting) > 0 && a.Load.Running < a.Load.Capacity {
		d.roster.Shun(b.group, b.instance, b.id, shunFor)
	}
	because := func(id domain.RunID) string { return why[id] }
	d.refused(ctx, momentary, because, false)
	d.refused(ctx, lasting, because, true)
}

// shunFor is how long an instance that refuses although it has room gets nothing.
const shunFor = 500 * time.Millisecond

// knownRefusal keeps what an executor says out of labels and texts, unless it is one of the contract's words.
func knownRefusal(reason string) string {
	switch reason {
	case wire.RefusedFull, wire.RefusedDraining, wire.RefusedNoHandler, wire.RefusedLease, wire.RefusedStale, wire.RefusedUnsupported:
		return reason
	}
	return "other"
}

// refused takes runs from an instance that surely will not start them, so that they are routed again. Avoid keeps
// them from it while another one lives, be that one full for hours: for refusals that will not pass.
func (d *Dispatcher) refused(ctx context.Context, runs []domain.LiveRun, why func(domain.RunID) string, avoid bool) {
	if len(runs) == 0 {
		return
	}
	in := make([]domain.Refusal, len(runs))
	for i, r := range runs {
		in[i] = domain.Refusal{RunID: r.ID, Attempt: r.Attempt, Bind: r.Bind, Why: why(r.ID)}
		if avoid {
			in[i].Avoid = r.Instance
		}
	}
	_, killed, err := d.store.Unbind(ctx, in)
	if err != nil {
		d.logUnlessDone(ctx, "taking refused runs back; the reconciler does", err)
		return
	}
	signal(d.waiting)
	var ended []domain.Ended
	for _, r := range killed {
		ended = append(ended, domain.Ended{
			RunID: r.ID, Attempt: r.Attempt, Outcome: domain.OutcomeCancelled, Reason: r.KillReason,
			Message: "killed before it started", FinishedAt: d.store.Now(),
		})
	}
	d.settleOurs(ctx, "", ended)
}
