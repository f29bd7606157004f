package dispatcher

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/belfryhq/belfry/dispatcher/intake"
	"github.com/belfryhq/belfry/executor/wire"
	"github.com/belfryhq/belfry/internal/domain"
)

// The consumer that all dispatchers share, and the bounds of one.
const (
	resultsConsumer = "settle"
	settleBatch     = 1000 // results a transaction
	settleMessages  = 20   // messages a batch; each carries up to wire.MaxResults
	settlers        = 2    // batches at a time: one waits for Postgres while another is read
)

// resultLoops settle beside each other.
func (d *Dispatcher) resultLoops(ctx context.Context) {
	loops := make([]func(context.Context), settlers)
	for i := range loops {
		loops[i] = d.resultLoop
	}
	d.together(ctx, loops...)
}

// resultLoop takes results from the stream, settles them, and only then acknowledges them.
func (d *Dispatcher) resultLoop(ctx context.Context) {
	for ctx.Err() == nil {
		if err := intake.Run(ctx, d.js, wire.StreamResults, resultsConsumer, settleMessages, d.settleBatchOf); err != nil && ctx.Err() == nil {
			d.log.WarnContext(ctx, "taking results; trying again", "err", err)
			pause(ctx, time.Second)
		}
	}
}

// received is results, and of each the message that brought it.
type received struct {
	ended []domain.Ended
	msgs  []int
}

func (r received) part(from, to int) received { return received{r.ended[from:to], r.msgs[from:to]} }

// batch is messages that are settled together.
type batch struct {
	msgs  []jetstream.Msg
	again map[int]bool // those to be delivered again, as not all of their results could be settled
}

// A result that Postgres refuses for no fault of its own is left to a later delivery, so many times.
const (
	deliveriesMax = 20
	deliverAgain  = time.Second
)

// settleBatchOf settles what messages carry, sets aside what cannot be taken, and acknowledges all. While Postgres
// is away it waits, and the executors keep their spools.
func (d *Dispatcher) settleBatchOf(ctx context.Context, msgs []jetstream.Msg) {
	var in received
	for i, m := range msgs {
		load, ended, err := decodeResults(m, in.ended)
		if err != nil {
			d.DeadLetter(ctx, "result", m.Subject(), m.Data(), err)
		}
		if before := len(in.ended); len(ended) > before {
			e := &ended[before]
			d.roster.Load(e.Group, e.Instance, e.BootID, load)
			in.msgs = append(in.msgs, slices.Repeat([]int{i}, len(ended)-before)...)
		}
		in.ended = ended
	}
	b := &batch{msgs: msgs, again: make(map[int]bool)}
	deadline := time.Now().Add(intake.AckWait)
	for from := 0; from < len(in.ended); from += settleBatch {
		if !d.settleUntil(ctx, in.part(from, min(from+settleBatch, len(in.ended))), b, deadline) {
			return // they come again
		}
	}
	if meta, err := msgs[len(msgs)-1].Metadata(); err == nil {
		d.noteBacklog(meta.NumPending, meta.Timestamp)
	}
	for i, m := range msgs {
		done := m.Ack
		if b.again[i] {
			done = func() error { return m.NakWithDelay(deliverAgain) }
		}
		if err := done(); err != nil {
			d.log.WarnContext(ctx, "acknowledging a settled result; it comes again and changes nothing", "err", err)
		}
	}
}

// settleUntil settles one batch, trying again while Postgres is away, and reports whether it did.
func (d *Dispatcher) settleUntil(ctx context.Context, in received, b *batch, deadline time.Time) bool {
	for wait := 50 * time.Millisecond; ; wait = min(2*wait, 2*time.Second) {
		err := d.settleReceived(ctx, in, b)
		if err == nil {
			return true
		}
		d.log.WarnContext(ctx, "settling results; trying again", "results", len(in.ended), "err", err)
		if time.Now().Add(wait).After(deadline) {
			return false
		}
		pause(ctx, wait)
	}
}

// settleReceived settles a batch. One that Postgres does not take, though it is there, is halved until the result at
// fault stands alone.
func (d *Dispatcher) settleReceived(ctx context.Context, in received, b *batch) error {
	n := len(in.ended)
	ctx2, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	out, err := d.store.Settle(ctx2, in.ended)
	switch {
	case err == nil:
	case passing(err):
		return err
	case n == 1:
		return d.settlePoison(ctx, in.ended[0], in.msgs[0], b, err)
	default:
		if err := d.settleReceived(ctx, in.part(0, n/2), b); err != nil {
			return err
		}
		return d.settleReceived(ctx, in.part(n/2, n), b)
	}
	strange := make(map[int][]error)
	for i, disposition := range out.Dispositions {
		d.metrics.settled.WithLabelValues(string(disposition)).Inc()
		if disposition == domain.UnknownRun || disposition == domain.WrongGroup {
			e := &in.ended[i]
			strange[in.msgs[i]] = append(strange[in.msgs[i]], fmt.Errorf("run %s attempt %d: %s", e.RunID, e.Attempt, disposition))
		}
	}
	for i, reasons := range strange {
		d.DeadLetter(ctx, "result", b.msgs[i].Subject(), b.msgs[i].Data(), errors.Join(reasons...))
	}
	d.tellSettled(in.ended)
	d.after(ctx, out)
	return nil
}

