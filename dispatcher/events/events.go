// Package events takes events that were published on NATS, and has them accepted as those that come by REST. JetStream
// only carries them: a message is acknowledged after its event is committed, or set aside with the reason. What comes
// again is known by its keys: an Idempotency-Key, a CloudEvent's source and id, its Nats-Msg-Id, or its place in the
// stream, which is the same in each delivery. Any number of dispatchers share one consumer.
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
)

// Store accepts events.
type Store interface {
	// AcceptEvents accepts events, all or none. Repeats change nothing.
	AcceptEvents(ctx context.Context, in []event.Incoming) error
}

// SetAside keeps a message that cannot be taken, and counts it.
type SetAside func(ctx context.Context, kind string, letter wire.DeadLetter, reason error) error

// Config is what a Consumer is made of. All of it is required.
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
	batchMax    = 100 // messages a transaction
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
		for c.measure(ctx); wait(ctx, lagPeriod); {
			c.measure(ctx)
		}
	}()
	for ctx.Err() == nil {
		if err := intake.Run(ctx, c.JetStream, wire.StreamEvents, durable, batchMax, c.take); err != nil && ctx.Err() == nil {
			c.Log.WarnContext(ctx, "taking events; trying again", "err", err)
			wait(ctx, time.Second)
		}
	}
	<-measured
	return nil
}

// measure reads how much is in the stream. While NATS is away the last number stands.
func (c *Consumer) measure(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, lagPeriod)
	defer cancel()
	if s, err := c.JetStream.Stream(ctx, wire.StreamEvents); err == nil {
		c.lag.Set(float64(s.CachedInfo().State.Msgs))
	}
}

// wait waits for d or the end of ctx, and reports whether ctx goes on.
func wait(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-t.C:
		return true
	}
}

// received is a message and the events that it carries, more than one where it is a batch of CloudEvents.
type received struct {
	msg    jetstream.Msg
	events []event.Incoming
}

// take has the events of a batch of messages accepted, and acknowledges them.
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
			_ = c.accept(ctx, batch) // it was logged
			batch, bytes = nil, len(m.Data())
		}
		batch = append(batch, received{m, events})
	}
	if len(batch) > 0 {
		_ = c.accept(ctx, batch)
	}
}

// accept has a batch accepted. While Postgres is away it tries for a while; then the messages come again, and it returns
// the error. A batch that Postgres does not take, though it is there, is halved until the message at fault stands alone; so is
// one that takes too long, as triggers with costly filters may make it, or it would come again whole for ever.
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
				c.Log.DebugContext(ctx, "acknowledging an event; it comes again and changes nothing", "err", err)
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

// again has messages delivered again.
func (c *Consumer) again(batch []received) {
	for _, r := range batch {
		_ = r.msg.NakWithDelay(comeAgain) // or it comes when nobody has acknowledged it for long
	}
}

// try has events accepted, trying again while Postgres is away. What takes too long is not tried again if it can be split.
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
		c.Log.WarnContext(ctx, "accepting events; trying again", "events", len(in), "err", err)
		if !wait(tries, pause) {
			return err
		}
	}
}

// setAside keeps a message that cannot be taken. It is acknowledged only if it could be kept.
func (c *Consumer) setAside(ctx context.Context, m jetstream.Msg, reason error) {
	done := m.Ack
	headers := maps.Clone(m.Headers())
	if meta, err := m.Metadata(); err == nil && headers.Get(nats.MsgIdHdr) == "" && headers.Get(wire.HeaderMessageID) == "" {
		if headers == nil {
			headers = nats.Header{}
		}
		headers.Set(wire.HeaderMessageID, place(meta)) // or it would be two events if it is set aside and replayed twice
	}
	if err := c.SetAside(ctx, "event", wire.DeadLetter{Subject: m.Subject(), Headers: headers, Data: m.Data()}, reason); err != nil {
		done = func() error { return m.NakWithDelay(comeAgain) }
	}
	if err := done(); err != nil {
		c.Log.DebugContext(ctx, "acknowledging an event that was set aside", "err", err)
	}
}

// read reads the events of a message, and what they are known by.
func read(m jetstream.Msg) ([]event.Incoming, error) {
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
		e.Via = domain.ViaNATS
		if batch {
			continue // they have ids of their own
		}
		if e.KeyKind == event.KeyNone {
			e.SetKey(event.KeyPlace, place(meta))
			e.SetKey(event.KeyMessage, headers["nats-msg-id"])
			e.SetKey(event.KeyMessage, headers[strings.ToLower(wire.HeaderMessageID)]) // of a dead letter that is replayed
		}
		e.SetKey(event.KeyIdempotency, headers["idempotency-key"])
	}
	return events, nil
}

// place is where a message stands in the stream. The sequence begins anew where the storage was wiped; the time of storing
// tells the two apart.
func place(meta *jetstream.MsgMetadata) string {
	return fmt.Sprintf("%d at %s", meta.Sequence.Stream, meta.Timestamp.UTC().Format(time.RFC3339Nano))
}
