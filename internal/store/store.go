package store

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"time"

	lru "github.com/hashicorp/golang-lru/v2"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/jackc/pgx/v5/stdlib"
	"github.com/riverqueue/river/riverdriver/riverpgxv5"
	"github.com/riverqueue/river/rivermigrate"

	"github.com/belfryhq/belfry/internal/domain"
	"github.com/belfryhq/belfry/internal/engine"
	"github.com/belfryhq/belfry/internal/plan"
	"github.com/belfryhq/belfry/internal/store/pgerr"
	"github.com/belfryhq/belfry/internal/store/sqlcgen"
	"github.com/belfryhq/belfry/migrations"
)

// Config holds the connection settings of a store and its rules of time for planning.
type Config struct {
	URL      string
	MaxConns int32         // of the pool; 0: 16
	Plan     plan.Settings // zero: plan.DefaultSettings
	Alerts   AlertRules
	Zone     *time.Location   // for schedules without a time zone; nil: UTC
	AppName  string           // shown in pg_stat_activity
	Clock    func() time.Time // the wall clock; nil: time.Now. Tests set it forward and back.
}

// Store is the engine's access to Postgres. It is safe for concurrent use.
type Store struct {
	pool        *pgxpool.Pool
	q           *sqlcgen.Queries
	plan        plan.Settings
	alerts      AlertRules
	zone        *time.Location
	clock       clock
	definitions *lru.Cache[versionKey, *definition]
	followUps   FollowUps
	live        liveEstimate
	refused     func(context.Context, Overflow) // may be nil
	onEnded     func([]engine.Change)           // may be nil
	lastSweep   atomic.Int64                    // when ClaimNear last searched all live runs, in Unix nanoseconds
	lastLook    atomic.Int64                    // the same for BoundBoots
	lastVacuum  atomic.Int64                    // the same for Vacuum
	checks      atomic.Int64                    // calls of Check
	noSpace     atomic.Bool                     // the last checkSpace failed
}

// FollowUps turns follow-ups into River jobs within a transaction.
type FollowUps interface {
	InsertTx(ctx context.Context, tx pgx.Tx, ups []engine.FollowUp) error
}

// definitionsKept bounds the cache of job versions. A plain job takes about 900 bytes, so the cache takes up to 90 MB.
const definitionsKept = 100_000

// pingIdle is how long a connection may be idle without a ping before its next use.
const pingIdle = 5 * time.Second

// PlanChannel is the Postgres channel that notifies schedulers when a job changed or a near run was planned.
const PlanChannel = "belfry_plan"

// Open connects to a migrated database. It does not wait for a server: if none answers, the error is Unavailable.
func Open(ctx context.Context, c Config) (*Store, error) {
	pc, err := pgxpool.ParseConfig(c.URL)
	if err != nil {
		return nil, domain.WrapError(domain.Invalid, "the database URL is not valid", err)
	}
	pc.MaxConns = 16
	if c.MaxConns > 0 {
		pc.MaxConns = c.MaxConns
	}
	params := pc.ConnConfig.RuntimeParams
	params["search_path"] = migrations.Schema
	params["timezone"] = "UTC"
	// A process that is stopped in the middle of a transaction must not keep its rows locked for the others.
	params["idle_in_transaction_session_timeout"] = "1000"
	params["lock_timeout"] = "10000"
	// A plan made for the first few parameter sets, while tables are empty, is too slow for a full batch.
	params["plan_cache_mode"] = "force_generic_plan"
	// Compiling a hot plan costs more than it saves, and servers have it on by default.
	params["jit"] = "off"
	// Statistics may report a table as small long after it has grown. Every table with an index must be read by the
	// index.
	params["enable_seqscan"] = "off"
	if c.AppName != "" {
		params["application_name"] = c.AppName
	}
	pc.ConnConfig.DialFunc = dial
	pc.ConnConfig.Tracer = &readOnlyGate{}
	pc.AfterConnect = func(_ context.Context, conn *pgx.Conn) error {
		registerTypes(conn.TypeMap())
		return nil
	}
	// Each ping is a transaction. The connections of loops that query every second or two need none: their next statement finds the fault as well.
	pc.ShouldPing = func(_ context.Context, p pgxpool.ShouldPingParams) bool { return p.IdleDuration > pingIdle }
	pool, err := pgxpool.NewWithConfig(ctx, pc)
	if err != nil {
		return nil, pgerr.Translate(err)
	}
	cache, err := lru.New[versionKey, *definition](definitionsKept)
	if err != nil {
		return nil, fmt.Errorf("create the definition cache: %w", err)
	}
	s := &Store{pool: pool, q: sqlcgen.New(boundedPool{pool}), plan: c.Plan, alerts: c.Alerts, zone: c.Zone, definitions: cache}
	s.alerts.setDefaults()
	if s.plan == (plan.Settings{}) {
		s.plan = plan.DefaultSettings()
	}
	if s.zone == nil {
		s.zone = time.UTC
	}
	if s.clock.wall = c.Clock; s.clock.wall == nil {
		s.clock.wall = time.Now
	}
	s.clock.tolerance = s.plan.Tolerance
	if err := s.SyncClock(ctx); err != nil {
		pool.Close()
		return nil, err
	}
	return s, nil
}

