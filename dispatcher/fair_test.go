package dispatcher

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/belfryhq/belfry/dispatcher/intake"
	"github.com/belfryhq/belfry/executor/wire"
	"github.com/belfryhq/belfry/internal/domain"
	"github.com/belfryhq/belfry/internal/engine"
)

// gate is a store that blocks the settling of matching results until the gate is open. It records the groups of all results in the
// order of their arrival.
type gate struct {
	fussy
	open   func()
	closed chan struct{}

	mu     sync.Mutex
	groups []string
}

// newGate returns a closed gate for the results that match.
func newGate(t *testing.T, match func(engine.Ended) bool) *gate {
	g := &gate{closed: make(chan struct{})}
	g.open = sync.OnceFunc(func() { close(g.closed) })
	t.Cleanup(g.open)
	g.settle = func(_ context.Context, ended []engine.Ended) error {
		g.mu.Lock()
		for _, e := range ended {
			g.groups = append(g.groups, e.Group)
		}
		g.mu.Unlock()
		if slices.ContainsFunc(ended, match) {
			<-g.closed
		}
		return nil
	}
	return g
}

func ofGroup(group string) func(engine.Ended) bool {
	return func(e engine.Ended) bool { return e.Group == group && e.Reason != domain.ReasonLost }
}

// seen returns the groups of the results so far.
func (g *gate) seen() []string {
	g.mu.Lock()
	defer g.mu.Unlock()
	return slices.Clone(g.groups)
}

// metric returns the value of a metric whose labels have the given values.
func (w *world) metric(name string, values ...string) float64 {
	w.t.Helper()
	families, err := w.reg.Gather()
	if err != nil {
		w.t.Fatal(err)
	}
	sum := 0.0
	for _, f := range families {
		if f.GetName() != name {
			continue
		}
		for _, m := range f.Metric {
			var labels []string
			for _, l := range m.Label {
				labels = append(labels, l.GetValue())
			}
			if !slices.ContainsFunc(values, func(v string) bool { return !slices.Contains(labels, v) }) {
				sum += m.GetCounter().GetValue() + m.GetGauge().GetValue()
			}
		}
	}
	return sum
}

func (w *world) stored(stream string) int {
	w.t.Helper()
	s, err := w.js.Stream(w.t.Context(), stream)
	if err != nil {
		w.t.Fatal(err)
	}
	return int(s.CachedInfo().State.Msgs)
}

// unknownResult is a message of the given size with a result of a run that does not exist.
func unknownResult(size int) []byte {
	msg := string(wire.Encode(wire.Results{V: wire.Version, Results: []wire.Result{{
		Instance: "x", BootID: "boot", RunID: domain.NewRunID(time.Now()).String(), Attempt: 1, Outcome: wire.Succeeded, FinishedAt: wire.Time{Time: time.Now()},
	}}}))
	const pad = `,"pad":""}`
	return []byte(strings.TrimSuffix(msg, "}") + strings.TrimSuffix(pad, `"}`) + strings.Repeat("x", max(size-len(msg)-len(pad)+1, 0)) + `"}`)
}

// One group sends many large results of runs that do not exist, and then another group sends one result. The dispatcher settles the
// other group's result next, although many messages arrived before it.
func TestFloodOfResults(t *testing.T) {
	for _, c := range []struct {
		messages, size int
		room           intake.Bounds
		before         int // how many results of the flood may be settled first: two batches in progress, and one round
		long           bool
	}{
		{messages: 1000, size: 2 << 10, room: intake.Bounds{GroupBytes: 1 << 20}, before: 2*20 + 20},
		{messages: 900, size: 1 << 20, before: 4, long: true},
	} {
		t.Run(fmt.Sprint(c.messages, " of ", c.size), func(t *testing.T) {
			if c.long && testing.Short() {
				t.Skip("NOT COVERED: a flood of 900 MiB; -short leaves it out")
			}
			g := newGate(t, func(engine.Ended) bool { return true })
			w := newWorld(t, option{wrap: g.wrap, room: c.room, alone: c.long})
			a := w.join("a")
			id := w.trigger(w.job("j"))
			o := a.got(id, 1)
			a.set(func() { a.deaf = true }) // otherwise the dispatcher could get the result by asking the instance
			message := unknownResult(c.size)
			if len(message) != c.size {
				t.Fatalf("a message has %d bytes", len(message))
			}
			for range c.messages {
				w.publish(wire.ResultSubject("h"), message)
			}
			a.report(o, wire.Succeeded)
			w.eventually("it has fetched the result", func() bool { return w.metric("belfry_group_queue_bytes", "result", "g") > 0 })
			g.open()
			w.becomes(id, "succeeded")
			if first := slices.Index(g.seen(), "g"); first > c.before {
				t.Errorf("%d results of the flood were settled first", first)
			}
			a.gotSettled(id, 1)
			w.eventually("the streams are empty", func() bool { return w.unsettled()+w.stored(wire.StreamOverflow) == 0 })
			settled := len(slices.DeleteFunc(g.seen(), func(group string) bool { return group != "h" }))
			overflow, kept := w.metric("belfry_group_excess_total", "h", "overflow"), w.metric("belfry_group_excess_total", "h", "not_settled")
			if overflow == 0 || settled+int(kept) < c.messages || (kept > 0) != c.long {
				t.Errorf("of %d results, %d were settled, %v of them from the overflow; %v were not settled", c.messages, settled, overflow, kept)
			}
			if n := w.metric("belfry_group_excess_total", "g"); n != 0 {
				t.Errorf("%v messages of the other group exceeded its share", n)
			}
		})
	}
}

