package dispatcher

import (
	"context"
	"errors"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/belfryhq/belfry/executor/wire"
)

// lagMeter is what was seen of the results' consumer when it last moved, or when nothing waited.
type lagMeter struct {
	at     time.Time // zero: never
	handed uint64    // messages that dispatchers have fetched, repeats included
	pace   float64   // of them a second; 0: not known
}

// note takes in what the consumer says now, and returns how long what waits takes at the pace of late.
func (m *lagMeter) note(now time.Time, handed, waiting uint64) time.Duration {
	if m.at.IsZero() || handed < m.handed { // the first look, or the consumer was made anew
		*m = lagMeter{at: now, handed: handed}
	}
	if handed > m.handed {
		m.pace = float64(handed-m.handed) / now.Sub(m.at).Seconds()
	}
	if handed > m.handed || waiting == 0 {
		m.at, m.handed = now, handed
	}
	if waiting == 0 || m.pace == 0 {
		return 0
	}
	return time.Duration(float64(waiting)/m.pace*float64(time.Second)) + now.Sub(m.at)
}

// ResultsLag estimates how long a result that is published now waits until a dispatcher fetches it: by what waits in the
// stream, and the pace of fetching since the call before. It is zero while nothing is known. One caller at a time.
func (d *Dispatcher) ResultsLag(ctx context.Context) (time.Duration, error) {
	consumer, err := d.js.Consumer(ctx, wire.StreamResults, resultsConsumer)
	switch {
	case errors.Is(err, jetstream.ErrConsumerNotFound), errors.Is(err, jetstream.ErrStreamNotFound):
		return 0, nil // no dispatcher has ever been here
	case err != nil:
		return 0, err
	}
	info := consumer.CachedInfo()
	return d.lag.note(time.Now(), info.Delivered.Consumer, info.NumPending), nil
}
