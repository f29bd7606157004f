package bench

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"golang.org/x/sync/errgroup"

	"github.com/belfryhq/belfry/internal/domain"
	"github.com/belfryhq/belfry/internal/lifecycle"
)

// baselineSchema contains the baseline's tables. It does not change when the engine's tables change. It has only the
// columns and indexes that any scheduler needs so that people find past runs by job and by group.
const baselineSchema = `
CREATE SCHEMA IF NOT EXISTS baseline;
CREATE TABLE IF NOT EXISTS baseline.live (
    id uuid PRIMARY KEY, job_id bigint NOT NULL, job_version integer NOT NULL, group_name text NOT NULL, cause text NOT NULL,
    state text NOT NULL, attempt integer NOT NULL DEFAULT 1, fire_time timestamptz NOT NULL, due_at timestamptz NOT NULL,
    created_at timestamptz NOT NULL DEFAULT now(), dispatched_at timestamptz, instance text, boot_id text
) WITH (fillfactor = 50);
CREATE INDEX IF NOT EXISTS live_job ON baseline.live (job_id);
CREATE INDEX IF NOT EXISTS live_due ON baseline.live (due_at);
CREATE TABLE IF NOT EXISTS baseline.history (
    id uuid PRIMARY KEY, job_id bigint NOT NULL, job_version integer NOT NULL, group_name text NOT NULL, cause text NOT NULL,
    state text NOT NULL, attempt integer NOT NULL, fire_time timestamptz NOT NULL, due_at timestamptz NOT NULL,
    created_at timestamptz NOT NULL, dispatched_at timestamptz, instance text, boot_id text,
    started_at timestamptz NOT NULL, finished_at timestamptz NOT NULL, message text NOT NULL, output text NOT NULL
);
CREATE INDEX IF NOT EXISTS history_job ON baseline.history (job_id, id);
CREATE INDEX IF NOT EXISTS history_group ON baseline.history (group_name, id)`

// The baseline's batches, workers and bounds. They had the best throughput on two cores. The lead and the horizon are
// those of the engine, so that both are late for the same reasons.
const (
	insertBatch = 500
	offerBatch  = 250
	settleBatch = 1000
	inserters   = 2
	firers      = 4
	settlers    = 2
	maxOpen     = 12_000 // unfinished runs at once, while the baseline runs as fast as it can
	horizon     = 5 * time.Second
	leadBase    = 20 * time.Millisecond
	leadEach    = 60 * time.Microsecond
	leadMax     = 200 * time.Millisecond
	vacuumEvery = 10 * time.Second
)

// pipeline is the baseline: insert, update, offer, settle. It decides nothing, checks nothing and repairs nothing.
type pipeline struct {
	load load
	pool *pgxpool.Pool
	nc   *nats.Conn
	js   jetstream.JetStream

	planned chan runBatch
	open    atomic.Int64 // inserted and not yet settled
	total   atomic.Int64 // inserted
	settled atomic.Int64
	end     func()      // makes run return
	closed  atomic.Bool // all runs are inserted
	done    atomic.Bool // all runs are settled
}

// runBatch is a batch of planned runs; all have one due instant, or are due now.
type runBatch struct {
	ids []pgtype.UUID
	due []time.Time
}

// pipelineAnswer is the answer of the pipeline part to "take".
type pipelineAnswer struct {
	Inserted int64 `json:"inserted"`
	Settled  int64 `json:"settled"`
	Done     bool  `json:"done"`
}

func (p *part) runPipeline(ctx context.Context) error {
	l := pipeline{load: *p.order.Load, planned: make(chan runBatch, 2*firers)}
	var err error
	if l.pool, err = baselinePool(ctx, p.order.Database); err != nil {
		return err
	}
	defer l.pool.Close()
	if l.nc, l.js, err = connectNATS(p.order); err != nil {
		return err
	}
	defer l.nc.Close()
	results, err := l.consume(ctx)
	if err != nil {
		return err
	}
	defer results.Stop()
	p.take = func() (json.RawMessage, error) {
		return json.Marshal(pipelineAnswer{Inserted: l.total.Load(), Settled: l.settled.Load(), Done: l.done.Load()})
	}
	p.ready()
	if err := l.run(ctx, results); err != nil && ctx.Err() == nil {
		return err
	}
	<-ctx.Done() // until then, the part answers "take"
	return nil
}

