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
)

// yardSchema is the yardstick's storage. It is fixed: it does not follow what the engine's tables become. It keeps what
// any scheduler has to keep of a run if people are to look for it later, by job and by group, and no more.
const yardSchema = `
CREATE SCHEMA IF NOT EXISTS yardstick;
CREATE TABLE IF NOT EXISTS yardstick.live (
    id uuid PRIMARY KEY, job_id bigint NOT NULL, job_version integer NOT NULL, group_name text NOT NULL, cause text NOT NULL,
    state text NOT NULL, attempt integer NOT NULL DEFAULT 1, fire_time timestamptz NOT NULL, due_at timestamptz NOT NULL,
    created_at timestamptz NOT NULL DEFAULT now(), dispatched_at timestamptz, instance text, boot_id text
) WITH (fillfactor = 50);
CREATE INDEX IF NOT EXISTS live_job ON yardstick.live (job_id);
CREATE INDEX IF NOT EXISTS live_due ON yardstick.live (due_at);
CREATE TABLE IF NOT EXISTS yardstick.history (
    id uuid PRIMARY KEY, job_id bigint NOT NULL, job_version integer NOT NULL, group_name text NOT NULL, cause text NOT NULL,
    state text NOT NULL, attempt integer NOT NULL, fire_time timestamptz NOT NULL, due_at timestamptz NOT NULL,
    created_at timestamptz NOT NULL, dispatched_at timestamptz, instance text, boot_id text,
    started_at timestamptz NOT NULL, finished_at timestamptz NOT NULL, message text NOT NULL, output text NOT NULL
);
CREATE INDEX IF NOT EXISTS history_job ON yardstick.history (job_id, id);
CREATE INDEX IF NOT EXISTS history_group ON yardstick.history (group_name, id)`

// The yardstick's batches, workers and bounds, tried out for the best throughput on two cores. The lead and the
// horizon are the engine's own, so that both are late for the same reasons.
const (
	yardBatch       = 500
	yardOfferBatch  = 250
	yardSettleBatch = 1000
	yardInserters   = 2
	yardFirers      = 4
	yardSettlers    = 2
	yardOpen        = 12_000 // runs under way at once in a closed loop
	yardHorizon     = 5 * time.Second
	yardLeadBase    = 20 * time.Millisecond
	yardLeadEach    = 60 * time.Microsecond
	yardLeadMax     = 200 * time.Millisecond
	yardVacuum      = 10 * time.Second
)

// pipeline is the bare path: insert, update, offer, settle. It decides nothing, checks nothing and mends nothing.
type pipeline struct {
	load load
	pool *pgxpool.Pool
	nc   *nats.Conn
	js   jetstream.JetStream

	planned chan yardSlice
	open    atomic.Int64 // inserted and not yet settled
	total   atomic.Int64 // inserted
	settled atomic.Int64
	end     func()      // ends run
	closed  atomic.Bool // nothing more is inserted
	done    atomic.Bool // all is settled
}

// yardSlice is a batch of planned runs; all have one due instant, or are due now.
type yardSlice struct {
	ids []pgtype.UUID
	due []time.Time
}

// pipelineAnswer is what the part answers to "take".
type pipelineAnswer struct {
	Inserted int64 `json:"inserted"`
	Settled  int64 `json:"settled"`
	Done     bool  `json:"done"`
}

