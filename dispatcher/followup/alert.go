package followup

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/riverqueue/river"
	"github.com/riverqueue/river/riverdriver/riverpgxv5"

	"github.com/belfryhq/belfry/internal/alert"
	"github.com/belfryhq/belfry/internal/domain"
	"github.com/belfryhq/belfry/internal/engine"
)

// An alert consists of two kinds of River jobs. The first one composes the alert and enqueues, in its own transaction,
// one delivery per channel, so that each delivery is retried separately. If a process dies after a delivery but before
// it recorded the delivery, the delivery is repeated with the same id.

// Alerts holds the dependencies of the alert workers. Alerts report the changes of jobs, such as a failure, to people.
type Alerts struct {
	Store    AlertStore
	Sender   Sender
	Registry prometheus.Registerer
}

// AlertStore stores channels, alerts and the outcomes of deliveries. The error code NotFound means that the channel or
// alert no longer exists.
type AlertStore interface {
	Channel(ctx context.Context, name string) (alert.Channel, error)
	Compose(ctx context.Context, note engine.AlertNote) (alert.Composed, error)
	RecordTx(ctx context.Context, tx pgx.Tx, c alert.Composed) (id int64, err error)
	// Pending returns the message to deliver, or NotFound if the delivery has ended.
	Pending(ctx context.Context, id int64, channel string) (alert.Message, error)
	Try(ctx context.Context, id int64, channel string, tries int, cause error, final bool) error
	DeliveredTx(ctx context.Context, tx pgx.Tx, id int64, channel string, tries int) error
}

// Sender delivers to channels.
type Sender interface {
	Send(ctx context.Context, c *alert.Channel, m alert.Message) (answer string, err error)
}

// AlertState is the part of the engine's store that folds alerts.
type AlertState interface {
	// TakeFolded returns the folded alert that is due, or a nil note if there is none. If the alert is not due yet, wait is
	// the remaining time.
	TakeFolded(ctx context.Context, tx pgx.Tx, job domain.JobID, kind domain.AlertKind) (note *engine.AlertNote, wait time.Duration, err error)
}

const (
	// alertQueue is separate from the follow-ups, so that a slow channel delays no retry.
	alertQueue   = "alert"
	alertWorkers = 10
	// deliveryTries bounds the tries. River's backoff spreads them over about four hours: 1 s, 16 s, 81 s, 4 min, 10
	// min, …
	deliveryTries = 10
	// logPatience is how long an alert waits, from its cause, for the last lines of a log.
	logPatience = 3 * time.Second
)

// alertArgs requests an alert.
type alertArgs struct{ engine.AlertNote }

// Kind implements river.JobArgs.
func (alertArgs) Kind() string { return "alert" }

type deliveryArgs struct {
	AlertID int64  `json:"alert_id"`
	Channel string `json:"channel"`
}

// Kind implements river.JobArgs.
func (deliveryArgs) Kind() string { return "alert_delivery" }

// insertAlert returns the insertion of an alert into its queue.
func insertAlert(note *engine.AlertNote) river.InsertManyParams {
	opts := &river.InsertOpts{Queue: alertQueue}
	if note.Folded {
		opts.ScheduledAt = note.DueAt
	}
	return river.InsertManyParams{Args: alertArgs{*note}, InsertOpts: opts}
}

type alertMetrics struct {
	alerts     *prometheus.CounterVec
	deliveries *prometheus.CounterVec
}

func newAlertMetrics(registry prometheus.Registerer) *alertMetrics {
	m := &alertMetrics{
		alerts: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "belfry_alerts_total", Help: "Created alerts, by kind.",
		}, []string{"kind"}),
		deliveries: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "belfry_alert_deliveries_total", Help: "Attempts to deliver an alert, by result: delivered, retried or failed.",
		}, []string{"outcome"}),
	}
	if registry != nil {
		registry.MustRegister(m.alerts, m.deliveries)
	}
	return m
}

// addAlertWorkers adds the workers of alerts and deliveries.
func addAlertWorkers(all *river.Workers, pool *pgxpool.Pool, state AlertState, a *Alerts, log *slog.Logger, trace func(string)) {
	m := newAlertMetrics(a.Registry)
	river.AddWorker(all, &alertWorker{pool: pool, state: state, store: a.Store, metrics: m, trace: trace})
	river.AddWorker(all, &deliveryWorker{pool: pool, store: a.Store, sender: a.Sender, metrics: m, log: log, trace: trace})
}

type alertWorker struct {
	river.WorkerDefaults[alertArgs]
	pool    *pgxpool.Pool
	state   AlertState
	store   AlertStore
	metrics *alertMetrics
	trace   func(point string)
}