func baselinePool(ctx context.Context, url string) (*pgxpool.Pool, error) {
	cfg, err := pgxpool.ParseConfig(url)
	if err != nil {
		return nil, err
	}
	cfg.MaxConns = 16
	cfg.ConnConfig.RuntimeParams["plan_cache_mode"] = "force_generic_plan"
	cfg.ConnConfig.RuntimeParams["application_name"] = "baseline"
	return pgxpool.NewWithConfig(ctx, cfg)
}

// consume creates the stream and the consumer, after it has deleted those of an earlier measurement.
func (l *pipeline) consume(ctx context.Context) (jetstream.MessagesContext, error) {
	if err := l.js.DeleteStream(ctx, baselineStream); err != nil && !errors.Is(err, jetstream.ErrStreamNotFound) {
		return nil, fmt.Errorf("delete the stream: %w", err)
	}
	stream, err := l.js.CreateStream(ctx, jetstream.StreamConfig{
		Name: baselineStream, Subjects: []string{baselineResults}, Retention: jetstream.WorkQueuePolicy, Storage: jetstream.FileStorage,
		Duplicates: 100 * time.Millisecond,
	})
	if err != nil {
		return nil, fmt.Errorf("create the stream: %w", err)
	}
	consumer, err := stream.CreateConsumer(ctx, jetstream.ConsumerConfig{
		Durable: "settle", AckPolicy: jetstream.AckExplicitPolicy, AckWait: 30 * time.Second, MaxAckPending: 1000,
	})
	if err != nil {
		return nil, fmt.Errorf("create the consumer: %w", err)
	}
	return consumer.Messages(jetstream.PullMaxMessages(200))
}

// run returns when all runs are settled.
func (l *pipeline) run(ctx context.Context, results jetstream.MessagesContext) error {
	ctx, end := context.WithCancel(ctx)
	defer end()
	l.end = end
	parts, ctx := errgroup.WithContext(ctx)
	inserted, ctx2 := errgroup.WithContext(ctx)
	if l.load.Closed > 0 {
		until := time.Now().Add(l.load.Closed)
		for range inserters {
			inserted.Go(func() error { return l.insertClosed(ctx2, until) })
		}
	} else {
		ring := make(chan runBatch, 1024)
		inserted.Go(func() error { return l.insertAhead(ctx2, ring) })
		inserted.Go(func() error { return l.ring(ctx2, ring) })
	}
	parts.Go(func() error {
		defer close(l.planned)
		err := inserted.Wait()
		l.closed.Store(true)
		l.finish(0)
		return err
	})
	for range firers {
		parts.Go(func() error { return l.fireAll(ctx) })
	}
	messages := make(chan jetstream.Msg, 200)
	parts.Go(func() error { return receive(ctx, results, messages) })
	for range settlers {
		parts.Go(func() error { return l.settleAll(ctx, messages) })
	}
	parts.Go(func() error { return l.vacuum(ctx) })
	if err := parts.Wait(); !l.done.Load() {
		return err
	}
	return nil // all runs are settled, so the errors come from the end of ctx
}

// insertClosed inserts runs that are due now, and keeps up to maxOpen of them unfinished.
func (l *pipeline) insertClosed(ctx context.Context, until time.Time) error {
	for time.Now().Before(until) {
		if l.open.Load() > maxOpen {
			if !lifecycle.Pause(ctx, time.Millisecond) {
				return nil
			}
			continue
		}
		s := newRunBatch(insertBatch)
		now := time.Now()
		for range insertBatch {
			s.add(now)
		}
		if err := l.insert(ctx, s); err != nil {
			return err
		}
		select {
		case l.planned <- s:
		case <-ctx.Done():
			return nil
		}
	}
	return nil
}

// insertAhead inserts the runs that are due within the horizon, like a pre-read.
func (l *pipeline) insertAhead(ctx context.Context, ring chan<- runBatch) error {
	defer close(ring)
	s := newRunBatch(insertBatch)
	put := func() error {
		if len(s.ids) == 0 || !lifecycle.Pause(ctx, time.Until(s.due[0].Add(-horizon))) {
			return nil
		}
		if err := l.insert(ctx, s); err != nil {
			return err
		}
		select {
		case ring <- s:
		case <-ctx.Done():
		}
		s = newRunBatch(insertBatch)
		return nil
	}
	var err error
	l.load.due(func(at time.Time) bool {
		if len(s.ids) == insertBatch || len(s.ids) > 0 && s.due[0].Unix() != at.Unix() {
			err = put()
		}
		s.add(at)
		return err == nil && ctx.Err() == nil
	})
	return errors.Join(err, put())
}

