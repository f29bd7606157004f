// Package otel connects an executor with OpenTelemetry. Each call of a handler gets a span, and the handler's context carries it:
//
//	import belfryotel "github.com/belfryhq/belfry/executor/otel"
//
//	e, err := executor.New(executor.Config{…, Around: belfryotel.Around()})
//
// The span belongs to the run's trace, below the span of the attempt. Belfry sends the trace context in the offer, in label traceparent.
// If the server does not record traces or is older than this package, the offer may have no such label. Then the span begins a new trace.
//
// The package exports nothing. It uses the TracerProvider of the program, which decides about sampling and exporters.
package otel

import (
	"context"
	"errors"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"

	"github.com/belfryhq/belfry/executor"
)

// scope is the name of the instrumentation.
const scope = "github.com/belfryhq/belfry/executor/otel"

// Option changes a setting of Around.
type Option func(*settings)

type settings struct{ provider trace.TracerProvider }

// WithTracerProvider sets the provider of the spans. The default is the global one.
func WithTracerProvider(p trace.TracerProvider) Option {
	return func(s *settings) { s.provider = p }
}

// Around returns a value for executor.Config.Around. The span is named "handle" and the name of the handler; the name of a script's
// span is "handle script". An error of the handler, a timeout and a panic set the span's status.
func Around(options ...Option) func(ctx context.Context, run executor.Run, handle func(context.Context) error) error {
	var s settings
	for _, o := range options {
		o(&s)
	}
	return func(ctx context.Context, run executor.Run, handle func(context.Context) error) error {
		provider := s.provider
		if provider == nil {
			provider = otel.GetTracerProvider() // read for each run, because the program may set it later
		}
		ctx, span := provider.Tracer(scope).Start(remote(ctx, run), name(run),
			trace.WithSpanKind(trace.SpanKindConsumer), trace.WithAttributes(attributes(run)...))
		returned := false
		defer func() {
			if !returned { // not recovered, so that the executor reports the panic with its stack
				span.SetStatus(codes.Error, "the handler panicked")
			}
			span.End()
		}()
		err := handle(ctx)
		returned = true
		switch cause := context.Cause(ctx); {
		case errors.Is(cause, executor.ErrTimeout):
			span.SetStatus(codes.Error, "timeout")
		case err != nil:
			span.RecordError(err)
			span.SetStatus(codes.Error, err.Error())
		}
		return err
	}
}

// remote adds the trace context of the offer to ctx.
func remote(ctx context.Context, run executor.Run) context.Context {
	t := run.Label("traceparent")
	if t == "" {
		return ctx
	}
	return propagation.TraceContext{}.Extract(ctx, propagation.MapCarrier{"traceparent": t})
}

func name(run executor.Run) string {
	if h := run.Handler(); h != "" {
		return "handle " + h
	}
	return "handle script"
}

func attributes(run executor.Run) []attribute.KeyValue {
	list := []attribute.KeyValue{
		attribute.String("belfry.run.id", run.ID()),
		attribute.Int("belfry.attempt", run.Attempt()),
		attribute.Int64("belfry.job.id", run.JobID()),
		attribute.String("belfry.job.name", run.JobName()),
		attribute.String("belfry.group", run.Group()),
		attribute.String("belfry.cause", run.Cause()),
	}
	if index, total := run.Shard(); total > 1 {
		list = append(list, attribute.Int("belfry.shard.index", index), attribute.Int("belfry.shard.total", total))
	}
	return list
}
