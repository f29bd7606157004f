package dispatcher

import (
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/goleak"

	"github.com/belfryhq/belfry/executor/wire"
	"github.com/belfryhq/belfry/internal/domain"
	"github.com/belfryhq/belfry/internal/engine"
	"github.com/belfryhq/belfry/internal/explain"
	"github.com/belfryhq/belfry/internal/pgtest"
)

// During an outage of NATS, running attempts continue and are settled later, due runs wait, and no run is lost. If the
// storage was wiped, the streams are recreated, and executors send unsettled results again.
func TestNATSAway(t *testing.T) {
	for name, wiped := range map[string]bool{"kept": false, "wiped": true} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, option{after: 3 * time.Second})
			a := w.join("a")
			job := w.job("j", func(s *domain.JobSpec) { s.Retries = 3 })
			running, reported := w.trigger(job), w.trigger(job)
			o, r := a.got(running, 1), a.got(reported, 1)
			w.becomes(running, "running")
			port := w.port()
			w.stopServer()
			w.eventually("NATS is away", func() bool { return w.nc.Status() != nats.CONNECTED })
			waiting := w.trigger(job)
			if r := w.becomes(waiting, "queued"); r.Waiting != explain.Of(explain.NATSUnavailable).English() || r.Instance != "" {
				t.Errorf("run %+v", r)
			}
			if wiped {
				if err := os.RemoveAll(filepath.Join(w.dir, "jetstream")); err != nil {
					t.Fatal(err)
				}
			}
			w.holds(2*time.Second, "no run is lost", func() bool { return w.run(running).State == "running" })
			w.serve(port)
			w.ensure()
			w.eventually("NATS is back", func() bool { return w.nc.Status() == nats.CONNECTED && a.nc.Status() == nats.CONNECTED })
			a.report(o, wire.Succeeded)
			a.report(r, wire.Succeeded)
			a.report(a.got(waiting, 1), wire.Succeeded)
			for _, id := range []domain.RunID{running, reported, waiting} {
				if r := w.becomes(id, "succeeded"); r.Attempt != 1 {
					t.Errorf("run %+v", r)
				}
			}
			startedOnce(t, a)
		})
	}
}

// The death of an instance during an outage of NATS is detected afterwards.
func TestDeathDuringOutage(t *testing.T) {
	w := newWorld(t, option{})
	a := w.join("a")
	id := w.trigger(w.job("j"))
	a.got(id, 1)
	port := w.port()
	w.stopServer()
	a.leave()
	if err := os.RemoveAll(filepath.Join(w.dir, "jetstream")); err != nil {
		t.Fatal(err)
	}
	w.serve(port)
	w.ensure()
	w.roster.Drop("g", "a", "boot-a") // as at the end of its lease, in ten seconds
	w.becomes(id, "failed/lost")
}

// If Postgres rejects everything for a while, results stay in the stream, and nothing is acknowledged or dropped.
func TestPostgresAway(t *testing.T) {
	var away atomic.Bool
	f := &fussy{settle: func(context.Context, []engine.Ended) error {
		if away.Load() {
			return domain.NewError(domain.Unavailable, "Postgres is away")
		}
		return nil
	}}
	w := newWorld(t, option{wrap: f.wrap})
	a := w.join("a")
	ids, offers := w.offered(a, 20)
	away.Store(true)
	for _, o := range offers {
		a.report(o, wire.Succeeded)
	}
	w.eventually("all are in the stream", func() bool { return w.unsettled() == 20 })
	w.holds(time.Second, "they stay there", func() bool { return w.unsettled() == 20 })
	a.mu.Lock()
	if len(a.settled) != 0 {
		t.Errorf("notified as settled: %v", a.settled)
	}
	a.mu.Unlock()
	away.Store(false)
	for _, id := range ids {
		w.becomes(id, "succeeded")
		a.gotSettled(id, 1)
	}
	w.eventually("all are acknowledged", func() bool { return w.unsettled() == 0 })
}

// After an outage of NATS, no instance is declared dead until this process has been connected for long enough again.
func TestHeardForLong(t *testing.T) {
	w := newWorld(t, option{quiet: true, still: true, after: 400 * time.Millisecond})
	w.eventually("it has heard NATS for long", w.peers.HeardForLong)
	w.peers.Suspect()
	w.eventually("it has heard NATS for long again", w.peers.HeardForLong)
	port := w.port()
	w.stopServer()
	w.eventually("not while NATS is away", func() bool { return !w.peers.HeardForLong() })
	w.serve(port)
	w.eventually("NATS is back", w.peers.Connected)
	w.eventually("it has heard NATS for long after the outage", w.peers.HeardForLong)
}

// Run and Watch end with their contexts and leave no goroutines running. This test is not parallel, because it would
// see the goroutines of other tests.
func TestLeaksNothing(t *testing.T) {
	before := goleak.IgnoreCurrent()
	w := newWorld(t, option{still: true, quiet: true, alone: true})
	nc, err := nats.Connect(w.server.ClientURL(), nats.ReconnectBufSize(-1))
	if err != nil {
		t.Fatal(err)
	}
	reg := prometheus.NewRegistry()
	s := storesOf(w.pg)
	f, err := NewFiring(Config{Stores: s.Stores, Conn: nc, Log: slog.New(slog.DiscardHandler), Registry: reg})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 2)
	go func() { ended <- f.Watch(ctx) }()
	go func() { ended <- NewRole(f, s.RoleStores).Run(ctx) }()
	w.eventually("it settles", func() bool {
		_, err := w.js.Consumer(t.Context(), wire.StreamResults, "settle")
		return err == nil
	})
	if _, err := reg.Gather(); err != nil {
		t.Errorf("metrics: %v", err)
	}
	cancel()
	for range 2 {
		select {
		case err := <-ended:
			if err != nil {
				t.Error(err)
			}
		case <-time.After(patience):
			t.Fatal("it does not end")
		}
	}
	w.stop()
	for _, c := range []*nats.Conn{nc, w.nc, w.admin} {
		c.Close()
	}
	w.stopServer()
	w.pg.Close()
	goleak.VerifyNone(t, append(pgtest.IgnoreServer(), before)...)
}
