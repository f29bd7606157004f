// Package events accepts events that were published on NATS, in the same way as events from the REST API. JetStream
// only carries them. The consumer acknowledges a message after its event is committed, or after the message is stored
// as a dead letter. A redelivered event is recognized by its keys: an Idempotency-Key, a CloudEvent's source and id,
// its Nats-Msg-Id, or its place in the stream, which is the same in each delivery. All dispatchers share one consumer.
package events

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/belfryhq/belfry/dispatcher/intake"
	"github.com/belfryhq/belfry/executor/wire"
	"github.com/belfryhq/belfry/internal/domain"
	"github.com/belfryhq/belfry/internal/event"
	"github.com/belfryhq/belfry/internal/lifecycle"
)

// Store accepts events.
type Store interface {
	// AcceptEvents accepts all events or none. Repeated events change nothing.
	AcceptEvents(ctx context.Context, in []event.Incoming) error
}

// SetAside stores a message that cannot be processed, and counts it.
type SetAside func(ctx context.Context, kind string, letter wire.DeadLetter, reason error) error

// Config holds the dependencies of a Consumer. All fields are required.
type Config struct {
	JetStream jetstream.JetStream
	Store     Store
	SetAside  SetAside
	Log       *slog.Logger
	Registry  prometheus.Registerer
}

// Consumer moves events from the stream to the store.
type Consumer struct {
	Config
	lag prometheus.Gauge
}

const (
	durable     = "accept"
	batchMax    = 100 // messages per transaction
	batchBytes  = 8 << 20
	acceptTries = 5 * time.Second
	comeAgain   = 2 * time.Second
	lagPeriod   = 5 * time.Second
)

// New returns a consumer that does nothing until Run.
func New(c Config) *Consumer {
	lag := prometheus.NewGauge(prometheus.GaugeOpts{Name: "belfry_events_lag", Help: "Event messages in the stream that are not accepted yet."})
	c.Registry.MustRegister(lag)
	return &Consumer{Config: c, lag: lag}
}

// Run accepts events until ctx ends.
func (c *Consumer) Run(ctx context.Context) error {
	measured := make(chan struct{})
	go func() {
		defer close(measured)
		for c.measure(ctx); lifecycle.Rest(ctx, lagPeriod); {
			c.measure(ctx)
		}
	}()
	for ctx.Err() == nil {
		if err := intake.Run(ctx, c.JetStream, wire.StreamEvents, durable, batchMax, c.take); err != nil && ctx.Err() == nil {
			c.Log.WarnContext(ctx, "cannot receive events, retrying", "err", err)
			lifecycle.Pause(ctx, time.Second)
		}
	}
	<-measured
	return nil
}

// measure updates the metric of messages in the stream. If NATS is unavailable, the metric keeps its last value.
func (c *Consumer) measure(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, lagPeriod)
	defer cancel()
	if s, err := c.JetStream.Stream(ctx, wire.StreamEvents); err == nil {
		c.lag.Set(float64(s.CachedInfo().State.Msgs))
	}
}

// received is a message with its events. A batch of CloudEvents has more than one event.
type received struct {
	msg    jetstream.Msg
	events []event.Incoming
}

// take accepts the events of a batch of messages and acknowledges the messages.
func (c *Consumer) take(ctx context.Context, msgs []jetstream.Msg) {
	var batch []received
	bytes := 0
	for _, m := range msgs {
		events, err := read(m)
		if err != nil {
			c.setAside(ctx, m, err)
			continue
		}
		if bytes += len(m.Data()); bytes > batchBytes && len(batch) > 0 {
			_ = c.accept(ctx, batch) // accept has logged the error
			batch, bytes = nil, len(m.Data())
		}
		batch = append(batch, received{m, events})
	}
	if len(batch) > 0 {
		_ = c.accept(ctx, batch)
	}
}