// UseFollowUps sets how follow-ups become River jobs. It must be called before Settle.
func (s *Store) UseFollowUps(f FollowUps) { s.followUps = f }

// Pool returns the pool, for River and for the stores of other packages.
func (s *Store) Pool() *pgxpool.Pool { return s.pool }

// Close closes the connections.
func (s *Store) Close() { s.pool.Close() }

// ErrReadOnly is the error of Check on a standby.
var ErrReadOnly = domain.NewError(domain.Unavailable, "it is a standby, or read-only")

// Check reports whether Postgres accepts writes, by writing a few bytes to its log without a table. It also fails on a standby, and
// while a commit waits for a synchronous standby that is gone. Every spaceEvery calls, it also checks that Postgres can write files. All errors have the
// code Unavailable. Its statement also reads the clock.
func (s *Store) Check(ctx context.Context) error {
	wrote, now, sent := false, time.Time{}, time.Now()
	err := s.pool.QueryRow(ctx, `SELECT CASE WHEN current_setting('transaction_read_only')::boolean THEN false
  ELSE pg_logical_emit_message(true, 'belfry', '') IS NOT NULL END, clock_timestamp()`).Scan(&wrote, &now)
	switch {
	case err != nil:
		return domain.WrapError(domain.Unavailable, "write to Postgres", err)
	case !wrote:
		return ErrReadOnly
	}
	s.noteClock(sent, now)
	if s.checks.Add(1)%spaceEvery != 1 && !s.noSpace.Load() {
		return nil
	}
	err = s.checkSpace(ctx)
	s.noSpace.Store(err != nil)
	if err != nil {
		return domain.WrapError(domain.Unavailable, "write a file of Postgres, is its disk full?", err)
	}
	return nil
}

const spaceEvery = 4

// checkSpace makes Postgres write a temporary file of 200 KB. While its disk is full, tables cannot grow, but its log still has files that
// it uses again. The file costs Postgres less than a millisecond.
func (s *Store) checkSpace(ctx context.Context) error {
	var b pgx.Batch
	b.Queue(`SELECT set_config('work_mem', '64kB', true)`)
	b.Queue(`SELECT count(*) FROM (SELECT g, repeat('x', 400) AS pad FROM generate_series(1, 500) g ORDER BY g DESC, pad OFFSET 0) x`)
	return s.pool.SendBatch(ctx, &b).Close()
}

// Settings returns the rules of time for planning.
func (s *Store) Settings() plan.Settings { return s.plan }

// Zone returns the time zone of schedules that name none.
func (s *Store) Zone() *time.Location { return s.zone }

// missingDaysMax bounds the missing days that one transaction may find. fire_all makes up for at most that many fire
// times by default, and each try of the transaction finds one missing day.
const missingDaysMax = 200

// txMax bounds a transaction, or a statement outside one, on the client's side. A server that is frozen or has vanished
// must not block its callers for longer. txMax exceeds lock_timeout, because an error of lock_timeout names the cause.
const txMax = 15 * time.Second

