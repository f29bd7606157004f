package spans

import (
	"context"
	"log/slog"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	oteltrace "go.opentelemetry.io/otel/trace"

	"github.com/belfryhq/belfry/internal/domain"
	"github.com/belfryhq/belfry/internal/engine"
	"github.com/belfryhq/belfry/internal/trace"
)

// Store reads finished runs.
type Store interface {
	Now() time.Time // the database's clock
	TracedRuns(ctx context.Context, ids []domain.RunID) ([]engine.TracedRun, error)
}

// Spans records the spans of runs. Create one with New and call Run. It is safe for concurrent use. Its methods do not block.
type Spans struct {
	provider *sdktrace.TracerProvider
	tracer   oteltrace.Tracer
	store    Store
	log      *slog.Logger
	queue    chan finished
	dropped  prometheus.Counter
}

// finished is a run that has ended, and when its end was settled.
type finished struct {
	run     domain.RunID
	settled time.Time
}

// The bounds: how many finished runs wait for their export, and how many one query reads.
const (
	queueLength = 8192
	batch       = 256
)

const (
	gather       = 200 * time.Millisecond // collects runs for one query
	readTimeout  = 5 * time.Second
	flushTimeout = 5 * time.Second
)

// New returns a Spans. The registry may be nil.
func New(provider *sdktrace.TracerProvider, store Store, log *slog.Logger, registry prometheus.Registerer) *Spans {
	s := &Spans{
		provider: provider, tracer: provider.Tracer("github.com/belfryhq/belfry"), store: store, log: log, queue: make(chan finished, queueLength),
		dropped: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "belfry_untraced_runs_total", Help: "Finished runs whose spans were dropped, because too many waited or Postgres was unavailable.",
		}),
	}
	if registry != nil {
		registry.MustRegister(s.dropped)
	}
	return s
}

// Finished records that runs have changed. Only final runs have spans.
func (s *Spans) Finished(changes []engine.Change) {
	now := s.store.Now()
	for i := range changes {
		if !changes[i].State.Final() {
			continue
		}
		select {
		case s.queue <- finished{changes[i].RunID, now}:
		default:
			s.dropped.Inc()
		}
	}
}

// Run exports spans until ctx ends. Then it exports the runs that wait, and returns.
func (s *Spans) Run(ctx context.Context) error {
	for {
		select {
		case <-ctx.Done():
			s.rest(context.WithoutCancel(ctx))
			return nil
		case f := <-s.queue:
			timer := time.NewTimer(gather)
			runs := []finished{f}
			for waiting := true; waiting && len(runs) < batch; {
				select {
				case f := <-s.queue:
					runs = append(runs, f)
				case <-timer.C:
					waiting = false
				case <-ctx.Done():
					waiting = false
				}
			}
			timer.Stop()
			s.export(context.WithoutCancel(ctx), runs)
		}
	}
}

// rest exports the runs that wait at the end of the process.
func (s *Spans) rest(ctx context.Context) {
	for len(s.queue) > 0 {
		var runs []finished
		for len(s.queue) > 0 && len(runs) < batch {
			runs = append(runs, <-s.queue)
		}
		s.export(ctx, runs)
	}
	ctx, cancel := context.WithTimeout(ctx, flushTimeout)
	defer cancel()
	if err := s.provider.Shutdown(ctx); err != nil {
		s.log.WarnContext(ctx, "cannot export the last spans, they are dropped", "err", err)
	}
}

func (s *Spans) export(ctx context.Context, ended []finished) {
	ids := make([]domain.RunID, len(ended))
	settled := make(map[domain.RunID]time.Time, len(ended))
	for i, f := range ended {
		ids[i], settled[f.run] = f.run, f.settled
	}
	ctx, cancel := context.WithTimeout(ctx, readTimeout)
	defer cancel()
	runs, err := s.store.TracedRuns(ctx, ids)
	if err != nil {
		s.dropped.Add(float64(len(ids)))
		return
	}
	for i := range runs {
		s.run(&runs[i], settled[runs[i].ID])
	}
}

// run exports the spans of a final run.
func (s *Spans) run(r *engine.TracedRun, settled time.Time) {
	c := trace.Of(r.Trace, r.First)
	flags := s.record(c)
	if !flags.IsSampled() {
		return
	}
	from := begun(r)
	sp := s.begin(c.Trace, flags, span{id: trace.RunSpan(r.ID), parent: c.Parent, name: "run " + r.JobName, kind: oteltrace.SpanKindInternal, from: from},
		oteltrace.WithAttributes(runAttributes(r)...))
	fail(sp, r.State, r.Reason)
	sp.End(oteltrace.WithTimestamp(notBefore(r.FinishedAt, from)))
	for i := range r.Attempts {
		if a := &r.Attempts[i]; !a.DispatchedAt.IsZero() { // otherwise it reached no instance
			s.attempt(c.Trace, flags, r, a, settled)
		}
	}
}