// ring passes inserted runs to the firers, a little before they are due.
func (l *pipeline) ring(ctx context.Context, ring <-chan runBatch) error {
	var held runBatch
	more := true
	for more || len(held.ids) > 0 {
		for taking := true; taking; { // all batches that wait in the channel
			var s runBatch
			select {
			case s, more = <-ring:
				held.ids, held.due = append(held.ids, s.ids...), append(held.due, s.due...)
				taking = more
			default:
				taking = false
			}
		}
		now := time.Now()
		near := held.until(now.Add(leadMax))
		lead := min(leadBase+time.Duration(near)*leadEach, leadMax)
		n := min(held.until(now.Add(lead)), insertBatch)
		if n == 0 {
			wait := 20 * time.Millisecond
			if len(held.due) > 0 {
				wait = min(wait, max(time.Until(held.due[0].Add(-leadBase)), time.Millisecond))
			}
			if !lifecycle.Pause(ctx, wait) {
				return nil
			}
			continue
		}
		select {
		case l.planned <- runBatch{held.ids[:n:n], held.due[:n:n]}:
		case <-ctx.Done():
			return nil
		}
		held.ids, held.due = held.ids[n:], held.due[n:]
	}
	return nil
}

func newRunBatch(n int) runBatch {
	return runBatch{ids: make([]pgtype.UUID, 0, n), due: make([]time.Time, 0, n)}
}

// add appends a run whose id sorts by its due instant, like the ids of the engine.
func (s *runBatch) add(due time.Time) {
	var id domain.RunID
	binary.BigEndian.PutUint64(id[:8], uint64(due.UnixMilli())<<16|0x7000|rand.Uint64()&0xfff)
	binary.BigEndian.PutUint64(id[8:], rand.Uint64()>>2|1<<63)
	s.ids = append(s.ids, pgtype.UUID{Bytes: id, Valid: true})
	s.due = append(s.due, due)
}

// until returns how many runs of the batch, which is in due order, are due up to an instant.
func (s *runBatch) until(at time.Time) int {
	lo, hi := 0, len(s.due)
	for lo < hi {
		if mid := (lo + hi) / 2; s.due[mid].After(at) {
			hi = mid
		} else {
			lo = mid + 1
		}
	}
	return lo
}

func (l *pipeline) insert(ctx context.Context, s runBatch) error {
	jobs := make([]int64, len(s.ids))
	base := l.total.Add(int64(len(s.ids)))
	for i := range jobs {
		jobs[i] = (base + int64(i)) % 10_000
	}
	l.open.Add(int64(len(s.ids)))
	_, err := l.pool.Exec(ctx, `INSERT INTO baseline.live (id, job_id, job_version, group_name, cause, state, fire_time, due_at)
		SELECT unnest($1::uuid[]), unnest($2::bigint[]), 1, 'bench', 'schedule', 'pending', unnest($3::timestamptz[]), unnest($3::timestamptz[])`,
		s.ids, jobs, s.due)
	if err != nil {
		return fmt.Errorf("insert: %w", err)
	}
	return nil
}

func (l *pipeline) fireAll(ctx context.Context) error {
	for s := range l.planned {
		if err := l.fire(ctx, s); err != nil {
			return err
		}
	}
	return nil
}

// fire updates a batch in place and offers it. It sends the offers of a batch concurrently.
func (l *pipeline) fire(ctx context.Context, s runBatch) error {
	if _, err := l.pool.Exec(ctx, `UPDATE baseline.live SET state = 'queued', instance = 'executor-1', boot_id = $2, dispatched_at = clock_timestamp()
		WHERE id = ANY($1::uuid[]) AND state = 'pending'`, s.ids, baselineBoot); err != nil {
		return fmt.Errorf("update: %w", err)
	}
	offers, ctx := errgroup.WithContext(ctx)
	for i := 0; i < len(s.ids); i += offerBatch {
		n := min(offerBatch, len(s.ids)-i)
		offers.Go(func() error {
			batch, now := make([]baselineOffer, n), time.Now()
			for k := range batch {
				batch[k] = baselineOffer{
					RunID: domain.RunID(s.ids[i+k].Bytes).String(), Attempt: 1, JobID: 1, JobName: "bench-1", Group: group, Handler: handler,
					Cause: "schedule", FireTime: s.due[i+k], DueAt: s.due[i+k], Now: now,
				}
			}
			data, err := json.Marshal(batch)
			if err != nil {
				return err
			}
			ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
			defer cancel()
			if _, err := l.nc.RequestWithContext(ctx, baselineOffers, data); err != nil {
				return fmt.Errorf("offer: %w", err)
			}
			return nil
		})
	}
	return offers.Wait()
}

