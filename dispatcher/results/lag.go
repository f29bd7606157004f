package results

import (
	"context"
	"errors"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/belfryhq/belfry/executor/wire"
)

// LagMeter estimates how late results are settled. Create one with NewLagMeter. It has one caller at a time.
type LagMeter struct {
	js   jetstream.JetStream
	pace pace
}

// NewLagMeter returns a meter.
func NewLagMeter(js jetstream.JetStream) *LagMeter { return &LagMeter{js: js} }

// Lag estimates how long a result that is published now waits until a dispatcher fetches it, from the messages in the stream
// and the pace of fetching since the last call. It is zero if the pace is not known.
func (m *LagMeter) Lag(ctx context.Context) (time.Duration, error) {
	consumer, err := m.js.Consumer(ctx, wire.StreamResults, consumerName)
	switch {
	case errors.Is(err, jetstream.ErrConsumerNotFound), errors.Is(err, jetstream.ErrStreamNotFound):
		return 0, nil // no dispatcher has run yet
	case err != nil:
		return 0, err
	}
	info := consumer.CachedInfo()
	return m.pace.note(time.Now(), info.Delivered.Consumer, info.NumPending), nil
}

// pace is the consumer's progress when it last delivered a message, or when no message waited.
type pace struct {
	at        time.Time // zero before the first call
	delivered uint64    // messages that dispatchers have fetched, redeliveries included
	perSecond float64   // 0 if not known
}

// note updates the pace and returns how long the waiting messages take at that pace.
func (p *pace) note(now time.Time, delivered, waiting uint64) time.Duration {
	if p.at.IsZero() || delivered < p.delivered { // the first call, or the consumer was created again
		*p = pace{at: now, delivered: delivered}
	}
	if delivered > p.delivered {
		p.perSecond = float64(delivered-p.delivered) / now.Sub(p.at).Seconds()
	}
	if delivered > p.delivered || waiting == 0 {
		p.at, p.delivered = now, delivered
	}
	if waiting == 0 || p.perSecond == 0 {
		return 0
	}
	return time.Duration(float64(waiting)/p.perSecond*float64(time.Second)) + now.Sub(p.at)
}
