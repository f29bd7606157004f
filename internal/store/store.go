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
	"github.com/pressly/goose/v3"
	"github.com/riverqueue/river/riverdriver/riverpgxv5"
	"github.com/riverqueue/river/rivermigrate"

	"github.com/belfryhq/belfry/internal/domain"
	"github.com/belfryhq/belfry/internal/plan"
	"github.com/belfryhq/belfry/internal/store/pgerr"
	"github.com/belfryhq/belfry/internal/store/sqlcgen"
	"github.com/belfryhq/belfry/migrations"
)

// Config says how to reach Postgres and by which rules of time to plan.
type Config struct {
	URL      string
	MaxConns int32         // of the pool; 0: 16
	Plan     plan.Settings // zero: plan.DefaultSettings
	Alerts   AlertRules
	Zone     *time.Location   // of schedules that name none; nil: UTC
	AppName  string           // seen in pg_stat_activity
	Clock    func() time.Time // the wall clock; nil: time.Now. Tests set it forward and back
}

// Store is the engine's side of Postgres. Safe for concurrent use.
type Store struct {
	pool        *pgxpool.Pool
	q           *sqlcgen.Queries
	plan        plan.Settings
	alerts      AlertRules
	zone        *time.Location
	clock       clock
	definitions *lru.Cache[versionKey, *definition]
	followUps   FollowUps
	lastSweep   atomic.Int64 // when ClaimNear last looked at all live runs, in Unix nanoseconds
	lastLook    atomic.Int64 // likewise: BoundBoots
	lastVacuum  atomic.Int64 // likewise
}

// FollowUps turns follow-ups into River jobs within a transaction.
type FollowUps interface {
	InsertTx(ctx context.Context, tx pgx.Tx, ups []domain.FollowUp) error
}

// definitionsKept bounds the cache of job versions: at some 900 bytes each for a plain job, 90 MB.
const definitionsKept = 100_000

// PlanChannel is the Postgres channel on which schedulers hear that a job changed or a near run was planned.
const PlanChannel = "belfry_plan"

// Open connects to a migrated database. It waits for no server: errors are Unavailable when none answers.
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
	// A process that is stopped in the middle of a transaction must not keep its rows from the others.
	params["idle_in_transaction_session_timeout"] = "1000"
	params["lock_timeout"] = "10000"
	// Plans made for the first few parameter sets, when tables are empty, must not be what a full batch gets.
	params["plan_cache_mode"] = "force_generic_plan"
	// Compiling a hot plan costs more than it saves; servers have it on by default.
	params["jit"] = "off"
	// Statistics may say that a table is small long after it has grown; what has an index is looked up by it.
	params["enable_seqscan"] = "off"
	if c.AppName != "" {
		params["application_name"] = c.AppName
	}
	pc.ConnConfig.DialFunc = dial
	pc.AfterConnect = func(_ context.Context, conn *pgx.Conn) error {
		registerTypes(conn.TypeMap())
		return nil
	}
	pool, err := pgxpool.NewWithConfig(ctx, pc)
	if err != nil {
		return nil, pgerr.Translate(err)
	}
	cache, err := lru.New[versionKey, *definition](definitionsKept)
	if err != nil {
		return nil, fmt.Errorf("make the definition cache: %w", err)
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
	if err := s.SyncClock(ctx); err != nil {
		pool.Close()
		return nil, err
	}
	return s, nil
}

// UseFollowUps says how follow-ups become River jobs. It must be called before Settle.
func (s *Store) UseFollowUps(f FollowUps) { s.followUps = f }

// Pool returns the pool, for stores of other concerns and for River.
func (s *Store) Pool() *pgxpool.Pool { return s.pool }

// Close ends the connections.
func (s *Store) Close() { s.pool.Close() }

// Check reports whether Postgres answers.
func (s *Store) Check(ctx context.Context) error { return pgerr.Translate(s.pool.Ping(ctx)) }

// Settings returns the rules of time by which the store plans.
func (s *Store) Settings() plan.Settings { return s.plan }

// Zone returns the zone of schedules that name none.
func (s *Store) Zone() *time.Location { return s.zone }

// missingDaysMax bounds the days that one transaction may find missing: fire_all makes up for that many at most, by
// default, and each attempt of the transaction finds one.
const missingDaysMax = 200

