package intake

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/belfryhq/belfry/executor/wire"
)

// DeadLetters moves messages that cannot be processed to the dead-letter stream. Create one with NewDeadLetters.
type DeadLetters struct {
	js    jetstream.JetStream
	now   func() time.Time
	log   *slog.Logger
	count *prometheus.CounterVec
}

// NewDeadLetters returns the access to the dead-letter stream. Now is the database's clock. The registry may be nil.
func NewDeadLetters(js jetstream.JetStream, now func() time.Time, log *slog.Logger, registry prometheus.Registerer) *DeadLetters {
	d := &DeadLetters{js: js, now: now, log: log, count: prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "belfry_dead_letters_total", Help: "Messages that were moved to the dead-letter stream, by kind.",
	}, []string{"kind"})}
	if registry != nil {
		registry.MustRegister(d.count)
	}
	return d
}

// The maximum sizes of the parts of a dead letter, in bytes. The dead letter has to fit into a message, in which base64 makes
// the data a third larger.
const (
	letterData    = 600 << 10
	letterReason  = 2 << 10
	letterHeaders = 16 << 10
)

// DeadLetter moves a message to the stream, with the reason. If that fails, the message is lost, and the log says so.
func (d *DeadLetters) DeadLetter(ctx context.Context, kind, subject string, data []byte, reason error) {
	if err := d.SetAside(ctx, kind, wire.DeadLetter{Subject: subject, Data: data}, reason); err != nil {
		d.log.ErrorContext(ctx, "cannot store a dead letter, the message is lost", "kind", kind, "subject", subject, "err", err)
	}
}

// SetAside is DeadLetter for callers that can retry. An error means that the message was not stored.
func (d *DeadLetters) SetAside(ctx context.Context, kind string, letter wire.DeadLetter, reason error) error {
	return d.setAside(ctx, kind, letter, reason)
}

// SetAsideOnce is SetAside for a message that several processes see. JetStream stores the first dead letter with the id.
func (d *DeadLetters) SetAsideOnce(ctx context.Context, id, kind string, letter wire.DeadLetter, reason error) error {
	return d.setAside(ctx, kind, letter, reason, jetstream.WithMsgID(id))
}

func (d *DeadLetters) setAside(ctx context.Context, kind string, letter wire.DeadLetter, reason error, options ...jetstream.PublishOpt) error {
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
	letter.V, letter.At, letter.Error = wire.Version, wire.Time{Time: d.now()}, why
	stored, err := d.js.Publish(ctx, wire.DeadSubject(kind), wire.Encode(letter), options...)
	if err != nil || stored.Duplicate {
		return err
	}
	d.count.WithLabelValues(kind).Inc()
	d.log.WarnContext(ctx, "a message cannot be processed, it is now a dead letter", "kind", kind, "subject", letter.Subject, "err", why)
	return nil
}
