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

// DeadLetters moves messages that cannot be processed to the dead-letter streams. Events have a separate stream, so that messages of
// executors do not displace them. Create one with NewDeadLetters. It is safe for concurrent use.
//
// The streams keep 1,000 dead letters of each kind and group, and delete the oldest ones first. For an event, the event's name
// takes the place of the group. For each kind and group, this process stores at most 10 a second, after a burst of 100. It counts
// and drops further messages, because otherwise one group could replace the dead letters of another. It also counts and drops
// acknowledgements: see IsAcknowledgement.
type DeadLetters struct {
	js       jetstream.JetStream
	now      func() time.Time
	log      *slog.Logger
	stored   *prometheus.CounterVec
	dropped  *prometheus.CounterVec
	limits   *limits
	warnings *limits
}

// The rates at which a process stores dead letters of one kind and group, and warns about them.
const (
	lettersPerSecond  = 10
	lettersBurst      = 100
	warningsPerSecond = 0.1
	warningsBurst     = 5
)

// NewDeadLetters returns a DeadLetters. now returns the time of the database's clock. The registry may be nil.
func NewDeadLetters(js jetstream.JetStream, now func() time.Time, log *slog.Logger, registry prometheus.Registerer) *DeadLetters {
	d := &DeadLetters{
		js: js, now: now, log: log, limits: newLimits(lettersPerSecond, lettersBurst), warnings: newLimits(warningsPerSecond, warningsBurst),
		stored: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "belfry_dead_letters_total", Help: "Messages that could not be processed, by kind. Most are in the dead-letter streams.",
		}, []string{"kind"}),
		dropped: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "belfry_dead_letters_dropped_total", Help: "Messages that could not be processed and are not in the dead-letter streams, because there were too many of the same kind and group, or because they were misdirected acknowledgements.",
		}, []string{"kind", "group"}),
	}
	if registry != nil {
		registry.MustRegister(d.stored, d.dropped)
	}
	return d
}

// The maximum sizes of the parts of a dead letter, in bytes. The dead letter has to fit into a message, in which base64 makes
// the data a third larger. An event is stored completely, so that it can be replayed. Other messages are cut off, because their
// beginning is enough to find the fault.
const (
	eventData     = 600 << 10
	letterData    = 16 << 10
	letterReason  = 2 << 10
	letterHeaders = 16 << 10
)

// DeadLetter moves a message to the stream, with the reason. If that fails, the message is lost, and DeadLetter logs a warning.
func (d *DeadLetters) DeadLetter(ctx context.Context, kind, subject string, data []byte, reason error) {
	if err := d.SetAside(ctx, kind, wire.DeadLetter{Subject: subject, Data: data}, reason); err != nil {
		d.warn(ctx, "cannot store a dead letter, the message is lost", kind, subject, err.Error())
	}
}

// SetAside is DeadLetter for callers that can retry. An error means that the message was not stored.
func (d *DeadLetters) SetAside(ctx context.Context, kind string, letter wire.DeadLetter, reason error) error {
	return d.setAside(ctx, kind, letter, reason)
}

// SetAsideOnce is SetAside for a message that several processes receive. JetStream stores the first dead letter with the id.
func (d *DeadLetters) SetAsideOnce(ctx context.Context, id, kind string, letter wire.DeadLetter, reason error) error {
	return d.setAside(ctx, kind, letter, reason, jetstream.WithMsgID(id))
}

func (d *DeadLetters) setAside(ctx context.Context, kind string, letter wire.DeadLetter, reason error, options ...jetstream.PublishOpt) error {
	name := nameOf(kind, letter.Subject)
	if IsAcknowledgement(letter.Data) {
		d.stored.WithLabelValues(kind).Inc()
		d.dropped.WithLabelValues(kind, groupOf(kind, name)).Inc()
		d.warn(ctx, "an executor directs acknowledgements to a subject where it may not publish, they are dropped", kind, letter.Subject, string(letter.Data))
		return nil
	}
	if allowed, _ := d.limits.allow(kind + " " + name); !allowed {
		d.stored.WithLabelValues(kind).Inc()
		d.dropped.WithLabelValues(kind, groupOf(kind, name)).Inc()
		return nil
	}
	why := reason.Error()
	if len(why) > letterReason {
		why = strings.ToValidUTF8(why[:letterReason], "") + "… cut"
	}
	limit := letterData
	if kind == "event" {
		limit = eventData
	}
	if n := len(letter.Data); n > limit {
		why += fmt.Sprintf(" (the first %d of its %d bytes are kept)", limit, n)
		letter.Bytes, letter.Data = n, letter.Data[:limit]
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
	stored, err := d.js.Publish(ctx, subjectOf(kind, name), wire.Encode(letter), options...)
	if err != nil || stored.Duplicate {
		return err
	}
	d.stored.WithLabelValues(kind).Inc()
	d.warn(ctx, "a message cannot be processed, it is now a dead letter", kind, letter.Subject, why)
	return nil
}

// warn logs a warning. It limits the rate of warnings per kind and group; the count includes the messages without a warning.
func (d *DeadLetters) warn(ctx context.Context, failure, kind, subject, why string) {
	group := groupOf(kind, nameOf(kind, subject))
	if allowed, skipped := d.warnings.allow(failure + " " + kind + " " + group); allowed {
		d.log.WarnContext(ctx, failure, "kind", kind, "group", group, "subject", subject, "err", why, "count", skipped+1)
	}
}

// subjectOf returns the subject of a dead letter. The name is a group, or the name of an event.
func subjectOf(kind, name string) string {
	if kind == "event" {
		return wire.DeadEventSubject(name)
	}
	return wire.DeadSubject(kind, name)
}

// groupOf returns the group for metrics and logs. It returns none for events, because a sender can use any number of event names.
func groupOf(kind, name string) string {
	if kind == "event" {
		return ""
	}
	return name
}

// nameOf returns the group of a message, or the name of an event. It is empty if the subject has none.
func nameOf(kind, subject string) string {
	switch kind {
	case "event":
		return strings.TrimPrefix(subject, wire.EventSubject(""))
	case "heartbeat":
		group, _, _ := strings.Cut(strings.TrimPrefix(subject, wire.InstanceSubject("")), ".")
		return group
	}
	return wire.GroupOfSubject(subject)
}
