package otel_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"go.opentelemetry.io/otel/codes"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"

	"github.com/belfryhq/belfry/executor"
	"github.com/belfryhq/belfry/executor/executortest"
	belfryotel "github.com/belfryhq/belfry/executor/otel"
)

const (
	traceID = "4bf92f3577b34da6a3ce929d0e0e4736"
	spanID  = "00f067aa0ba902b7"
)

// handled runs a handler as an executor with Config.Around does, and returns its only span. The span is empty if it was not recorded.
func handled(t *testing.T, info executor.RunInfo, handler executor.HandlerFunc) (tracetest.SpanStub, executortest.Result) {
	t.Helper()
	spans := tracetest.NewInMemoryExporter()
	provider := sdktrace.NewTracerProvider(sdktrace.WithSyncer(spans))
	around := belfryotel.Around(belfryotel.WithTracerProvider(provider))
	res := executortest.RunFunc(t.Context(), func(ctx context.Context, run executor.Run) error {
		return around(ctx, run, func(ctx context.Context) error { return handler(ctx, run) })
	}, info)
	switch all := spans.GetSpans(); len(all) {
	case 0:
		return tracetest.SpanStub{}, res
	case 1:
		return all[0], res
	default:
		t.Fatalf("%d spans", len(all))
		return tracetest.SpanStub{}, res
	}
}

func traced(flags string) executor.RunInfo {
	return executor.RunInfo{Handler: "invoices", JobName: "nightly", ShardTotal: 1, Labels: map[string]string{"traceparent": "00-" + traceID + "-" + spanID + "-" + flags}}
}

func TestHandlerContinuesTheTraceOfTheOffer(t *testing.T) {
	var in trace.SpanContext
	span, res := handled(t, traced("01"), func(ctx context.Context, _ executor.Run) error {
		in = trace.SpanContextFromContext(ctx)
		return nil
	})
	if res.Err != nil {
		t.Fatal(res.Err)
	}
	if span.Name != "handle invoices" || span.SpanContext.TraceID().String() != traceID || span.Parent.SpanID().String() != spanID || span.SpanKind != trace.SpanKindConsumer {
		t.Errorf("span %q in trace %s below %s", span.Name, span.SpanContext.TraceID(), span.Parent.SpanID())
	}
	if in.SpanID() != span.SpanContext.SpanID() || !in.IsSampled() {
		t.Errorf("the handler's context has span %s, want %s", in.SpanID(), span.SpanContext.SpanID())
	}
	if span.Status.Code != codes.Unset {
		t.Errorf("status %+v", span.Status)
	}
}

func TestHandlerIsNotRecordedIfTheCallerIsNot(t *testing.T) {
	var in trace.SpanContext
	span, _ := handled(t, traced("00"), func(ctx context.Context, _ executor.Run) error {
		in = trace.SpanContextFromContext(ctx)
		return nil
	})
	if span.Name != "" || in.TraceID().String() != traceID || in.IsSampled() {
		t.Errorf("recorded %q; the context has trace %s, sampled %t", span.Name, in.TraceID(), in.IsSampled())
	}
}

// An older server sends no label.
func TestHandlerWithoutLabelBeginsATrace(t *testing.T) {
	span, _ := handled(t, executor.RunInfo{}, func(context.Context, executor.Run) error { return nil })
	if span.Name != "handle script" || span.Parent.IsValid() || !span.SpanContext.IsValid() {
		t.Errorf("span %q below %s", span.Name, span.Parent.SpanID())
	}
}

func TestFailuresSetTheStatus(t *testing.T) {
	slow := traced("01")
	slow.Timeout = time.Millisecond
	for _, tt := range []struct {
		name    string
		info    executor.RunInfo
		handler executor.HandlerFunc
		want    string
	}{
		{"an error", traced("01"), func(context.Context, executor.Run) error { return errors.New("no such customer") }, "no such customer"},
		{"a panic", traced("01"), func(context.Context, executor.Run) error { panic("oops") }, "the handler panicked"},
		{"a timeout", slow, func(ctx context.Context, _ executor.Run) error { <-ctx.Done(); return nil }, "timeout"},
	} {
		span, res := handled(t, tt.info, tt.handler)
		if span.Status.Code != codes.Error || span.Status.Description != tt.want {
			t.Errorf("%s: status %+v", tt.name, span.Status)
		}
		if tt.name == "a panic" && res.Panic != "oops" {
			t.Errorf("the panic became %v", res.Panic)
		}
	}
}