// A group's results beyond its share are settled from the overflow. Those beyond its share of the overflow are not settled: the
// executor is not notified, and sends them again.
func TestOverflow(t *testing.T) {
	g := newGate(t, func(engine.Ended) bool { return true })
	w := newWorld(t, option{wrap: g.wrap, room: intake.Bounds{GroupBytes: 1}}) // one message
	w.boundOverflow(1)
	a := w.join("a")
	ids, offers := w.offered(a, 3)
	a.set(func() { a.deaf = true })
	a.report(offers[0], wire.Succeeded)
	w.eventually("it holds the first one", func() bool { return len(g.seen()) > 0 })
	a.report(offers[1], wire.Succeeded)
	w.eventually("the second one is in the overflow", func() bool { return w.metric("belfry_group_excess_total", "g", "overflow") == 1 })
	a.report(offers[2], wire.Succeeded)
	w.eventually("the third one is not settled", func() bool { return w.metric("belfry_group_excess_total", "g", "not_settled") == 1 })
	w.eventually("the others are acknowledged", func() bool { return w.unsettled() == 1 && w.stored(wire.StreamOverflow) == 1 })
	g.open()
	for _, id := range ids[:2] {
		w.becomes(id, "succeeded")
		a.gotSettled(id, 1)
	}
	w.eventually("the overflow is empty", func() bool { return w.stored(wire.StreamOverflow) == 0 })
	a.set(func() {
		if n := a.settled[attempt{ids[2].String(), 1}]; n != 0 {
			t.Errorf("it was notified %d times that the third one is settled", n)
		}
	})
	a.report(offers[2], wire.Succeeded)
	w.becomes(ids[2], "succeeded")
	a.gotSettled(ids[2], 1)
}

// boundOverflow lowers the bound of each group's messages in the overflow.
func (w *world) boundOverflow(messages int64) {
	w.t.Helper()
	s, err := w.js.Stream(w.t.Context(), wire.StreamOverflow)
	if err != nil {
		w.t.Fatal(err)
	}
	config := s.CachedInfo().Config
	config.MaxMsgsPerSubject = messages
	if _, err := w.js.UpdateStream(w.t.Context(), config); err != nil {
		w.t.Fatal(err)
	}
}

// A dispatcher dies while it holds results in memory and has moved others to the overflow. Another dispatcher settles all of them.
func TestDispatcherDiesWithHeldResults(t *testing.T) {
	var killed atomic.Bool
	g := newGate(t, func(engine.Ended) bool { return true })
	before := g.settle
	g.settle = func(ctx context.Context, ended []engine.Ended) error {
		if err := before(ctx, ended); err != nil {
			return err
		}
		if killed.Load() {
			return domain.NewError(domain.Unavailable, "the process is dead")
		}
		return nil
	}
	w := newWorld(t, option{wrap: g.wrap, room: intake.Bounds{GroupBytes: 2 * 512}})
	a := w.join("a")
	job := w.job("j")
	var ids []domain.RunID
	var offers []wire.Offer
	for range 10 {
		ids = append(ids, w.trigger(job))
		offers = append(offers, a.got(ids[len(ids)-1], 1))
	}
	a.set(func() { a.deaf = true })
	for _, o := range offers {
		a.report(o, wire.Succeeded)
	}
	w.eventually("it holds two and has moved the others", func() bool {
		return w.unsettled() == 2 && w.metric("belfry_group_excess_total", "g", "overflow") == 8 && w.metric("belfry_group_queue_bytes", "g") >= 2*512
	})
	killed.Store(true)
	w.nc.Close()
	g.open()
	w.stop()
	w.nc = w.connect(nats.ReconnectBufSize(-1))
	w.create(storesOf(w.pg), option{})
	w.begin(option{})
	for _, id := range ids {
		w.becomes(id, "succeeded")
		a.gotSettled(id, 1)
	}
	w.eventually("the streams are empty", func() bool { return w.unsettled()+w.stored(wire.StreamOverflow) == 0 })
}

