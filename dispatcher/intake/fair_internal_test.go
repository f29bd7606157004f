package intake

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/belfryhq/belfry/executor/wire"
)

// fake is a message of a consumer. It counts the answers to it.
type fake struct {
	jetstream.Msg
	group     string
	data      []byte
	headers   nats.Header
	sequence  uint64
	delivered uint64
	answers   *answers
}

type answers struct{ acks, naks, extensions int }

func (m *fake) Subject() string                  { return wire.ResultSubject(m.group) }
func (m *fake) Data() []byte                     { return m.data }
func (m *fake) Headers() nats.Header             { return m.headers }
func (m *fake) Ack() error                       { m.answers.acks++; return nil }
func (m *fake) Nak() error                       { m.answers.naks++; return nil }
func (m *fake) NakWithDelay(time.Duration) error { m.answers.naks++; return nil }
func (m *fake) InProgress() error                { m.answers.extensions++; return nil }
func (m *fake) Metadata() (*jetstream.MsgMetadata, error) {
	return &jetstream.MsgMetadata{Stream: "S", Sequence: jetstream.SequencePair{Stream: m.sequence}, NumDelivered: m.delivered, Timestamp: time.Unix(1, 0)}, nil
}

// bench is a Fair without a server. Its handler acknowledges, and waits for the gate before that.
type bench struct {
	*Fair
	gate     chan struct{}
	handled  []string // "group/sequence/delivery"
	beyond   []string
	shed     []string
	registry *prometheus.Registry
	last     uint64
}

func newBench(b Bounds) *bench {
	f := &bench{gate: make(chan struct{}), registry: prometheus.NewRegistry()}
	name := func(m *Message) string {
		k := m.Msg.(*fake)
		return fmt.Sprintf("%s/%d/%d", m.Group, k.sequence, k.delivered)
	}
	ack := func(list *[]string) func(context.Context, []*Message) {
		return func(_ context.Context, batch []*Message) {
			<-f.gate
			for _, m := range batch {
				*list = append(*list, name(m))
				_ = m.Ack()
			}
		}
	}
	f.Fair = NewFair(FairConfig{
		Kind: "result", Workers: 1, Limit: 2, Bounds: b, Log: slog.New(slog.DiscardHandler), Registry: f.registry, Handle: ack(&f.handled), Excess: ack(&f.beyond),
		Shed: func(m *Message) {
			f.shed = append(f.shed, name(m))
			f.Count(m.Group, NotSettled, 1)
		},
	})
	return f
}

// send delivers a new message.
func (f *bench) send(ctx context.Context, group string, size int) *fake {
	f.last++
	m := &fake{group: group, data: make([]byte, size), sequence: f.last, delivered: 1, answers: &answers{}}
	f.accept(ctx, m)
	return m
}

// begin runs the workers until the test ends.
func (f *bench) begin(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{}, 3)
	for _, loop := range []func(context.Context){f.work, f.excessLoop, f.extendLoop} {
		go func() { loop(ctx); done <- struct{}{} }()
	}
	t.Cleanup(func() {
		f.mu.Lock()
		f.endedAt = time.Now()
		f.mu.Unlock()
		close(f.closed)
		cancel()
		for range 3 {
			<-done
		}
	})
}

// The acknowledgement time of a message is extended while it waits in a queue and while it is handled. A new delivery of the same
// message replaces the one that waits, and is not handled in addition.
func TestHeldMessages(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newBench(Bounds{})
		f.begin(t)
		first := f.send(t.Context(), "a", 10)
		synctest.Wait()
		time.Sleep(3 * gatherTime)
		synctest.Wait()
		waits := f.send(t.Context(), "a", 10) // the worker has the first one
		time.Sleep(5 * AckWait)
		synctest.Wait()
		for name, m := range map[string]*fake{"that is handled": first, "that waits": waits} {
			if n := m.answers.extensions; n < 5 || n > 11 {
				t.Errorf("the acknowledgement time of the message %s was extended %d times", name, n)
			}
		}
		for _, m := range []*fake{first, waits} {
			f.accept(t.Context(), &fake{group: "a", data: m.data, sequence: m.sequence, delivered: 2, answers: &answers{}})
		}
		close(f.gate)
		time.Sleep(time.Second)
		synctest.Wait()
		if got := strings.Join(f.handled, " "); got != "a/1/1 a/2/2" {
			t.Errorf("handled %s", got)
		}
		if n := f.heldBytes()["a"]; n != 0 {
			t.Errorf("%d bytes are still held", n)
		}
		// It was acknowledged, so a message with this sequence is a new delivery.
		f.accept(t.Context(), &fake{group: "a", sequence: 1, delivered: 3, answers: &answers{}})
		time.Sleep(time.Second)
		synctest.Wait()
		if got := strings.Join(f.handled, " "); got != "a/1/1 a/2/2 a/1/3" {
			t.Errorf("handled %s", got)
		}
	})
}

