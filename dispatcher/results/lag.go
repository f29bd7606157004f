package results

import (
	"context"
	"errors"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/belfryhq/belfry/executor/wire"
)

// LagMeter estimates how late results are settled. Create one with NewLagMeter. It is not safe for concurrent use.
type LagMeter struct {
	js   jetstream.JetStream
	pace pace
}

// NewLagMeter returns a meter.
func NewLagMeter(js jetstream.JetStream) *LagMeter { return &LagMeter{js: js} }

// inProgress is how many messages a dispatcher usually has fetched and not acknowledged. They do not count as waiting.
const inProgress = 2 * settlers * maxMessages

// Lag estimates how long a result that is published now waits until a dispatcher settles it. It divides the number of
// waiting messages by the rate of acknowledgements since the last call, and returns zero if the rate is not known. It counts the
// messages of all groups, because the scheduler uses the lag as a measure of the total load of the dispatchers.
func (m *LagMeter) Lag(ctx context.Context) (time.Duration, error) {
	consumer, err := m.js.Consumer(ctx, wire.StreamResults, consumerName)
	switch {
	case errors.Is(err, jetstream.ErrConsumerNotFound), errors.Is(err, jetstream.ErrStreamNotFound):
		return 0, nil // no dispatcher has run yet
	case err != nil:
		return 0, err
	}
	info := consumer.CachedInfo()
	fetched := uint64(max(info.NumAckPending, 0))
	waiting := info.NumPending + max(fetched, inProgress) - inProgress
	return m.pace.note(time.Now(), max(info.Delivered.Consumer, fetched)-fetched, waiting), nil
}

// pace holds the consumer's progress at the time when a message was last acknowledged, or when no message waited.
type pace struct {
	at        time.Time // zero before the first call
	done      uint64    // messages that were delivered and are not in progress, redeliveries included
	perSecond float64   // 0 if not known
}

// note updates the pace and returns how long the waiting messages take at that pace.
func (p *pace) note(now time.Time, done, waiting uint64) time.Duration {
	if p.at.IsZero() || done < p.done { // the first call, or the consumer was created again
		*p = pace{at: now, done: done}
	}
	if done > p.done {
		p.perSecond = float64(done-p.done) / now.Sub(p.at).Seconds()
	}
	if done > p.done || waiting == 0 {
		p.at, p.done = now, done
	}
	if waiting == 0 || p.perSecond == 0 {
		return 0
	}
	return time.Duration(float64(waiting)/p.perSecond*float64(time.Second)) + now.Sub(p.at)
}
