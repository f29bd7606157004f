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
	"golang.org/x/time/rate"

	"github.com/belfryhq/belfry/dispatcher/announce"
	"github.com/belfryhq/belfry/dispatcher/divide"
	"github.com/belfryhq/belfry/dispatcher/waiting"
	"github.com/belfryhq/belfry/executor/wire"
	"github.com/belfryhq/belfry/internal/domain"
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
	refused    *prometheus.CounterVec
	lateness   prometheus.Histogram
	refusals   rate.Sometimes // limits the log records about refused runs
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
		refused: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "belfry_refused_runs_total", Help: "Runs that Postgres refused to fire, bind, start or settle because of one of their values, by step.",
		}, []string{"step"}),
		refusals: rate.Sometimes{First: 10, Interval: 10 * time.Second},
		lateness: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "belfry_lateness_seconds", Help: "First start minus due instant of runs, by the database's clock.",
			Buckets: []float64{.001, .002, .005, .01, .02, .05, .1, .2, .5, 1, 2, 5, 10, 30, 60, 300, 3600},
		}),
	}
	if registry != nil {
		registry.MustRegister(r.finished, r.reconciled, r.refused, r.lateness)
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

// Settled counts and publishes what a transaction of the store has settled.
func (r *Recorder) Settled(out engine.SettleResult) {
	for _, c := range out.Changes {
		if !c.State.Final() {
			continue
		}
		r.finished.WithLabelValues(string(c.State)).Inc()
		if c.LatenessMS != nil {
			r.lateness.Observe(float64(max(*c.LatenessMS, 0)) / 1000)
		}
	}
	r.announcer.Notify(out.Changes)
	if out.Waiting {
		r.waiting.Wake()
	}
}

// Found settles attempts whose end the dispatcher found itself. It returns the number of attempts that it settled, and the
// released runs, which the caller fires. If kind is not empty, it counts the settled attempts as reconciled. After an error, a
// later pass finds the attempts again. An attempt that Postgres refuses to settle does not stop the others.
func (r *Recorder) Found(ctx context.Context, kind string, ended []engine.Ended) (settled int, released []engine.Due) {
	if len(ended) == 0 {
		return 0, nil
	}
	err := divide.Batch(ended, domain.Refused, func(part []engine.Ended) error {
		out, err := r.Settle(ctx, part)
		if err != nil {
			return err
		}
		for _, disposition := range out.Dispositions {
			if disposition == engine.Settled {
				settled++
			}
		}
		released = append(released, out.Released...)
		return nil
	}, func(e engine.Ended, err error) error {
		r.Refused(ctx, "settle", e.RunID, err)
		return nil
	})
	if err != nil && ctx.Err() == nil {
		r.log.WarnContext(ctx, "cannot settle attempts, a reconciler finds them again", "kind", kind, "attempts", len(ended), "err", err)
	}
	if kind != "" {
		r.Reconciled(kind, settled)
	}
	return settled, released
}

// Refused counts and logs a run of which Postgres refuses a value in a step: "fire", "bind", "start" or "settle". The run stays as it is,
// and the reconcilers try again.
func (r *Recorder) Refused(ctx context.Context, step string, run domain.RunID, err error) {
	r.refused.WithLabelValues(step).Inc()
	r.refusals.Do(func() {
		r.log.ErrorContext(ctx, "Postgres refuses a value of a run, the run stays as it is", "step", step, "run_id", run, "err", err)
	})
}

// Reconciled counts runs that a reconciler repaired.
func (r *Recorder) Reconciled(kind string, runs int) {
	r.reconciled.WithLabelValues(kind).Add(float64(runs))
}

// Dropped counts and publishes runs that a transaction has ended although none of their attempts ended, for example because
// of the block policy.
func (r *Recorder) Dropped(ended []engine.Change) {
	r.CountDropped(ended)
	r.announcer.Notify(ended)
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
	err := divide.Batch(started, domain.Refused, func(part []engine.Started) error {
		changes, err := r.store.MarkRunning(ctx, part)
		if err == nil {
			r.announcer.Notify(changes)
		}
		return err
	}, func(s engine.Started, err error) error {
		r.Refused(ctx, "start", s.RunID, err)
		return nil
	})
	if err != nil && ctx.Err() == nil {
		r.log.WarnContext(ctx, "cannot record which runs are running, a reconciler asks the instances again", "runs", len(started), "err", err)
	}
}

// StartedOf converts an instance's status of a running attempt to a start.
func (r *Recorder) StartedOf(run *engine.LiveRun, st wire.Status) engine.Started {
	at := st.StartedAt.Time
	if at.IsZero() {
		at = r.store.Now()
	}
	return engine.Started{RunID: run.ID, Attempt: run.Attempt, Instance: run.Instance, BootID: run.BootID, Bind: run.Bind, StartedAt: at}
}