// Messages beyond a group's bound go to the excess, and messages beyond the bound of the excess are shed. Other groups are not
// affected.
func TestBounds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newBench(Bounds{GroupBytes: 3 << 20, TotalBytes: 5 << 20})
		f.begin(t)
		const mib = 1 << 20
		for range 3 + excessGroup/mib + 2 {
			f.send(t.Context(), "a", mib)
		}
		f.send(t.Context(), "b", mib)
		f.send(t.Context(), "c", mib)
		synctest.Wait()
		if f.queues.bytes != 5*mib || f.excess.bytes != excessGroup || len(f.shed) != 2 || !strings.HasPrefix(f.shed[0], "a/") {
			t.Fatalf("%d bytes are held, %d in excess, shed %v", f.queues.bytes, f.excess.bytes, f.shed)
		}
		// The process is full, so the newest message of the largest group is removed. The excess has no room for it.
		f.send(t.Context(), "b", mib)
		synctest.Wait()
		if len(f.shed) != 3 || f.shed[2] != "a/3/1" || f.queues.bytesOf("a") != 2*mib || f.queues.bytesOf("b") != 2*mib {
			t.Fatalf("shed %v; group a has %d, b %d", f.shed, f.queues.bytesOf("a"), f.queues.bytesOf("b"))
		}
		expectMetrics(t, f.registry, map[string]float64{
			"belfry_group_excess_total group=a kind=result outcome=not_settled": 3,
			"belfry_group_queue_bytes group=a kind=result":                      10 * mib,
			"belfry_group_queue_bytes group=b kind=result":                      2 * mib,
			"belfry_group_queue_bytes group=c kind=result":                      mib,
		})
		close(f.gate)
		time.Sleep(time.Second)
		synctest.Wait()
		if len(f.beyond) != excessGroup/mib || len(f.handled) != 5 || f.queues.bytes+f.excess.bytes != 0 {
			t.Errorf("handled %v, beyond %v", f.handled, f.beyond)
		}
	})
}

// A small message counts 512 bytes, so that the number of messages is bounded too.
func TestSmallMessagesCount(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newBench(Bounds{GroupBytes: 5 * leastLen})
		for range 6 {
			f.send(t.Context(), "a", 1)
		}
		if f.queues.waiting != 5 || f.excess.waiting != 1 {
			t.Errorf("%d wait, %d in excess", f.queues.waiting, f.excess.waiting)
		}
	})
}

// Headers use memory too, each one more than its text.
func TestHeadersCount(t *testing.T) {
	m := &fake{group: "a", headers: nats.Header{}}
	for i := range 100 {
		m.headers[fmt.Sprint(i)] = []string{"", strings.Repeat("x", 1000)}
	}
	if n := sizeOf(m); n < 100*1000+100*3*headerBytes {
		t.Errorf("it counts %d bytes", n)
	}
}

// A batch waits for more messages, but not if those that wait fill one: by their number, or by their bytes.
func TestGather(t *testing.T) {
	for name, c := range map[string]struct {
		messages, size int
		waits          bool
	}{
		"one small message": {1, 10, true},
		"the limit":         {2, 10, false},
		"one large message": {1, maxBatch, false},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newBench(Bounds{})
				f.cfg.Gather = time.Minute
				close(f.gate)
				f.begin(t)
				for range c.messages {
					f.send(t.Context(), "a", c.size)
				}
				synctest.Wait()
				if waiting, _ := f.state(f.queues); waiting > 0 != c.waits {
					t.Errorf("%d messages wait for more", waiting)
				}
				time.Sleep(time.Minute)
				synctest.Wait()
				if len(f.handled) != c.messages {
					t.Errorf("after a minute, %d messages were handled", len(f.handled))
				}
			})
		})
	}
}

// A message that a worker has does not count for the next batch.
func TestOnlyWaitingMessagesFillABatch(t *testing.T) {
	f := newBench(Bounds{})
	f.send(t.Context(), "a", maxBatch)
	if !f.fillsBatch() {
		t.Error("a large message fills no batch")
	}
	f.queues.take(1, false)
	f.send(t.Context(), "a", 10)
	if f.fillsBatch() {
		t.Error("a small message fills a batch, while a worker has a large one")
	}
}

