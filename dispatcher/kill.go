package dispatcher

import (
	"context"
	"errors"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/belfryhq/belfry/executor/wire"
	"github.com/belfryhq/belfry/internal/domain"
)

// controlTimeout is how long an instance's answer to a control request is awaited.
const controlTimeout = time.Second

// controlBatch bounds the attempts of one control request.
const controlBatch = 500

// Kill asks for the end of an unfinished run: one that no instance has ends at once, for one that an instance has
// the request is kept and sent until it is confirmed. NotFound, or Conflict when the run is final.
func (d *Dispatcher) Kill(ctx context.Context, id domain.RunID, by string) error {
	out, err := d.store.RequestKill(ctx, id, domain.ReasonKilled, by)
	if err != nil {
		return err
	}
	d.after(ctx, out.Result)
	if len(out.Bound) > 0 {
		// What the instance does not hear now, the reconciler says again.
		d.sendKills(ctx, out.Bound, string(domain.ReasonKilled))
	}
	return nil
}

// Drain asks an instance to take nothing more. Its error is NotFound when nobody listens under that name, and Unavailable when
// there is no answer.
func (d *Dispatcher) Drain(ctx context.Context, group, instance string) error {
	missing := "group " + group + " has no live instance " + instance
	if !wire.ValidInstance(instance) { // it would make another subject, or none
		return domain.NewError(domain.NotFound, missing)
	}
	_, err := d.control(ctx, group, instance, wire.Control{Op: wire.OpDrain})
	if errors.Is(err, nats.ErrNoResponders) {
		return domain.WrapError(domain.NotFound, missing, err)
	}
	return err
}

// control asks an instance. Its error is Unavailable when there is no answer.
func (d *Dispatcher) control(ctx context.Context, group, instance string, c wire.Control) (*wire.ControlReply, error) {
	c.V = wire.Version
	ctx, cancel := context.WithTimeout(ctx, controlTimeout)
	defer cancel()
	msg, err := d.nc.RequestWithContext(ctx, wire.ControlSubject(group, instance), wire.Encode(c))
	if err != nil {
		return nil, domain.WrapError(domain.Unavailable, "instance "+instance+" does not answer", err)
	}
	var reply wire.ControlReply
	if err := wire.Decode(msg.Data, &reply); err != nil {
		return nil, domain.WrapError(domain.Unavailable, "the answer of instance "+instance+" cannot be read", err)
	}
	return &reply, nil
}

// sendKills tells one boot's instance to end attempts, and settles those that by its answer will never start. Those that
// go on all the same are written as running: nobody else asks about a run that is to be killed.
func (d *Dispatcher) sendKills(ctx context.Context, runs []domain.LiveRun, reason string) {
	b := bootOf(&runs[0])
	reply, err := d.control(ctx, b.group, b.instance, wire.Control{Op: wire.OpKill, Runs: refs(runs), Reason: reason})
	if err != nil {
		d.log.DebugContext(ctx, "sending a kill; it is said again", "instance", b.instance, "err", err)
		return
	}
	if reply.BootID != b.id {
		return // the boot is dead: that is for the death verdict
	}
	byID := statuses(reply)
	var ended []domain.Ended
	var running []domain.Started
	young := d.store.Now().Add(-longRun)
	for _, r := range runs {
		switch st := byID[r.ID.String()]; st.Status {
		case wire.StatusBarred, wire.StatusRefused:
			ended = append(ended, domain.Ended{
				RunID: r.ID, Attempt: r.Attempt, Instance: r.Instance, BootID: r.BootID, Bind: r.Bind, Outcome: domain.OutcomeCancelled,
				Reason: r.KillReason, Message: "it had not started", FinishedAt: d.store.Now(),
			})
		case wire.StatusRunning:
			if r.State == domain.Queued && r.DueAt.Before(young) {
				running = append(running, d.startedOf(&r, st))
			}
		case wire.StatusDone:
			ended = append(ended, d.fromSpool(&r, st)...)
		}
	}
	d.settleOurs(ctx, "", ended)
	if len(running) > 0 {
		d.markRunning(ctx, running)
	}
}

// fromSpool makes an end of a result that an instance still holds.
func (d *Dispatcher) fromSpool(r *domain.LiveRun, st wire.Status) []domain.Ended {
	if st.Result == nil {
		return nil // settled a short while ago
	}
	e, err := endedOf(r.Group, *st.Result)
	if err != nil || e.RunID != r.ID || e.Attempt != r.Attempt {
		d.log.Warn("a result in a status answer cannot be taken", "run_id", r.ID, "err", err)
		return nil
	}
	return []domain.Ended{e}
}

func refs(runs []domain.LiveRun) []wire.Ref {
	out := make([]wire.Ref, len(runs))
	for i, r := range runs {
		out[i] = wire.Ref{RunID: r.ID.String(), Attempt: r.Attempt, BootID: r.BootID}
	}
	return out
}

func statuses(reply *wire.ControlReply) map[string]wire.Status {
	out := make(map[string]wire.Status, len(reply.Statuses))
	for _, s := range reply.Statuses {
		out[s.RunID] = s
	}
	return out
}

// byBoot groups runs by the boot that they are bound to.
func byBoot(runs []domain.LiveRun) map[boot][]domain.LiveRun {
	count := make(map[boot]int)
	for i := range runs {
		if r := &runs[i]; r.Instance != "" {
			count[bootOf(r)]++
		}
	}
	out := make(map[boot][]domain.LiveRun, len(count))
	for b, n := range count {
		if n == len(runs) { // the most frequent case; runs are large to copy
			out[b] = runs
			return out
		}
		out[b] = make([]domain.LiveRun, 0, n)
	}
	for i := range runs {
		if r := &runs[i]; r.Instance != "" {
			out[bootOf(r)] = append(out[bootOf(r)], *r)
		}
	}
	return out
}
