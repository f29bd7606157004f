package dispatcher

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/belfryhq/belfry/executor/wire"
	"github.com/belfryhq/belfry/internal/domain"
)

// offerTimeout is how long an answer is awaited. After it nothing is known, and the reconciler asks.
const offerTimeout = 2 * time.Second

// actTimeout bounds what is done about an answer.
const actTimeout = 10 * time.Second

// boot names the receiver of a batch of offers.
type boot struct{ group, instance, id string }

func bootOf(r *domain.LiveRun) boot { return boot{r.Group, r.Instance, r.BootID} }

// beats are the heartbeats that offers to boots may rely on, as they were known *before* the transaction that bound the
// runs: see "The fence" in doc.go.
type beats map[boot]int64

// offer sends bound runs to their instances, and returns when all are sent. First says that these bindings were
// never offered before: then an offer that reached nobody surely started nothing.
func (d *Dispatcher) offer(ctx context.Context, runs []domain.LiveRun, relies beats, first bool) {
	fast, slow := d.bySpeed(runs)
	d.offerBy(ctx, &d.fastLane, fast, relies, first)
	if len(slow) == 0 {
		return
	}
	if !d.slow.do(func() { d.offerSlowly(context.WithoutCancel(ctx), slow, relies, first) }) {
		d.metrics.offers.WithLabelValues("unsent").Add(float64(len(slow)))
	}
}

func (d *Dispatcher) offerSlowly(ctx context.Context, runs []domain.LiveRun, relies beats, first bool) {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	d.offerBy(ctx, &d.slowLane, runs, relies, first)
}

// offerBy is offer by the given lane.
func (d *Dispatcher) offerBy(ctx context.Context, l *lane, runs []domain.LiveRun, relies beats, first bool) {
	if len(runs) == 0 {
		return
	}
	d.trace("bound")
	defs, parents, err := d.context(ctx, runs)
	if err != nil {
		d.logUnlessDone(ctx, "preparing offers; the reconciler makes them", err)
		return
	}
	for b, runs := range byBoot(runs) {
		beat, known := relies[b]
		if !known { // an offer without a beat would be taken for an older server's
			d.log.ErrorContext(ctx, "no heartbeat is known that an offer could rely on; the reconciler makes the offer", "group", b.group,
				"instance", b.instance, "runs", len(runs))
			d.metrics.offers.WithLabelValues("unsent").Add(float64(len(runs)))
			continue
		}
		batches, oversized := d.batches(b, beat, runs, defs, parents)
		d.settleOurs(ctx, "", oversized)
		for _, batch := range batches {
			d.send(ctx, l, b, batch, first)
		}
	}
}

// send sends one message of offers, unless too many wait for their answers: then the reconciler makes the offer.
func (d *Dispatcher) send(ctx context.Context, l *lane, b boot, batch offerBatch, first bool) {
	n := len(batch.runs)
	if !l.begin(ctx) {
		d.metrics.offers.WithLabelValues("unsent").Add(float64(n))
		return
	}
	d.roster.Offered(b.group, b.instance, b.id, n)
	// The answer must be heard also when whoever fired has gone: ctx ends what is taken, not what is under way.
	d.offers.Go(func() {
		defer l.end()
		d.await(context.WithoutCancel(ctx), l, b, batch.runs, batch.message, first)
	})
}