// While Postgres is unavailable, a full queue stops the fetcher, and nothing is shed.
func TestAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newBench(Bounds{GroupBytes: leastLen})
		f.Away(true)
		f.send(t.Context(), "a", 1)
		accepted := false
		go func() {
			f.send(context.Background(), "a", 1)
			accepted = true
		}()
		time.Sleep(time.Hour)
		synctest.Wait()
		if accepted || f.excess.waiting > 0 {
			t.Errorf("accepted: %t, excess: %d", accepted, f.excess.waiting)
		}
		f.Away(false)
		synctest.Wait()
		if !accepted || f.excess.waiting != 1 {
			t.Errorf("afterwards, accepted: %t, excess: %d", accepted, f.excess.waiting)
		}
		// At the end of the context, a message that waits for room is handed back.
		f.Away(true)
		ctx, cancel := context.WithCancel(t.Context())
		var last *fake
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			last = f.send(ctx, "a", 1)
		}()
		synctest.Wait()
		cancel()
		if <-ended; last.answers.naks != 1 {
			t.Errorf("answers %+v", last.answers)
		}
	})
}

// Add accepts a message only if there is room for it.
func TestAdd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newBench(Bounds{GroupBytes: 2 * leastLen})
		m := func(n uint64) *fake { return &fake{group: "a", sequence: n, answers: &answers{}} }
		if !f.HasRoom("a") {
			t.Error("an empty group has no room")
		}
		one, two, three := m(1), m(2), m(3)
		f.Add(one)
		if f.HasRoom("a") || !f.HasRoom("d") {
			t.Error("half of the bound is in use")
		}
		f.Add(two)
		f.Add(three)
		if one.answers.naks+two.answers.naks != 0 || three.answers.naks != 1 || f.queues.waiting != 2 {
			t.Errorf("%d wait", f.queues.waiting)
		}
		// If the process is full, a message of the largest group is removed.
		f = newBench(Bounds{TotalBytes: 2 * leastLen})
		for n := range uint64(2) {
			f.Add(&fake{group: "b", sequence: 10 + n, answers: &answers{}})
		}
		if one = m(1); !f.HasRoom("a") {
			t.Error("an empty group has no room")
		}
		if f.Add(one); one.answers.naks != 0 || f.queues.bytesOf("a") != leastLen || f.queues.bytes != 2*leastLen || f.queues.cost != 2*(leastLen+baseCost) || f.excess.waiting != 1 {
			t.Errorf("%d bytes, cost %d, %d in excess", f.queues.bytes, f.queues.cost, f.excess.waiting)
		}
	})
}

// At the end, the queues are handled for some seconds, and the rest is handed back.
func TestHandsBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		js := &publisher{}
		f := newBench(Bounds{})
		f.cfg.JetStream = js
		var all []*fake
		for range 100 {
			all = append(all, f.send(t.Context(), "a", 1))
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		go func() {
			for range 10 { // two messages a second
				time.Sleep(time.Second)
				f.gate <- struct{}{}
			}
		}()
		f.Run(ctx)
		naks := 0
		for _, m := range all {
			naks += m.answers.naks
		}
		if len(f.handled) == 0 || naks == 0 || len(f.handled)+naks != 100 || f.queues.bytes != 0 || len(f.queues.held)+len(f.queues.groups) != 0 {
			t.Errorf("%d were handled, %d handed back", len(f.handled), naks)
		}
		for len(f.handled) < 20 { // unblocks the handlers that wait for the gate
			select {
			case <-f.gate:
				f.handled = append(f.handled, "")
			case <-time.After(time.Minute):
				return
			}
		}
	})
}

// publisher is a JetStream that records published dead letters.
type publisher struct {
	jetstream.JetStream
	letters  []wire.DeadLetter
	subjects []string
	fails    bool
}

func (p *publisher) Publish(_ context.Context, subject string, data []byte, _ ...jetstream.PublishOpt) (*jetstream.PubAck, error) {
	if p.fails {
		return nil, errors.New("NATS is away")
	}
	var l wire.DeadLetter
	if err := json.Unmarshal(data, &l); err != nil {
		return nil, err
	}
	p.letters, p.subjects = append(p.letters, l), append(p.subjects, subject)
	return &jetstream.PubAck{}, nil
}

