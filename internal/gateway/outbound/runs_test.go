package outbound

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/belfryhq/belfry/executor/wire"
	"github.com/belfryhq/belfry/internal/domain"
	"github.com/belfryhq/belfry/internal/gateway/address"
)

// An accepted run is sent once, with what the offer says. Its callback becomes its result, and its log lines arrive. A repeated offer does not start it again.
func TestRun(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	p := w.start("p", nil, address.Patience{})
	instance := w.register(p)
	h := w.ready(instance, anyBeat)
	if len(h.Handlers) != 1 || h.Handlers[0] != wire.AnyHandler || h.Beat>>32 != 1 || h.Capacity != 16 {
		t.Errorf("the heartbeat: %+v", h)
	}
	o := offerOf(7)
	o.TimeoutMS, o.Shard = 1500, wire.Shard{Index: 2, Total: 3}
	w.accepted(instance, o)
	run := w.received(1)
	if run.Handler != "demo" || run.Param != "p" || run.TimeoutS != 2 || run.Block != "SERIAL_EXECUTION" || run.ShardIndex != 2 || run.ShardTotal != 3 || run.JobID < 1e9 || run.LogID < 1<<40 {
		t.Errorf("the request: %+v", run)
	}
	if said := w.offer(instance, h.Beat, o); len(said) != 1 || said[0] != wire.Accepted {
		t.Errorf("offered again: %v", said)
	}
	w.eventually("the first lines of the log", func() bool {
		n := 0
		w.set(func() { n = len(w.lines) })
		return n >= 2
	})
	w.callback(p, run.LogID, false)
	if r := w.endOf(o); r.Outcome != wire.Succeeded || r.Output != "done" || r.LastLine < 2 || r.StartedAt.IsZero() || r.BootID != "boot" {
		t.Errorf("the result: %+v", r)
	}
	w.eventually("the result is settled", func() bool {
		said := w.offer(instance, w.ready(instance, anyBeat).Beat, o)
		return len(said) == 1 && said[0] == wire.Ended+wire.Succeeded
	})
	if n := w.exec.requests(); n != 1 {
		t.Errorf("the executor received %d runs", n)
	}
}

// A long log is read to its end, although the executor answers with a part of it each time.
func TestLongLog(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	const count = 2*fullPage + 500
	var log strings.Builder
	for i := range count {
		fmt.Fprintln(&log, i+1)
	}
	w.exec.log, w.exec.page = strings.TrimSuffix(log.String(), "\n"), fullPage
	p := w.start("p", nil, address.Patience{})
	instance := w.register(p)
	o := offerOf(7)
	w.accepted(instance, o)
	w.callback(p, w.received(1).LogID, false)
	w.endOf(o)
	w.eventually("the log has come", func() (done bool) {
		w.set(func() { done = len(w.lines) >= count })
		return done
	})
	w.set(func() {
		for i, l := range w.lines {
			if l.N != int64(i+1) || l.Text != fmt.Sprint(i+1) {
				t.Fatalf("line %d is line %d: %q", i+1, l.N, l.Text)
			}
		}
	})
}

// Runs that are due at the same instant are recorded with few statements, also those at different addresses, and a process that does not know the ids of their jobs reads
// them all at once.
func TestTogether(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	first := w.start("first", nil, address.Patience{})
	instances := []string{w.register(first), w.registerAt(first, newExecutor(t).URL)}
	var offers []wire.Offer
	for job := range 10 {
		offers = append(offers, offerOf(int64(job+1)))
		w.accepted(instances[0], offers[job]) // gives the job its id
		w.callback(first, w.received(job+1).LogID, false)
	}
	first.stop()
	goesOn := make(chan struct{})
	g := &gate{sent: func() { <-goesOn }}
	second := w.start("second", g, address.Patience{})
	second.ids.source = noIDs{t}
	for i := range offers {
		offers[i] = offerOf(int64(i + 1))
	}
	for i, instance := range instances {
		half := offers[5*i : 5*i+5]
		w.eventually("the runs are accepted", func() bool {
			h := w.ready(instance, func(h wire.Heartbeat) bool { return h.Beat>>32 >= 2 })
			said := w.offer(instance, h.Beat, half...)
			for i := range half {
				half[i].Bind++
			}
			return len(said) == len(half) && !slices.ContainsFunc(said, func(s string) bool { return s != wire.Accepted })
		})
	}
	w.eventually("the first statement runs, and the other runs wait", func() bool {
		return g.recorded()+second.sendings.Waiting() == len(offers)
	})
	close(goesOn)
	w.eventually("all are recorded", func() bool { return g.recorded() == len(offers) })
	if n := g.statements(); n > 2 {
		t.Errorf("%d statements", n)
	}
}

