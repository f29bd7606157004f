package spans

import (
	"context"
	"crypto/rand"
	"time"

	oteltrace "go.opentelemetry.io/otel/trace"

	"github.com/belfryhq/belfry/internal/trace"
)

// ids generates ids of spans. A context made by withIDs determines them; all other spans get random ids.
type ids struct{}

func newIDs() ids { return ids{} }

type idsKey struct{}

// chosen are the ids of the next span that is started with a context. A zero span id stands for a random one.
type chosen struct {
	trace trace.ID
	span  trace.SpanID
}

func withIDs(ctx context.Context, t trace.ID, s trace.SpanID) context.Context {
	return context.WithValue(ctx, idsKey{}, chosen{t, s})
}

// NewIDs implements sdktrace.IDGenerator.
func (g ids) NewIDs(ctx context.Context) (t oteltrace.TraceID, s oteltrace.SpanID) {
	if c, ok := ctx.Value(idsKey{}).(chosen); ok {
		t = oteltrace.TraceID(c.trace)
	}
	for !t.IsValid() {
		rand.Read(t[:]) // documented to never fail
	}
	return t, g.NewSpanID(ctx, t)
}

// NewSpanID implements sdktrace.IDGenerator.
func (ids) NewSpanID(ctx context.Context, _ oteltrace.TraceID) (s oteltrace.SpanID) {
	if c, ok := ctx.Value(idsKey{}).(chosen); ok {
		s = oteltrace.SpanID(c.span)
	}
	for !s.IsValid() {
		rand.Read(s[:])
	}
	return s
}

// span describes a span with known times.
type span struct {
	id     trace.SpanID // zero: random
	parent trace.SpanID // zero: the first span of the trace
	name   string
	kind   oteltrace.SpanKind
	from   time.Time
}

// begin starts a span. flags are those of the trace: what record returned.
func (s *Spans) begin(t trace.ID, flags oteltrace.TraceFlags, sp span, options ...oteltrace.SpanStartOption) oteltrace.Span {
	ctx := withIDs(context.Background(), t, sp.id)
	if !sp.parent.IsZero() {
		ctx = below(ctx, t, sp.parent, flags)
	}
	_, started := s.tracer.Start(ctx, sp.name, append(options, oteltrace.WithSpanKind(sp.kind), oteltrace.WithTimestamp(sp.from))...)
	return started
}

// below makes a span the parent of the next one.
func below(ctx context.Context, t trace.ID, parent trace.SpanID, flags oteltrace.TraceFlags) context.Context {
	return oteltrace.ContextWithRemoteSpanContext(ctx, oteltrace.NewSpanContext(oteltrace.SpanContextConfig{
		TraceID: oteltrace.TraceID(t), SpanID: oteltrace.SpanID(parent), TraceFlags: flags, Remote: true,
	}))
}

// record reports whether a trace is recorded, as flags. It asks the sampler of the SDK, which sees the flags of the caller, or else the
// trace id only: it starts a span that it never ends. Such a span is not exported.
func (s *Spans) record(c trace.Context) oteltrace.TraceFlags {
	ctx := withIDs(context.Background(), c.Trace, trace.SpanID{1})
	if c.Decided {
		ctx = below(ctx, c.Trace, c.Parent, oteltrace.TraceFlags(c.Flags))
	}
	_, sp := s.tracer.Start(ctx, "run")
	return sp.SpanContext().TraceFlags()
}