// The rate of dead letters per group is limited. Further ones are counted by group, without a warning for each.
func TestDeadLetterRate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		js, registry, warnings := &publisher{}, prometheus.NewRegistry(), &counter{}
		d := NewDeadLetters(js, time.Now, slog.New(warnings), registry)
		send := func(n int, subject string) {
			for range n {
				d.DeadLetter(t.Context(), "result", subject, []byte("x"), errors.New("why"))
			}
		}
		send(1000, wire.ResultSubject("flood"))
		send(1, wire.ResultSubject("other"))
		if len(js.letters) != lettersBurst+1 || js.subjects[lettersBurst] != "belfry.v1.dead.result.other" {
			t.Errorf("%d letters, the last on %s", len(js.letters), js.subjects[len(js.subjects)-1])
		}
		if warnings.n != warningsBurst+1 {
			t.Errorf("%d warnings", warnings.n)
		}
		time.Sleep(time.Second)
		synctest.Wait()
		send(1000, wire.ResultSubject("flood"))
		if len(js.letters) != lettersBurst+1+lettersPerSecond {
			t.Errorf("a second later, %d letters", len(js.letters))
		}
		time.Sleep(10 * time.Second)
		send(1, wire.ResultSubject("flood"))
		if want := lettersBurst + lettersPerSecond - warningsBurst; warnings.skipped != int64(want) {
			t.Errorf("the next warning says that %d were skipped, want %d", warnings.skipped, want)
		}
		expectMetrics(t, registry, map[string]float64{
			"belfry_dead_letters_dropped_total group=flood kind=result": 1890, "belfry_dead_letters_total kind=result": 2002,
		})
	})
}

// A group must not replace another group's dead letters by directing acknowledgements to its subject.
func TestAcknowledgementIsNoDeadLetter(t *testing.T) {
	js, registry, warnings := &publisher{}, prometheus.NewRegistry(), &counter{}
	d := NewDeadLetters(js, time.Now, slog.New(warnings), registry)
	for range 20 {
		d.DeadLetter(t.Context(), "result", wire.ResultSubject("b"), []byte(`{"stream":"BELFRY_LOGS","seq":7}`), errors.New("why"))
	}
	if len(js.letters) != 0 || warnings.n != warningsBurst {
		t.Errorf("%d letters, %d warnings", len(js.letters), warnings.n)
	}
	expectMetrics(t, registry, map[string]float64{
		"belfry_dead_letters_dropped_total group=b kind=result": 20, "belfry_dead_letters_total kind=result": 20,
	})
}

func expectMetrics(t *testing.T, registry *prometheus.Registry, want map[string]float64) {
	t.Helper()
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	got := make(map[string]float64)
	for _, f := range families {
		for _, m := range f.Metric {
			name := f.GetName()
			for _, l := range m.Label {
				name += " " + l.GetName() + "=" + l.GetValue()
			}
			got[name] = m.GetCounter().GetValue() + m.GetGauge().GetValue()
		}
	}
	if !maps.Equal(got, want) {
		t.Errorf("metrics %v, want %v", got, want)
	}
}

// counter counts log records, and keeps the last number of skipped ones.
type counter struct {
	slog.Handler
	n       int
	skipped int64
}

func (c *counter) Enabled(context.Context, slog.Level) bool { return true }

func (c *counter) Handle(_ context.Context, r slog.Record) error {
	c.n++
	r.Attrs(func(a slog.Attr) bool {
		if a.Key == "count" {
			c.skipped = a.Value.Int64() - 1
		}
		return true
	})
	return nil
}

// Only the beginning of a result, a log or a heartbeat is kept. An event is kept as a whole, because it may be replayed.
func TestDeadLetterSize(t *testing.T) {
	js := &publisher{}
	d := NewDeadLetters(js, time.Now, slog.New(slog.DiscardHandler), nil)
	large := []byte(strings.Repeat("x", 500<<10))
	for _, c := range []struct {
		kind, subject, on string
		kept              int
	}{
		{"result", "belfry.v1.result.g", "belfry.v1.dead.result.g", letterData},
		{"log", "belfry.v1.log.g", "belfry.v1.dead.log.g", letterData},
		{"heartbeat", "$KV.belfry_instances.g.i-1", "belfry.v1.dead.heartbeat.g", letterData},
		{"heartbeat", "$KV.belfry_instances.odd", "belfry.v1.dead.heartbeat.odd", letterData},
		{"event", "belfry.v1.event.orders.created", "belfry.v1.dead_event.orders.created", len(large)},
	} {
		d.DeadLetter(t.Context(), c.kind, c.subject, large, errors.New("why"))
		l, on := js.letters[len(js.letters)-1], js.subjects[len(js.subjects)-1]
		if on != c.on || len(l.Data) != c.kept || (l.Bytes != len(large)) != (c.kept == len(large)) || l.Subject != c.subject || !strings.HasPrefix(l.Error, "why") {
			t.Errorf("%s: on %s with %d of %d bytes, %s", c.subject, on, len(l.Data), l.Bytes, l.Error)
		}
	}
	js.fails = true
	if err := d.SetAside(t.Context(), "event", wire.DeadLetter{Subject: "belfry.v1.event.a"}, errors.New("why")); err == nil {
		t.Error("no error although the letter was not stored")
	}
}
