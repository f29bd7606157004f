package app

import (
	"context"
	"log/slog"
	"strings"
	"sync/atomic"
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

// pressure measures how far the engine is behind, and how full Postgres is.
type pressure struct {
	view *view.Postgres
	log  *slog.Logger

	unfired, unplanned, used, most, size, blocked prometheus.Gauge

	read     atomic.Pointer[time.Time] // when the state was last read
	reported int                       // the session that was last logged as a blocker
	crowded  bool                      // nearly all connections are taken
}

// crowdedAt is the share of the connections of Postgres above which their holders are logged. The alert BelfryPostgresConnections has the same.
const crowdedAt = 0.9

// addPressure adds the component that measures the pressure. Dispatchers have it, so that the state of the engine is also known while no scheduler
// works.
func (p *process) addPressure(v *view.Postgres) {
	gauge := func(name, help string) prometheus.Gauge {
		g := prometheus.NewGauge(prometheus.GaugeOpts{Name: name, Help: help})
		p.registry.MustRegister(g)
		return g
	}
	x := &pressure{view: v, log: p.log,
		unfired:   gauge("belfry_unfired_runs", "Runs that are over two seconds past due and not fired; 10000 at most. All dispatchers report the same."),
		unplanned: gauge("belfry_unplanned_jobs", "Jobs that are over two seconds past due and not planned; 10000 at most. All dispatchers report the same."),
		used:      gauge("belfry_postgres_server_connections", "Connections to the Postgres server, of all its clients."),
		most:      gauge("belfry_postgres_server_connections_max", "Connections that the Postgres server accepts from accounts other than superusers."),
		size:      gauge("belfry_postgres_database_bytes", "Size of the database."),
		blocked:   gauge("belfry_blocked_sessions", "Sessions of Belfry that have waited for over two seconds for a lock of another transaction. All dispatchers report the same."),
	}
	start := time.Now()
	x.read.Store(&start)
	p.registry.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "belfry_state_age_seconds",
		Help: "Time since this process last read belfry_unfired_runs and belfry_unplanned_jobs from Postgres."},
		func() float64 { return time.Since(*x.read.Load()).Seconds() }))
	p.add("pressure", x.run)
}

func (x *pressure) run(ctx context.Context) error {
	for {
		// Locks can stop the second reading, but not the first one.
		if err := x.readBlockers(ctx); err != nil && ctx.Err() == nil {
			x.log.WarnContext(ctx, "cannot look for blocked sessions, retrying", "err", err)
		}
		if err := x.readState(ctx); err != nil && ctx.Err() == nil {
			x.log.WarnContext(ctx, "cannot read the state of Postgres, retrying", "err", err)
		}
		if !lifecycle.Pause(ctx, pressureEvery) {
			return nil
		}
	}
}

func (x *pressure) readState(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, pressureTimeout)
	defer cancel()
	now, err := x.view.Pressure(ctx)
	if err != nil {
		return err
	}
	x.unfired.Set(float64(now.Unfired))
	x.unplanned.Set(float64(now.Unplanned))
	x.used.Set(float64(now.Connections))
	x.most.Set(float64(now.MaxConnections))
	x.size.Set(float64(now.Bytes))
	at := time.Now()
	x.read.Store(&at)
	return x.reportClients(ctx, float64(now.Connections) > crowdedAt*float64(now.MaxConnections), now.Connections)
}

// reportClients logs once who has the connections of Postgres when nearly all are taken.
func (x *pressure) reportClients(ctx context.Context, crowded bool, connections int64) error {
	was := x.crowded
	x.crowded = crowded
	if !crowded || was {
		return nil
	}
	clients, err := x.view.Clients(ctx)
	if err != nil {
		return err
	}
	x.log.WarnContext(ctx, "nearly all connections of Postgres are taken, processes that start cannot connect", "count", connections, "clients", strings.Join(clients, ", "))
	return nil
}

// readBlockers counts the sessions of Belfry that wait for a lock, and logs the transaction for which most of them wait, once.
func (x *pressure) readBlockers(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, pressureTimeout)
	defer cancel()
	blockers, err := x.view.Blockers(ctx)
	if err != nil {
		return err
	}
	sessions := 0
	for _, b := range blockers {
		sessions += b.Sessions
	}
	x.blocked.Set(float64(sessions))
	switch {
	case sessions == 0:
		x.reported = 0
	case x.reported != blockers[0].PID:
		x.reported = blockers[0].PID
		x.log.WarnContext(ctx, "a transaction in Postgres blocks statements of Belfry, they wait until it ends",
			"pid", blockers[0].PID, "application", blockers[0].Application, "count", sessions)
	}
	return nil
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
