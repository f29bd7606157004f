package outbound

import (
	"context"
	"encoding/json"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/belfryhq/belfry/executor/wire"
	"github.com/belfryhq/belfry/internal/gateway/address"
	"github.com/belfryhq/belfry/internal/gateway/clock"
	"github.com/belfryhq/belfry/internal/store/gateway"
	"github.com/belfryhq/belfry/internal/xxl/protocol"
)

// If a gateway dies while a run is at the executor, another one takes the address over with the same boot. The run goes on, is not sent again, and
// its callback is its result, whichever gateway receives it.
func TestTakeOver(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	g := &gate{}
	first := w.start("first", g, address.Patience{})
	instance := w.register(first)
	o := offerOf(7)
	w.accepted(instance, o)
	run := w.received(1)
	w.eventually("the run is running", func() bool { return w.state(o) == "taken" })
	old := w.ready(instance, anyBeat)
	second := w.start("second", nil, address.Patience{})
	g.close() // the first one cannot keep the address any more
	h := w.ready(instance, func(h wire.Heartbeat) bool { return h.Beat>>32 >= 2 })
	if h.BootID != "boot" || h.Running != 1 {
		t.Errorf("the heartbeat of the new owner: %+v", h)
	}
	if said := w.offer(instance, old.Beat, offerOf(8)); len(said) != 1 || said[0] != "refusedstale" {
		t.Errorf("an offer that relies on a heartbeat of the old owner: %v", said)
	}
	if said := w.offer(instance, h.Beat, o); len(said) != 1 || said[0] != wire.Accepted {
		t.Errorf("the run is offered again: %v", said)
	}
	w.callback(first, run.LogID, false)
	if r := w.endOf(o); r.Outcome != wire.Succeeded {
		t.Errorf("the result: %+v", r)
	}
	w.eventually("the new owner knows the end", func() bool {
		return w.ready(instance, func(h wire.Heartbeat) bool { return h.Beat>>32 >= 2 }).Running == 0
	})
	if n := w.exec.requests(); n != 1 {
		t.Errorf("the run was sent %d times", n)
	}
	_ = second
}

// A drain outlives the gateway that received it. It ends when the executor stops and comes back.
func TestDrain(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	g := &gate{}
	first := w.start("first", g, address.Patience{})
	instance := w.register(first)
	w.ready(instance, anyBeat)
	reply, err := w.nc.Request(wire.ControlSubject("g", instance), wire.Encode(wire.Control{V: 1, Op: wire.OpDrain}), 5*time.Second)
	var said wire.ControlReply
	if err == nil {
		err = wire.Decode(reply.Data, &said)
	}
	if err != nil || said.Error != "" || !said.Load.Draining {
		t.Fatalf("the answer: %+v, %v", said, err)
	}
	second := w.start("second", nil, address.Patience{})
	g.close()
	h := w.ready(instance, func(h wire.Heartbeat) bool { return h.Beat>>32 >= 2 })
	if said := w.offer(instance, h.Beat, offerOf(7)); !h.Draining || len(said) != 1 || said[0] != "refuseddraining" {
		t.Errorf("the next gateway: %+v, %v", h, said)
	}
	o := offerOf(7)
	if _, err := w.pool.Exec(t.Context(), `UPDATE gateway_addresses SET leaving_at = now()`); err != nil { // it stops, and comes back at once
		t.Fatal(err)
	}
	w.register(second)
	w.ready(instance, func(h wire.Heartbeat) bool { return !h.Draining })
	w.accepted(instance, o)
}

// A gateway that is frozen between the permission to send a run and the request makes no request after another gateway has taken the address over.
func TestFrozenBeforeTheRequest(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	thaw, frozen := make(chan struct{}), make(chan struct{})
	var once sync.Once
	g := &gate{sent: func() {
		once.Do(func() { close(frozen) })
		<-thaw
	}}
	first := w.start("first", g, address.Patience{})
	instance := w.register(first)
	o := offerOf(7)
	w.accepted(instance, o)
	<-frozen
	g.close()
	w.start("second", nil, address.Patience{})
	w.ready(instance, func(h wire.Heartbeat) bool { return h.Beat>>32 >= 2 })
	if state := w.state(o); state != "unknown" {
		t.Errorf("after the take-over, the send is %s", state)
	}
	close(thaw)
	if r := w.resultOf(o); r.Outcome != wire.Unstarted {
		t.Errorf("the result: %+v", r)
	}
	if n := w.exec.requests(); n != 0 {
		t.Errorf("the executor received %d runs", n)
	}
}