func (s *Spans) attempt(t trace.ID, flags oteltrace.TraceFlags, r *engine.TracedRun, a *engine.TracedAttempt, settled time.Time) {
	id := trace.AttemptSpan(r.ID, a.Attempt)
	sp := s.begin(t, flags, span{id: id, parent: trace.RunSpan(r.ID), name: "attempt", kind: oteltrace.SpanKindInternal, from: a.DispatchedAt},
		oteltrace.WithAttributes(
			attribute.String("belfry.run.id", r.ID.String()), attribute.Int("belfry.attempt", a.Attempt), attribute.String("belfry.instance", a.Instance),
			attribute.String("belfry.outcome", string(a.Outcome)), attribute.String("belfry.reason", string(a.Reason))))
	fail(sp, a.Outcome, a.Reason)
	end := notBefore(a.FinishedAt, a.DispatchedAt)
	if a.Attempt == r.Attempt && !a.StartedAt.IsZero() {
		result := s.begin(t, flags, span{parent: id, name: "result", kind: oteltrace.SpanKindConsumer, from: end},
			oteltrace.WithAttributes(attribute.String("belfry.run.id", r.ID.String()), attribute.Int("belfry.attempt", a.Attempt)))
		end = notBefore(settled, end)
		result.End(oteltrace.WithTimestamp(end))
	}
	sp.End(oteltrace.WithTimestamp(end))
}

// begun returns the beginning of a run's span: its fire time if it ran by schedule, otherwise its creation. A run is bound to an
// instance up to 250 ms before its fire time.
func begun(r *engine.TracedRun) time.Time {
	from := r.CreatedAt
	if r.Cause == domain.CauseSchedule && !r.FireTime.IsZero() {
		from = r.FireTime
	}
	for i := range r.Attempts {
		if at := r.Attempts[i].DispatchedAt; !at.IsZero() && at.Before(from) {
			from = at
		}
	}
	return from
}

func notBefore(at, from time.Time) time.Time {
	if at.Before(from) {
		return from
	}
	return at
}

// fail sets the status of a span whose run or attempt failed.
func fail(sp oteltrace.Span, state domain.State, reason domain.Reason) {
	if state == domain.Failed {
		sp.SetStatus(codes.Error, string(reason))
	}
}

func runAttributes(r *engine.TracedRun) []attribute.KeyValue {
	list := []attribute.KeyValue{
		attribute.String("belfry.run.id", r.ID.String()), attribute.Int64("belfry.job.id", int64(r.JobID)), attribute.String("belfry.job.name", r.JobName),
		attribute.Int("belfry.job.version", r.JobVersion), attribute.String("belfry.group", r.Group), attribute.String("belfry.cause", string(r.Cause)),
		attribute.String("belfry.state", string(r.State)), attribute.String("belfry.reason", string(r.Reason)), attribute.Int("belfry.attempts", r.Attempt),
	}
	if !r.FireTime.IsZero() {
		list = append(list, attribute.String("belfry.fire_time", domain.At(r.FireTime).String()))
	}
	if r.LatenessMS != nil {
		list = append(list, attribute.Int64("belfry.lateness_ms", *r.LatenessMS))
	}
	if r.Shard != nil {
		list = append(list, attribute.Int("belfry.shard.index", *r.Shard))
	}
	if r.ParentRunID != nil {
		list = append(list, attribute.String("belfry.parent_run.id", r.ParentRunID.String()))
	}
	return list
}

// Traceparent returns the trace context for the handler of a run: the span of the attempt.
func (s *Spans) Traceparent(r *engine.LiveRun) string {
	c := r.Context()
	return trace.Traceparent(c.Trace, trace.AttemptSpan(r.ID, r.Attempt), byte(s.record(c)))
}

// Offered exports the spans of offers. The offers began at sent, on the process's clock. The offers end now.
func (s *Spans) Offered(runs []engine.LiveRun, answers func(*engine.LiveRun) string, sent time.Time) {
	now := s.store.Now()
	from := now.Add(-time.Since(sent))
	for i := range runs {
		r := &runs[i]
		c := r.Context()
		flags := s.record(c)
		if !flags.IsSampled() {
			continue
		}
		sp := s.begin(c.Trace, flags, span{parent: trace.AttemptSpan(r.ID, r.Attempt), name: "offer", kind: oteltrace.SpanKindProducer, from: from},
			oteltrace.WithAttributes(
				attribute.String("belfry.run.id", r.ID.String()), attribute.Int("belfry.attempt", r.Attempt), attribute.Int("belfry.bind", r.Bind),
				attribute.String("belfry.instance", r.Instance), attribute.String("belfry.answer", answers(r))))
		sp.End(oteltrace.WithTimestamp(now))
	}
}