// context reads what offers carry besides the runs: the definitions that are not at hand, and the outputs of parents.
func (d *Dispatcher) context(ctx context.Context, runs []domain.LiveRun) (domain.Definitions, map[domain.RunID]string, error) {
	var keys []domain.Due
	var parentIDs []domain.RunID
	for i := range runs {
		r := &runs[i]
		if r.Def == nil {
			keys = append(keys, domain.Due{JobID: r.JobID, JobVersion: r.JobVersion})
		}
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

// The most that one message of offers holds, in bytes: half of what a NATS server takes by default. An offer that
// alone is larger than offerMax cannot be sent at all.
const (
	batchBytes = 512 << 10
	offerMax   = 960 << 10
)

// offerBatch is what one message of offers holds.
type offerBatch struct {
	runs    []domain.LiveRun // a part of all, as they are large to copy
	message []byte
}

// offerBytes is about what an offer takes.
const offerBytes = 448

// batches encodes the offers of runs that are bound to one boot and cuts them into messages. Those that fit into none
// come back as ended: they could never be sent.
func (d *Dispatcher) batches(b boot, beat int64, runs []domain.LiveRun, defs domain.Definitions, parents map[domain.RunID]string) (out []offerBatch, oversized []domain.Ended) {
	now := d.store.Now()
	var message []byte
	begin, n := 0, 0 // of the message's runs
	cut := func(to int) {
		if n > 0 {
			out = append(out, offerBatch{runs[begin:to:to], wire.EndOffers(message)})
		}
		message, begin, n = nil, to, 0
	}
	for i := range runs {
		r := &runs[i]
		def := r.Def
		if def == nil {
			def = defs.Of(r.JobID, r.JobVersion)
		}
		if def == nil {
			cut(i)
			begin = i + 1
			continue
		}
		if n == wire.MaxOffers {
			cut(i)
		}
		if message == nil {
			message = wire.BeginOffers(make([]byte, 0, offerBytes*min(len(runs)-i+1, wire.MaxOffers)), b.id, beat)
		}
		o := offerOf(r, def, parents, now)
		before := len(message)
		if n > 0 {
			message = append(message, ',')
		}
		from := len(message)
		message = wire.AppendOffer(message, &o)
		switch size := len(message) - from; {
		case size > offerMax:
			message = message[:before]
			cut(i)
			begin = i + 1
			oversized = append(oversized, domain.Ended{
				RunID: r.ID, Attempt: r.Attempt, Instance: b.instance, BootID: b.id, Bind: r.Bind, Outcome: domain.OutcomeFailed,
				Reason: domain.ReasonUnsupported, Permanent: true, FinishedAt: now,
				Message: fmt.Sprintf("its param and its parent's output make an offer of %d bytes; at most %d can be sent", size, offerMax),
			})
			continue
		case n > 0 && len(message) > batchBytes:
			offer := message[from:]
			message = message[:before]
			whole := wire.BeginOffers(make([]byte, 0, len(offer)+offerBytes), b.id, beat)
			whole = append(whole, offer...) // before the end of the message overwrites it
			cut(i)
			message = whole
		}
		n++
	}
	cut(len(runs))
	return out, oversized
}

func offerOf(r *domain.LiveRun, def *domain.Definition, parents map[domain.RunID]string, now time.Time) wire.Offer {
	o := wire.Offer{
		RunID: r.ID.String(), Attempt: r.Attempt, Bind: r.Bind, BoundAt: wireTime(r.BoundAt), JobID: int64(r.JobID),
		JobName: def.Name, Group: r.Group, Handler: def.Handler, Param: def.Param, Cause: string(r.Cause),
		FireTime: wireTime(r.FireTime), DueAt: wire.Time{Time: r.DueAt}, Now: wire.Time{Time: now},
		TimeoutMS: def.Timeout.Std().Milliseconds(), Shard: wire.Shard{Total: 1},
	}
	if def.Script != nil {
		o.Script = &wire.Script{Language: def.Script.Language, Version: def.Script.Version, SHA256: def.Script.SHA256}
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
	return o
}

func wireTime(t *time.Time) wire.Time {
	if t == nil {
		return wire.Time{}
	}
	return wire.Time{Time: *t}
}

// await sends one message of offers and acts on its answer.
func (d *Dispatcher) await(ctx context.Context, l *lane, b boot, runs []domain.LiveRun, msg []byte, first bool) {
	if first && !d.steady.connected() { // such as after a freeze since they were bound
		d.metrics.offers.WithLabelValues("unsent").Add(float64(len(runs)))
		act, cancel := context.WithTimeout(ctx, actTimeout)
		defer cancel()
		d.refused(act, runs, func(domain.RunID) string { return natsAway }, false)
		signal(d.waiting)
		return
	}
	sent := time.Now()
	ask, cancel := context.WithTimeout(ctx, offerTimeout)
	reply, err := d.nc.RequestWithContext(ask, wire.TriggerSubject(b.group, b.instance), msg)
	cancel()
	took := time.Since(sent)
	l.took.Observe(took.Seconds())
	if took > lateAfter {
		d.late.note(runs, time.Now())
	}
	d.trace("offered")
	act, cancel := context.WithTimeout(ctx, actTimeout)
	defer cancel()
	switch {
	case errors.Is(err, nats.ErrNoResponders):
		d.metrics.offers.WithLabelValues("no_responders").Add(float64(len(runs)))
		d.roster.Drop(b.group, b.instance, b.id)
		if first {
			d.refused(act, runs, func(domain.RunID) string { return b.instance + " was not there" }, false)
			signal(d.waiting)
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
	d.answered(act, b, runs, &a)
}

// answered acts on an instance's verdicts.
func (d *Dispatcher) answered(ctx context.Context, b boot, runs []domain.LiveRun, a *wire.Answer) {
	if a.BootID != b.id {
		// Another process answers under this name. The boot that the runs are bound to may live all the same and have the
		// offer: nothing is known, and a death verdict frees them.
		d.metrics.offers.WithLabelValues("other_boot").Add(float64(len(runs)))
		d.roster.Drop(b.group, b.instance, b.id)
		return
	}
	d.roster.Load(b.group, b.instance, b.id, a.Load)
	verdicts := make(map[string]wire.Verdict, len(a.Verdicts))
	for _, v := range a.Verdicts {
		verdicts[v.RunID] = v
	}
	var momentary, lasting, over []domain.LiveRun
	why := make(map[domain.RunID]string)
	for _, r := range runs {
		v, said := verdicts[r.ID.String()]
		switch {
		case !said || v.Attempt != r.Attempt:
			d.metrics.offers.WithLabelValues("no_verdict").Inc()
		case v.Verdict == wire.Accepted:
			d.metrics.offers.WithLabelValues(wire.Accepted).Inc()
		case v.Verdict == wire.Ended:
			d.metrics.offers.WithLabelValues(wire.Ended).Inc()
			over = append(over, r)
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
	because := func(id domain.RunID) string { return why[id] }
	again := d.refused(ctx, momentary, because, false) + d.refused(ctx, lasting, because, true)
	// An instance that refuses only what was killed meanwhile, as its kill came before the offer, is as good as ever.
	if again > 0 {
		if a.Load.Running < a.Load.Capacity {
			d.roster.Shun(b.group, b.instance, b.id, shunFor)
		}
		signal(d.waiting)
	}
	d.settleEnded(ctx, b, over, verdicts)
	if len(a.Scripts) > 0 {
		d.handScripts(ctx, b, runs, a.Scripts)
	}
}

// settleEnded settles attempts that their instance has run before, which the database does not know: it was restored, or
// has failed over without its last commits. The result counts if the instance still has it, otherwise the outcome alone.
func (d *Dispatcher) settleEnded(ctx context.Context, b boot, runs []domain.LiveRun, verdicts map[string]wire.Verdict) {
	for part := range slices.Chunk(runs, controlBatch) {
		reply, err := d.control(ctx, b.group, b.instance, wire.Control{Op: wire.OpStatus, Runs: refs(part)})
		if err != nil || reply.BootID != b.id {
			continue // the reconciler asks again
		}
		known := statuses(reply)
		var ended []domain.Ended
		for _, r := range part {
			switch st := known[r.ID.String()]; {
			case st.Status == wire.StatusAccepted || st.Status == wire.StatusRunning: // it contradicts itself
			case st.Status == wire.StatusDone && st.Result != nil:
				ended = append(ended, d.fromSpool(&r, st)...)
			default:
				ended = append(ended, endedBefore(&r, verdicts[r.ID.String()].Outcome, d.store.Now()))
			}
		}
		d.settleOurs(ctx, "ended_before", ended)
	}
}

// endedBefore is the end of an attempt of which its instance remembers the outcome alone.
func endedBefore(r *domain.LiveRun, outcome string, now time.Time) domain.Ended {
	e := domain.Ended{
		RunID: r.ID, Attempt: r.Attempt, Instance: r.Instance, BootID: r.BootID, Bind: r.Bind, FinishedAt: now,
		Message: "output lost: the attempt had ended before, and its instance remembers the outcome alone",
	}
	switch outcome {
	case wire.Succeeded:
		e.Outcome = domain.OutcomeSucceeded
	case wire.Cancelled:
		e.Outcome, e.Reason = domain.OutcomeCancelled, domain.ReasonKilled
	default:
		e.Outcome, e.Reason = domain.OutcomeFailed, domain.ReasonHandlerError
	}
	return e
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
// them from it while another one lives, be that one full for hours: for refusals that will not pass. It returns how many
// wait again, about which the caller signals.
func (d *Dispatcher) refused(ctx context.Context, runs []domain.LiveRun, why func(domain.RunID) string, avoid bool) int {
	if len(runs) == 0 {
		return 0
	}
	in := make([]domain.Refusal, len(runs))
	for i, r := range runs {
		in[i] = domain.Refusal{RunID: r.ID, Attempt: r.Attempt, Bind: r.Bind, Why: why(r.ID)}
		if avoid {
			in[i].Avoid = r.Instance
		}
	}
	waiting, killed, err := d.store.Unbind(ctx, in)
	if err != nil {
		d.logUnlessDone(ctx, "taking refused runs back; the reconciler does", err)
		return 0
	}
	var ended []domain.Ended
	for _, r := range killed {
		ended = append(ended, domain.Ended{
			RunID: r.ID, Attempt: r.Attempt, Outcome: domain.OutcomeCancelled, Reason: r.KillReason,
			Message: "it had not started", FinishedAt: d.store.Now(),
		})
	}
	d.settleOurs(ctx, "", ended)
	return len(waiting)
}
