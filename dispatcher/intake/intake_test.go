package intake_test

import (
	"context"
	"fmt"
	"math"
	"slices"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"go.uber.org/goleak"

	"github.com/belfryhq/belfry/dispatcher/intake"
	"github.com/belfryhq/belfry/internal/embednats"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const stream, durable = "WORK", "workers"

// newStream returns a work queue on a new server. It holds the numbers from 0 to n-1.
func newStream(t *testing.T, n int) jetstream.JetStream {
	t.Helper()
	server, err := embednats.Start(t.Context(), embednats.Config{StoreDir: t.TempDir(), MaxStoreBytes: 64 << 20})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = server.Stop(context.Background()) })
	nc, err := nats.Connect(server.URL(), append(server.SystemOptions(), nats.Timeout(5*time.Minute))...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	js, err := jetstream.New(nc)
	if err != nil {
		t.Fatal(err)
	}
	config := jetstream.StreamConfig{Name: stream, Subjects: []string{"work"}, Retention: jetstream.WorkQueuePolicy}
	if _, err := js.CreateStream(t.Context(), config); err != nil {
		t.Fatal(err)
	}
	for i := range n {
		if _, err := js.Publish(t.Context(), "work", fmt.Append(nil, i)); err != nil {
			t.Fatal(err)
		}
	}
	return js
}

// run handles batches until done returns true.
func run(t *testing.T, js jetstream.JetStream, limit int, handle func([]jetstream.Msg), done func() bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	enough := false
	err := intake.Run(ctx, js, stream, durable, limit, func(_ context.Context, batch []jetstream.Msg) {
		handle(batch)
		if done() {
			enough = true
			cancel()
		}
	})
	if err != nil || !enough {
		t.Fatalf("enough: %t, %v", enough, err)
	}
}

func ack(t *testing.T, batch []jetstream.Msg) {
	t.Helper()
	for _, m := range batch {
		if err := m.DoubleAck(t.Context()); err != nil {
			t.Error(err)
		}
	}
}

func TestBatches(t *testing.T) {
	const n, limit = 95, 10
	js := newStream(t, n)
	var got []string
	largest := 0
	run(t, js, limit, func(batch []jetstream.Msg) {
		largest = max(largest, len(batch))
		for _, m := range batch {
			got = append(got, string(m.Data()))
		}
		ack(t, batch)
	}, func() bool { return len(got) >= n })
	want := make([]string, n)
	for i := range want {
		want[i] = fmt.Sprint(i)
	}
	if !slices.Equal(got, want) || largest != limit {
		t.Errorf("got %v, at most %d at a time", got, largest)
	}
}

// Messages that were fetched when the context ended are handled, and unacknowledged messages are not lost.
func TestEnd(t *testing.T) {
	const n, limit = 200, 7
	js := newStream(t, n)
	handed := 0
	run(t, js, limit, func(batch []jetstream.Msg) { handed += len(batch); ack(t, batch) }, func() bool { return true })
	if handed > n/2 {
		t.Errorf("%d were handed on after the end", handed)
	}
	s, err := js.Stream(t.Context(), stream)
	if err != nil {
		t.Fatal(err)
	}
	if left := int(s.CachedInfo().State.Msgs); left != n-handed {
		t.Errorf("%d handed on, %d left of %d", handed, left, n)
	}
	// If a request is in flight when the context ends, its messages arrive too late and are redelivered after AckWait.
	// There is at most one such request, for less than a batch.
	if lost := pending(t, js); lost >= limit {
		t.Errorf("%d were fetched and neither handed on nor given back", lost)
	}
}

// pending returns the number of messages that are fetched but not acknowledged.
func pending(t *testing.T, js jetstream.JetStream) int {
	t.Helper()
	consumer, err := js.Consumer(t.Context(), stream, durable)
	if err != nil {
		t.Error(err)
		return math.MaxInt
	}
	return consumer.CachedInfo().NumAckPending
}

// While a batch is handled, only the next batch is fetched. JetStream would redeliver messages that wait for longer
// than AckWait.
func TestFetchesNoMoreThanTheNextBatch(t *testing.T) {
	const n, limit = 100, 5
	js := newStream(t, n)
	rounds := 0
	run(t, js, limit, func(batch []jetstream.Msg) {
		if rounds++; rounds == 3 {
			if fetched := pending(t, js); fetched > 4*limit {
				t.Errorf("%d messages are fetched and not acknowledged", fetched)
			}
		}
		ack(t, batch)
	}, func() bool { return rounds == 4 })
}

func TestNoStream(t *testing.T) {
	js := newStream(t, 0)
	if err := intake.Run(t.Context(), js, "OTHER", durable, 1, nil); err == nil {
		t.Error("ran without a stream")
	}
}