// Work composes an alert and enqueues its deliveries. If lines of the run's log are still missing, it waits for them
// briefly.
func (w *alertWorker) Work(ctx context.Context, job *river.Job[alertArgs]) error {
	if job.Args.Folded {
		return w.unfold(ctx, job)
	}
	c, err := w.store.Compose(ctx, job.Args.AlertNote)
	if err != nil {
		return err
	}
	if c.LogComes && time.Since(job.CreatedAt) < logPatience {
		return river.JobSnooze(500 * time.Millisecond)
	}
	err = pgx.BeginFunc(ctx, w.pool, func(tx pgx.Tx) error {
		if err := w.record(ctx, tx, c); err != nil {
			return err
		}
		_, err := river.JobCompleteTx[*riverpgxv5.Driver](ctx, tx, job)
		return err
	})
	if err == nil {
		w.metrics.alerts.WithLabelValues(string(c.Kind)).Inc()
		w.trace("alert_composed")
	}
	return err
}

// record writes the alert and enqueues its deliveries.
func (w *alertWorker) record(ctx context.Context, tx pgx.Tx, c alert.Composed) error {
	if len(c.Channels) == 0 {
		return nil // the job's versions were deleted
	}
	id, err := w.store.RecordTx(ctx, tx, c)
	if err != nil {
		return err
	}
	params := make([]river.InsertManyParams, len(c.Channels))
	for i, channel := range c.Channels {
		params[i] = river.InsertManyParams{
			Args: deliveryArgs{id, channel}, InsertOpts: &river.InsertOpts{Queue: alertQueue, MaxAttempts: deliveryTries},
		}
	}
	_, err = river.ClientFromContext[pgx.Tx](ctx).InsertManyFastTx(ctx, tx, params)
	return err
}

// unfold enqueues the folded alert, if there is still one to send.
func (w *alertWorker) unfold(ctx context.Context, job *river.Job[alertArgs]) error {
	var early time.Duration
	err := pgx.BeginFunc(ctx, w.pool, func(tx pgx.Tx) error {
		note, wait, err := w.state.TakeFolded(ctx, tx, job.Args.JobID, job.Args.AlertNote.Kind)
		if early = wait; err != nil || wait > 0 {
			return err
		}
		if note != nil {
			params := []river.InsertManyParams{insertAlert(note)}
			if _, err := river.ClientFromContext[pgx.Tx](ctx).InsertManyFastTx(ctx, tx, params); err != nil {
				return err
			}
		}
		_, err = river.JobCompleteTx[*riverpgxv5.Driver](ctx, tx, job)
		return err
	})
	if err == nil && early > 0 {
		return river.JobSnooze(early + time.Second)
	}
	return err
}

type deliveryWorker struct {
	river.WorkerDefaults[deliveryArgs]
	pool    *pgxpool.Pool
	store   AlertStore
	sender  Sender
	metrics *alertMetrics
	log     *slog.Logger
	trace   func(point string)
}

// Work makes one try to deliver an alert.
func (w *deliveryWorker) Work(ctx context.Context, job *river.Job[deliveryArgs]) error {
	id, channel := job.Args.AlertID, job.Args.Channel
	m, err := w.store.Pending(ctx, id, channel)
	if err != nil && domain.CodeOf(err) == domain.NotFound {
		return nil
	}
	if err != nil {
		return err
	}
	permanent := false
	c, err := w.store.Channel(ctx, channel)
	switch {
	case err == nil:
		_, err = w.sender.Send(ctx, &c, m)
		permanent = alert.Permanent(err)
	case domain.CodeOf(err) == domain.NotFound:
		permanent = true
	case domain.CodeOf(err) == domain.Unavailable:
		return err
	}
	if err == nil {
		return w.delivered(ctx, job)
	}
	permanent = permanent || job.Attempt >= job.MaxAttempts
	work, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second) // ctx may have no time left after the try
	defer cancel()
	outcome := "retried"
	if permanent {
		outcome = "failed"
		w.log.WarnContext(ctx, "cannot deliver an alert, the channel shows the error", "alert_id", id, "channel", channel, "job_id", m.JobID, "err", err)
	}
	if noted := w.store.Try(work, id, channel, job.Attempt, err, permanent); noted != nil {
		return errors.Join(err, noted)
	}
	w.metrics.deliveries.WithLabelValues(outcome).Inc()
	if permanent {
		return river.JobCancel(err)
	}
	return err
}

func (w *deliveryWorker) delivered(ctx context.Context, job *river.Job[deliveryArgs]) error {
	w.trace("alert_sent")
	err := pgx.BeginFunc(ctx, w.pool, func(tx pgx.Tx) error {
		if err := w.store.DeliveredTx(ctx, tx, job.Args.AlertID, job.Args.Channel, job.Attempt); err != nil {
			return err
		}
		_, err := river.JobCompleteTx[*riverpgxv5.Driver](ctx, tx, job)
		return err
	})
	if err == nil {
		w.metrics.deliveries.WithLabelValues("delivered").Inc()
	}
	return err
}
