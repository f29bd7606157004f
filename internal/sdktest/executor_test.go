package sdktest

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/belfryhq/belfry/executor"
	"github.com/belfryhq/belfry/executor/wire"
)

func TestOfferIsRunAndReported(t *testing.T) {
	w := newWorld(t)
	i := w.start(w.config(), map[string]executor.HandlerFunc{"hello": func(_ context.Context, run executor.Run) error {
		run.Log().Info("hello", "param", run.Param())
		fmt.Fprintf(run.Stdout(), "one\ntwo\nthree")
		return run.SetOutput("out of " + run.ID())
	}})
	o := newOffer("r1", "hello")
	o.Param, o.DueAt = "p", wire.Time{Time: o.Now.Add(50 * time.Millisecond)}
	wantVerdict(t, i.offer(o), wire.Accepted, "")
	res := w.result("r1")
	if res.Outcome != wire.Succeeded || res.Output != "out of r1" || res.LastLine != 4 || res.BootID != i.boot || res.Bind != 1 {
		t.Fatalf("result %s", asJSON(res))
	}
	if early := o.DueAt.Truncate(time.Millisecond).Sub(res.StartedAt.Time); early > 0 {
		t.Errorf("started %v before due", early)
	}
	var lines []wire.LogLine
	w.await("four log lines", func() bool {
		lines = nil
		for _, m := range w.logs {
			lines = append(lines, m.Lines...)
		}
		return len(lines) == 4
	})
	for n, want := range []string{"info hello param=p", "stdout one", "stdout two", "stdout three"} {
		if got := lines[n].Level + " " + lines[n].Text; got != want || lines[n].N != int64(n+1) {
			t.Errorf("line %d is %d %q, want %q", n+1, lines[n].N, got, want)
		}
	}
	if st := i.status("r1"); st.Status != wire.StatusDone || st.Result == nil || st.Result.Output != "out of r1" {
		t.Errorf("status before settled: %s", asJSON(st))
	}
	i.control(wire.Control{Op: wire.OpSettled, Runs: []wire.Ref{{RunID: "r1", Attempt: 1, BootID: i.boot}}})
	if st := i.status("r1"); st.Status != wire.StatusDone || st.Result != nil {
		t.Errorf("status after settled: %s", asJSON(st))
	}
	must(t, i.end())
	kv, err := w.js.KeyValue(t.Context(), wire.BucketInstances)
	must(t, err)
	if _, err := kv.Get(t.Context(), "g.i1"); !errors.Is(err, jetstream.ErrKeyNotFound) {
		t.Errorf("after an ordinary shutdown, the heartbeat still exists: %v", err)
	}
}

func TestDuplicateOffersStartOnce(t *testing.T) {
	w := newWorld(t)
	var starts atomic.Int32
	release := make(chan struct{})
	i := w.start(w.config(), map[string]executor.HandlerFunc{"h": func(context.Context, executor.Run) error {
		starts.Add(1)
		<-release
		return nil
	}})
	o := newOffer("r1", "h")
	for n := range 10 {
		o.Bind = 1 + n/3
		wantVerdict(t, i.offer(o), wire.Accepted, "")
	}
	if ans := i.offer(o); ans.Load.Running != 1 {
		t.Errorf("load %+v, want one slot in use", ans.Load)
	}
	close(release)
	if res := w.result("r1"); res.Bind != 4 {
		t.Errorf("the result has bind %d, want the highest bind of the offers", res.Bind)
	}
	wantVerdict(t, i.offer(o), wire.Accepted, "")
	must(t, i.end())
	if n := starts.Load(); n != 1 {
		t.Errorf("started %d times", n)
	}
}

func TestRefusals(t *testing.T) {
	w := newWorld(t)
	i := w.start(w.config(), map[string]executor.HandlerFunc{"wait": func(ctx context.Context, _ executor.Run) error { <-ctx.Done(); return ctx.Err() }})
	wantVerdict(t, i.offer(newOffer("r1", "nobody")), wire.Refused, wire.RefusedNoHandler)
	script := newOffer("r2", "")
	script.Script = &wire.Script{Language: "bash"}
	wantVerdict(t, i.offer(script), wire.Refused, wire.RefusedUnsupported)
	old := newOffer("r3", "wait")
	old.BoundAt = wire.Time{Time: old.Now.Add(-11 * time.Second)}
	wantVerdict(t, i.offer(old), wire.Refused, wire.RefusedStale)
	ans := i.offerTo("another boot", newOffer("r4", "wait"))
	wantVerdict(t, ans, wire.Refused, wire.RefusedStale)
	if ans.BootID != i.boot {
		t.Errorf("answered as boot %q, want %q", ans.BootID, i.boot)
	}
	for n := range 4 {
		wantVerdict(t, i.offer(newOffer(fmt.Sprint("fill", n), "wait")), wire.Accepted, "")
	}
	o := newOffer("r5", "wait")
	wantVerdict(t, i.offer(o), wire.Refused, wire.RefusedFull)
	i.control(wire.Control{Op: wire.OpKill, Runs: []wire.Ref{{RunID: "fill0", Attempt: 1}}})
	w.result("fill0")
	wantVerdict(t, i.offer(o), wire.Refused, wire.RefusedFull) // the same bind: the same answer
	o.Bind++
	wantVerdict(t, i.offer(o), wire.Accepted, "")
	i.control(wire.Control{Op: wire.OpDrain})
	wantVerdict(t, i.offer(newOffer("r6", "wait")), wire.Refused, wire.RefusedDraining)
	if rep := i.control(wire.Control{Op: wire.OpScript}); rep.Error == "" {
		t.Error("scripts are not refused")
	}
	must(t, i.end())
}

