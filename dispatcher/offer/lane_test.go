package offer

import (
	"context"
	"log/slog"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/goleak"

	"github.com/belfryhq/belfry/dispatcher/peer"
	"github.com/belfryhq/belfry/dispatcher/settle"
	"github.com/belfryhq/belfry/internal/domain"
	"github.com/belfryhq/belfry/internal/engine"
)

// A job whose offers are answered late uses the slow lane until the end of the minute.
func TestLateJobsAreSlow(t *testing.T) {
	var l lateness
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	run := func(job domain.JobID) engine.LiveRun { return engine.LiveRun{JobID: job} }
	both := []engine.LiveRun{run(1), run(2)}
	for i := range maxLate {
		l.note([]engine.LiveRun{run(1)}, now.Add(time.Duration(i)*time.Second))
	}
	if fast, slow := l.split(both, now.Add(30*time.Second)); len(fast) != 2 || slow != nil {
		t.Errorf("slow after %d late answers: %v", maxLate, slow)
	}
	l.note(both, now.Add(31*time.Second))
	if fast, slow := l.split(both, now.Add(59*time.Second)); len(fast) != 1 || len(slow) != 1 || slow[0].JobID != 1 {
		t.Errorf("slow: %v", slow)
	}
	if fast, slow := l.split(both, now.Add(time.Minute)); len(fast) != 2 || slow != nil {
		t.Errorf("slow in the next minute: %v", slow)
	}
	for job := range domain.JobID(maxLateJobs + 1) {
		for range maxLate + 1 {
			l.note([]engine.LiveRun{run(job)}, now)
		}
	}
	if len(l.late) != maxLateJobs || l.slow != maxLateJobs {
		t.Errorf("%d jobs are counted, and %d of them slow", len(l.late), l.slow)
	}
}

// If a lane is full, offers are counted as unsent and left to a reconciler.
func TestFullLanes(t *testing.T) {
	s := New(Config{
		Store: definitions{}, Recorder: settle.New(clockStore{}, nil, nil, nil, nil), Log: slog.New(slog.DiscardHandler), Trace: func(string) {},
	})
	for range cap(s.fast.inFlight) {
		if !s.fast.begin(t.Context()) {
			t.Fatal("the fast lane is full already")
		}
	}
	for range cap(s.pool.queue) {
		s.pool.queue <- struct{}{}
	}
	run := engine.LiveRun{JobID: 1, JobVersion: 1, Instance: "a", BootID: "b", Group: "g", Def: &engine.Definition{}}
	s.Send(t.Context(), []engine.LiveRun{run}, Beats{peer.BootOf(&run): 1}, true)
	registry := prometheus.NewRegistry()
	registry.MustRegister(s.sent)
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	if m := families[0].GetMetric(); len(m) != 1 || m[0].GetLabel()[0].GetValue() != "unsent" || m[0].GetCounter().GetValue() != 1 {
		t.Errorf("with the fast lane full, offers are counted as %v", m)
	}
	if s.Aside(func() { t.Error("it runs more than its queue holds") }) {
		t.Error("the slow lane takes more than its queue holds")
	}
}

// definitions is a store without definitions.
type definitions struct{ Store }

func (definitions) Now() time.Time { return time.Unix(0, 0) }

func (definitions) Definitions(context.Context, []engine.Due) (engine.Definitions, error) {
	return nil, nil
}

// The pool runs all functions that it accepts, with bounded concurrency, and leaves no goroutine behind.
func TestPool(t *testing.T) {
	others := goleak.IgnoreCurrent()
	var work sync.WaitGroup
	const workers, queue = 3, 8
	p := newPool(workers, queue, &work)
	var now, most, done atomic.Int32
	gate := make(chan struct{})
	taken := 0
	for range 20 {
		if p.do(func() {
			if n := now.Add(1); n > most.Load() {
				most.Store(n)
			}
			<-gate
			now.Add(-1)
			done.Add(1)
		}) {
			taken++
		}
	}
	close(gate)
	work.Wait()
	if taken != queue || int(done.Load()) != taken || most.Load() > workers {
		t.Errorf("%d taken, %d done, %d at a time", taken, done.Load(), most.Load())
	}
	if !p.do(func() {}) {
		t.Error("an idle pool takes no work")
	}
	work.Wait()
	goleak.VerifyNone(t, others)
}

// Waiting for a place on a lane ends with the context.
func TestLaneEndsWithItsContext(t *testing.T) {
	l := lane{inFlight: make(chan struct{}, 1), waits: true}
	ctx, cancel := context.WithCancel(t.Context())
	if !l.begin(ctx) {
		t.Fatal("an idle lane has no place")
	}
	cancel()
	if l.begin(ctx) {
		t.Error("it found a place that is taken")
	}
	l.end()
	if !l.begin(t.Context()) {
		t.Error("it has no place though one was given back")
	}
}
