package events_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/belfryhq/belfry/dispatcher/events"
	"github.com/belfryhq/belfry/executor/wire"
	"github.com/belfryhq/belfry/internal/domain"
	"github.com/belfryhq/belfry/internal/embednats"
	"github.com/belfryhq/belfry/internal/event"
	"github.com/belfryhq/belfry/internal/natsinfra"
	"github.com/belfryhq/belfry/internal/pgtest"
	"github.com/belfryhq/belfry/internal/store"
	storeevent "github.com/belfryhq/belfry/internal/store/event"
)

func TestMain(m *testing.M) { pgtest.Main(m) }

// bench has consumers on its own database and NATS server, and a job that every event fires.
type bench struct {
	t  *testing.T
	pg *store.Store
	*storeevent.Store
	js jetstream.JetStream

	mu      sync.Mutex
	refuse  func([]event.Incoming) error // replaces the acceptance
	asked   int
	letters []wire.DeadLetter
	away    bool // dead letters cannot be stored
}

func newBench(t *testing.T) *bench {
	t.Helper()
	b := &bench{t: t}
	var err error
	if b.pg, err = store.Open(t.Context(), store.Config{URL: pgtest.Database(t, store.Migrate), MaxConns: 4}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(b.pg.Close)
	if b.Store, err = storeevent.New(b.pg); err != nil {
		t.Fatal(err)
	}
	if _, err := b.pg.Pool().Exec(t.Context(), `INSERT INTO groups (name, token_sha256) VALUES ('g', 'g')`); err != nil {
		t.Fatal(err)
	}
	sp := domain.DefaultJobSpec()
	sp.Group, sp.Name, sp.Handler, sp.Schedule = "g", "j", "echo", domain.Schedule{Kind: domain.ScheduleNone}
	job, err := b.pg.CreateJob(t.Context(), sp, "test")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := b.CreateTrigger(t.Context(), event.TriggerSpec{Name: ">", JobID: job.ID, Enabled: true}); err != nil {
		t.Fatal(err)
	}
	server, err := embednats.Start(t.Context(), embednats.Config{StoreDir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = server.Stop(context.Background()) })
	nc, err := nats.Connect(server.URL(), append(server.SystemOptions(), nats.Timeout(patience))...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	if b.js, err = jetstream.New(nc); err != nil {
		t.Fatal(err)
	}
	if err := natsinfra.Ensure(t.Context(), b.js, 1); err != nil {
		t.Fatal(err)
	}
	return b
}

// AcceptEvents implements events.Store.
func (b *bench) AcceptEvents(ctx context.Context, in []event.Incoming) error {
	b.mu.Lock()
	b.asked++
	refuse := b.refuse
	b.mu.Unlock()
	if refuse != nil {
		if err := refuse(in); err != nil {
			return err
		}
	}
	_, err := b.Accept(ctx, in)
	return err
}

func (b *bench) setAside(_ context.Context, kind string, letter wire.DeadLetter, reason error) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.away {
		return errors.New("NATS is away")
	}
	letter.Error = kind + ": " + reason.Error()
	b.letters = append(b.letters, letter)
	return nil
}

func (b *bench) set(f func()) { b.mu.Lock(); defer b.mu.Unlock(); f() }

// start runs a consumer until the test ends.
func (b *bench) start() {
	b.t.Helper()
	c := events.New(events.Config{JetStream: b.js, Store: b, SetAside: b.setAside, Log: slog.New(slog.DiscardHandler), Registry: prometheus.NewRegistry()})
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() { defer close(done); _ = c.Run(ctx) }()
	b.t.Cleanup(func() { cancel(); <-done })
}

func (b *bench) publish(name, data string, headers ...string) {
	b.t.Helper()
	m := &nats.Msg{Subject: wire.EventSubject(name), Data: []byte(data), Header: nats.Header{}}
	for i := 0; i < len(headers); i += 2 {
		m.Header.Set(headers[i], headers[i+1])
	}
	if _, err := b.js.PublishMsg(b.t.Context(), m); err != nil {
		b.t.Fatal(err)
	}
}

func (b *bench) pending() uint64 {
	s, err := b.js.Stream(b.t.Context(), wire.StreamEvents)
	if err != nil {
		b.t.Fatal(err)
	}
	return s.CachedInfo().State.Msgs
}

// patience bounds each wait, because the machine may be busy.
const patience = 5 * time.Minute

func (b *bench) eventually(what string, ok func() bool) {
	b.t.Helper()
	deadline := time.Now().Add(patience)
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for !ok() {
		if time.Now().After(deadline) {
			b.t.Fatalf("in vain: %s", what)
		}
		<-tick.C
	}
}

func (b *bench) events() []event.Event {
	b.t.Helper()
	all, err := b.Events(b.t.Context(), storeevent.EventFilter{Limit: 500})
	if err != nil {
		b.t.Fatal(err)
	}
	return all
}

func (b *bench) runs() (n int) {
	b.t.Helper()
	if err := b.pg.Pool().QueryRow(b.t.Context(), `SELECT count(*) FROM runs_live WHERE cause = 'event'`).Scan(&n); err != nil {
		b.t.Fatal(err)
	}
	return n
}

func keys(events []event.Event) []string {
	var keys []string
	for _, e := range events {
		keys = append(keys, e.Key)
	}
	slices.Sort(keys)
	return keys
}

// Each message is a separate event, unless another event has the same key. Two consumers share the work.
func TestKeys(t *testing.T) {
	b := newBench(t)
	b.start()
	b.start()
	b.publish("a", `1`)
	b.publish("a", `1`)
	b.publish("a", `1`, "Nats-Msg-Id", "m")
	b.publish("b", `1`, "Nats-Msg-Id", "n", "Idempotency-Key", "i")
	b.publish("b", `1`, "Nats-Msg-Id", "o", "Idempotency-Key", "i")
	ce := []string{"ce-specversion", "1.0", "ce-id", "c", "ce-source", "/s", "ce-type", "t"}
	b.publish("a", `2`, ce...)
	b.publish("a", `{"specversion":"1.0","id":"c","source":"/s","type":"t","data":2}`, "content-type", "application/cloudevents+json")
	b.eventually("all are acknowledged", func() bool { return b.pending() == 0 })
	all := b.events()
	if n := b.runs(); n != 5 || len(all) != 5 {
		t.Errorf("%d events, %d runs, want 5: %v", len(all), n, keys(all))
	}
	for _, e := range all {
		if e.Via != event.ViaNATS || e.SentBy != "" || len(e.Runs()) != 1 {
			t.Errorf("got %+v", e)
		}
	}
	// The wipe of the stream also wiped JetStream's duplicate window. The keys are in Postgres.
	if err := b.js.DeleteStream(t.Context(), wire.StreamEvents); err != nil {
		t.Fatal(err)
	}
	if err := natsinfra.Ensure(t.Context(), b.js, 1); err != nil {
		t.Fatal(err)
	}
	b.publish("a", `1`, "Nats-Msg-Id", "m")
	b.publish("a", `2`, ce...)
	b.publish("last", `1`) // the first message of the new stream, with the sequence of the old stream's first message
	b.eventually("the last event is accepted", func() bool { return b.events()[0].Name == "last" || len(b.events()) == 6 })
	b.eventually("all are acknowledged", func() bool { return b.pending() == 0 })
	if n := b.runs(); n != 6 {
		t.Errorf("%d runs, want 6: %v", n, keys(b.events()))
	}
}

// An event that was committed but not acknowledged is delivered again, and fires nothing again.
func TestRedelivery(t *testing.T) {
	b := newBench(t)
	calls := 0
	b.refuse = func(in []event.Incoming) error {
		if _, err := b.Accept(t.Context(), in); err != nil {
			return err
		}
		if calls++; calls < 3 {
			return domain.NewError(domain.Unavailable, "the connection broke after the commit")
		}
		return nil
	}
	for range 20 {
		b.publish("a", `1`)
	}
	b.start()
	b.eventually("all are acknowledged", func() bool { return b.pending() == 0 })
	if n := b.runs(); n != 20 {
		t.Errorf("%d runs of 20 events", n)
	}
}

// While Postgres is unavailable, no message is acknowledged or set aside.
func TestPostgresAway(t *testing.T) {
	b := newBench(t)
	b.refuse = func([]event.Incoming) error { return domain.NewError(domain.Unavailable, "away") }
	for range 10 {
		b.publish("a", `1`)
	}
	b.start()
	b.eventually("the consumer has tried", func() bool {
		b.mu.Lock()
		defer b.mu.Unlock()
		return b.asked >= 2
	})
	if n := b.pending(); n != 10 || len(b.letters) != 0 {
		t.Errorf("%d of 10 messages are left, %d set aside", n, len(b.letters))
	}
	b.set(func() { b.refuse = nil })
	b.eventually("all are accepted", func() bool { return b.runs() == 10 })
}

// Events that together take too long are accepted in smaller batches.
func TestSlowBatch(t *testing.T) {
	b := newBench(t)
	b.refuse = func(in []event.Incoming) error {
		if len(in) > 2 {
			return fmt.Errorf("evaluate: %w", context.DeadlineExceeded)
		}
		return nil
	}
	for range 20 {
		b.publish("a", `1`)
	}
	b.start()
	b.eventually("all are acknowledged", func() bool { return b.pending() == 0 })
	if n := b.runs(); n != 20 || len(b.letters) != 0 {
		t.Errorf("%d runs of 20 events, %d set aside", n, len(b.letters))
	}
}

// An event with triggers that take too long to evaluate is accepted once, and fires the cheap triggers.
func TestCostlyTriggers(t *testing.T) {
	b := newBench(t)
	_, err := b.pg.Pool().Exec(t.Context(), `INSERT INTO event_triggers (name, head, job_id, filter, param, enabled)
		SELECT 'bomb', 'bomb', job_id, 'event.data.exists(a, event.data.exists(b, a + b == 1.0))', '', true FROM event_triggers, generate_series(1, 600)`)
	if err != nil {
		t.Fatal(err)
	}
	data := "[0" + strings.Repeat(",0", 3000) + "]"
	b.publish("bomb", data)
	b.start()
	b.eventually("it is acknowledged", func() bool { return b.pending() == 0 })
	all := b.events()
	if len(all) != 1 || b.runs() != 1 || len(b.letters) != 0 {
		t.Fatalf("%d events, %d runs, %d set aside", len(all), b.runs(), len(b.letters))
	}
	outcomes := map[event.DeliveryOutcome]int{}
	for _, d := range all[0].Deliveries {
		outcomes[d.Outcome]++
	}
	if outcomes[event.DeliveryFired] != 1 || outcomes[event.DeliveryOverBudget] < 500 {
		t.Errorf("%v", outcomes)
	}
}

// An executor may not send events. It must not fire jobs by directing the acknowledgement of a result to the subject of an
// event.
func TestAcknowledgementIsNoEvent(t *testing.T) {
	b := newBench(t)
	b.start()
	if err := b.js.Conn().PublishMsg(&nats.Msg{Subject: wire.ResultSubject("g"), Reply: wire.EventSubject("orders.created"), Data: []byte("{}")}); err != nil {
		t.Fatal(err)
	}
	b.eventually("the acknowledgement is set aside", func() bool {
		b.mu.Lock()
		defer b.mu.Unlock()
		return len(b.letters) == 1 || b.asked > 0
	})
	b.publish("orders.created", `{"stream":"lines","seq":1}`)
	b.eventually("a real event is accepted", func() bool { return len(b.events()) > 0 && b.pending() == 0 })
	if events := b.events(); len(events) != 1 || !strings.Contains(string(events[0].Data), "lines") || b.runs() != 1 {
		t.Errorf("events %+v, %d runs", events, b.runs())
	}
}

// Messages that cannot be decoded, and messages that Postgres rejects, are set aside with their reason and headers. All
// others are accepted.
func TestPoison(t *testing.T) {
	b := newBench(t)
	b.refuse = func(in []event.Incoming) error {
		if slices.ContainsFunc(in, func(e event.Incoming) bool { return string(e.Data) == `"poison"` }) {
			return domain.NewError(domain.Internal, "no")
		}
		return nil
	}
	b.set(func() { b.away = true })
	b.publish("a", `{`, "X-One", "1")
	b.publish("a.*x", `1`)
	b.publish("a", `1`, "ce-id", "1")
	b.publish("a", "\"\xff\"")
	b.publish("a", `"poison"`)
	for range 9 {
		b.publish("a", `1`)
	}
	b.start()
	b.eventually("the valid events are accepted", func() bool { return b.runs() == 9 })
	if n := b.pending(); n < 5 {
		t.Errorf("%d of 5 messages that could not be stored are left", n)
	}
	b.set(func() { b.away = false })
	b.eventually("all are acknowledged", func() bool { return b.pending() == 0 })
	var reasons []string
	for _, l := range b.letters {
		reasons = append(reasons, l.Error)
		if len(l.Headers[wire.HeaderMessageID]) != 1 {
			t.Errorf("a dead letter lacks the key of its message: %+v", l)
		}
		if l.Subject == wire.EventSubject("a") && string(l.Data) == `{` && !slices.Equal(l.Headers["X-One"], []string{"1"}) {
			t.Errorf("a dead letter lacks headers of its message: %+v", l)
		}
	}
	all := strings.Join(reasons, "\n")
	for _, want := range []string{"is not JSON", "joined by dots", "ce-source: is required", "is not UTF-8", "event: no"} {
		if !strings.Contains(all, want) {
			t.Errorf("no message was set aside with reason %q: %s", want, all)
		}
	}
	if len(b.letters) != 5 || b.runs() != 9 {
		t.Errorf("%d set aside, %d runs: %s", len(b.letters), b.runs(), all)
	}
}

// Postgres itself refuses one event of a batch.
func TestRefusedByPostgres(t *testing.T) {
	b := newBench(t)
	if _, err := b.pg.Pool().Exec(t.Context(), `ALTER TABLE events ADD CONSTRAINT poison CHECK (data <> '"poison"')`); err != nil {
		t.Fatal(err)
	}
	for i := range 9 {
		if i == 4 {
			b.publish("b", `"poison"`)
		}
		b.publish("a", `1`)
	}
	b.start()
	b.eventually("the valid events are accepted", func() bool { return b.runs() == 9 })
	b.eventually("all are acknowledged", func() bool { return b.pending() == 0 })
	if len(b.letters) != 1 || b.letters[0].Subject != wire.EventSubject("b") {
		t.Errorf("set aside: %+v", b.letters)
	}
}
