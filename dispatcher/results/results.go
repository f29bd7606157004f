// Package results takes results from the stream, settles them, and acknowledges them afterwards.
package results

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/belfryhq/belfry/dispatcher/intake"
	"github.com/belfryhq/belfry/dispatcher/peer"
	"github.com/belfryhq/belfry/dispatcher/roster"
	"github.com/belfryhq/belfry/dispatcher/settle"
	"github.com/belfryhq/belfry/executor/wire"
	"github.com/belfryhq/belfry/internal/domain"
	"github.com/belfryhq/belfry/internal/engine"
	"github.com/belfryhq/belfry/internal/explain"
	"github.com/belfryhq/belfry/internal/lifecycle"
)

// consumerName is the durable consumer that all dispatchers share.
const consumerName = "settle"

// Limits of one dispatcher.
const (
	maxResults  = 1000 // results in one transaction
	maxMessages = 20   // messages in one batch; each has up to wire.MaxResults results
	settlers    = 2    // concurrent batches: one waits for Postgres while another is decoded
)

// Config holds the dependencies of a Consumer. All fields but Registry and Bounds are required.
type Config struct {
	JetStream jetstream.JetStream
	Conn      *nats.Conn
	Peers     *peer.Peers
	Roster    *roster.Roster
	Recorder  *settle.Recorder
	Letters   *intake.DeadLetters
	Log       *slog.Logger
	Registry  prometheus.Registerer
	Bounds    intake.Bounds // of the results that were fetched and are not settled yet
	// Release fires held runs whose turn has come.
	Release func(ctx context.Context, runs []engine.Due)
}

// Consumer settles results. Create one with New and call Run.
type Consumer struct {
	Config
	fair     *intake.Fair
	overflow overflow
	settled  *prometheus.CounterVec
	waiting  prometheus.Gauge
	behind   backlogs
	checks   checks
}

// New returns a consumer.
func New(cfg Config) *Consumer {
	c := &Consumer{
		Config: cfg,
		settled: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "belfry_results_total", Help: "Received results, by disposition.",
		}, []string{"disposition"}),
		waiting: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "belfry_results_lag", Help: "Result messages in the stream that are not settled yet.",
		}),
	}
	if cfg.Registry != nil {
		cfg.Registry.MustRegister(c.settled, c.waiting)
	}
	c.checks.of, c.overflow.full, c.behind.of = make(map[string]*checksOf), make(map[string]time.Time), make(map[string]backlog)
	c.fair = intake.NewFair(intake.FairConfig{
		JetStream: cfg.JetStream, Log: cfg.Log, Registry: cfg.Registry, Kind: "result", Stream: wire.StreamResults, Durable: consumerName,
		Workers: settlers, Limit: maxMessages, Bounds: cfg.Bounds, Handle: c.handle, Excess: c.spill, Shed: c.shed, Read: c.readOverflow,
	})
	return c
}

// Run settles results until ctx ends and the results that were fetched are settled or handed back.
func (c *Consumer) Run(ctx context.Context) { lifecycle.Together(ctx, c.measureLoop, c.fair.Run) }

// part is the data of one message of an executor. A message of the overflow may have several parts.
type part struct {
	msg  int // the index of the message that it came in
	data []byte
}

// received holds decoded results. parts has the index of the part from which each result was decoded.
type received struct {
	ended []engine.Ended
	parts []int
}

func (r received) part(from, to int) received { return received{r.ended[from:to], r.parts[from:to]} }

// batch holds messages that are settled together.
type batch struct {
	msgs  []*intake.Message
	parts []part
	again map[int]bool // messages to be delivered again, because not all of their results could be settled
}

// deadLetter moves a part of a message to the dead letters.
func (c *Consumer) deadLetter(ctx context.Context, b *batch, p int, reason error) {
	group := b.msgs[b.parts[p].msg].Group
	c.Letters.DeadLetter(ctx, "result", wire.ResultSubject(group), b.parts[p].data, reason)
}

// If Postgres refuses a result although the result is valid, the message is delivered again, at most maxDeliveries times.
const (
	maxDeliveries   = 20
	redeliveryDelay = time.Second
)

// handle settles the results of messages, and notes whether many more wait.
func (c *Consumer) handle(ctx context.Context, msgs []*intake.Message) {
	if !c.take(ctx, msgs) {
		return
	}
	oldest := make(map[string]time.Time)
	for _, m := range msgs {
		meta, err := m.Metadata()
		if at, known := oldest[m.Group]; err == nil && (!known || meta.Timestamp.Before(at)) {
			oldest[m.Group] = meta.Timestamp
		}
	}
	for group, published := range oldest {
		c.noteBacklog(group, c.fair.Waiting(group), published)
	}
}

// take settles the results of messages, moves what it cannot process to the dead letters, and acknowledges the messages. While
// Postgres is unavailable it waits, and the executors keep the results in their spools. It reports false if the messages must be
// delivered again.
func (c *Consumer) take(ctx context.Context, msgs []*intake.Message) bool {
	b := &batch{msgs: msgs, again: make(map[int]bool)}
	var in received
	for i, m := range msgs {
		for data := range parts(m) {
			b.parts = append(b.parts, part{i, data})
			load, ended, err := decode(m.Group, data, in.ended)
			if err != nil {
				c.deadLetter(ctx, b, len(b.parts)-1, err)
			}
			if before := len(in.ended); len(ended) > before {
				e := &ended[before]
				c.Roster.Load(e.Group, e.Instance, e.BootID, load)
				in.parts = append(in.parts, slices.Repeat([]int{len(b.parts) - 1}, len(ended)-before)...)
			}
			in.ended = ended
		}
	}
	//sim:seam settle-batch
	deadline := time.Now().Add(intake.AckWait)
	for from := 0; from < len(in.ended); from += maxResults {
		if !c.settleUntil(ctx, in.part(from, min(from+maxResults, len(in.ended))), b, deadline) {
			return false
		}
	}
	for i, m := range msgs {
		acknowledge := m.Ack
		if b.again[i] {
			acknowledge = func() error { return m.NakWithDelay(redeliveryDelay) }
		}
		if err := acknowledge(); err != nil {
			c.Log.WarnContext(ctx, "cannot acknowledge a settled result, its redelivery changes nothing", "err", err)
		}
	}
	return true
}

