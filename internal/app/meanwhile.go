package app

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"time"
)

// meanwhile answers at ln for a role that still waits for Postgres: it lives, and is not ready. Otherwise a probe would
// take a process that starts during an outage for a dead one, and callers would hang. The function that it returns
// ends that, once, and leaves ln open for whoever answers from then on.
func meanwhile(ln net.Listener) (end func()) {
	mux := http.NewServeMux()
	mux.HandleFunc("/healthz", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprintln(w, `{"status":"ok"}`)
	})
	mux.HandleFunc("/", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/problem+json")
		w.Header().Set("Retry-After", "1")
		w.WriteHeader(http.StatusServiceUnavailable)
		fmt.Fprintln(w, `{"title":"Service Unavailable","status":503,"detail":"away: postgres; it was not reached yet, or lacks migrations"}`)
	})
	s := &http.Server{Handler: mux, ReadHeaderTimeout: 5 * time.Second, ReadTimeout: 10 * time.Second, WriteTimeout: 10 * time.Second}
	lent := &lentListener{ln.(lendable)}
	served := make(chan struct{})
	go func() {
		defer close(served)
		_ = s.Serve(lent) // ends by Shutdown, or with ln, about which its next user has to complain
	}()
	return func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		if s.Shutdown(ctx) != nil {
			s.Close()
		}
		<-served
		_ = lent.SetDeadline(time.Time{}) // fails on a closed one alone
	}
}

// lentListener is a listener whose Close ends the borrower's Accept, and closes nothing.
type lentListener struct{ lendable }

// lendable is a listener whose Accept can be ended without closing it.
type lendable interface {
	net.Listener
	SetDeadline(time.Time) error
}

func (l *lentListener) Close() error { return l.SetDeadline(time.Unix(1, 0)) }
