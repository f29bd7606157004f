package spans

import (
	"net/http"
	"strings"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	oteltrace "go.opentelemetry.io/otel/trace"

	"github.com/belfryhq/belfry/internal/trace"
)

// Handler returns h with a span for each request with a traceparent header that triggers a job or sends an event. h sees that
// span in the header, so the runs belong below it.
func (s *Spans) Handler(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		name := requestName(r)
		c, ok := trace.Parse(r.Header.Get("Traceparent"))
		if name == "" || !ok {
			h.ServeHTTP(w, r)
			return
		}
		sp := s.begin(c.Trace, oteltrace.TraceFlags(c.Flags), span{parent: c.Parent, name: name, kind: oteltrace.SpanKindServer, from: s.store.Now()},
			oteltrace.WithAttributes(attribute.String("http.request.method", r.Method), attribute.String("url.path", r.URL.Path)))
		if in := sp.SpanContext(); in.IsSampled() { // otherwise the span is not exported
			r = r.Clone(r.Context())
			r.Header.Set("Traceparent", trace.Traceparent(c.Trace, trace.SpanID(in.SpanID()), byte(in.TraceFlags())))
		}
		seen := &status{ResponseWriter: w, code: http.StatusOK}
		h.ServeHTTP(seen, r)
		sp.SetAttributes(attribute.Int("http.response.status_code", seen.code))
		if seen.code >= http.StatusInternalServerError {
			sp.SetStatus(codes.Error, http.StatusText(seen.code))
		}
		sp.End(oteltrace.WithTimestamp(s.store.Now()))
	})
}

// requestName returns the name of a request's span, or "" if it causes no run that continues a trace.
func requestName(r *http.Request) string {
	if r.Method != http.MethodPost {
		return ""
	}
	switch path := strings.TrimPrefix(r.URL.Path, "/api/v1"); {
	case strings.HasPrefix(path, "/jobs/") && strings.HasSuffix(path, "/trigger"):
		return "trigger"
	case strings.HasPrefix(path, "/events/"):
		return "event"
	}
	return ""
}

// status remembers the status of a response.
type status struct {
	http.ResponseWriter
	code int
}

// WriteHeader implements http.ResponseWriter.
func (w *status) WriteHeader(code int) {
	w.code = code
	w.ResponseWriter.WriteHeader(code)
}

// Unwrap lets http.ResponseController reach the connection.
func (w *status) Unwrap() http.ResponseWriter { return w.ResponseWriter }
