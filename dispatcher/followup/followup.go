// Package followup turns the consequences of a settled result into River jobs, and works them. The consequences are
// retries, child runs and alerts. It also performs bulk actions: see package internal/store/bulk.
//
// The transaction that settles a result also enqueues its follow-ups, so that a follow-up exists exactly if the result
// does. Workers are idempotent. They complete their River job in the transaction of its effect. River's own scheduling
// wakes only every few seconds. A retry is therefore enqueued to be worked at once: its worker plans the run again for
// its due instant, and the time ring starts it on time.
package followup

import (
	"context"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/riverqueue/river"
	"github.com/riverqueue/river/riverdriver/riverpgxv5"
	"github.com/riverqueue/river/rivertype"

	"github.com/belfryhq/belfry/internal/domain"
	"github.com/belfryhq/belfry/internal/engine"
	"github.com/belfryhq/belfry/internal/lifecycle"
)

// Store plans the effects of follow-ups, inside the transaction that completes them.
type Store interface {
	ReplanTx(ctx context.Context, tx pgx.Tx, run domain.RunID, attempt int) error
	AlertState
	// PlanChildTx returns the run if it has ended it. After the commit, the caller passes it to Ended.
	PlanChildTx(ctx context.Context, tx pgx.Tx, parent domain.RunID, child domain.JobID, endedAt time.Time) (ended []engine.Change, err error)
	Ended(runs []engine.Change)
}

// The queue and the limits of one process.
const (
	queue      = "followup"
	workers    = 20
	jobTimeout = 20 * time.Second
	rescue     = 60 * time.Second
)

// How soon workers see a follow-up. River notifies them when a follow-up is inserted, but a client sends one notification per notifyEvery and queue. The next
// poll finds a follow-up that was inserted within that time, and those whose notifications were lost.
const (
	notifyEvery = time.Millisecond // the shortest that River allows
	pollEvery   = time.Second
	pollSlowly  = 5 * time.Second // alerts and bulk actions
)

type retryArgs struct {
	RunID   domain.RunID `json:"run_id"`
	Attempt int          `json:"attempt"` // the attempt that ended
}

// Kind implements river.JobArgs.
func (retryArgs) Kind() string { return "retry" }

type childArgs struct {
	ParentRunID domain.RunID   `json:"parent_run_id"`
	JobID       domain.JobID   `json:"job_id"`
	EndedAt     domain.Instant `json:"ended_at"`
}

// Kind implements river.JobArgs.
func (childArgs) Kind() string { return "child" }

// Queue enqueues follow-ups.
type Queue struct{ client *river.Client[pgx.Tx] }

// NewQueue returns a queue that only enqueues.
func NewQueue(pool *pgxpool.Pool, schema string, log *slog.Logger) (*Queue, error) {
	client, err := river.NewClient(riverpgxv5.New(pool), &river.Config{Schema: schema, Logger: riverLog(log), FetchCooldown: notifyEvery, FetchPollInterval: pollEvery})
	if err != nil {
		return nil, fmt.Errorf("make the follow-up queue: %w", err)
	}
	return &Queue{client}, nil
}

// InsertTx enqueues follow-ups in the caller's transaction.
func (q *Queue) InsertTx(ctx context.Context, tx pgx.Tx, ups []engine.FollowUp) error {
	params := make([]river.InsertManyParams, len(ups))
	for i, u := range ups {
		if u.Alert != nil {
			params[i] = insertAlert(u.Alert)
			continue
		}
		var args river.JobArgs = childArgs{ParentRunID: u.RunID, JobID: u.ChildJob, EndedAt: domain.At(u.EndedAt)}
		if u.Retry {
			args = retryArgs{RunID: u.RunID, Attempt: u.Attempt}
		}
		params[i] = river.InsertManyParams{Args: args, InsertOpts: &river.InsertOpts{Queue: queue}}
	}
	_, err := q.client.InsertManyFastTx(ctx, tx, params)
	return err
}

// Workers work follow-ups. Create them with NewWorkers, then call Run.
type Workers struct {
	pool      *pgxpool.Pool
	schema    string
	newClient func() (*river.Client[pgx.Tx], error)
	meter     *meter
	log       *slog.Logger

	restAfter  time.Duration
	stopWithin time.Duration
	sessions   atomic.Int64 // how often a client was started
	resting    atomic.Bool
}