// A gateway that stops in order gives back the runs that it has not sent. Another gateway receives its message, takes the address over, and accepts these runs.
func TestStop(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	first := w.start("first", nil, address.Patience{})
	instance := w.register(first)
	sent, waiting := offerOf(7), offerOf(7)
	w.accepted(instance, sent)
	run := w.received(1)
	w.accepted(instance, waiting)
	w.takeEvery = time.Hour
	second := w.start("second", nil, address.Patience{})
	w.eventually("the second gateway listens", func() bool { return second.Conn.NumSubscriptions() > 0 && second.Conn.Flush() == nil })
	first.stop()
	w.ready(instance, func(h wire.Heartbeat) bool { return h.Beat>>32 >= 2 })
	if r := w.resultOf(waiting); r.Outcome != wire.Unstarted {
		t.Errorf("the run that waited: %+v", r)
	}
	waiting.Bind = 100 // on a busy machine, earlier ones were used
	w.accepted(instance, waiting)
	w.callback(second, run.LogID, false)
	if r := w.endOf(sent); r.Outcome != wire.Succeeded {
		t.Errorf("the run that was sent: %+v", r)
	}
	if n := w.exec.count(func() int { return w.exec.runs[run.LogID] }); n != 1 {
		t.Errorf("it was sent %d times", n)
	}
}

// A request that is on its way does not delay the release of its address. Its answer is stored when it comes.
func TestStopDuringRequest(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	arrived, answers := make(chan struct{}), make(chan struct{})
	w.exec.answer = func(path string, _ []byte) string {
		if path == "/run" {
			close(arrived)
			<-answers
		}
		return ""
	}
	first := w.start("first", nil, address.Patience{})
	instance := w.register(first)
	o := offerOf(7)
	w.accepted(instance, o)
	<-arrived
	w.start("second", nil, address.Patience{})
	stopped := make(chan struct{})
	go func() {
		first.stop()
		close(stopped)
	}()
	h := w.ready(instance, func(h wire.Heartbeat) bool { return h.Beat>>32 >= 2 })
	if state := w.state(o); state != "unknown" || h.Running != 1 {
		t.Errorf("the new owner has %d runs, and the send is %s", h.Running, state)
	}
	close(answers)
	<-stopped
	if state := w.state(o); state != "taken" || w.exec.requests() != 1 {
		t.Errorf("after %d requests, the send is %s", w.exec.requests(), state)
	}
}

// An executor that registers at a gateway which is stopping is left to another gateway at once.
func TestRegisterDuringStop(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	first := w.start("first", nil, address.Patience{})
	first.stop()
	instance := w.register(first)
	w.start("second", nil, address.Patience{})
	w.ready(instance, func(h wire.Heartbeat) bool { return h.Beat>>32 >= 2 })
}

// Offers that rely on heartbeats of the earlier owner are refused. At first, the answer says that the instance is full, so that dispatchers offer again as soon
// as they receive a heartbeat of the new owner.
func TestStaleAfterTakeOver(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	p := w.start("p", nil, address.Patience{})
	begun := clock.Now()
	owner := newTender(p.Fleet, gateway.Address{Group: "g", Instance: "i", BootID: "boot", Epoch: 2}, begun)
	defer owner.end()
	old, mine := &wire.Offers{Beat: 1<<32 + 7}, &wire.Offers{Beat: 2<<32 + 1}
	if l := owner.loadFor(old, begun.Add(time.Millisecond)); l.Running != l.Capacity || l.Seq >= 0 {
		t.Errorf("at first: %+v", l)
	}
	for what, l := range map[string]wire.Load{"later": owner.loadFor(old, begun.Add(2*noticeTime)), "for its own heartbeat": owner.loadFor(mine, begun.Add(time.Millisecond))} {
		if l.Running != 0 || l.Seq>>32 != 2 {
			t.Errorf("%s: %+v", what, l)
		}
	}
}

