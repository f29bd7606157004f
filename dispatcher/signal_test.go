package dispatcher

import (
	"context"
	"log/slog"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/belfryhq/belfry/internal/domain"
)

// A scheduler whose offer is refused signals that the run waits. A signal just before its end is sent, too.
func TestWaitingRunsAreSignalled(t *testing.T) {
	w := newWorld(t, option{quiet: true})
	signals := make(chan *nats.Msg, 100)
	if _, err := w.admin.ChanSubscribe(waitingSubject, signals); err != nil {
		t.Fatal(err)
	}
	if err := w.admin.Flush(); err != nil {
		t.Fatal(err)
	}
	p := w.join("i1", func(p *puppet) { p.refuse = "draining" })
	w.trigger(w.job("a"))
	w.eventually("the offer is refused", func() bool { return len(signals) > 0 })
	p.leave()
	for len(signals) > 0 {
		<-signals
	}
	if err := w.begun(func(_ context.Context, f *Firing) { f.waiting.Wake() }); err != nil {
		t.Fatal(err)
	}
	w.eventually("the signal arrives", func() bool { return len(signals) > 0 })
}

// begun runs another firing part on the world's connection, calls do, and stops it.
func (w *world) begun(do func(context.Context, *Firing)) error {
	f, err := NewFiring(Config{Stores: storesOf(w.pg).Stores, Conn: w.nc, Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(context.Background())
	var watch sync.WaitGroup
	watch.Go(func() { err = f.Watch(ctx) })
	do(ctx, f)
	cancel()
	watch.Wait()
	return err
}

// An assigner looks at the waiting runs when another process signals that one waits.
func TestAssignersHearOtherProcesses(t *testing.T) {
	w := newWorld(t, option{quiet: true, still: true})
	w.waiting.Assign(true)
	ctx, cancel := context.WithCancel(t.Context())
	var hear sync.WaitGroup
	hear.Go(func() { w.hearLoop(ctx) })
	w.eventually("it is woken", func() bool {
		if err := w.admin.Publish(waitingSubject, nil); err != nil {
			t.Fatal(err)
		}
		select {
		case <-w.waiting.Woken():
			return true
		default:
			return false
		}
	})
	cancel()
	hear.Wait()
}

// A process is ready when it knows the live instances, or after a while if NATS does not answer.
func TestReady(t *testing.T) {
	w := newWorld(t, option{quiet: true, still: true})
	w.join("i1")
	var known []domain.Instance
	if err := w.begun(func(_ context.Context, f *Firing) {
		<-f.Ready()
		known = f.Instances("g")
	}); err != nil {
		t.Fatal(err)
	}
	if len(known) != 1 {
		t.Errorf("when it is ready, it knows %v", known)
	}
	w.stopServer()
	begun := time.Now()
	if err := w.begun(func(_ context.Context, f *Firing) { <-f.Ready() }); err != nil {
		t.Fatal(err)
	}
	if waited := time.Since(begun); waited < rosterWait {
		t.Errorf("without NATS, it was ready after %s", waited)
	}
}