// txMax bounds a transaction, or a statement outside one, as its client sees it: a server that is frozen, or has
// vanished without a word, must not hold its callers for longer. It is longer than lock_timeout, which says why
// something waits.
const txMax = 15 * time.Second

func (s *Store) once(ctx context.Context, f func(tx pgx.Tx, q *sqlcgen.Queries) error) error {
	l, cancel := limited(ctx)
	defer cancel()
	broke := false
	err := l.explain(pgx.BeginFunc(l.ctx, s.pool, func(tx pgx.Tx) error {
		// Closing what lies under the transaction ends any statement of f's, whichever context it was given.
		conn := tx.Conn().PgConn().Conn()
		stop := context.AfterFunc(l.ctx, func() { _ = conn.Close() })
		defer stop()
		err := f(tx, s.q.WithTx(tx))
		broke = err != nil && tx.Conn().IsClosed()
		return err
	}))
	if broke && l.ctx.Err() == nil && domain.CodeOf(pgerr.Translate(err)) == domain.Unavailable {
		return brokenError{err}
	}
	return err
}

// brokenError tells that the connection broke before the transaction was to commit, so that nothing has happened: this
// process was stopped for so long that Postgres freed its rows, or the server went.
type brokenError struct{ error }

func (e brokenError) Unwrap() error { return e.error }

// brokenTries bounds how often a transaction is begun anew after that. A server that is away refuses the next one.
const brokenTries = 3

// single runs f, which is to make one statement, without a transaction around it, and translates its errors. f runs again as
// it does in tx.
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

// tx runs f in a transaction and translates its errors. Where a row belongs to a day that has no partition, such as a
// fire time that an outage of days is made up for, the day is made and f runs again; f may thus run several times.
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

// Migrate brings the database's schema up to date: Belfry's tables, then River's. Several processes may call it at
// once; one does the work.
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
	// One lock around both migrators, held by this session, so that starting ten processes at once is harmless.
	if _, err := conn.ExecContext(ctx, `SELECT pg_advisory_lock(hashtextextended('belfry.migrate', 0))`); err != nil {
		return pgerr.Translate(err)
	}
	defer func() {
		// The end of the session would free the lock as well; the pool may keep the session for a while.
		_, _ = conn.ExecContext(context.WithoutCancel(ctx), `SELECT pg_advisory_unlock(hashtextextended('belfry.migrate', 0))`)
	}()
	for _, schema := range []string{migrations.Schema, migrations.RiverSchema} {
		if _, err := conn.ExecContext(ctx, `CREATE SCHEMA IF NOT EXISTS `+schema); err != nil {
			return fmt.Errorf("make schema %s: %w", schema, pgerr.Translate(err))
		}
	}
	provider, err := goose.NewProvider(goose.DialectPostgres, db, migrations.FS)
	if err != nil {
		return fmt.Errorf("read the migrations: %w", err)
	}
	if _, err := provider.Up(ctx); err != nil {
		return fmt.Errorf("migrate: %w", err)
	}
	if err := migrateRiver(ctx, url); err != nil {
		return err
	}
	// History needs the partitions of today and of the days around it before the first run ends.
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
	if _, err := db.ExecContext(ctx, `CREATE SCHEMA IF NOT EXISTS `+migrations.Schema); err != nil {
		return nil, pgerr.Translate(err)
	}
	provider, err := goose.NewProvider(goose.DialectPostgres, db, migrations.FS)
	if err != nil {
		return nil, fmt.Errorf("read the migrations: %w", err)
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

// Listen calls wake for every notification on PlanChannel, and once for every time it (re)connected, as what was
// said meanwhile is lost. It returns nil when ctx ends, else the error that broke the connection.
func (s *Store) Listen(ctx context.Context, wake func()) error {
	conn, err := s.pool.Acquire(ctx)
	if err != nil {
		return ctxErr(ctx, pgerr.Translate(err))
	}
	raw := conn.Hijack() // a listening connection must not go back among the others
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

// ctxErr hides the error that the end of ctx itself caused.
func ctxErr(ctx context.Context, err error) error {
	select {
	case <-ctx.Done():
		return nil
	default:
		return err
	}
}

// dayMissing reports whether an insert found no partition for its day, and for which run id.
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