func TestEndings(t *testing.T) {
	w := newWorld(t)
	broken := errors.New("broken")
	i := w.start(w.config(), map[string]executor.HandlerFunc{
		"fail": func(context.Context, executor.Run) error { return broken },
		"permanent": func(context.Context, executor.Run) error {
			return fmt.Errorf("wrapped: %w", executor.Permanent(broken))
		},
		"later": func(context.Context, executor.Run) error { return executor.RetryAfter(broken, 90*time.Second) },
		"panic": func(context.Context, executor.Run) error { panic("oh no") },
		"slow":  func(ctx context.Context, _ executor.Run) error { <-ctx.Done(); return ctx.Err() },
		"long": func(context.Context, executor.Run) error {
			return errors.New(strings.Repeat("é", executor.MaxMessage))
		},
		"output": func(_ context.Context, r executor.Run) error {
			return r.SetOutput(strings.Repeat("x", executor.MaxOutput+1))
		},
	})
	tests := []struct {
		handler, outcome, reason, message string
		check                             func(wire.Result) bool
	}{
		{handler: "fail", outcome: wire.Failed, reason: "handler_error", message: "broken"},
		{handler: "permanent", outcome: wire.Failed, reason: "handler_error", message: "wrapped: broken", check: func(r wire.Result) bool { return r.Permanent }},
		{handler: "later", outcome: wire.Failed, reason: "handler_error", check: func(r wire.Result) bool { return r.RetryAfterMS == 90_000 && !r.Permanent }},
		{handler: "panic", outcome: wire.Failed, reason: "handler_panic", message: "panic: oh no", check: func(r wire.Result) bool { return strings.Contains(r.Message, "executor_test.go") }},
		{handler: "slow", outcome: wire.Failed, reason: "timeout", message: "timeout after 50ms"},
		{handler: "long", outcome: wire.Failed, reason: "handler_error", check: func(r wire.Result) bool {
			return len(r.Message) <= executor.MaxMessage && strings.HasSuffix(r.Message, " … (cut)")
		}},
		{handler: "output", outcome: wire.Failed, reason: "handler_error", check: func(r wire.Result) bool { return r.Output == "" }},
	}
	for _, tt := range tests {
		o := newOffer("run-"+tt.handler, tt.handler)
		if tt.handler == "slow" {
			o.TimeoutMS = 50
		}
		wantVerdict(t, i.offer(o), wire.Accepted, "")
		res := w.result(o.RunID)
		if res.Outcome != tt.outcome || res.Reason != tt.reason || !strings.HasPrefix(res.Message, tt.message) || tt.check != nil && !tt.check(res) {
			t.Errorf("%s: %s", tt.handler, asJSON(res))
		}
	}
	must(t, i.end())
}

func TestKill(t *testing.T) {
	w := newWorld(t)
	running := make(chan struct{})
	i := w.start(w.config(), map[string]executor.HandlerFunc{"h": func(ctx context.Context, _ executor.Run) error {
		close(running)
		<-ctx.Done()
		return context.Cause(ctx)
	}})
	kill := func(run string) wire.Status {
		return i.control(wire.Control{Op: wire.OpKill, Runs: []wire.Ref{{RunID: run, Attempt: 1}}}).Statuses[0]
	}
	if st := kill("before"); st.Status != wire.StatusBarred {
		t.Errorf("a kill before the offer: %s", asJSON(st))
	}
	barred := newOffer("before", "h")
	barred.Bind = 9
	wantVerdict(t, i.offer(barred), wire.Refused, wire.RefusedStale)

	waiting := newOffer("waiting", "h")
	waiting.DueAt = wire.Time{Time: time.Now().Add(time.Hour)}
	wantVerdict(t, i.offer(waiting), wire.Accepted, "")
	kill("waiting")
	if res := w.result("waiting"); res.Outcome != wire.Unstarted || res.Reason != "killed" {
		t.Errorf("killed before due: %s", asJSON(res))
	}
	wantVerdict(t, i.offer(newOffer("during", "h")), wire.Accepted, "")
	<-running
	if st := kill("during"); st.Status != wire.StatusRunning && st.Status != wire.StatusDone {
		t.Errorf("status while it is killed: %s", asJSON(st))
	}
	if res := w.result("during"); res.Outcome != wire.Cancelled || res.Reason != "killed" || res.Message != executor.ErrKilled.Error() {
		t.Errorf("killed while running: %s", asJSON(res))
	}
	must(t, i.end())
}