// receive passes messages on until ctx ends or the iterator stops.
func receive(ctx context.Context, from jetstream.MessagesContext, to chan<- jetstream.Msg) error {
	defer close(to)
	stop := context.AfterFunc(ctx, from.Stop)
	defer stop()
	for {
		m, err := from.Next()
		if err != nil {
			return nil //nolint:nilerr // the iterator was stopped, because the pipeline ends
		}
		select {
		case to <- m:
		case <-ctx.Done():
			return nil
		}
	}
}

// settleAll settles results in batches. It collects a batch for up to 10 ms.
func (l *pipeline) settleAll(ctx context.Context, messages <-chan jetstream.Msg) error {
	for {
		var batch []jetstream.Msg
		var results []baselineResult
		take := func(m jetstream.Msg) error {
			var r []baselineResult
			if err := json.Unmarshal(m.Data(), &r); err != nil {
				return err
			}
			batch, results = append(batch, m), append(results, r...)
			return nil
		}
		select {
		case <-ctx.Done():
			return nil
		case m, ok := <-messages:
			if !ok {
				return nil
			}
			if err := take(m); err != nil {
				return err
			}
		}
		enough := time.After(10 * time.Millisecond)
		for waiting := true; waiting && len(results) < settleBatch; {
			select {
			case m, ok := <-messages:
				if !ok {
					waiting = false
				} else if err := take(m); err != nil {
					return err
				}
			case <-enough:
				waiting = false
			}
		}
		if err := l.settle(ctx, results); err != nil {
			return err
		}
		for _, m := range batch {
			if err := m.Ack(); err != nil {
				return fmt.Errorf("acknowledge: %w", err)
			}
		}
		l.finish(len(results))
	}
}

// finish counts runs as settled and acknowledged. After the last run, it ends the pipeline.
func (l *pipeline) finish(n int) {
	if l.open.Add(-int64(n)) == 0 && l.closed.Load() {
		l.done.Store(true)
		l.end()
	}
}

// settle moves runs to the history, in one round trip and one transaction.
func (l *pipeline) settle(ctx context.Context, results []baselineResult) error {
	ids := make([]pgtype.UUID, len(results))
	started, finished := make([]time.Time, len(results)), make([]time.Time, len(results))
	for i, r := range results {
		id, err := domain.ParseRunID(r.RunID)
		if err != nil {
			return err
		}
		ids[i] = pgtype.UUID{Bytes: id, Valid: true}
		started[i], finished[i] = r.StartedAt, r.FinishedAt
	}
	var b pgx.Batch
	b.Queue(`INSERT INTO baseline.history (id, job_id, job_version, group_name, cause, state, attempt, fire_time, due_at, created_at,
		       dispatched_at, instance, boot_id, started_at, finished_at, message, output)
		SELECT l.id, l.job_id, l.job_version, l.group_name, l.cause, 'succeeded', l.attempt, l.fire_time, l.due_at, l.created_at,
		       l.dispatched_at, l.instance, l.boot_id, w.started_at, w.finished_at, '', ''
		  FROM (SELECT unnest($1::uuid[]) AS id, unnest($2::timestamptz[]) AS started_at, unnest($3::timestamptz[]) AS finished_at) w
		  JOIN baseline.live l ON l.id = w.id`, ids, started, finished)
	b.Queue(`DELETE FROM baseline.live WHERE id = ANY($1::uuid[])`, ids)
	if err := l.pool.SendBatch(ctx, &b).Close(); err != nil {
		return fmt.Errorf("settle: %w", err)
	}
	l.settled.Add(int64(len(results)))
	return nil
}

// vacuum vacuums the baseline's live table from time to time, as the engine does with its own table.
func (l *pipeline) vacuum(ctx context.Context) error {
	for lifecycle.Pause(ctx, vacuumEvery) {
		if _, err := l.pool.Exec(ctx, `VACUUM baseline.live`); err != nil {
			return fmt.Errorf("vacuum: %w", err)
		}
	}
	return nil
}
