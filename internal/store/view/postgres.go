package view

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/belfryhq/belfry/internal/store/pgerr"
	"github.com/belfryhq/belfry/internal/store/view/sqlcgen"
)

// Postgres reads the state of the Postgres server, as far as it slows down or stops the engine.
type Postgres struct{ pool *pgxpool.Pool }

// NewPostgres returns a Postgres on a pool whose connections have Belfry's schema on their search path.
func NewPostgres(pool *pgxpool.Pool) *Postgres { return &Postgres{pool} }

// Pressure is how far the engine is behind, and how full Postgres is.
type Pressure struct {
	Unfired        int64 // runs that are over two seconds past due and not fired; 10,000 at most
	Unplanned      int64 // jobs that are over two seconds past due and not planned, because no scheduler works; 10,000 at most
	Connections    int64 // of all databases of the server
	MaxConnections int64 // that accounts other than superusers can have
	Bytes          int64 // of this database
}

// Pressure reads how far the engine is behind, and how full Postgres is. It costs little.
func (p *Postgres) Pressure(ctx context.Context) (out Pressure, err error) {
	err = p.read(ctx, func(tx pgx.Tx) error {
		overdue, err := sqlcgen.New(tx).Overdue(ctx)
		if err != nil {
			return err
		}
		out = Pressure{Unfired: overdue.Runs, Unplanned: overdue.Jobs}
		return tx.QueryRow(ctx, connections+`, pg_database_size(current_database())`).Scan(&out.Connections, &out.MaxConnections, &out.Bytes)
	})
	return out, err
}

// read runs statements that belong together in one transaction.
func (p *Postgres) read(ctx context.Context, statements func(pgx.Tx) error) error {
	return pgerr.Translate(pgx.BeginTxFunc(ctx, p.pool, pgx.TxOptions{AccessMode: pgx.ReadOnly}, statements))
}

// connections selects the connections to the server, and how many accounts other than superusers can have. The query is here because sqlc does not
// know pg_stat_database. Every account may read it, unlike most of pg_stat_activity.
const connections = `SELECT (SELECT coalesce(sum(numbackends), 0) FROM pg_stat_database)::bigint,
  current_setting('max_connections')::bigint - current_setting('superuser_reserved_connections')::bigint
  - coalesce(current_setting('reserved_connections', true), '0')::bigint`

// Presence is which processes of Belfry are at work, as far as Postgres sees them.
type Presence struct {
	Processes                   []Process
	SchedulerSilence            time.Duration // since the last sign of life of a scheduler; negative: none has given one
	Connections, MaxConnections int64         // as in Pressure
}

// Presence reads which processes of Belfry are at work. It costs little, and reads no large table.
func (p *Postgres) Presence(ctx context.Context) (out Presence, err error) {
	err = p.read(ctx, func(tx pgx.Tx) error {
		seconds, err := sqlcgen.New(tx).SchedulerSilence(ctx)
		if err != nil {
			return err
		}
		out.SchedulerSilence = time.Duration(seconds * float64(time.Second))
		if err := tx.QueryRow(ctx, connections).Scan(&out.Connections, &out.MaxConnections); err != nil {
			return err
		}
		out.Processes, err = processes(ctx, tx)
		return err
	})
	return out, err
}

// Blocker is a transaction that holds a lock for which processes of Belfry wait.
type Blocker struct {
	PID         int    // of the session in Postgres
	Application string // as the session calls itself
	Sessions    int    // of Belfry that wait for it
}

// Blockers returns the transactions for which sessions of Belfry have waited for over two seconds, five at most. It reads no table of Belfry, so
// no lock stops it.
func (p *Postgres) Blockers(ctx context.Context) ([]Blocker, error) {
	// A session that waits for a lock may block others. Only those at the beginning of such a chain are shown. Other accounts may hide
	// everything but the name of their sessions.
	rows, err := p.pool.Query(ctx, `WITH waiting AS (
  SELECT a.pid, pg_blocking_pids(a.pid) AS blockers FROM pg_stat_activity a
   WHERE a.datname = current_database() AND a.application_name LIKE 'belfry %' AND a.wait_event_type = 'Lock'
     AND a.query_start < clock_timestamp() - interval '2 seconds' LIMIT 100)
SELECT b.pid, coalesce(b.application_name, ''), count(*)
  FROM waiting w CROSS JOIN LATERAL unnest(w.blockers) AS u (pid) JOIN pg_stat_activity b ON b.pid = u.pid
 WHERE b.pid NOT IN (SELECT v.pid FROM waiting v) GROUP BY 1, 2 ORDER BY 3 DESC, 1 LIMIT 5`)
	if err != nil {
		return nil, pgerr.Translate(err)
	}
	out, err := pgx.CollectRows(rows, pgx.RowToStructByPos[Blocker])
	return out, pgerr.Translate(err)
}

// Clients returns the names of the clients with most connections to the Postgres server, five at most, each with their number.
func (p *Postgres) Clients(ctx context.Context) ([]string, error) {
	// An account without rights sees the names of other accounts' sessions, but not what they do.
	rows, err := p.pool.Query(ctx, `SELECT count(*) || ' ' || coalesce(nullif(application_name, ''), 'without a name')
  FROM pg_stat_activity WHERE backend_type = 'client backend' OR backend_type IS NULL GROUP BY application_name ORDER BY count(*) DESC, 1 LIMIT 5`)
	if err != nil {
		return nil, pgerr.Translate(err)
	}
	out, err := pgx.CollectRows(rows, pgx.RowTo[string])
	return out, pgerr.Translate(err)
}