// The result of an attempt that went back may be settled again after the attempt has come back and was sent. That settles nothing.
func TestSettledLate(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	refuses := true
	w.exec.answer = func(path string, _ []byte) string {
		w.exec.mu.Lock()
		defer w.exec.mu.Unlock()
		if path == "/run" && refuses {
			return `{"code":500,"msg":"The access token is wrong."}`
		}
		return ""
	}
	p := w.start("p", nil, address.Patience{})
	instance := w.register(p)
	o := offerOf(7)
	w.accepted(instance, o)
	if r := w.resultOf(o); r.Outcome != wire.Unstarted {
		t.Fatalf("the refused run: %+v", r)
	}
	w.exec.set(func() { refuses = false })
	w.ready(instance, func(h wire.Heartbeat) bool { return h.Unfit == nil })
	o.Bind = 100
	w.accepted(instance, o)
	w.eventually("the run is running", func() bool { return w.state(o) == "taken" })
	settled := wire.EncodeSettled([]wire.Ref{{RunID: o.RunID, Attempt: o.Attempt, BootID: "boot"}})
	if err := w.nc.Publish(wire.ControlSubject("g", instance), settled); err != nil {
		t.Fatal(err)
	}
	reply, err := w.nc.Request(wire.ControlSubject("g", instance), wire.Encode(wire.Control{V: 1, Op: wire.OpStatus}), 5*time.Second) // after the message before
	if err != nil {
		t.Fatal(err)
	}
	var status wire.ControlReply
	if err := wire.Decode(reply.Data, &status); err != nil || status.Load.Running != 1 {
		t.Errorf("%d runs are left, %v", status.Load.Running, err)
	}
}

// A result is published until it is settled, also by a later owner.
func TestPublishedUntilSettled(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.settles = false
	first := w.start("first", nil, address.Patience{})
	instance := w.register(first)
	o := offerOf(7)
	w.accepted(instance, o)
	w.callback(first, w.received(1).LogID, false)
	w.endOf(o)
	first.stop()
	published := 0
	w.set(func() { w.results, w.settles = nil, true })
	w.start("second", nil, address.Patience{})
	w.endOf(o)
	w.eventually("the result is settled", func() bool {
		if err := w.pool.QueryRow(t.Context(), `SELECT count(*) FROM gateway_sends WHERE forget_at IS NOT NULL`).Scan(&published); err != nil {
			t.Fatal(err)
		}
		return published == 1
	})
}

// While two gateways lose and take over the address again and again, no run is sent twice, and each run that was accepted ends.
func TestSentOnce(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	start := func(i int) (*process, *gate) {
		g := &gate{}
		return w.start(fmt.Sprintf("p%d", i), g, address.Patience{}), g
	}
	p, g := start(0)
	instance := w.register(p)
	w.exec.answer = func(path string, body []byte) string {
		var run protocol.Run
		if err := json.Unmarshal(body, &run); err != nil {
			panic(err)
		}
		if path == "/run" { // the callback often comes before the answer
			end := gateway.End{LogID: run.LogID, Result: gateway.Result{Outcome: wire.Succeeded}}
			_, _ = w.sends.Finish(context.Background(), []string{"g"}, []gateway.End{end}) // without it, the test hangs
		}
		return ""
	}
	offered := map[string]wire.Offer{}
	for i := 1; i <= 3; i++ {
		epoch := w.ready(instance, anyBeat).Beat >> 32
		for range 10 {
			o := offerOf(int64(1 + len(offered)%3))
			said := w.offer(instance, w.ready(instance, anyBeat).Beat, o)
			if len(said) == 1 && said[0] == wire.Accepted {
				offered[o.RunID] = o
			}
		}
		old := g
		_, g = start(i)
		old.close()
		w.ready(instance, func(h wire.Heartbeat) bool { return h.Beat>>32 > epoch })
	}
	for _, o := range offered {
		w.resultOf(o)
	}
	w.exec.set(func() {
		for id, n := range w.exec.runs {
			if n != 1 {
				t.Errorf("log id %d was sent %d times", id, n)
			}
		}
	})
	var twice int
	if err := w.pool.QueryRow(t.Context(), `SELECT count(*) FROM (SELECT FROM gateway_sends WHERE NOT unstarted GROUP BY run_id, attempt HAVING count(*) > 1) x`).Scan(&twice); err != nil {
		t.Fatal(err)
	}
	if twice != 0 {
		t.Errorf("%d attempts have several sends", twice)
	}
}