func TestDrainHandsBackAndCancels(t *testing.T) {
	w := newWorld(t)
	running := make(chan struct{})
	i := w.start(w.config(), map[string]executor.HandlerFunc{"h": func(ctx context.Context, _ executor.Run) error {
		close(running)
		<-ctx.Done()
		return context.Cause(ctx)
	}})
	later := newOffer("later", "h")
	later.DueAt = wire.Time{Time: time.Now().Add(time.Hour)}
	wantVerdict(t, i.offer(later), wire.Accepted, "")
	wantVerdict(t, i.offer(newOffer("now", "h")), wire.Accepted, "")
	<-running
	must(t, i.end())
	if res := w.result("later"); res.Outcome != wire.Unstarted {
		t.Errorf("accepted, not started: %s", asJSON(res))
	}
	if res := w.result("now"); res.Outcome != wire.Failed || res.Reason != "drained" || !strings.Contains(res.Message, "shut down") {
		t.Errorf("running when the drain was over: %s", asJSON(res))
	}
}

// TestDrainByRequest drains an executor that continues to run. Its heartbeat reports the drain, and attempts that still run at the
// drain timeout are cancelled.
func TestDrainByRequest(t *testing.T) {
	w := newWorld(t)
	running := make(chan struct{})
	i := w.start(w.config(), map[string]executor.HandlerFunc{"h": func(ctx context.Context, _ executor.Run) error {
		close(running)
		<-ctx.Done()
		return context.Cause(ctx)
	}})
	kv, err := w.js.KeyValue(t.Context(), wire.BucketInstances)
	must(t, err)
	watch, err := kv.Watch(t.Context(), "g.i1")
	must(t, err)
	defer func() { must(t, watch.Stop()) }()
	wantVerdict(t, i.offer(newOffer("r1", "h")), wire.Accepted, "")
	<-running
	if rep := i.control(wire.Control{Op: wire.OpDrain}); !rep.Load.Draining {
		t.Errorf("answered %s", asJSON(rep))
	}
	for draining := false; !draining; {
		select {
		case entry := <-watch.Updates():
			var beat wire.Heartbeat
			if entry != nil {
				must(t, wire.Decode(entry.Value(), &beat))
			}
			draining = beat.Draining
		case <-time.After(patience):
			t.Fatal("no heartbeat reports the drain")
		}
	}
	if res := w.result("r1"); res.Outcome != wire.Failed || res.Reason != "drained" || res.Message != "cancelled because its executor shut down" {
		t.Errorf("result %s", asJSON(res))
	}
	select {
	case err := <-i.done:
		t.Errorf("Run ended: %v", err)
	default:
	}
	must(t, i.end())
}

// TestManyRuns offers far more runs than there are slots and, like a dispatcher, offers refused runs again. Each run starts once, the
// results arrive in batches, and all slots are free at the end.
func TestManyRuns(t *testing.T) {
	const runs, capacity = 5000, 64
	w := newWorld(t)
	c := w.config()
	c.Capacity = capacity
	var started, now, most atomic.Int32
	i := w.start(c, map[string]executor.HandlerFunc{"h": func(_ context.Context, run executor.Run) error {
		started.Add(1)
		n := now.Add(1)
		defer now.Add(-1)
		for m := most.Load(); n > m && !most.CompareAndSwap(m, n); m = most.Load() {
		}
		return nil
	}})
	var waiting []wire.Offer
	for n := range runs {
		waiting = append(waiting, newOffer(fmt.Sprint("r", n), "h"))
	}
	begin := time.Now()
	for len(waiting) > 0 && time.Since(begin) < patience {
		batch := waiting[:min(capacity, len(waiting))]
		waiting = waiting[len(batch):]
		at := wire.Time{Time: time.Now()}
		for n := range batch {
			batch[n].Bind++
			batch[n].BoundAt, batch[n].Now, batch[n].DueAt = at, at, at
		}
		for n, v := range i.offer(batch...).Verdicts {
			if v.Verdict == wire.Refused {
				waiting = append(waiting, batch[n])
			}
		}
	}
	seen := make(map[string]bool)
	messages := 0
	w.await("every result", func() bool {
		messages = len(w.results)
		for _, m := range w.results {
			for _, r := range m.Results {
				seen[r.RunID] = true
			}
		}
		return len(seen) == runs
	})
	if started.Load() != runs || most.Load() > capacity {
		t.Errorf("%d starts, up to %d at once; want %d and at most %d", started.Load(), most.Load(), runs, capacity)
	}
	if messages > runs/4 {
		t.Errorf("%d results took %d messages", runs, messages)
	}
	if rep := i.control(wire.Control{Op: wire.OpPing}); rep.Load.Running != 0 {
		t.Errorf("slots leaked: %+v", rep.Load)
	}
	t.Logf("%d runs in %v, %d messages", runs, time.Since(begin).Round(time.Millisecond), messages)
	must(t, i.end())
}
