package dispatcher

import (
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/belfryhq/belfry/executor/wire"
)

// The lag is what waits, at the pace of what was handed out; while nothing is, it grows with time.
func TestLagMeter(t *testing.T) {
	begin := time.Now()
	var m lagMeter
	for i, c := range []struct {
		at, want        time.Duration
		handed, waiting uint64
	}{
		{0, 0, 1000, 500},                         // the pace is not known yet
		{time.Second, 5 * time.Second, 1100, 500}, // 100 a second
		{2 * time.Second, time.Second, 1300, 200}, // 200 a second
		{3 * time.Second, 0, 1300, 0},             // nothing waits
		{time.Hour, 0, 1300, 0},
		{time.Hour + 2*time.Second, 3 * time.Second, 1300, 200}, // nobody has fetched any for two seconds
		{2 * time.Hour, 0, 10, 50},                              // the consumer was made anew
		{2*time.Hour + time.Second, 10 * time.Second, 20, 100},
	} {
		if got := m.note(begin.Add(c.at), c.handed, c.waiting); got != c.want {
			t.Errorf("look %d: %v, want %v", i, got, c.want)
		}
	}
}

// Results that nobody settles lag more and more; without a consumer nothing is known to.
func TestResultsLag(t *testing.T) {
	w := newWorld(t, option{quiet: true, still: true})
	if lag, err := w.ResultsLag(t.Context()); lag != 0 || err != nil {
		t.Errorf("without a consumer: %v, %v", lag, err)
	}
	consumer, err := w.js.CreateOrUpdateConsumer(t.Context(), wire.StreamResults, jetstream.ConsumerConfig{
		Durable: resultsConsumer, AckPolicy: jetstream.AckExplicitPolicy,
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
	if _, err := consumer.Next(); err != nil {
		t.Fatal(err)
	}
	if first, second := look(), look(); first <= 0 || second <= first {
		t.Errorf("two of three wait: %v, and later %v", first, second)
	}
}