func (s *Store) once(ctx context.Context, f func(tx pgx.Tx, q *sqlcgen.Queries) error) error {
	l, cancel := limited(ctx)
	defer cancel()
	broke := false
	err := l.explain(s.pool.AcquireFunc(l.ctx, func(c *pgxpool.Conn) error {
		return inTx(l.ctx, c.Conn(), func(tx *pipedTx) error {
			// Closing the network connection ends every statement of f, whatever context the statement was given.
			conn := tx.conn.PgConn().Conn()
			stop := context.AfterFunc(l.ctx, func() { _ = conn.Close() })
			defer stop()
			err := f(tx, s.q.WithTx(tx))
			broke = err != nil && tx.conn.IsClosed()
			return err
		})
	}))
	if broke && l.ctx.Err() == nil && domain.CodeOf(pgerr.Translate(err)) == domain.Unavailable {
		return brokenError{err}
	}
	return err
}

// brokenError means that the connection broke before the commit, so that the transaction had no effect. Either this
// process was stopped for so long that Postgres ended its transaction, or the server went away.
type brokenError struct{ error }

func (e brokenError) Unwrap() error { return e.error }

// brokenTries bounds how often a transaction is repeated after a brokenError. If the server is down, the next try fails to
// connect.
const brokenTries = 3

// single runs f without a transaction and translates its errors. f must execute one statement only. Like tx, single
// makes missing days and repeats f.
func (s *Store) single(ctx context.Context, f func(q *sqlcgen.Queries) error) error {
	for try := 0; ; try++ {
		err := f(s.q)
		id, missing := dayMissing(err)
		if !missing || try == missingDaysMax {
			return pgerr.Translate(err)
		}
		if err := s.MakeDays(ctx, []time.Time{id.Time()}); err != nil {
			return err
		}
	}
}

// tx runs f in a transaction and translates its errors. If a row belongs to a day without a partition, tx makes the day
// and runs f again. This happens, for example, when a misfire policy makes up for fire times after an outage of days.
// So f may run several times.
func (s *Store) tx(ctx context.Context, f func(tx pgx.Tx, q *sqlcgen.Queries) error) error {
	broken := 0
	for try := 0; ; try++ {
		err := s.once(ctx, f)
		if e := (brokenError{}); errors.As(err, &e) && broken < brokenTries && ctx.Err() == nil {
			broken++
			continue
		}
		id, missing := dayMissing(err)
		if !missing || try == missingDaysMax {
			return pgerr.Translate(err)
		}
		if err := s.MakeDays(ctx, []time.Time{id.Time()}); err != nil {
			return err
		}
	}
}

// Migrate brings the database's schema up to date: Belfry's tables, then River's. If several processes call it at once,
// one of them does the work. It changes nothing and returns a Conflict if a newer release has migrated the database.
func Migrate(ctx context.Context, url string) error {
	db, err := openSQL(url)
	if err != nil {
		return err
	}
	defer db.Close()
	conn, err := db.Conn(ctx)
	if err != nil {
		return pgerr.Translate(err)
	}
	defer conn.Close()
	// This session holds one lock around both migrators, so that ten processes may start at once.
	if _, err := conn.ExecContext(ctx, `SELECT pg_advisory_lock(hashtextextended('belfry.migrate', 0))`); err != nil {
		return pgerr.Translate(err)
	}
	defer func() {
		// The end of the session would release the lock too, but the pool may keep the session for a while.
		_, _ = conn.ExecContext(context.WithoutCancel(ctx), `SELECT pg_advisory_unlock(hashtextextended('belfry.migrate', 0))`)
	}()
	provider, err := newProvider(ctx, db)
	if err != nil {
		return err
	}
	schema, err := readSchema(ctx, db, provider)
	if err != nil {
		return err
	}
	if schema.Newer() {
		return domain.NewError(domain.Conflict, fmt.Sprintf("the database has migration %d of a newer release, this binary contains migrations up to %d: "+
			"migrate with the newest release that you use", schema.Version, schema.Own))
	}
	if _, err := conn.ExecContext(ctx, `CREATE SCHEMA IF NOT EXISTS `+migrations.RiverSchema); err != nil {
		return fmt.Errorf("create schema %s: %w", migrations.RiverSchema, pgerr.Translate(err))
	}
	if err := withoutDeadlock(ctx, func() error { _, err := provider.Up(ctx); return err }); err != nil {
		return fmt.Errorf("migrate: %w", err)
	}
	if err := withoutDeadlock(ctx, func() error { return migrateRiver(ctx, url) }); err != nil {
		return err
	}
	// History needs the partitions of today and of the adjacent days before the first run ends.
	_, err = conn.ExecContext(ctx, `SELECT make_day(current_date + d) FROM generate_series(-1, 3) d`)
	return pgerr.Translate(err)
}