func (p *part) runPipeline(ctx context.Context) error {
	l := pipeline{load: *p.order.Load, planned: make(chan yardSlice, 2*yardFirers)}
	var err error
	if l.pool, err = yardPool(ctx, p.order.Database); err != nil {
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
	<-ctx.Done() // it still answers
	return nil
}

func yardPool(ctx context.Context, url string) (*pgxpool.Pool, error) {
	cfg, err := pgxpool.ParseConfig(url)
	if err != nil {
		return nil, err
	}
	cfg.MaxConns = 16
	cfg.ConnConfig.RuntimeParams["plan_cache_mode"] = "force_generic_plan"
	cfg.ConnConfig.RuntimeParams["application_name"] = "yardstick"
	return pgxpool.NewWithConfig(ctx, cfg)
}

// consume makes the stream and the consumer anew.
func (l *pipeline) consume(ctx context.Context) (jetstream.MessagesContext, error) {
	if err := l.js.DeleteStream(ctx, yardStream); err != nil && !errors.Is(err, jetstream.ErrStreamNotFound) {
		return nil, fmt.Errorf("remove the stream: %w", err)
	}
	stream, err := l.js.CreateStream(ctx, jetstream.StreamConfig{
		Name: yardStream, Subjects: []string{yardResults}, Retention: jetstream.WorkQueuePolicy, Storage: jetstream.FileStorage,
		Duplicates: 100 * time.Millisecond,
	})
	if err != nil {
		return nil, fmt.Errorf("make the stream: %w", err)
	}
	consumer, err := stream.CreateConsumer(ctx, jetstream.ConsumerConfig{
		Durable: "settle", AckPolicy: jetstream.AckExplicitPolicy, AckWait: 30 * time.Second, MaxAckPending: 1000,
	})
	if err != nil {
		return nil, fmt.Errorf("make the consumer: %w", err)
	}
	return consumer.Messages(jetstream.PullMaxMessages(200))
}

// run returns when all is settled.
func (l *pipeline) run(ctx context.Context, results jetstream.MessagesContext) error {
	ctx, end := context.WithCancel(ctx)
	defer end()
	l.end = end
	parts, ctx := errgroup.WithContext(ctx)
	inserted, ctx2 := errgroup.WithContext(ctx)
	if l.load.Closed > 0 {
		until := time.Now().Add(l.load.Closed)
		for range yardInserters {
			inserted.Go(func() error { return l.insertClosed(ctx2, until) })
		}
	} else {
		ring := make(chan yardSlice, 1024)
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
	for range yardFirers {
		parts.Go(func() error { return l.fireAll(ctx) })
	}
	messages := make(chan jetstream.Msg, 200)
	parts.Go(func() error { return receive(ctx, results, messages) })
	for range yardSettlers {
		parts.Go(func() error { return l.settleAll(ctx, messages) })
	}
	parts.Go(func() error { return l.vacuum(ctx) })
	if err := parts.Wait(); !l.done.Load() {
		return err
	}
	return nil // whatever the end has cut off
}

// insertClosed keeps as many runs open as it may, all due now.
func (l *pipeline) insertClosed(ctx context.Context, until time.Time) error {
	for time.Now().Before(until) {
		if l.open.Load() > yardOpen {
			if !pause(ctx, time.Millisecond) {
				return nil
			}
			continue
		}
		s := newSlice(yardBatch)
		now := time.Now()
		for range yardBatch {
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

// insertAhead inserts what is due within the horizon, as a pre-read does.
func (l *pipeline) insertAhead(ctx context.Context, ring chan<- yardSlice) error {
	defer close(ring)
	s := newSlice(yardBatch)
	put := func() error {
		if len(s.ids) == 0 || !pause(ctx, time.Until(s.due[0].Add(-yardHorizon))) {
			return nil
		}
		if err := l.insert(ctx, s); err != nil {
			return err
		}
		select {
		case ring <- s:
		case <-ctx.Done():
		}
		s = newSlice(yardBatch)
		return nil
	}
	var err error
	l.load.due(func(at time.Time) bool {
		if len(s.ids) == yardBatch || len(s.ids) > 0 && s.due[0].Unix() != at.Unix() {
			err = put()
		}
		s.add(at)
		return err == nil && ctx.Err() == nil
	})
	return errors.Join(err, put())
}

// ring hands what was inserted to the firers, a little before due.
func (l *pipeline) ring(ctx context.Context, ring <-chan yardSlice) error {
	var held yardSlice
	more := true
	for more || len(held.ids) > 0 {
		for taking := true; taking; { // everything that is there
			var s yardSlice
			select {
			case s, more = <-ring:
				held.ids, held.due = append(held.ids, s.ids...), append(held.due, s.due...)
				taking = more
			default:
				taking = false
			}
		}
		now := time.Now()
		near := held.until(now.Add(yardLeadMax))
		lead := min(yardLeadBase+time.Duration(near)*yardLeadEach, yardLeadMax)
		n := min(held.until(now.Add(lead)), yardBatch)
		if n == 0 {
			wait := 20 * time.Millisecond
			if len(held.due) > 0 {
				wait = min(wait, max(time.Until(held.due[0].Add(-yardLeadBase)), time.Millisecond))
			}
			if !pause(ctx, wait) {
				return nil
			}
			continue
		}
		select {
		case l.planned <- yardSlice{held.ids[:n:n], held.due[:n:n]}:
		case <-ctx.Done():
			return nil
		}
		held.ids, held.due = held.ids[n:], held.due[n:]
	}
	return nil
}

func newSlice(n int) yardSlice {
	return yardSlice{ids: make([]pgtype.UUID, 0, n), due: make([]time.Time, 0, n)}
}

// add appends a run with an id that sorts by due, as the engine's do.
func (s *yardSlice) add(due time.Time) {
	var id domain.RunID
	binary.BigEndian.PutUint64(id[:8], uint64(due.UnixMilli())<<16|0x7000|rand.Uint64()&0xfff)
	binary.BigEndian.PutUint64(id[8:], rand.Uint64()>>2|1<<63)
	s.ids = append(s.ids, pgtype.UUID{Bytes: id, Valid: true})
	s.due = append(s.due, due)
}

// until is how many are due up to an instant; they stand in due order.
func (s *yardSlice) until(at time.Time) int {
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

func (l *pipeline) insert(ctx context.Context, s yardSlice) error {
	jobs := make([]int64, len(s.ids))
	base := l.total.Add(int64(len(s.ids)))
	for i := range jobs {
		jobs[i] = (base + int64(i)) % 10_000
	}
	l.open.Add(int64(len(s.ids)))
	_, err := l.pool.Exec(ctx, `INSERT INTO yardstick.live (id, job_id, job_version, group_name, cause, state, fire_time, due_at)
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

// fire updates a batch in place and offers it; the offers of a batch are under way together.
func (l *pipeline) fire(ctx context.Context, s yardSlice) error {
	if _, err := l.pool.Exec(ctx, `UPDATE yardstick.live SET state = 'queued', instance = 'executor-1', boot_id = $2, dispatched_at = clock_timestamp()
		WHERE id = ANY($1::uuid[]) AND state = 'pending'`, s.ids, yardBoot); err != nil {
		return fmt.Errorf("update: %w", err)
	}
	offers, ctx := errgroup.WithContext(ctx)
	for i := 0; i < len(s.ids); i += yardOfferBatch {
		n := min(yardOfferBatch, len(s.ids)-i)
		offers.Go(func() error {
			batch, now := make([]yardOffer, n), time.Now()
			for k := range batch {
				batch[k] = yardOffer{
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
			if _, err := l.nc.RequestWithContext(ctx, yardOffers, data); err != nil {
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
			return nil //nolint:nilerr // stopped, as the pipeline ends
		}
		select {
		case to <- m:
		case <-ctx.Done():
			return nil
		}
	}
}

// settleAll settles results in batches: what has come, up to 10 ms worth.
func (l *pipeline) settleAll(ctx context.Context, messages <-chan jetstream.Msg) error {
	for {
		var batch []jetstream.Msg
		var results []yardResult
		take := func(m jetstream.Msg) error {
			var r []yardResult
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
		for waiting := true; waiting && len(results) < yardSettleBatch; {
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

// finish counts runs as settled and acknowledged, and ends it all with the last.
func (l *pipeline) finish(n int) {
	if l.open.Add(-int64(n)) == 0 && l.closed.Load() {
		l.done.Store(true)
		l.end()
	}
}

// settle moves runs to the history: one round trip, one transaction.
func (l *pipeline) settle(ctx context.Context, results []yardResult) error {
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
	b.Queue(`INSERT INTO yardstick.history (id, job_id, job_version, group_name, cause, state, attempt, fire_time, due_at, created_at,
		       dispatched_at, instance, boot_id, started_at, finished_at, message, output)
		SELECT l.id, l.job_id, l.job_version, l.group_name, l.cause, 'succeeded', l.attempt, l.fire_time, l.due_at, l.created_at,
		       l.dispatched_at, l.instance, l.boot_id, w.started_at, w.finished_at, '', ''
		  FROM (SELECT unnest($1::uuid[]) AS id, unnest($2::timestamptz[]) AS started_at, unnest($3::timestamptz[]) AS finished_at) w
		  JOIN yardstick.live l ON l.id = w.id`, ids, started, finished)
	b.Queue(`DELETE FROM yardstick.live WHERE id = ANY($1::uuid[])`, ids)
	if err := l.pool.SendBatch(ctx, &b).Close(); err != nil {
		return fmt.Errorf("settle: %w", err)
	}
	l.settled.Add(int64(len(results)))
	return nil
}

// vacuum does for the yardstick's live table what the engine does for its own.
func (l *pipeline) vacuum(ctx context.Context) error {
	for pause(ctx, yardVacuum) {
		if _, err := l.pool.Exec(ctx, `VACUUM yardstick.live`); err != nil {
			return fmt.Errorf("vacuum: %w", err)
		}
	}
	return nil
}

// pause waits for d or the end of ctx, and reports whether ctx goes on.
func pause(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-t.C:
		return true
	}
}
