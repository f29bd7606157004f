package spans

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	"go.opentelemetry.io/otel/sdk/resource"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
)

// Enabled reports whether the environment variables request an export of traces. If an endpoint is set and not used, why gives the reason.
func Enabled(getenv func(string) string) (on bool, why string) {
	if getenv("OTEL_EXPORTER_OTLP_ENDPOINT") == "" && getenv("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT") == "" {
		return false, ""
	}
	if getenv("OTEL_SDK_DISABLED") == "true" || getenv("OTEL_TRACES_EXPORTER") == "none" {
		return false, ""
	}
	if e := getenv("OTEL_TRACES_EXPORTER"); e != "" && e != "otlp" {
		return false, fmt.Sprintf("OTEL_TRACES_EXPORTER is %q; only otlp is supported", e)
	}
	protocol := getenv("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL")
	if protocol == "" {
		protocol = getenv("OTEL_EXPORTER_OTLP_PROTOCOL")
	}
	if protocol != "" && protocol != "http/protobuf" {
		return false, fmt.Sprintf("the OTLP protocol is %q; only http/protobuf is supported", protocol)
	}
	return true, ""
}

// Provider returns a TracerProvider for a role, configured by the OTEL_* variables, or nil if they ask for no export. The caller shuts it
// down. The registry may be nil.
func Provider(ctx context.Context, role, version string, log *slog.Logger, registry prometheus.Registerer) (*sdktrace.TracerProvider, error) {
	on, why := Enabled(os.Getenv)
	if why != "" {
		log.WarnContext(ctx, "cannot export traces, none are recorded", "err", why)
	}
	if !on {
		return nil, nil
	}
	exporter, err := otlptracehttp.New(ctx)
	if err != nil {
		return nil, fmt.Errorf("make the exporter of traces: %w", err)
	}
	host, _ := os.Hostname() // "" is as good as any name
	res, err := resource.New(ctx, resource.WithTelemetrySDK(), resource.WithAttributes(
		attribute.String("service.name", "belfry-"+role), attribute.String("service.version", version),
		attribute.String("service.instance.id", fmt.Sprintf("%s:%d", host, os.Getpid())),
	), resource.WithFromEnv()) // the last one takes precedence
	if err != nil {
		return nil, fmt.Errorf("read OTEL_RESOURCE_ATTRIBUTES: %w", err)
	}
	return sdktrace.NewTracerProvider(sdktrace.WithBatcher(newQuiet(exporter, log, registry)), sdktrace.WithResource(res),
		sdktrace.WithIDGenerator(newIDs())), nil
}

// quiet counts exports, and logs at most one failure a minute.
type quiet struct {
	sdktrace.SpanExporter
	log   *slog.Logger
	spans *prometheus.CounterVec

	mu   sync.Mutex
	said time.Time
}

func newQuiet(e sdktrace.SpanExporter, log *slog.Logger, registry prometheus.Registerer) *quiet {
	q := &quiet{SpanExporter: e, log: log, spans: prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "belfry_spans_total", Help: "Spans that were passed to the collector of traces, by result: exported or failed.",
	}, []string{"result"})}
	if registry != nil {
		registry.MustRegister(q.spans)
	}
	return q
}

// ExportSpans implements sdktrace.SpanExporter. It returns no error, because the SDK would log each one.
func (q *quiet) ExportSpans(ctx context.Context, spans []sdktrace.ReadOnlySpan) error {
	err := q.SpanExporter.ExportSpans(ctx, spans)
	if err == nil {
		q.spans.WithLabelValues("exported").Add(float64(len(spans)))
		return nil
	}
	q.spans.WithLabelValues("failed").Add(float64(len(spans)))
	q.mu.Lock()
	defer q.mu.Unlock()
	if time.Since(q.said) >= time.Minute {
		q.said = time.Now()
		q.log.WarnContext(ctx, "cannot export spans, they are dropped", "count", len(spans), "err", err)
	}
	return nil
}
