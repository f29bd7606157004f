package sdktest

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/belfryhq/belfry/executor"
	"github.com/belfryhq/belfry/executor/wire"
)

// TestResultWaitsForNATS stops NATS while a handler runs. The handler finishes, and its result and log arrive when NATS is
// available again.
func TestResultWaitsForNATS(t *testing.T) {
	w := newWorld(t)
	running, release, finished := make(chan struct{}), make(chan struct{}), make(chan struct{})
	i := w.start(w.config(), map[string]executor.HandlerFunc{"h": func(_ context.Context, run executor.Run) error {
		defer close(finished)
		close(running)
		<-release
		run.Log().Info("without NATS")
		return run.SetOutput("kept")
	}})
	wantVerdict(t, i.offer(newOffer("r1", "h")), wire.Accepted, "")
	<-running
	w.stopServer()
	close(release)
	<-finished
	w.startServer()
	if res := w.result("r1"); res.Outcome != wire.Succeeded || res.Output != "kept" || res.LastLine != 1 {
		t.Errorf("result %s", asJSON(res))
	}
	w.await("the log", func() bool { return len(w.logs) > 0 && w.logs[0].Lines[0].Text == "without NATS" })
	must(t, i.end())
}

// TestStartsBeforeNATS starts an executor before the NATS server.
func TestStartsBeforeNATS(t *testing.T) {
	w := newWorld(t)
	c := w.config()
	w.stopServer()
	e, err := executor.New(c)
	must(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- e.Run(ctx) }()
	w.startServer()
	select {
	case <-e.Ready():
	case <-time.After(patience):
		t.Fatal("the executor does not connect after NATS has started")
	}
	cancel()
	must(t, <-done)
}

// TestWrongTokenKeepsTrying also checks that an executor with a wrong token can be stopped.
func TestWrongTokenKeepsTrying(t *testing.T) {
	w := newWorld(t)
	c := w.config()
	c.Token = "wrong"
	e, err := executor.New(c)
	must(t, err)
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	must(t, e.Run(ctx))
	select {
	case <-e.Ready():
		t.Error("ready with a wrong token")
	default:
	}
}

// TestLeaseLapse moves the wall clock forward, as on a machine that was suspended. The executor starts no attempt until the lease
// is renewed, and then refuses attempts that were bound before.
func TestLeaseLapse(t *testing.T) {
	w := newWorld(t)
	c := w.config()
	var jump atomic.Int64
	c.Clock = func() time.Time { return time.Now().Add(time.Duration(jump.Load())) }
	e, err := executor.New(c)
	must(t, err)
	e.HandleFunc("h", func(context.Context, executor.Run) error { return nil })
	i := w.run(e)
	waiting := newOffer("waiting", "h")
	waiting.DueAt = wire.Time{Time: time.Now().Add(400 * time.Millisecond)}
	wantVerdict(t, i.offer(waiting), wire.Accepted, "")
	before := newOffer("before", "h")
	jump.Store(int64(time.Minute))
	if ans := i.offer(newOffer("r1", "h")); ans.Verdicts[0].Verdict != wire.Refused {
		t.Errorf("accepted an offer without a lease: %s", asJSON(ans))
	}
	if res := w.result("waiting"); res.Outcome != wire.Unstarted {
		t.Errorf("came due without a lease: %s", asJSON(res))
	}
	// The next heartbeat renews the lease, within 3 s.
	asks := time.NewTicker(20 * time.Millisecond)
	defer asks.Stop()
	for o, deadline := newOffer("r2", "h"), time.Now().Add(patience); ; <-asks.C {
		next := newOffer("r2", "h")
		next.Bind = o.Bind + 1
		o = next
		ans := i.offer(o)
		if ans.Verdicts[0].Verdict == wire.Accepted {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("no offer is accepted after the lease was renewed: %s", asJSON(ans))
		}
	}
	wantVerdict(t, i.offer(before), wire.Refused, wire.RefusedStale)
	must(t, i.end())
}

