// Package settle records what happened to attempts: their starts and their ends.
//
// A Recorder commits first. Then it publishes and counts the state changes. It does not fire runs: it returns the held runs
// whose turn has come to the caller, which passes them to package fire.
package settle

import (
	"context"
	"log/slog"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/belfryhq/belfry/dispatcher/announce"
	"github.com/belfryhq/belfry/dispatcher/waiting"
	"github.com/belfryhq/belfry/executor/wire"
	"github.com/belfryhq/belfry/internal/engine"
)

// Store defines the database operations that the recorder needs.
type Store interface {
	Now() time.Time // the database's clock
	Settle(ctx context.Context, ended []engine.Ended) (engine.SettleResult, error)
	MarkRunning(ctx context.Context, started []engine.Started) ([]engine.Change, error)
}

// Recorder settles attempts. Create one with New. It is safe for concurrent use.
type Recorder struct {
	store     Store
	announcer *announce.Announcer
	waiting   *waiting.Kinds
	log       *slog.Logger

	finished   *prometheus.CounterVec
	reconciled *prometheus.CounterVec
	lateness   prometheus.Histogram
}

// New returns a recorder. The registry may be nil.
func New(store Store, announcer *announce.Announcer, kinds *waiting.Kinds, log *slog.Logger, registry prometheus.Registerer) *Recorder {
	r := &Recorder{
		store: store, announcer: announcer, waiting: kinds, log: log,
		finished: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "belfry_runs_finished_total", Help: "Runs that became final, by state.",
		}, []string{"state"}),
		reconciled: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "belfry_reconciled_total", Help: "Runs that a reconciler repaired, by kind.",
		}, []string{"kind"}),
		lateness: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "belfry_lateness_seconds", Help: "First start minus due instant of runs, by the database's clock.",
			Buckets: []float64{.001, .002, .005, .01, .02, .05, .1, .2, .5, 1, 2, 5, 10, 30, 60, 300, 3600},
		}),
	}
	if registry != nil {
		registry.MustRegister(r.finished, r.reconciled, r.lateness)
	}
	return r
}

// Settle ends attempts in one transaction. The caller fires the released runs of the result.
func (r *Recorder) Settle(ctx context.Context, ended []engine.Ended) (engine.SettleResult, error) {
	out, err := r.store.Settle(ctx, ended)
	if err == nil {
		r.Settled(out)
	}
	return out, err
}

// Settled publishes and counts what a transaction of the store has settled.
func (r *Recorder) Settled(out engine.SettleResult) {
	r.announcer.Notify(out.Changes)
	for _, c := range out.Changes {
		if !c.State.Final() {
			continue
		}
		r.finished.WithLabelValues(string(c.State)).Inc()
		if c.LatenessMS != nil {
			r.lateness.Observe(float64(max(*c.LatenessMS, 0)) / 1000)
		}
	}
	if out.Waiting {
		r.waiting.Wake()
	}
}

// Found settles attempts whose end the dispatcher found itself. It returns the number of attempts that it settled, and the
// released runs, which the caller fires. If kind is not empty, it counts the settled attempts as reconciled. After an error, a
// later pass finds the attempts again.
func (r *Recorder) Found(ctx context.Context, kind string, ended []engine.Ended) (settled int, released []engine.Due) {
	if len(ended) == 0 {
		return 0, nil
	}
	out, err := r.Settle(ctx, ended)
	if err != nil {
		if ctx.Err() == nil {
			r.log.WarnContext(ctx, "cannot settle attempts, a reconciler finds them again", "kind", kind, "attempts", len(ended), "err", err)
		}
		return 0, nil
	}
	for _, disposition := range out.Dispositions {
		if disposition == engine.Settled {
			settled++
		}
	}
	if kind != "" {
		r.Reconciled(kind, settled)
	}
	return settled, out.Released
}

// Reconciled counts runs that a reconciler repaired.
func (r *Recorder) Reconciled(kind string, runs int) {
	r.reconciled.WithLabelValues(kind).Add(float64(runs))
}

// Dropped publishes and counts runs that a transaction has ended although none of their attempts ended, for example because
// of the block policy.
func (r *Recorder) Dropped(ended []engine.Change) {
	r.announcer.Notify(ended)
	r.CountDropped(ended)
}

// CountDropped is Dropped for changes that are published together with others.
func (r *Recorder) CountDropped(ended []engine.Change) {
	for _, c := range ended {
		if c.State.Final() {
			r.finished.WithLabelValues(string(c.State)).Inc()
		}
	}
}

// LongRun is the time after which a started attempt is recorded as running. Shorter runs go from queued to final directly,
// which saves a write.
const LongRun = 500 * time.Millisecond

const markTimeout = 5 * time.Second

// Started records that attempts are running. If that fails, the judge asks the instances again.
func (r *Recorder) Started(ctx context.Context, started []engine.Started) {
	if len(started) == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, markTimeout)
	defer cancel()
	changes, err := r.store.MarkRunning(ctx, started)
	if err != nil {
		if ctx.Err() == nil {
			r.log.WarnContext(ctx, "cannot record which runs are running, a reconciler asks the instances again", "runs", len(started), "err", err)
		}
		return
	}
	r.announcer.Notify(changes)
}

// StartedOf converts an instance's status of a running attempt to a start.
func (r *Recorder) StartedOf(run *engine.LiveRun, st wire.Status) engine.Started {
	at := st.StartedAt.Time
	if at.IsZero() {
		at = r.store.Now()
	}
	return engine.Started{RunID: run.ID, Attempt: run.Attempt, Instance: run.Instance, BootID: run.BootID, Bind: run.Bind, StartedAt: at}
}