func openSQL(url string) (*sql.DB, error) {
	cc, err := pgx.ParseConfig(url)
	if err != nil {
		return nil, domain.WrapError(domain.Invalid, "the database URL is not valid", err)
	}
	cc.RuntimeParams["search_path"] = migrations.Schema
	cc.RuntimeParams["timezone"] = "UTC"
	return stdlib.OpenDB(*cc), nil
}

func migrateRiver(ctx context.Context, url string) error {
	pool, err := pgxpool.New(ctx, url)
	if err != nil {
		return pgerr.Translate(err)
	}
	defer pool.Close()
	m, err := rivermigrate.New(riverpgxv5.New(pool), &rivermigrate.Config{Schema: migrations.RiverSchema})
	if err != nil {
		return fmt.Errorf("read River's migrations: %w", err)
	}
	if _, err := m.Migrate(ctx, rivermigrate.DirectionUp, nil); err != nil {
		return fmt.Errorf("migrate River: %w", err)
	}
	return nil
}

// Migration is one step of Belfry's schema.
type Migration struct {
	Name      string
	AppliedAt time.Time // zero: not applied
}

// MigrationStatus lists Belfry's own migrations in order.
func MigrationStatus(ctx context.Context, url string) ([]Migration, error) {
	db, err := openSQL(url)
	if err != nil {
		return nil, err
	}
	defer db.Close()
	provider, err := newProvider(ctx, db)
	if err != nil {
		return nil, err
	}
	steps, err := provider.Status(ctx)
	if err != nil {
		return nil, fmt.Errorf("read the migrations' status: %w", pgerr.Translate(err))
	}
	out := make([]Migration, len(steps))
	for i, st := range steps {
		out[i] = Migration{Name: st.Source.Path, AppliedAt: st.AppliedAt}
	}
	return out, nil
}

// notify wakes the schedulers when the transaction commits.
func notify(ctx context.Context, tx pgx.Tx) error {
	_, err := tx.Exec(ctx, `SELECT pg_notify($1, '')`, PlanChannel)
	return err
}

// Listen calls wake for every notification on PlanChannel, and once after each (re)connect, because notifications sent
// meanwhile are lost. It returns nil when ctx ends, else the error that broke the connection.
func (s *Store) Listen(ctx context.Context, wake func()) error {
	conn, err := s.pool.Acquire(ctx)
	if err != nil {
		return ctxErr(ctx, pgerr.Translate(err))
	}
	raw := conn.Hijack() // the LISTEN stays with the connection, so it must not return to the pool
	defer func() {
		bye, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
		defer cancel()
		raw.Close(bye)
	}()
	if _, err := raw.Exec(ctx, `LISTEN `+PlanChannel); err != nil {
		return ctxErr(ctx, pgerr.Translate(err))
	}
	wake()
	for {
		if err := awaitNotification(ctx, raw); err != nil {
			return ctxErr(ctx, pgerr.Translate(err))
		}
		wake()
	}
}

// ctxErr returns nil if ctx has ended, because err is then its consequence, and err otherwise.
func ctxErr(ctx context.Context, err error) error {
	select {
	case <-ctx.Done():
		return nil
	default:
		return err
	}
}

// dayMissing reports whether an insert failed because its day has no partition, and for which run id.
func dayMissing(err error) (domain.RunID, bool) {
	var pe *pgconn.PgError
	if !errors.As(err, &pe) || pe.Code != "23514" || pe.ConstraintName != "" {
		return domain.NilRunID, false
	}
	// Partition key of the failing row contains (id) = (019a…).
	_, value, found := strings.Cut(pe.Detail, ") = (")
	id, err := domain.ParseRunID(strings.TrimRight(value, ")."))
	return id, found && err == nil
}