// The results of one group wait. A verdict about an instance of another group does not wait for them, and one about an instance of
// the same group does.
func TestVerdictDespiteAnotherGroupsBacklog(t *testing.T) {
	g := newGate(t, ofGroup("h"))
	w := newWorld(t, option{wrap: g.wrap})
	a, b := w.join("a"), w.join("b", func(p *puppet) { p.group = "h" })
	dies := w.trigger(w.job("of g"))
	ended := w.trigger(w.job("of h", func(s *domain.JobSpec) { s.Group = "h" }))
	a.got(dies, 1)
	b.report(b.got(ended, 1), wire.Succeeded)
	w.eventually("it holds the result", func() bool { return slices.Contains(g.seen(), "h") })
	b.die()
	a.die()
	w.becomes(dies, "failed/lost")
	if n := w.unsettled(); n != 1 {
		t.Errorf("%d results wait", n)
	}
	for group, want := range map[string]bool{"g": true, "h": false} {
		if got, err := w.role.results.AllSettled(t.Context(), group); got != want || err != nil {
			t.Errorf("all results of group %s are settled: %t, %v", group, got, err)
		}
	}
	g.open()
	if r := w.becomes(ended, "succeeded"); r.Attempt != 1 {
		t.Errorf("run %+v", r)
	}
}

// AllSettled considers the results of one group, in both streams, that were there when it was called.
func TestAllSettled(t *testing.T) {
	w := newWorld(t, option{quiet: true, still: true})
	check := func(what, group string, want bool) {
		t.Helper()
		if got, err := w.role.results.AllSettled(t.Context(), group); got != want || err != nil {
			t.Errorf("%s: %t, %v", what, got, err)
		}
	}
	take := func(stream, subject string) jetstream.Msg {
		t.Helper()
		c, err := w.js.CreateOrUpdateConsumer(t.Context(), stream, jetstream.ConsumerConfig{Durable: "t", FilterSubject: subject, AckPolicy: jetstream.AckExplicitPolicy})
		if err != nil {
			t.Fatal(err)
		}
		m, err := c.Next()
		if err != nil {
			t.Fatal(err)
		}
		return m
	}
	check("without results", "g", true)
	large := make([]byte, 1<<20)
	w.publish(wire.ResultSubject("g"), large)
	check("with a result", "g", false)
	check("another group", "h", true)
	m := take(wire.StreamResults, wire.ResultSubject("g"))
	check("with a result that was delivered", "g", false)
	if err := m.DoubleAck(t.Context()); err != nil {
		t.Fatal(err)
	}
	check("afterwards", "g", true)
	w.publish(wire.OverflowSubject("g"), large)
	check("with a result in the overflow", "g", false)
	check("another group", "h", true)
	// Callers that arrive while a check is in progress get the answer of a later check.
	var wg sync.WaitGroup
	var yes atomic.Int32
	for range 20 {
		wg.Go(func() {
			if ok, err := w.role.results.AllSettled(t.Context(), "g"); ok || err != nil {
				yes.Add(1)
			}
		})
	}
	wg.Wait()
	if n := yes.Load(); n != 0 {
		t.Errorf("%d of 20 concurrent calls say that all is settled", n)
	}
	if err := take(wire.StreamOverflow, wire.OverflowSubject("g")).DoubleAck(t.Context()); err != nil {
		t.Fatal(err)
	}
	check("after that", "g", true)
}

// An executor of one group sends boot ids that Postgres refuses. Runs of other groups, which are fired and settled in the same
// batches, are not affected.
func TestBootIDsThatPostgresRefuses(t *testing.T) {
	w := newWorld(t, option{still: true})
	a := w.join("a", auto)
	w.join("bad", func(p *puppet) { p.group, p.heartbeat = "h", false }).hostile()
	w.eventually("its heartbeat is read", func() bool {
		_, alive := w.roster.Boot("h", "bad")
		return alive || len(w.letters("heartbeat")) > 0
	})
	id := w.trigger(w.job("j"))
	w.trigger(w.job("of h", func(s *domain.JobSpec) { s.Group = "h" }))
	runs, _, err := w.pg.ClaimNear(t.Context(), 10)
	if err != nil || len(runs) != 2 {
		t.Fatalf("claimed %+v, %v", runs, err)
	}
	if _, err := w.Fire(t.Context(), runs); err != nil {
		t.Errorf("cannot fire: %v", err)
	}
	a.got(id, 1)
	w.becomes(id, "succeeded")
	w.eventually("its result is a dead letter", func() bool { return len(w.letters("result")) > 0 })
}

// hostile sends a heartbeat and a result whose boot id contains a NUL.
func (p *puppet) hostile() {
	p.boot += "\x00"
	p.beat()
	p.report(wire.Offer{RunID: domain.NewRunID(time.Now()).String(), Attempt: 1}, wire.Succeeded)
}
