package app

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/belfryhq/belfry/internal/lifecycle"
	"github.com/belfryhq/belfry/internal/store/view"
)

const (
	pressureEvery   = 10 * time.Second
	pressureTimeout = 5 * time.Second
)

// addPressure adds the component that measures how far the engine is behind, and how full Postgres is. Dispatchers have it, so that
// the first is also known while no scheduler works.
func (p *process) addPressure(v *view.Store) {
	gauge := func(name, help string) prometheus.Gauge {
		g := prometheus.NewGauge(prometheus.GaugeOpts{Name: name, Help: help})
		p.registry.MustRegister(g)
		return g
	}
	unfired := gauge("belfry_unfired_runs", "Runs that are over two seconds past due and not fired; 10000 at most. All dispatchers report the same.")
	unplanned := gauge("belfry_unplanned_jobs", "Jobs that are over two seconds past due and not planned; 10000 at most. All dispatchers report the same.")
	used := gauge("belfry_postgres_server_connections", "Connections to the Postgres server, of all its clients.")
	most := gauge("belfry_postgres_server_connections_max", "Connections that the Postgres server accepts from accounts other than superusers.")
	size := gauge("belfry_postgres_database_bytes", "Size of the database.")
	p.add("pressure", func(ctx context.Context) error {
		for {
			limited, cancel := context.WithTimeout(ctx, pressureTimeout)
			now, err := v.Pressure(limited)
			cancel()
			if err == nil {
				unfired.Set(float64(now.Unfired))
				unplanned.Set(float64(now.Unplanned))
				used.Set(float64(now.Connections))
				most.Set(float64(now.MaxConnections))
				size.Set(float64(now.Bytes))
			} else if ctx.Err() == nil {
				p.log.WarnContext(ctx, "cannot read the state of Postgres, retrying", "err", err)
			}
			if !lifecycle.Pause(ctx, pressureEvery) {
				return nil
			}
		}
	})
}

// poolMetrics serves the state of this process's pool of Postgres connections.
type poolMetrics struct {
	pool                             *pgxpool.Pool
	connections, most, waits, waited *prometheus.Desc
}

func newPoolMetrics(pool *pgxpool.Pool) *poolMetrics {
	return &poolMetrics{
		pool:        pool,
		connections: prometheus.NewDesc("belfry_postgres_pool_connections", "Connections in this process's pool: acquired, idle or constructing.", []string{"state"}, nil),
		most:        prometheus.NewDesc("belfry_postgres_pool_connections_max", "The most connections that the pool may have.", nil, nil),
		waits:       prometheus.NewDesc("belfry_postgres_pool_waits_total", "Transactions that waited because the pool had no idle connection.", nil, nil),
		waited:      prometheus.NewDesc("belfry_postgres_pool_wait_seconds_total", "How long these transactions waited for a connection.", nil, nil),
	}
}

// Describe implements prometheus.Collector.
func (m *poolMetrics) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{m.connections, m.most, m.waits, m.waited} {
		ch <- d
	}
}

// Collect implements prometheus.Collector.
func (m *poolMetrics) Collect(ch chan<- prometheus.Metric) {
	s := m.pool.Stat()
	for state, n := range map[string]int32{"acquired": s.AcquiredConns(), "idle": s.IdleConns(), "constructing": s.ConstructingConns()} {
		ch <- prometheus.MustNewConstMetric(m.connections, prometheus.GaugeValue, float64(n), state)
	}
	ch <- prometheus.MustNewConstMetric(m.most, prometheus.GaugeValue, float64(s.MaxConns()))
	ch <- prometheus.MustNewConstMetric(m.waits, prometheus.CounterValue, float64(s.EmptyAcquireCount()))
	ch <- prometheus.MustNewConstMetric(m.waited, prometheus.CounterValue, s.EmptyAcquireWaitTime().Seconds())
}