func TestStuckHandlerIsNamed(t *testing.T) {
	w := newWorld(t)
	release, running := make(chan struct{}), make(chan struct{})
	i := w.start(w.config(), map[string]executor.HandlerFunc{"h": func(context.Context, executor.Run) error { close(running); <-release; return nil }})
	wantVerdict(t, i.offer(newOffer("stuck-run", "h")), wire.Accepted, "")
	<-running
	err := i.end()
	if err == nil || !strings.Contains(err.Error(), "stuck-run") {
		t.Errorf("Run returned %v", err)
	}
	kv, err := w.js.KeyValue(t.Context(), wire.BucketInstances)
	must(t, err)
	if _, err := kv.Get(t.Context(), "g.i1"); err != nil {
		t.Errorf("the heartbeat was deleted although a handler still runs: %v", err)
	}
	close(release)
}

type resource struct {
	inits, closes atomic.Int32
	failFirst     bool
}

func (r *resource) Init(context.Context) error {
	if n := r.inits.Add(1); n == 1 && r.failFirst {
		return errors.New("not yet")
	}
	return nil
}
func (r *resource) Handle(context.Context, executor.Run) error { return nil }
func (r *resource) Close() error                               { r.closes.Add(1); return nil }

func TestInitAndClose(t *testing.T) {
	w := newWorld(t)
	e, err := executor.New(w.config())
	must(t, err)
	used, unused := &resource{failFirst: true}, &resource{}
	e.Handle("used", used)
	e.Handle("unused", unused)
	i := w.run(e)
	for n, want := range []string{wire.Failed, wire.Succeeded, wire.Succeeded} {
		run := fmt.Sprint("r", n)
		wantVerdict(t, i.offer(newOffer(run, "used")), wire.Accepted, "")
		if res := w.result(run); res.Outcome != want {
			t.Errorf("run %d: %s", n, asJSON(res))
		}
	}
	must(t, i.end())
	if used.inits.Load() != 2 || used.closes.Load() != 1 {
		t.Errorf("%d inits, %d closes; want 2 and 1", used.inits.Load(), used.closes.Load())
	}
	if unused.inits.Load() != 0 || unused.closes.Load() != 0 {
		t.Error("Init or Close was called for a handler that never ran")
	}
}

// TestInstanceNames checks that an instance name is stored in the spool, and that two processes get different names.
func TestInstanceNames(t *testing.T) {
	w := newWorld(t)
	c := w.config()
	c.Instance = ""
	first := w.start(c, nil)
	second := w.start(c, nil)
	one, two := first.e.Instance(), second.e.Instance()
	if one == two || !wire.ValidInstance(one) || !wire.ValidInstance(two) {
		t.Errorf("names %q and %q", one, two)
	}
	must(t, first.end())
	again := w.start(c, nil)
	if got := again.e.Instance(); got != one {
		t.Errorf("after a restart the name is %q, want %q", got, one)
	}
	c.Instance = two
	e, err := executor.New(c)
	must(t, err)
	if err := e.Run(t.Context()); err == nil || !strings.Contains(err.Error(), "give each process a name of its own") {
		t.Errorf("a second process under one name: %v", err)
	}
	must(t, again.end())
	must(t, second.end())
}

// TestMalformedMessages checks that the executor continues after malformed messages.
func TestMalformedMessages(t *testing.T) {
	w := newWorld(t)
	i := w.start(w.config(), map[string]executor.HandlerFunc{"h": func(context.Context, executor.Run) error { return nil }})
	for _, data := range []string{"", "{", `{"v": 2}`, `{"v": 1, "boot_id": "` + i.boot + `", "offers": [{"attempt": -1}]}`, `[]`, "null"} {
		must(t, w.nc.Publish(wire.TriggerSubject("g", "i1"), []byte(data)))
		must(t, w.nc.Publish(wire.ControlSubject("g", "i1"), []byte(data)))
	}
	msg, err := w.nc.Request(wire.ControlSubject("g", "i1"), []byte("{"), patience)
	must(t, err)
	var rep wire.ControlReply
	must(t, wire.Decode(msg.Data, &rep))
	if rep.Error == "" || rep.BootID != i.boot {
		t.Errorf("answered %s", asJSON(rep))
	}
	wantVerdict(t, i.offer(newOffer("r1", "h")), wire.Accepted, "")
	w.result("r1")
	must(t, i.end())
}