// accept accepts the events of a batch. If Postgres is unavailable, it retries for acceptTries. Then it returns the
// error, and JetStream delivers the messages again. If Postgres rejects a batch, accept halves the batch until the
// faulty message is alone. It also halves a batch that takes too long, for example because of triggers with costly
// filters. Otherwise the whole batch would be delivered again and again.
func (c *Consumer) accept(ctx context.Context, batch []received) error {
	var in []event.Incoming
	for _, r := range batch {
		in = append(in, r.events...)
	}
	err := c.try(ctx, in, len(batch) > 1)
	first, rest := batch[:len(batch)/2], batch[len(batch)/2:]
	switch {
	case err == nil:
		for _, r := range batch {
			if err := r.msg.Ack(); err != nil {
				c.Log.DebugContext(ctx, "cannot acknowledge an event, its redelivery changes nothing", "err", err)
			}
		}
	case len(batch) > 1 && errors.Is(err, context.DeadlineExceeded):
		if err := c.accept(ctx, first); err != nil {
			c.again(rest)
			return err
		}
		return c.accept(ctx, rest)
	case domain.Transient(err):
		c.again(batch)
		return err
	case len(batch) == 1:
		c.setAside(ctx, batch[0].msg, err)
	default:
		return errors.Join(c.accept(ctx, first), c.accept(ctx, rest))
	}
	return nil
}

// again requests a new delivery of messages.
func (c *Consumer) again(batch []received) {
	for _, r := range batch {
		_ = r.msg.NakWithDelay(comeAgain) // if this fails, JetStream delivers the message again after AckWait
	}
}

// try accepts events and retries while Postgres is unavailable. If split is true, it does not retry after a timeout,
// because the caller can split the batch.
func (c *Consumer) try(ctx context.Context, in []event.Incoming, split bool) error {
	if len(in) == 0 {
		return nil
	}
	tries, cancel := context.WithTimeout(ctx, acceptTries)
	defer cancel()
	for pause := 100 * time.Millisecond; ; pause *= 2 {
		once, cancel := context.WithTimeout(ctx, intake.AckWait/2)
		err := c.Store.AcceptEvents(once, in)
		cancel()
		if err == nil || !domain.Transient(err) || (split && errors.Is(err, context.DeadlineExceeded)) {
			return err
		}
		c.Log.WarnContext(ctx, "cannot accept events, retrying", "events", len(in), "err", err)
		if !lifecycle.Pause(tries, pause) {
			return err
		}
	}
}

// setAside stores a message that cannot be processed. It acknowledges the message only after it is stored.
func (c *Consumer) setAside(ctx context.Context, m jetstream.Msg, reason error) {
	done := m.Ack
	headers := maps.Clone(m.Headers())
	if meta, err := m.Metadata(); err == nil && headers.Get(nats.MsgIdHdr) == "" && headers.Get(wire.HeaderMessageID) == "" {
		if headers == nil {
			headers = nats.Header{}
		}
		headers.Set(wire.HeaderMessageID, place(meta)) // without this, a message that is set aside and replayed twice would become two events
	}
	if err := c.SetAside(ctx, "event", wire.DeadLetter{Subject: m.Subject(), Headers: headers, Data: m.Data()}, reason); err != nil {
		done = func() error { return m.NakWithDelay(comeAgain) }
	}
	if err := done(); err != nil {
		c.Log.DebugContext(ctx, "cannot acknowledge an event that was set aside, it is set aside again", "err", err)
	}
}

// read decodes the events of a message and sets their keys.
func read(m jetstream.Msg) ([]event.Incoming, error) {
	if intake.IsAcknowledgement(m.Data()) { // otherwise executors, which may not send events, could fire jobs of all groups
		return nil, intake.ErrAcknowledgement
	}
	meta, err := m.Metadata()
	if err != nil {
		return nil, err
	}
	headers := make(map[string]string, len(m.Headers()))
	for name, values := range m.Headers() {
		if len(values) > 0 {
			headers[strings.ToLower(name)] = values[0]
		}
	}
	name := strings.TrimPrefix(m.Subject(), wire.EventSubject(""))
	events, batch, err := event.Read(name, func(name string) string { return headers[name] }, m.Data())
	if err != nil {
		return nil, err
	}
	for i := range events {
		e := &events[i]
		e.Via = event.ViaNATS
		if batch {
			continue // events of a batch have ids
		}
		if e.KeyKind == event.KeyNone {
			e.SetKey(event.KeyPlace, place(meta))
			e.SetKey(event.KeyMessage, headers["nats-msg-id"])
			e.SetKey(event.KeyMessage, headers[strings.ToLower(wire.HeaderMessageID)]) // set on a replayed dead letter
		}
		e.SetKey(event.KeyIdempotency, headers["idempotency-key"])
	}
	return events, nil
}

// place identifies a message by its position in the stream. The sequence restarts after the storage was wiped, so place
// includes the storage time.
func place(meta *jetstream.MsgMetadata) string {
	return fmt.Sprintf("%d at %s", meta.Sequence.Stream, meta.Timestamp.UTC().Format(time.RFC3339Nano))
}
