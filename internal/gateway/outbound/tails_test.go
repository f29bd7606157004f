package outbound

import (
	"encoding/json"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/belfryhq/belfry/executor/wire"
	"github.com/belfryhq/belfry/internal/domain"
	"github.com/belfryhq/belfry/internal/gateway/address"
	"github.com/belfryhq/belfry/internal/store/gateway"
	"github.com/belfryhq/belfry/internal/xxl/protocol"
)

// Logs of ended runs come first, in the order of the ends. A log is forgotten when its end was read and the result is settled, in either order.
func TestTails(t *testing.T) {
	t.Parallel()
	logs := tails{most: mostTails}
	at := time.Now()
	run := func(n int) *address.Attempt {
		return &address.Attempt{Offer: gateway.Offer{Attempt: gateway.Attempt{Run: domain.RunID{15: byte(n)}, Number: 1}}, LogID: int64(n), SentAt: at}
	}
	for n := range 4 {
		if !logs.add(run(n), at.Add(time.Duration(n)*time.Millisecond)) || logs.add(run(n), at) {
			t.Fatalf("the log %d must be added once", n)
		}
	}
	if l := logs.take(at); l != nil {
		t.Fatalf("the log %d is read before it is due", l.logID)
	}
	logs.finish(run(2).Attempt, false, at.Add(time.Second))
	logs.finish(run(1).Attempt, false, at.Add(2*time.Second))
	logs.finish(run(1).Attempt, true, at.Add(3*time.Second))
	var order []int64
	for l := logs.take(at.Add(time.Minute)); l != nil; l = logs.take(at.Add(time.Minute)) {
		order = append(order, l.logID)
		if l.logID == 0 {
			logs.finish(l.attempt, false, at.Add(time.Minute)) // the run ends while its log is read
		}
		logs.put(l, l.logID != 3, at.Add(time.Hour))
	}
	if want := []int64{2, 1, 0, 3}; !slices.Equal(order, want) {
		t.Errorf("the order is %v, not %v", order, want)
	}
	if len(logs.of) != 3 || logs.find(run(1).Attempt, 1) != nil || logs.ending != 0 { // the log 1 was settled before
		t.Errorf("%d logs are kept, %d of them end", len(logs.of), logs.ending)
	}
	logs.finish(run(2).Attempt, true, at)
	if logs.find(run(2).Attempt, 2) != nil {
		t.Error("a log that was read is kept after its result is settled")
	}
	again := run(3)
	again.LogID = 33
	if !logs.add(again, at) || logs.find(again.Attempt, 3) != nil || logs.find(again.Attempt, 33) == nil || len(logs.queue) != 1 {
		t.Error("the log of a later send does not replace that of the first send")
	}
}

// A result waits for its log only if few logs are read before. Beyond a number of logs, those of succeeded runs are not read, and their results say so.
func TestTailsBounds(t *testing.T) {
	t.Parallel()
	of := tender{tails: tails{most: mostTails}}
	logs := &of.tails
	at := time.Now()
	run := func(n int) *address.Attempt {
		return &address.Attempt{Offer: gateway.Offer{Attempt: gateway.Attempt{Run: domain.RunID{14: byte(n >> 8), 15: byte(n)}, Number: 1}}, LogID: int64(n), SentAt: at}
	}
	for n := range mostTails + 2 {
		a := run(n)
		logs.add(a, at)
		logs.finish(a.Attempt, false, at)
		if l := logs.of[a.Attempt]; l.soon != (n < mostAhead) || l.unread != (n >= mostTails) {
			t.Fatalf("the log %d: %+v", n, l)
		}
	}
	failed := run(mostTails)
	logs.insist(failed.Attempt)
	logs.finish(failed.Attempt, false, at)
	for n, want := range map[int]string{mostTails - 1: "", mostTails: "", mostTails + 1: unreadLog} {
		var r wire.Result
		a := run(n)
		if of.describeLog(&gateway.Send{Offer: a.Offer, LogID: a.LogID}, &r); r.Message != want {
			t.Errorf("the result of the run %d has the message %q, not %q", n, r.Message, want)
		}
	}
	if len(logs.queue) != mostTails+1 || logs.undone != mostTails+1 || logs.ending != mostTails+1 {
		t.Errorf("%d logs are read, %d are not done, and %d end", len(logs.queue), logs.undone, logs.ending)
	}
	for n := range mostTails + 2 {
		logs.finish(run(n).Attempt, true, at)
		if l := logs.of[run(n).Attempt]; l != nil {
			logs.drop(l)
		}
	}
	if len(logs.of) != 0 || len(logs.queue) != 0 || logs.undone != 0 || logs.ending != 0 {
		t.Errorf("after all runs: %d logs, %d of them wait, %d are not done, and %d end", len(logs.of), len(logs.queue), logs.undone, logs.ending)
	}
}

