package followup

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/riverqueue/river"

	"github.com/belfryhq/belfry/internal/engine"
)

// Bulk holds the dependencies of the workers of bulk actions.
type Bulk struct {
	Performer Performer
	Fleet     Fleet
	Registry  prometheus.Registerer // nil: no metrics
}

// Performer performs bulk actions. Package internal/store/bulk documents the methods.
type Performer interface {
	Step(ctx context.Context, id int64) (engine.BulkStep, error)
	Fail(ctx context.Context, id int64, why string) error
}

// Fleet sends kills to the instances.
type Fleet interface {
	// Killed sends kills that a transaction has recorded, and publishes and fires what it has ended and released.
	Killed(ctx context.Context, out engine.KillResult)
}

const (
	// bulkQueue is separate from the follow-ups, so that a bulk action delays no retry, child or alert.
	bulkQueue   = "bulk"
	bulkWorkers = 2
	// bulkSlice is how long a worker performs an action before other actions get their turn.
	bulkSlice = 5 * time.Second
	bulkRetry = 5 * time.Second // after an error
	bulkTries = 1000            // errors until an action fails: more than an hour
	sendTime  = 5 * time.Second // for the kills of one batch; reconcilers send those that need longer
)

type bulkArgs struct {
	ID int64 `json:"id"`
}

// Kind implements river.JobArgs.
func (bulkArgs) Kind() string { return "bulk" }

// InsertBulkTx enqueues a bulk action in the caller's transaction.
func (q *Queue) InsertBulkTx(ctx context.Context, tx pgx.Tx, id int64) error {
	_, err := q.client.InsertTx(ctx, tx, bulkArgs{id}, &river.InsertOpts{Queue: bulkQueue, MaxAttempts: bulkTries})
	return err
}

type bulkWorker struct {
	river.WorkerDefaults[bulkArgs]
	*Bulk
	runs  *prometheus.CounterVec
	log   *slog.Logger
	trace func(point string)
}

func addBulkWorker(all *river.Workers, b *Bulk, log *slog.Logger, trace func(string)) {
	runs := prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "belfry_bulk_runs_total", Help: "Runs that bulk actions have processed, by action and result: done, skipped or failed.",
	}, []string{"action", "outcome"})
	if b.Registry != nil {
		b.Registry.MustRegister(runs)
	}
	river.AddWorker(all, &bulkWorker{Bulk: b, runs: runs, log: log, trace: trace})
}

// NextRetry implements river.Worker.
func (w *bulkWorker) NextRetry(*river.Job[bulkArgs]) time.Time { return time.Now().Add(bulkRetry) }

// Work performs batches of an action until the action has ended or the worker's turn is over. River then puts the action behind
// the other ones.
func (w *bulkWorker) Work(ctx context.Context, job *river.Job[bulkArgs]) error {
	for start := time.Now(); time.Since(start) < bulkSlice; {
		step, err := w.Performer.Step(ctx, job.Args.ID)
		if err != nil {
			return w.failed(ctx, job, err)
		}
		w.count(step)
		w.send(ctx, step.Killed)
		switch {
		case step.Ended:
			return nil
		case step.Wait > 0:
			return river.JobSnooze(step.Wait)
		}
		w.trace("bulk_batch")
	}
	return river.JobSnooze(0)
}

// failed ends the action after the last try.
func (w *bulkWorker) failed(ctx context.Context, job *river.Job[bulkArgs], err error) error {
	w.log.WarnContext(ctx, "cannot perform a batch of a bulk action, retrying", "bulk_id", job.Args.ID, "err", err)
	if job.Attempt < job.MaxAttempts {
		return err
	}
	return errors.Join(err, w.Performer.Fail(ctx, job.Args.ID, fmt.Sprintf("gave up after %d errors; the log of the dispatcher shows them", job.Attempt)))
}

func (w *bulkWorker) count(step engine.BulkStep) {
	for outcome, n := range map[string]int{"done": step.Done, "skipped": step.Skipped, "failed": step.Failed} {
		if n > 0 {
			w.runs.WithLabelValues(step.Action, outcome).Add(float64(n))
		}
	}
}

func (w *bulkWorker) send(ctx context.Context, out engine.KillResult) {
	if len(out.Bound) == 0 && len(out.Result.Changes) == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, sendTime)
	defer cancel()
	w.Fleet.Killed(ctx, out)
}
