package followup

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/riverqueue/river"
	"github.com/riverqueue/river/rivertype"
)

const (
	meterPeriod  = 15 * time.Second
	meterTimeout = 5 * time.Second
	countMax     = 10_000 // bounds the count of a state, so that a backlog does not make the query slow
)

// meter measures River's queues and the workers of this process.
type meter struct {
	pool   *pgxpool.Pool
	sql    string
	anySQL string
	queues []string
	busy   map[string]*atomic.Int64 // by queue; constant map
	worked atomic.Int64             // follow-ups of which the work has begun

	jobs   *prometheus.GaugeVec
	oldest *prometheus.GaugeVec
}

func newMeter(pool *pgxpool.Pool, schema string, queues map[string]river.QueueConfig, registry prometheus.Registerer) *meter {
	m := &meter{
		pool: pool, sql: meterSQL(schema), anySQL: anySQL(schema), busy: make(map[string]*atomic.Int64),
		jobs: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "belfry_followups", Help: "Follow-ups in River's queues, by state; 10000 at most. All dispatchers report the same.",
		}, []string{"queue", "state"}),
		oldest: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "belfry_followups_oldest_seconds", Help: "How long the oldest available follow-up of a queue has waited for a worker.",
		}, []string{"queue"}),
	}
	for name := range queues {
		m.queues, m.busy[name] = append(m.queues, name), new(atomic.Int64)
	}
	if registry == nil {
		return m
	}
	registry.MustRegister(m.jobs, m.oldest)
	for name, q := range queues {
		labels := prometheus.Labels{"queue": name}
		registry.MustRegister(
			prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "belfry_followup_workers", ConstLabels: labels,
				Help: "Workers of follow-ups in this process."}, func() float64 { return float64(q.MaxWorkers) }),
			prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "belfry_followup_workers_busy", ConstLabels: labels,
				Help: "Workers of follow-ups in this process that work."}, func() float64 { return float64(m.busy[name].Load()) }))
	}
	return m
}

// meterSQL returns a query that reads only the index by which River fetches jobs. All follow-ups have priority 1, which is River's default.
func meterSQL(schema string) string {
	table := pgx.Identifier{schema, "river_job"}.Sanitize()
	state := pgx.Identifier{schema, "river_job_state"}.Sanitize()
	return `SELECT q.queue, s.state,
  (SELECT count(*) FROM (SELECT FROM ` + table + ` j WHERE j.state = s.state::` + state + ` AND j.queue = q.queue LIMIT $3) x),
  coalesce(extract(epoch FROM clock_timestamp() - (SELECT j.scheduled_at FROM ` + table + ` j
    WHERE s.state = 'available' AND j.state = 'available' AND j.queue = q.queue AND j.priority = 1 ORDER BY j.scheduled_at LIMIT 1)), 0)::float8
  FROM unnest($1::text[]) q(queue), unnest($2::text[]) s(state)`
}

// anySQL returns a query that looks for one follow-up by the same index.
func anySQL(schema string) string {
	table := pgx.Identifier{schema, "river_job"}.Sanitize()
	state := pgx.Identifier{schema, "river_job_state"}.Sanitize()
	return `SELECT EXISTS (SELECT FROM unnest($1::text[]) q(queue), unnest($2::text[]) s(state),
  LATERAL (SELECT FROM ` + table + ` j WHERE j.state = s.state::` + state + ` AND j.queue = q.queue LIMIT 1) x)`
}

// working counts the workers that work. It is a middleware of River.
func (m *meter) working() rivertype.Middleware {
	return river.WorkerMiddlewareFunc(func(ctx context.Context, job *rivertype.JobRow, work func(context.Context) error) error {
		m.worked.Add(1)
		if busy := m.busy[job.Queue]; busy != nil {
			busy.Add(1)
			defer busy.Add(-1)
		}
		return work(ctx)
	})
}

// states are the states of follow-ups that are not finished.
var states = []string{"available", "running", "retryable", "scheduled"}

// unfinished reports whether there are follow-ups that are not finished. It reads only River's index.
func (m *meter) unfinished(ctx context.Context, db interface {
	QueryRow(ctx context.Context, sql string, args ...any) pgx.Row
}) (found bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, meterTimeout)
	defer cancel()
	err = db.QueryRow(ctx, m.anySQL, m.queues, states).Scan(&found)
	return found, err
}

// measure reads the queues once.
func (m *meter) measure(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, meterTimeout)
	defer cancel()
	rows, err := m.pool.Query(ctx, m.sql, m.queues, states, countMax)
	if err != nil {
		return err
	}
	var (
		queue, state string
		n            int64
		age          float64
	)
	_, err = pgx.ForEachRow(rows, []any{&queue, &state, &n, &age}, func() error {
		m.jobs.WithLabelValues(queue, state).Set(float64(n))
		if state == "available" {
			m.oldest.WithLabelValues(queue).Set(age)
		}
		return nil
	})
	return err
}

// keepMeasuring measures the queues until ctx ends.
func (w *Workers) keepMeasuring(ctx context.Context) {
	tick := time.NewTicker(meterPeriod)
	defer tick.Stop()
	for {
		if err := w.meter.measure(ctx); err != nil && ctx.Err() == nil {
			w.log.WarnContext(ctx, "cannot count the follow-ups, retrying", "err", err)
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}
