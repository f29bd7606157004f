package spans

import (
	"context"
	"log/slog"
	"testing"
	"time"

	"go.opentelemetry.io/otel/codes"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/belfryhq/belfry/internal/domain"
	"github.com/belfryhq/belfry/internal/engine"
	"github.com/belfryhq/belfry/internal/trace"
)

type runs []engine.TracedRun

func (runs) Now() time.Time { return at(10) }
func (r runs) TracedRuns(context.Context, []domain.RunID) ([]engine.TracedRun, error) {
	return r, nil
}

func at(second int) time.Time { return time.Date(2026, 3, 29, 1, 30, second, 0, time.UTC) }

// recorded returns the spans that a Spans exports for finished runs until it ends.
func recorded(t *testing.T, sampler sdktrace.Sampler, finished ...engine.TracedRun) []tracetest.SpanStub {
	t.Helper()
	exporter := kept{tracetest.NewInMemoryExporter()}
	provider := sdktrace.NewTracerProvider(sdktrace.WithSyncer(exporter), sdktrace.WithIDGenerator(newIDs()), sdktrace.WithSampler(sampler))
	s := New(provider, runs(finished), slog.New(slog.DiscardHandler), nil)
	for _, r := range finished {
		s.Finished([]engine.Change{{RunID: r.ID, State: r.State}, {RunID: r.ID, State: domain.Retrying}})
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := s.Run(ctx); err != nil {
		t.Fatal(err)
	}
	return exporter.GetSpans()
}

// kept keeps its spans after the provider's shutdown.
type kept struct{ *tracetest.InMemoryExporter }

func (kept) Shutdown(context.Context) error { return nil }

func retriedRun() engine.TracedRun {
	id := domain.ScheduledRunID(7, at(1), 0)
	return engine.TracedRun{
		ID: id, First: id, JobName: "nightly", Cause: domain.CauseSchedule, State: domain.Failed, Reason: domain.ReasonTimeout, Attempt: 2, FireTime: at(1), CreatedAt: at(0), FinishedAt: at(8),
		Attempts: []engine.TracedAttempt{
			{Attempt: 1, Outcome: domain.Failed, Reason: domain.ReasonLost, DispatchedAt: at(1), FinishedAt: at(3)},
			{Attempt: 2, Outcome: domain.Failed, Reason: domain.ReasonTimeout, DispatchedAt: at(4), StartedAt: at(5), FinishedAt: at(8)},
		},
	}
}

func TestSpansOfARun(t *testing.T) {
	r := retriedRun()
	spans := recorded(t, sdktrace.AlwaysSample(), r)
	type line struct {
		name, id, parent string
		from, to         time.Time
		code             codes.Code
	}
	id := func(s trace.SpanID) string { return trace.Traceparent(trace.ID{}, s, 0)[36:52] }
	run, first, second := id(trace.RunSpan(r.ID)), id(trace.AttemptSpan(r.ID, 1)), id(trace.AttemptSpan(r.ID, 2))
	want := []line{
		{"run nightly", run, "0000000000000000", at(1), at(8), codes.Error}, {"attempt", first, run, at(1), at(3), codes.Error},
		{"result", "", second, at(8), at(10), codes.Unset}, {"attempt", second, run, at(4), at(10), codes.Error},
	}
	if len(spans) != len(want) {
		t.Fatalf("%d spans, want %d", len(spans), len(want))
	}
	for i, s := range spans {
		got := line{s.Name, s.SpanContext.SpanID().String(), s.Parent.SpanID().String(), s.StartTime, s.EndTime, s.Status.Code}
		if want[i].id == "" {
			got.id = ""
		}
		if got != want[i] || s.SpanContext.TraceID().String() != trace.Of("", r.ID).Trace.String() {
			t.Errorf("span %d is %+v in %s, want %+v", i, got, s.SpanContext.TraceID(), want[i])
		}
	}
}

// A sampler that decides by the trace id decides the same for the offer and for the spans, also in another process.
func TestSampling(t *testing.T) {
	sampler := sdktrace.ParentBased(sdktrace.TraceIDRatioBased(.5))
	provider := sdktrace.NewTracerProvider(sdktrace.WithIDGenerator(newIDs()), sdktrace.WithSampler(sampler))
	offers := New(provider, nil, slog.New(slog.DiscardHandler), nil)
	sampled := 0
	const total = 200
	for i := range total {
		r := retriedRun()
		r.ID = domain.ScheduledRunID(7, at(1).Add(time.Duration(i)*time.Hour), 0)
		r.First = r.ID
		spans := recorded(t, sampler, r)
		traceparent := offers.Traceparent(&engine.LiveRun{ID: r.ID, Attempt: 2})
		if (len(spans) > 0) != (traceparent[54] == '1') {
			t.Fatalf("%d spans, but the offer has %s", len(spans), traceparent)
		}
		if len(spans) > 0 {
			sampled++
		}
	}
	if sampled < total/4 || sampled > total*3/4 {
		t.Errorf("%d of %d runs are sampled", sampled, total)
	}
	for flags, want := range map[string]int{"00": 0, "01": 4} { // the caller decides
		r := retriedRun()
		r.Trace = "4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-" + flags
		if spans := recorded(t, sampler, r); len(spans) != want {
			t.Errorf("flags %s: %d spans, want %d", flags, len(spans), want)
		}
	}
}

func TestEnabled(t *testing.T) {
	const endpoint = "OTEL_EXPORTER_OTLP_ENDPOINT"
	for _, tt := range []struct {
		env map[string]string
		on  bool
		why bool
	}{
		{nil, false, false},
		{map[string]string{endpoint: "http://c:4318"}, true, false},
		{map[string]string{"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "http://c:4318/v1/traces"}, true, false},
		{map[string]string{endpoint: "http://c:4318", "OTEL_TRACES_EXPORTER": "none"}, false, false},
		{map[string]string{endpoint: "http://c:4318", "OTEL_SDK_DISABLED": "true"}, false, false},
		{map[string]string{endpoint: "http://c:4318", "OTEL_TRACES_EXPORTER": "zipkin"}, false, true},
		{map[string]string{endpoint: "http://c:4317", "OTEL_EXPORTER_OTLP_PROTOCOL": "grpc"}, false, true},
		{map[string]string{endpoint: "http://c:4318", "OTEL_EXPORTER_OTLP_PROTOCOL": "grpc", "OTEL_EXPORTER_OTLP_TRACES_PROTOCOL": "http/protobuf"}, true, false},
	} {
		if on, why := Enabled(func(name string) string { return tt.env[name] }); on != tt.on || (why != "") != tt.why {
			t.Errorf("%v: %t, %q", tt.env, on, why)
		}
	}
}

// The queue of finished runs is bounded. Further runs are dropped.
func TestQueueIsBounded(t *testing.T) {
	s := New(sdktrace.NewTracerProvider(), runs{}, slog.New(slog.DiscardHandler), nil)
	changes := make([]engine.Change, queueLength+10)
	for i := range changes {
		changes[i].State = domain.Succeeded
	}
	s.Finished(changes)
	if len(s.queue) != queueLength {
		t.Errorf("%d runs wait", len(s.queue))
	}
}