// passing reports whether Postgres is away, rather than at odds with what it was given.
func passing(err error) bool {
	return domain.CodeOf(err) == domain.Unavailable || errors.Is(err, context.DeadlineExceeded)
}

// settlePoison sets a result aside that Postgres cannot take, and ends its run without what the handler had to say,
// so that it does not stay unfinished. What is not surely the result's fault, such as a lock that somebody keeps, is
// tried again first: a result that was reported is not given up lightly.
func (d *Dispatcher) settlePoison(ctx context.Context, e domain.Ended, msg int, b *batch, cause error) error {
	m := b.msgs[msg]
	if meta, err := m.Metadata(); domain.CodeOf(cause) != domain.Invalid && err == nil && meta.NumDelivered < deliveriesMax {
		d.log.WarnContext(ctx, "settling a result; it comes again", "run_id", e.RunID, "err", cause)
		b.again[msg] = true
		return nil
	}
	bare := e
	bare.Output, bare.Message = "", "its result could not be stored and stands among the dead letters"
	out, err := d.store.Settle(ctx, []domain.Ended{bare})
	if err != nil && passing(err) {
		return err
	}
	d.DeadLetter(ctx, "result", m.Subject(), m.Data(), fmt.Errorf("run %s: %w", e.RunID, errors.Join(cause, err)))
	if err != nil {
		return nil //nolint:nilerr // it was set aside; the executor keeps it, and answers for it
	}
	d.tellSettled([]domain.Ended{e})
	d.after(ctx, out)
	return nil
}

// after does what a settling transaction asks for once it has committed.
func (d *Dispatcher) after(ctx context.Context, out domain.SettleResult) {
	d.tell(out.Changes)
	for _, c := range out.Changes {
		if !c.State.Final() {
			continue
		}
		d.metrics.finished.WithLabelValues(string(c.State)).Inc()
		if c.LatenessMS != nil {
			d.metrics.lateness.Observe(float64(max(*c.LatenessMS, 0)) / 1000)
		}
	}
	if out.Waiting {
		signal(d.waiting)
	}
	d.fireReleased(ctx, out.Released)
}

// fireReleased fires held runs whose turn has come. What goes wrong is found by the schedulers, as stranded.
func (d *Dispatcher) fireReleased(ctx context.Context, runs []domain.Due) {
	if len(runs) == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
	defer cancel()
	if _, err := d.Fire(ctx, runs); err != nil {
		d.log.WarnContext(ctx, "firing released runs; a scheduler does", "runs", len(runs), "err", err)
	}
}

// settleOurs settles what this dispatcher found by itself, counts under kind what was true, and reports how many.
func (d *Dispatcher) settleOurs(ctx context.Context, kind string, ended []domain.Ended) int {
	if len(ended) == 0 {
		return 0
	}
	out, err := d.store.Settle(ctx, ended)
	if err != nil {
		d.logUnlessDone(ctx, "settling findings; they are found again", err)
		return 0
	}
	n := 0
	for _, disposition := range out.Dispositions {
		if disposition == domain.Settled {
			n++
		}
	}
	if kind != "" {
		d.metrics.reconciled.WithLabelValues(kind).Add(float64(n))
	}
	d.after(ctx, out)
	return n
}

// tellSettled lets executors forget results. It is said of every disposition; one that does not hear it publishes
// the result again, which is a repeat.
func (d *Dispatcher) tellSettled(ended []domain.Ended) {
	type instance struct{ group, name string }
	refs := make(map[instance][]wire.Ref)
	for _, e := range ended {
		k := instance{e.Group, e.Instance}
		refs[k] = append(refs[k], wire.Ref{RunID: e.RunID.String(), Attempt: e.Attempt, BootID: e.BootID})
	}
	for k, runs := range refs {
		if err := d.nc.Publish(wire.ControlSubject(k.group, k.name), wire.EncodeSettled(runs)); err != nil {
			d.log.Debug("telling an instance what is settled", "instance", k.name, "err", err)
		}
	}
}

