package dispatcher

import (
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/belfryhq/belfry/executor/wire"
)

// The lag of results grows while no dispatcher settles them. Without a consumer, it is zero.
func TestResultsLag(t *testing.T) {
	w := newWorld(t, option{quiet: true, still: true})
	if lag, err := w.ResultsLag(t.Context()); lag != 0 || err != nil {
		t.Errorf("without a consumer: %v, %v", lag, err)
	}
	consumer, err := w.js.CreateOrUpdateConsumer(t.Context(), wire.StreamResults, jetstream.ConsumerConfig{
		Durable: "settle", AckPolicy: jetstream.AckExplicitPolicy,
	})
	if err != nil {
		t.Fatal(err)
	}
	look := func() time.Duration {
		lag, err := w.ResultsLag(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return lag
	}
	look()
	for range 3 {
		if _, err := w.js.Publish(t.Context(), wire.ResultSubject("g"), []byte(`{}`)); err != nil {
			t.Fatal(err)
		}
	}
	m, err := consumer.Next()
	if err != nil {
		t.Fatal(err)
	}
	if err := m.DoubleAck(t.Context()); err != nil {
		t.Fatal(err)
	}
	var first time.Duration
	w.eventually("the server counts the messages that wait", func() bool { // it counts them after it has stored them
		first = look()
		return first > 0
	})
	if second := look(); second <= first {
		t.Errorf("two of three wait: %v, and later %v", first, second)
	}
}