// settleUntil settles one batch. It retries while Postgres is unavailable, and reports false at the deadline.
func (c *Consumer) settleUntil(ctx context.Context, in received, b *batch, deadline time.Time) bool {
	for wait := 50 * time.Millisecond; ; wait = min(2*wait, 2*time.Second) {
		err := c.settle(ctx, in, b)
		c.fair.Away(err != nil)
		if err == nil {
			return true
		}
		c.Log.WarnContext(ctx, "cannot settle results, retrying", "results", len(in.ended), "err", err)
		if time.Now().Add(wait).After(deadline) {
			return false
		}
		lifecycle.Pause(ctx, wait)
	}
}

const settleTimeout = 10 * time.Second

// settle settles a batch. If Postgres is available and refuses the batch, settle halves it until it finds the faulty result.
func (c *Consumer) settle(ctx context.Context, in received, b *batch) error {
	n := len(in.ended)
	work, cancel := context.WithTimeout(ctx, settleTimeout)
	defer cancel()
	out, err := c.Recorder.Settle(work, in.ended)
	switch {
	case err == nil:
	case domain.Transient(err):
		return err
	case n == 1:
		return c.settleFaulty(ctx, in.ended[0], in.parts[0], b, err)
	default:
		if err := c.settle(ctx, in.part(0, n/2), b); err != nil {
			return err
		}
		return c.settle(ctx, in.part(n/2, n), b)
	}
	malformed := make(map[int][]error)
	for i, disposition := range out.Dispositions {
		c.settled.WithLabelValues(string(disposition)).Inc()
		if disposition == engine.UnknownRun || disposition == engine.WrongGroup {
			e := &in.ended[i]
			malformed[in.parts[i]] = append(malformed[in.parts[i]], fmt.Errorf("run %s attempt %d: %s", e.RunID, e.Attempt, disposition))
		}
	}
	for p, reasons := range malformed {
		c.deadLetter(ctx, b, p, errors.Join(reasons...))
	}
	c.notifySettled(in.ended)
	c.Release(ctx, out.Released)
	return nil
}

// settleFaulty moves a result that Postgres refuses to the dead letters, and ends its run without the result's texts. The cause
// may be something other than the result, such as a lock that another session holds. In that case, settleFaulty first requests
// new deliveries of the message.
func (c *Consumer) settleFaulty(ctx context.Context, e engine.Ended, p int, b *batch, cause error) error {
	m := b.msgs[b.parts[p].msg]
	if meta, err := m.Metadata(); domain.CodeOf(cause) != domain.Invalid && err == nil && meta.NumDelivered < maxDeliveries {
		c.Log.WarnContext(ctx, "cannot settle a result, it will be delivered again", "run_id", e.RunID, "err", cause)
		b.again[b.parts[p].msg] = true
		return nil
	}
	bare := e
	bare.Output, bare.Message, bare.Why = "", "", explain.Of(explain.ResultRefused)
	out, err := c.Recorder.Settle(ctx, []engine.Ended{bare})
	if err != nil && domain.Transient(err) {
		return err
	}
	c.deadLetter(ctx, b, p, fmt.Errorf("run %s: %w", e.RunID, errors.Join(cause, err)))
	if err != nil {
		return nil //nolint:nilerr // it is a dead letter now; the executor keeps the result and answers questions about it
	}
	c.notifySettled([]engine.Ended{e})
	c.Release(ctx, out.Released)
	return nil
}

// notifySettled notifies executors that they can delete results, whether the results changed a run or not. An executor that misses
// the message publishes the result again, which changes nothing.
func (c *Consumer) notifySettled(ended []engine.Ended) {
	type instance struct{ group, name string }
	refs := make(map[instance][]wire.Ref)
	for _, e := range ended {
		k := instance{e.Group, e.Instance}
		refs[k] = append(refs[k], wire.Ref{RunID: e.RunID.String(), Attempt: e.Attempt, BootID: e.BootID})
	}
	for k, runs := range refs {
		if err := c.Conn.Publish(wire.ControlSubject(k.group, k.name), wire.EncodeSettled(runs)); err != nil {
			c.Log.Debug("cannot notify an instance of settled results, it publishes them again", "group", k.group, "instance", k.name, "err", err)
		}
	}
}

// decode reads a part of a message and appends its results to ended. The error names the faulty results; the others are returned
// too.
func decode(group string, data []byte, ended []engine.Ended) (wire.Load, []engine.Ended, error) {
	var msg wire.Results
	if err := wire.Decode(data, &msg); err != nil {
		return wire.Load{}, ended, err
	}
	if len(msg.Results) > maxResults {
		return wire.Load{}, ended, fmt.Errorf("the message has %d results; at most %d are accepted", len(msg.Results), maxResults)
	}
	ended = slices.Grow(ended, len(msg.Results))
	var faults []error
	for _, r := range msg.Results {
		e, err := settle.EndedOf(group, r)
		if err != nil {
			faults = append(faults, err)
			continue
		}
		ended = append(ended, e)
	}
	return msg.Load, ended, errors.Join(faults...)
}
