package app

import (
	"context"
	"net/http"
	"time"

	"github.com/belfryhq/belfry/dispatcher"
	"github.com/belfryhq/belfry/executor"
	belfryotel "github.com/belfryhq/belfry/executor/otel"
	"github.com/belfryhq/belfry/internal/store"
	"github.com/belfryhq/belfry/internal/trace/spans"
)

// addTracing adds the export of traces if the OTEL_* variables ask for it. It is added before the components that record spans, so that it
// stops after them.
func (p *process) addTracing(ctx context.Context, role string, s *store.Store) error {
	provider, err := spans.Provider(ctx, role, p.app.Build.Version, p.log, p.registry)
	if err != nil || provider == nil {
		return err
	}
	p.spans = spans.New(provider, s, p.log, p.registry)
	p.add("traces", p.spans.Run)
	return nil
}

// tracer returns nil, and not an interface with a nil pointer, if no traces are exported.
func (p *process) tracer() dispatcher.Tracer {
	if p.spans == nil {
		return nil
	}
	return p.spans
}

// traceRequests returns nil if no traces are exported.
func (p *process) traceRequests() func(http.Handler) http.Handler {
	if p.spans == nil {
		return nil
	}
	return p.spans.Handler
}

// traceHandlers returns the hook that gives each handler of an executor a span, or nil if the OTEL_* variables ask for no export.
func (p *process) traceHandlers(ctx context.Context, role string) (func(context.Context, executor.Run, func(context.Context) error) error, error) {
	provider, err := spans.Provider(ctx, role, p.app.Build.Version, p.log, nil)
	if err != nil || provider == nil {
		return nil, err
	}
	p.hold("traces of handlers", func(ctx context.Context) error {
		ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
		defer cancel()
		if err := provider.Shutdown(ctx); err != nil {
			p.log.WarnContext(ctx, "cannot export the last spans, they are dropped", "err", err)
		}
		return nil
	})
	return belfryotel.Around(belfryotel.WithTracerProvider(provider)), nil
}
