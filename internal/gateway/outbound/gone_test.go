package outbound

import (
	"strings"
	"testing"
	"time"

	"github.com/belfryhq/belfry/executor/wire"
	"github.com/belfryhq/belfry/internal/gateway/address"
	"github.com/belfryhq/belfry/internal/lifecycle"
)

// short is a patience for tests.
var short = address.Patience{Silent: 4 * time.Second, Lost: 2 * time.Second, Check: 200 * time.Millisecond}

// A run that the executor denies to have is lost, and is not tried again. A callback that comes later is reported as well.
func TestLost(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.kind = "other" // of which any number of registrations is normal
	p := w.start("p", nil, short)
	instance := w.register(p)
	o := offerOf(7)
	w.accepted(instance, o)
	run := w.received(1)
	w.exec.set(func() { w.exec.idle = true })
	w.eventually("the run is lost", func() bool {
		w.register(p)
		lifecycle.Pause(t.Context(), 100*time.Millisecond)
		return w.state(o) == "lost"
	})
	if r := w.endOf(o); r.Outcome != wire.Failed || r.Reason != "lost" || !r.Permanent || !strings.Contains(r.Message, "does not have the run") {
		t.Errorf("the result: %+v", r)
	}
	w.callback(p, run.LogID, false)
	w.eventually("the late result", func() bool { return w.endOf(o).Outcome == wire.Succeeded })
}

// An executor that registers no more gets no runs, and then its runs are lost and its address is removed.
func TestGone(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	p := w.start("p", nil, short)
	instance := w.register(p)
	o := offerOf(7)
	w.accepted(instance, o)
	w.received(1)
	w.ready(instance, func(h wire.Heartbeat) bool { return h.Draining })
	if r := w.endOf(o); r.Reason != "lost" || !strings.Contains(r.Message, "no registration") {
		t.Errorf("the result: %+v", r)
	}
	w.eventually("the address is removed", func() bool {
		var n int
		if err := w.pool.QueryRow(t.Context(), `SELECT count(*) FROM gateway_addresses`).Scan(&n); err != nil {
			t.Fatal(err)
		}
		return n == 0
	})
}

// An executor that says that it stops gets no runs, and its address is removed after its last run. It can come back.
func TestLeave(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	p := w.start("p", nil, address.Patience{})
	instance := w.register(p)
	o := offerOf(7)
	w.accepted(instance, o)
	run := w.received(1)
	if err := p.Leave(t.Context(), "g", instance); err != nil {
		t.Fatal(err)
	}
	h := w.ready(instance, func(h wire.Heartbeat) bool { return h.Draining })
	if said := w.offer(instance, h.Beat, offerOf(7)); len(said) != 1 || said[0] != "refuseddraining" {
		t.Errorf("a run for it: %v", said)
	}
	w.callback(p, run.LogID, false)
	w.resultOf(o)
	w.eventually("the address is removed", func() bool { return p.find(place{"g", instance}) == nil })
	w.register(p)
	w.accepted(instance, offerOf(7))
	w.received(2)
}
