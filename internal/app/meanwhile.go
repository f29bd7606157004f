package app

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/belfryhq/belfry/console/api/attention"
	"github.com/belfryhq/belfry/console/api/system"
	"github.com/belfryhq/belfry/internal/build"
	"github.com/belfryhq/belfry/internal/domain"
	"github.com/belfryhq/belfry/internal/outage"
)

// meanwhile serves HTTP on ln while a role waits for Postgres: the process is alive but not ready. Without it, a liveness probe
// would fail for a process that starts during an outage, and requests would hang. metrics says that ln serves metrics without a token: they
// then say that Postgres is unavailable. The returned function stops serving and leaves ln open for its next user. Call it once.
func meanwhile(ln net.Listener, b build.Info, metrics bool) (end func()) {
	mux := http.NewServeMux()
	mux.Handle("/healthz", system.Alive(b))
	if metrics {
		registry := prometheus.NewRegistry()
		registry.MustRegister(prometheus.NewGauge(prometheus.GaugeOpts{Name: serverUp, Help: serverUpHelp, ConstLabels: prometheus.Labels{"server": "postgres"}}))
		mux.Handle("/metrics", promhttp.HandlerFor(registry, promhttp.HandlerOpts{}))
	}
	missing := &attention.API{Outages: unreached{outage.Away(outage.Postgres, outage.NotReached, "")}}
	mux.HandleFunc("GET "+attention.Path, func(w http.ResponseWriter, _ *http.Request) {
		missing.AnswerUnidentified(w, domain.NewError(domain.Unavailable, "Postgres was not reached yet"))
	})
	mux.HandleFunc("/", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/problem+json")
		w.Header().Set("Retry-After", "1")
		w.WriteHeader(http.StatusServiceUnavailable)
		fmt.Fprintln(w, `{"title":"Service Unavailable","status":503,"detail":"unavailable: postgres; it was not reached yet, or lacks migrations"}`)
	})
	s := &http.Server{Handler: mux, ReadHeaderTimeout: 5 * time.Second, ReadTimeout: 10 * time.Second, WriteTimeout: 10 * time.Second}
	lent := &lentListener{ln.(lendable)}
	served := make(chan struct{})
	go func() {
		defer close(served)
		_ = s.Serve(lent) // ends by Shutdown or an error of ln, which the next user of ln reports
	}()
	return func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		if s.Shutdown(ctx) != nil {
			s.Close()
		}
		<-served
		_ = lent.SetDeadline(time.Time{}) // fails only if ln is closed
	}
}

// unreached names Postgres as missing.
type unreached struct{ postgres outage.Trouble }

// Troubles implements attention.Outages.
func (u unreached) Troubles() []outage.Trouble { return []outage.Trouble{u.postgres} }

// lentListener is a listener whose Close ends Accept without closing the underlying listener.
type lentListener struct{ lendable }

// lendable is a listener whose Accept can be ended by a deadline.
type lendable interface {
	net.Listener
	SetDeadline(time.Time) error
}

func (l *lentListener) Close() error { return l.SetDeadline(time.Unix(1, 0)) }