// While the log of a run is read and no other may be, the result of a succeeded run says so, and the log of a failed run is read nevertheless: also if the
// executor reports the end before it answers.
func TestUnreadLog(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.mostTails = 1
	first, succeeded, failed, early := offerOf(1), offerOf(2), offerOf(3), offerOf(4)
	early.Param = "early"
	var p *process
	w.exec.answer = func(path string, body []byte) string {
		var run protocol.Run
		if path == "/run" && json.Unmarshal(body, &run) == nil && run.Param == early.Param {
			w.end(p, run.LogID, wire.Failed)
			w.endOf(early)
		}
		return ""
	}
	p = w.start("p", nil, address.Patience{})
	instance := w.register(p)
	linesOf := func(o wire.Offer) (n int) {
		w.set(func() { n = len(w.linesOf[o.RunID]) })
		return n
	}
	start := func(o wire.Offer) (logID int64) {
		w.accepted(instance, o)
		return w.received(int(o.JobID)).LogID
	}
	startAndEnd := func(o wire.Offer, outcome string) {
		id := start(o)
		w.eventually("the executor's answer is stored", func() bool { return w.state(o) == "taken" })
		w.end(p, id, outcome)
	}
	start(first) // it runs to the end of the test
	w.eventually("the first lines of the first run", func() bool { return linesOf(first) > 0 })

	startAndEnd(succeeded, wire.Succeeded)
	if r := w.endOf(succeeded); r.Outcome != wire.Succeeded || r.Message != unreadLog || r.LastLine != 0 {
		t.Errorf("the succeeded run: %+v", r)
	}
	logged := func(o wire.Offer) {
		t.Helper()
		if r := w.endOf(o); r.Outcome != wire.Failed || r.Message == unreadLog {
			t.Errorf("a failed run: %+v", r)
		}
		w.eventually("the log of the failed run", func() bool { return linesOf(o) == 3 })
	}
	startAndEnd(failed, wire.Failed)
	logged(failed)
	start(early)
	logged(early)
	if linesOf(succeeded) > 0 {
		t.Error("the log of the succeeded run is read")
	}
}

// holdLogs lets the executor answer no request for a log until release is called, or the test ends.
func (w *world) holdLogs() (release func()) {
	goesOn := make(chan struct{})
	release = sync.OnceFunc(func() { close(goesOn) })
	w.t.Cleanup(release)
	w.exec.answer = func(path string, _ []byte) string {
		if path == "/log" {
			<-goesOn
		}
		return ""
	}
	return release
}

// If a gateway stops after a run has ended and before it has read the log, the next owner of the address reads it.
func TestLogAfterTakeOver(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.settles = false
	release := w.holdLogs()
	first := w.start("first", nil, address.Patience{})
	instance := w.register(first)
	o := offerOf(7)
	w.accepted(instance, o)
	w.end(first, w.received(1).LogID, wire.Succeeded)
	w.endOf(o)
	first.stop()
	release()
	w.start("second", nil, address.Patience{})
	w.eventually("the log", func() (whole bool) {
		w.set(func() { whole = len(w.linesOf[o.RunID]) == 3 })
		return whole
	})
}

// The log of a run says why its rest is not read.
func TestALogThatCannotBeRead(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.exec.answer = func(path string, _ []byte) string {
		if path == "/log" {
			return `{"code":500,"msg":"the disk is broken"}`
		}
		return ""
	}
	p := w.start("p", nil, address.Patience{})
	instance := w.register(p)
	o := offerOf(1)
	w.accepted(instance, o)
	w.received(1)
	w.eventually("a line that says why the log is not read", func() (found bool) {
		w.set(func() {
			found = slices.ContainsFunc(w.lines, func(l wire.LogLine) bool {
				return strings.Contains(l.Text, "gave up") && strings.Contains(l.Text, "the disk is broken")
			})
		})
		return found
	})
}

// A result that waits for its log is read from Postgres once, although other results come meanwhile.
func TestHeldResult(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	release := w.holdLogs()
	g := &gate{}
	p := w.start("p", g, address.Patience{})
	instance := w.register(p)
	var offers []wire.Offer
	for job := range 10 {
		o := offerOf(int64(job + 1))
		offers = append(offers, o)
		w.accepted(instance, o)
		w.callback(p, w.received(job+1).LogID, false)
	}
	for _, o := range offers {
		w.endOf(o)
	}
	release()
	if n := g.resultsRead(); n != 1 {
		t.Errorf("a result was read %d times", n)
	}
}