// decodeResults reads a message and appends its results, in our own words, to ended. Its error names what cannot be
// taken; the other results of the message are returned beside it.
func decodeResults(m jetstream.Msg, ended []domain.Ended) (wire.Load, []domain.Ended, error) {
	var msg wire.Results
	if err := wire.Decode(m.Data(), &msg); err != nil {
		return wire.Load{}, ended, err
	}
	if len(msg.Results) > settleBatch {
		return wire.Load{}, ended, fmt.Errorf("the message has %d results; at most %d are taken", len(msg.Results), settleBatch)
	}
	ended = slices.Grow(ended, len(msg.Results))
	group := wire.GroupOfSubject(m.Subject())
	var faults []error
	for _, r := range msg.Results {
		e, err := endedOf(group, r)
		if err != nil {
			faults = append(faults, err)
			continue
		}
		ended = append(ended, e)
	}
	return msg.Load, ended, errors.Join(faults...)
}

// retryAfterMax is the longest wait that a result can ask for, as long as a job's longest backoff.
const retryAfterMax = 7 * 24 * time.Hour

// endedOf checks a result. The group is the subject's, which the executor's token vouches for.
func endedOf(group string, r wire.Result) (domain.Ended, error) {
	id, err := domain.ParseRunID(r.RunID)
	if err != nil {
		return domain.Ended{}, fmt.Errorf("run_id %q: %w", r.RunID, err)
	}
	e := domain.Ended{
		RunID: id, Attempt: r.Attempt, Bind: r.Bind, Instance: r.Instance, BootID: r.BootID, Group: group,
		Outcome: domain.Outcome(r.Outcome), Reason: domain.Reason(r.Reason).Reported(), Message: r.Message, Output: r.Output,
		RetryAfter: time.Duration(min(r.RetryAfterMS, retryAfterMax.Milliseconds())) * time.Millisecond, Permanent: r.Permanent,
		StartedAt: r.StartedAt.Time, FinishedAt: r.FinishedAt.Time, LastLine: r.LastLine,
	}
	switch e.Outcome {
	case domain.OutcomeFailed:
		if e.Reason == domain.NoReason {
			e.Reason = domain.ReasonHandlerError
		}
	case domain.OutcomeSucceeded, domain.OutcomeCancelled, domain.OutcomeUnstarted:
	case domain.OutcomeSkipped:
		return e, fmt.Errorf("run %s: outcome %q is not an executor's", id, r.Outcome)
	default:
		return e, fmt.Errorf("run %s: outcome %q is not known", id, r.Outcome)
	}
	if !wire.ValidInstance(r.Instance) || r.BootID == "" || len(r.BootID) > wire.MaxBootID || r.Attempt < 1 || r.Attempt > domain.MaxRetries+1 || e.LastLine < 0 || e.RetryAfter < 0 {
		return e, fmt.Errorf("run %s: instance, boot_id, attempt, last_line or retry_after_ms is missing or out of range", id)
	}
	if e.FinishedAt.IsZero() {
		return e, fmt.Errorf("run %s: finished_at is missing", id)
	}
	return e, nil
}

// What is kept of a message that is set aside, and of the reason: the letter must fit into a message itself, in
// which its data grow by a third.
const (
	letterData    = 600 << 10
	letterReason  = 2 << 10
	letterHeaders = 16 << 10
)

// DeadLetter sets a message aside with the reason it could not be taken for.
func (d *Dispatcher) DeadLetter(ctx context.Context, kind, subject string, data []byte, reason error) {
	if err := d.SetAside(ctx, kind, wire.DeadLetter{Subject: subject, Data: data}, reason); err != nil {
		d.log.ErrorContext(ctx, "a message could not be set aside and is lost", "subject", subject, "err", err)
	}
}

// SetAside is DeadLetter for who can wait: the error says that the message could not be kept.
func (d *Dispatcher) SetAside(ctx context.Context, kind string, letter wire.DeadLetter, reason error) error {
	return d.setAside(ctx, kind, letter, reason)
}

func (d *Dispatcher) setAside(ctx context.Context, kind string, letter wire.DeadLetter, reason error, options ...jetstream.PublishOpt) error {
	why := reason.Error()
	if len(why) > letterReason {
		why = strings.ToValidUTF8(why[:letterReason], "") + "… cut"
	}
	if n := len(letter.Data); n > letterData {
		why += fmt.Sprintf(" (the first %d of its %d bytes are kept)", letterData, n)
		letter.Bytes, letter.Data = n, letter.Data[:letterData]
	}
	headers := 0
	for name, values := range letter.Headers {
		headers += len(name) + len(strings.Join(values, ","))
	}
	if headers > letterHeaders {
		why += fmt.Sprintf(" (its headers, %d bytes, are not kept)", headers)
		letter.Headers = nil
	}
	letter.V, letter.At, letter.Error = wire.Version, wire.Time{Time: d.store.Now()}, why
	kept, err := d.js.Publish(ctx, wire.DeadSubject(kind), wire.Encode(letter), options...)
	if err != nil || kept.Duplicate {
		return err
	}
	d.metrics.dead.WithLabelValues(kind).Inc()
	d.log.WarnContext(ctx, "a message was set aside", "kind", kind, "subject", letter.Subject, "err", why)
	return nil
}
