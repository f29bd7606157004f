// Package runstats continuously aggregates finished runs into statistics. Every dispatcher runs a Roller. One row of the
// database stores the instant up to which the statistics are complete. The Roller that locks this row does the work, and the
// others try again later. A Roller reads the history by block ranges, and only the runs that were settled since the last
// time, so that it does not slow down firing and settling. If it is behind, it catches up one window at a time.
package runstats

import (
	"context"
	"log/slog"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// Store counts the runs that were settled in the next time window: see RollUp of internal/store/runstats.
type Store interface {
	RollUp(ctx context.Context, window time.Duration) (runs int64, through, now time.Time, more bool, err error)
	Tend(ctx context.Context) error
}

const (
	period      = 5 * time.Second
	tendEvery   = time.Minute
	firstWindow = time.Minute
	leastWindow = time.Second
	mostWindow  = time.Hour
	fewRuns     = 20_000 // if a window has fewer runs, the next one may be twice as long
	manyRuns    = 200_000
)

// Roller aggregates runs. Create one with New, then call Run.
type Roller struct {
	store  Store
	log    *slog.Logger
	window time.Duration
	runs   prometheus.Counter
	lag    prometheus.Gauge
}

// New returns a Roller that does nothing until Run. registry may be nil.
func New(store Store, log *slog.Logger, registry prometheus.Registerer) *Roller {
	r := &Roller{
		store: store, log: log, window: firstWindow,
		runs: prometheus.NewCounter(prometheus.CounterOpts{Name: "belfry_run_statistics_runs_total", Help: "Finished runs that this dispatcher has added to the statistics."}),
		lag:  prometheus.NewGauge(prometheus.GaugeOpts{Name: "belfry_run_statistics_lag_seconds", Help: "Age of the instant up to which the statistics are complete."}),
	}
	if registry != nil {
		registry.MustRegister(r.runs, r.lag)
	}
	return r
}

// Run aggregates runs until ctx ends.
func (r *Roller) Run(ctx context.Context) error {
	tick := time.NewTicker(period)
	defer tick.Stop()
	tended := time.Now()
	for {
		r.catchUp(ctx)
		if time.Since(tended) >= tendEvery {
			tended = time.Now()
			if err := r.store.Tend(ctx); err != nil && ctx.Err() == nil {
				r.log.WarnContext(ctx, "cannot maintain the run statistics, retrying", "err", err)
			}
		}
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
	}
}

// catchUp counts one window after another until no window is left.
func (r *Roller) catchUp(ctx context.Context) {
	for ctx.Err() == nil {
		runs, through, now, more, err := r.store.RollUp(ctx, r.window)
		if err != nil {
			// The window may have been too large for one transaction.
			r.window = max(r.window/2, leastWindow)
			if ctx.Err() == nil {
				r.log.WarnContext(ctx, "cannot roll up run statistics, retrying", "err", err)
			}
			return
		}
		r.runs.Add(float64(runs))
		if !through.IsZero() {
			r.lag.Set(now.Sub(through).Seconds())
		}
		if !more {
			return
		}
		switch {
		case runs < fewRuns:
			r.window = min(2*r.window, mostWindow)
		case runs > manyRuns:
			r.window = max(r.window/2, leastWindow)
		}
	}
}