// NewWorkers returns workers that do nothing until Run. trace, if not nil, is called at named points, so that a test
// can end the process there. "followed_up" comes after a follow-up's effect and completion are committed.
// "alert_composed" comes after an alert is committed. "alert_sent" comes after a channel has accepted a delivery and
// before that is recorded. "bulk_batch" comes after a batch of a bulk action is committed and its kills are sent. If alerts is
// nil, these workers do not work alerts and have no metrics. If bulk is nil, they do not perform bulk actions.
func NewWorkers(pool *pgxpool.Pool, schema string, store Store, alerts *Alerts, bulk *Bulk, log *slog.Logger, trace func(point string)) (*Workers, error) {
	if trace == nil {
		trace = func(string) {}
	}
	all := river.NewWorkers()
	river.AddWorker(all, &retryWorker{pool: pool, store: store, trace: trace})
	river.AddWorker(all, &childWorker{pool: pool, store: store, trace: trace})
	queues := map[string]river.QueueConfig{queue: {MaxWorkers: workers, FetchPollInterval: pollEvery}}
	if alerts != nil {
		addAlertWorkers(all, pool, store, alerts, log, trace)
		queues[alertQueue] = river.QueueConfig{MaxWorkers: alertWorkers, FetchPollInterval: pollSlowly}
	}
	if bulk != nil {
		addBulkWorker(all, bulk, log, trace)
		queues[bulkQueue] = river.QueueConfig{MaxWorkers: bulkWorkers, FetchPollInterval: pollSlowly}
	}
	var registry prometheus.Registerer
	if alerts != nil {
		registry = alerts.Registry
	}
	m := newMeter(pool, schema, queues, registry)
	newClient := func() (*river.Client[pgx.Tx], error) {
		return river.NewClient(riverpgxv5.New(pool), &river.Config{
			Schema: schema, Logger: riverLog(log), Workers: all, Queues: queues, Middleware: []rivertype.Middleware{m.working()},
			JobTimeout: jobTimeout, RescueStuckJobsAfter: rescue, FetchCooldown: 50 * time.Millisecond,
			FetchPollInterval: pollEvery, CompletedJobRetentionPeriod: time.Hour,
		})
	}
	if _, err := newClient(); err != nil {
		return nil, fmt.Errorf("make the follow-up workers: %w", err)
	}
	return &Workers{pool: pool, schema: schema, newClient: newClient, meter: m, log: log, restAfter: restAfter, stopWithin: jobTimeout}, nil
}

// Run works follow-ups until ctx ends, and returns when the current ones have ended.
func (w *Workers) Run(ctx context.Context) (err error) {
	lifecycle.Together(ctx, w.keepMeasuring, func(ctx context.Context) {
		for err == nil && ctx.Err() == nil {
			if w.rest(ctx); ctx.Err() == nil {
				err = w.work(ctx)
			}
		}
	})
	return err
}

// work works follow-ups until ctx ends or there are none.
func (w *Workers) work(ctx context.Context) error {
	client, err := w.newClient()
	if err != nil {
		return fmt.Errorf("make the follow-up workers: %w", err)
	}
	if !w.start(ctx, client) {
		return nil
	}
	w.sessions.Add(1)
	w.busy(ctx)
	return w.stop(ctx, client)
}

// stop returns when the current follow-ups have ended. When ctx ends, it waits for w.stopWithin at most.
func (w *Workers) stop(ctx context.Context, client *river.Client[pgx.Tx]) error {
	for {
		ended := ctx.Err() != nil
		within, cancel := context.WithTimeout(context.WithoutCancel(ctx), w.stopWithin)
		err := client.Stop(within)
		cancel()
		switch {
		case err == nil:
			return nil
		case ended:
			return fmt.Errorf("stop the follow-up workers: %w", err)
		}
		w.log.DebugContext(ctx, "a follow-up began when the workers were about to rest, waiting for its end")
	}
}

// start starts a client and retries while Postgres is unavailable. It returns false if ctx ended first.
func (w *Workers) start(ctx context.Context, client *river.Client[pgx.Tx]) bool {
	for wait := 100 * time.Millisecond; ; wait = min(2*wait, 5*time.Second) {
		// If the context of Start ended, River would cancel the current jobs. Stop only stops the fetching of new jobs.
		err := client.Start(context.WithoutCancel(ctx))
		if err == nil {
			return true
		}
		w.log.WarnContext(ctx, "cannot start the workers of follow-ups, retrying", "err", err)
		timer := time.NewTimer(wait)
		select {
		case <-ctx.Done():
			timer.Stop()
			return false
		case <-timer.C:
		}
	}
}

type retryWorker struct {
	river.WorkerDefaults[retryArgs]
	pool  *pgxpool.Pool
	store Store
	trace func(point string)
}

// Work plans the next attempt of a run.
func (w *retryWorker) Work(ctx context.Context, job *river.Job[retryArgs]) error {
	err := pgx.BeginFunc(ctx, w.pool, func(tx pgx.Tx) error {
		if err := w.store.ReplanTx(ctx, tx, job.Args.RunID, job.Args.Attempt); err != nil {
			return err
		}
		_, err := river.JobCompleteTx[*riverpgxv5.Driver](ctx, tx, job)
		return err
	})
	if err == nil {
		w.trace("followed_up")
	}
	return err
}

type childWorker struct {
	river.WorkerDefaults[childArgs]
	pool  *pgxpool.Pool
	store Store
	trace func(point string)
}

// Work plans the run of a child.
func (w *childWorker) Work(ctx context.Context, job *river.Job[childArgs]) error {
	var ended []engine.Change
	err := pgx.BeginFunc(ctx, w.pool, func(tx pgx.Tx) (err error) {
		if ended, err = w.store.PlanChildTx(ctx, tx, job.Args.ParentRunID, job.Args.JobID, job.Args.EndedAt.Time); err != nil {
			return err
		}
		_, err = river.JobCompleteTx[*riverpgxv5.Driver](ctx, tx, job)
		return err
	})
	if err == nil {
		w.store.Ended(ended)
		w.trace("followed_up")
	}
	return err
}
