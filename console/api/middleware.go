package api

import (
	"context"
	"net/http"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/go-chi/chi/v5"
	"github.com/go-chi/chi/v5/middleware"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/belfryhq/belfry/console/api/attention"
	"github.com/belfryhq/belfry/console/api/events"
	"github.com/belfryhq/belfry/console/api/login"
	"github.com/belfryhq/belfry/console/api/problem"
	"github.com/belfryhq/belfry/console/api/rest"
	"github.com/belfryhq/belfry/console/auth"
	"github.com/belfryhq/belfry/internal/domain"
	"github.com/belfryhq/belfry/internal/store/account"
)

// metrics are the metrics of the API.
type metrics struct {
	requests      *prometheus.CounterVec
	seconds       *prometheus.HistogramVec
	auditFailures prometheus.Counter
	streams       prometheus.Gauge
}

func newMetrics(r prometheus.Registerer) *metrics {
	m := &metrics{
		requests: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "belfry_http_requests_total", Help: "Requests by route, method and status."},
			[]string{"route", "method", "status"}),
		seconds: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "belfry_http_request_seconds", Help: "Duration of requests, by route and method, without streams.",
			Buckets: []float64{.001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10}},
			[]string{"route", "method"}),
		auditFailures: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "belfry_audit_failures_total", Help: "Changes that could not be written to the audit log."}),
		streams: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "belfry_http_streams", Help: "Streams of server-sent events that are open."}),
	}
	r.MustRegister(m.requests, m.seconds, m.auditFailures, m.streams)
	return m
}

// observe counts and times requests by the pattern of their route. The number of paths has no bound.
func (a *API) observe(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		start := time.Now()
		ww := middleware.NewWrapResponseWriter(w, r.ProtoMajor)
		defer func() {
			route := chi.RouteContext(r.Context()).RoutePattern()
			if route == "" || ww.Status() == http.StatusNotFound && !slices.Contains(open, route) && strings.HasSuffix(route, "*") {
				route = "none"
			}
			method := r.Method
			if !slices.Contains([]string{"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"}, method) {
				method = "other"
			}
			a.metrics.requests.WithLabelValues(route, method, strconv.Itoa(max(ww.Status(), 200))).Inc()
			if !strings.HasSuffix(route, "/stream") {
				a.metrics.seconds.WithLabelValues(route, method).Observe(time.Since(start).Seconds())
			}
		}()
		next.ServeHTTP(ww, r)
	})
}

// recoverPanics answers 500 when a handler panics, and logs the stack.
func (a *API) recoverPanics(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		defer func() {
			switch v := recover(); v {
			case nil:
			case http.ErrAbortHandler:
				panic(v)
			default:
				a.Log.ErrorContext(r.Context(), "a handler panicked, answering 500", "panic", v, "method", r.Method,
					"path", r.URL.Path, "stack", string(debug.Stack()))
				problem.Write(w, problem.New(http.StatusInternalServerError, problem.InternalDetail))
			}
		}()
		next.ServeHTTP(w, r)
	})
}

// secureHeaders forbids browsers to load other resources, and caches to store answers.
func secureHeaders(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h := w.Header()
		h.Set("Content-Security-Policy", "default-src 'none'; style-src 'self'; img-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'")
		h.Set("Cache-Control", "no-store")
		next.ServeHTTP(w, r)
	})
}

// authenticate refuses requests without credentials, except for the open paths. It runs before routing, so it covers every
// route, and a client without credentials cannot find out which paths exist.
func (a *API) authenticate(next http.Handler) http.Handler {
	protection := http.NewCrossOriginProtection()
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if err := protection.Check(r); err != nil {
			problem.Write(w, problem.New(http.StatusForbidden, "the browser sent this request from another site"))
			return
		}
		if slices.Contains(open, r.URL.Path) {
			next.ServeHTTP(w, r)
			return
		}
		ctx, cancel := context.WithTimeout(r.Context(), rest.RequestTimeout)
		id, err := auth.Identify(r.WithContext(ctx), a.Authenticator)
		cancel()
		if err != nil {
			if r.Method == http.MethodGet && r.URL.Path == attention.Path && a.attention.AnswerUnidentified(w, err) {
				return
			}
			problem.Write(w, problem.From(r.Context(), a.Log, err))
			return
		}
		if id.Scope == account.ScopeEvents && (r.Method != http.MethodPost || !strings.HasPrefix(r.URL.Path, events.Path)) {
			problem.Write(w, problem.New(http.StatusForbidden, "this token may only send events"))
			return
		}
		if id.MustChangePassword && !slices.Contains(login.BeforePasswordChange, r.URL.Path) {
			problem.Write(w, problem.New(http.StatusForbidden, login.MustChange, domain.FieldError{Location: "password", Message: "must be changed"}))
			return
		}
		next.ServeHTTP(w, r.WithContext(auth.NewContext(r.Context(), id)))
	})
}

// bound gives every request a timeout. Streams and whole logs have no such timeout, because their handlers bound
// each read of the database.
func bound(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if isStream(r.URL.Path) || strings.HasSuffix(r.URL.Path, "/log.txt") {
			next.ServeHTTP(w, r)
			return
		}
		ctx, cancel := context.WithTimeout(r.Context(), rest.RequestTimeout)
		defer cancel()
		next.ServeHTTP(w, r.WithContext(ctx))
	})
}

// headAsGet answers HEAD like GET without the body. Streams do not support HEAD, because their body has no end.
func headAsGet(next http.Handler) http.Handler {
	asGet := middleware.GetHead(next)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if isStream(r.URL.Path) {
			next.ServeHTTP(w, r)
			return
		}
		asGet.ServeHTTP(w, r)
	})
}

// allowed returns the methods of a path, in the form of the header Allow.
func (a *API) allowed(path string) string {
	var methods []string
	for _, m := range []string{http.MethodGet, http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete} {
		if a.router.Match(chi.NewRouteContext(), m, path) {
			methods = append(methods, m)
			if m == http.MethodGet && !isStream(path) {
				methods = append(methods, http.MethodHead)
			}
		}
	}
	return strings.Join(methods, ", ")
}

// isStream reports whether a path is a stream. The answer of a stream has no end.
func isStream(path string) bool {
	path, below := strings.CutPrefix(path, Prefix)
	switch {
	case !below:
		return false
	case path == "/runs/stream" || path == "/overview/stream":
		return true
	}
	return strings.HasPrefix(path, "/runs/") && strings.HasSuffix(path, "/log/stream")
}