// noIDs knows no ids of jobs.
type noIDs struct{ t *testing.T }

// WireID implements WireIDs.
func (n noIDs) WireID(context.Context, string, domain.JobID) (int64, error) {
	n.t.Error("the id of a single job is read")
	return 0, errClosedGate
}

// The executor gets one run of a job at a time. Another one waits until the first has ended or until its offer is too old, and a kill ends its wait.
func TestOneRunOfAJob(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	p := w.start("p", nil, address.Patience{})
	instance := w.register(p)
	first, second, third, other := offerOf(7), offerOf(7), offerOf(7), offerOf(8)
	w.accepted(instance, first)
	run := w.received(1)
	w.accepted(instance, second)
	w.accepted(instance, third)
	w.accepted(instance, other)
	if other := w.received(2); other.JobID == run.JobID {
		t.Error("two runs of a job were sent")
	}
	if _, err := w.nc.Request(wire.ControlSubject("g", instance), wire.Encode(wire.Control{V: 1, Op: wire.OpKill, Reason: "killed", Runs: []wire.Ref{{RunID: third.RunID, Attempt: 1}}}), 5*time.Second); err != nil {
		t.Error(err)
	}
	if r := w.resultOf(third); r.Outcome != wire.Unstarted {
		t.Errorf("the killed run: %+v", r)
	}
	w.callback(p, run.LogID, false)
	w.eventually("the second run is sent, or goes back", func() bool { return w.state(second) != "accepted" })
	if state := w.state(second); state != "unstarted" {
		w.received(3)
	}
}

// A kill of a run at the executor is sent, and confirmed by the callback.
func TestKill(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	p := w.start("p", nil, address.Patience{})
	instance := w.register(p)
	o := offerOf(7)
	w.accepted(instance, o)
	run := w.received(1)
	w.eventually("the run is running", func() bool { return w.state(o) == "taken" })
	if _, err := w.nc.Request(wire.ControlSubject("g", instance), wire.Encode(wire.Control{V: 1, Op: wire.OpKill, Reason: "covered", Runs: []wire.Ref{{RunID: o.RunID, Attempt: 1}}}), 5*time.Second); err != nil {
		t.Fatal(err)
	}
	w.eventually("the executor gets the kill", func() bool { return w.exec.count(func() int { return w.exec.kills[run.JobID] }) > 0 })
	w.callback(p, run.LogID, true)
	if r := w.endOf(o); r.Outcome != wire.Cancelled || r.Reason != "covered" {
		t.Errorf("the result: %+v", r)
	}
}

// A request without an answer counts as running, and is not sent again.
func TestNoAnswer(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.exec.answer = func(path string, _ []byte) string {
		if path == "/run" {
			return "no JSON"
		}
		return ""
	}
	p := w.start("p", nil, address.Patience{})
	instance := w.register(p)
	o := offerOf(7)
	w.accepted(instance, o)
	w.eventually("the answer is unknown", func() bool { return w.state(o) == "unknown" })
	reply, err := w.nc.Request(wire.ControlSubject("g", instance), wire.Encode(wire.Control{V: 1, Op: wire.OpStatus, Runs: []wire.Ref{{RunID: o.RunID, Attempt: 1}}}), 5*time.Second)
	if err != nil || !strings.Contains(string(reply.Data), `"running"`) {
		t.Errorf("the status: %s, %v", reply.Data, err)
	}
	w.callback(p, w.received(1).LogID, false)
	if r := w.endOf(o); r.Outcome != wire.Succeeded || w.exec.requests() != 1 {
		t.Errorf("the result after %d requests: %+v", w.exec.requests(), r)
	}
}

// A refused run is routed again, or fails if no executor can run it. An address that refuses a handler says so in its heartbeat.
func TestRefused(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		answer, outcome, reason string
		unfit                   string
		lacks                   bool
	}{
		"no handler":  {`{"code":500,"msg":"job handler [demo] not found."}`, wire.Failed, "handler_not_found", "", true},
		"wrong token": {`{"code":500,"msg":"The access token is wrong."}`, wire.Unstarted, "", "wrong_token", false},
		"no path":     {`{"code":500,"msg":"invalid request, uri-mapping(/run) not found."}`, wire.Unstarted, "", "no_executor", false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			w.exec.answer = func(path string, _ []byte) string {
				if path == "/run" || path == "/trigger" || path == "/beat" {
					return c.answer
				}
				return ""
			}
			p := w.start("p", nil, address.Patience{})
			instance := w.register(p)
			o := offerOf(7)
			w.accepted(instance, o)
			if r := w.resultOf(o); r.Outcome != c.outcome || r.Reason != c.reason {
				t.Errorf("the result: %+v", r)
			}
			w.ready(instance, func(h wire.Heartbeat) bool {
				return (h.Unfit == nil && c.unfit == "" || h.Unfit != nil && h.Unfit.Reason == c.unfit) && (len(h.Lacks) == 1) == c.lacks
			})
			if c.unfit != "" {
				w.exec.set(func() { w.exec.answer = nil })
				w.ready(instance, func(h wire.Heartbeat) bool { return h.Unfit == nil })
			}
		})
	}
}

// A run that an executor is too busy for is asked for again, and routed again in the end.
func TestBusy(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.exec.answer = func(path string, _ []byte) string {
		if path == "/run" {
			return `{"code":500,"msg":"There are tasks running"}`
		}
		return ""
	}
	p := w.start("p", nil, address.Patience{})
	instance := w.register(p)
	o := offerOf(7)
	w.accepted(instance, o)
	if r := w.resultOf(o); r.Outcome != wire.Unstarted || w.exec.requests() < 2 {
		t.Errorf("after %d requests: %+v", w.exec.requests(), r)
	}
}

// An executor that cannot be reached gets no runs until it answers.
func TestUnreachable(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	p := w.start("p", nil, address.Patience{})
	instance := w.register(p)
	w.ready(instance, anyBeat)
	w.exec.CloseClientConnections()
	w.exec.Close()
	o := offerOf(7)
	w.accepted(instance, o)
	if r := w.resultOf(o); r.Outcome != wire.Unstarted {
		t.Errorf("the result: %+v", r)
	}
	h := w.ready(instance, func(h wire.Heartbeat) bool { return h.Unfit != nil && h.Unfit.Reason == "unreachable" })
	if said := w.offer(instance, h.Beat, offerOf(7)); len(said) != 1 || said[0] != "refusedfull" {
		t.Errorf("a run for it: %v", said)
	}
}

// Only addresses in the networks of the group are called, and never those on which Belfry itself listens.
func TestForbidden(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	p := w.start("p", nil, address.Patience{})
	for _, to := range []string{"10.0.0.1:80", "169.254.169.254:80", "[::1]:80", "[fe80::1]:80", "0.0.0.0:80"} {
		if err := p.Check("g", netip.MustParseAddrPort(to)); domain.CodeOf(err) != domain.Forbidden {
			t.Errorf("%s: %v", to, err)
		}
	}
	if err := p.Check("g", netip.MustParseAddrPort("127.0.0.1:80")); err != nil {
		t.Errorf("an allowed address: %v", err)
	}
	if err := p.Check("h", netip.MustParseAddrPort("127.0.0.1:80")); domain.CodeOf(err) != domain.NotFound {
		t.Errorf("a group that is not open: %v", err)
	}
	own := netip.MustParseAddrPort(strings.TrimPrefix(w.exec.URL, "http://"))
	p.Own = func() []netip.AddrPort { return []netip.AddrPort{own} } // before the first call
	if err := p.Check("g", own); domain.CodeOf(err) != domain.Forbidden {
		t.Errorf("an address of Belfry: %v", err)
	}
	instance := w.register(p) // as an address with a name would pass
	o := offerOf(7)
	w.accepted(instance, o)
	if r := w.resultOf(o); r.Outcome != wire.Unstarted || w.exec.requests() != 0 {
		t.Errorf("after %d requests to an address of Belfry: %+v", w.exec.requests(), r)
	}
}
