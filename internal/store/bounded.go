package store

import (
	"context"
	"errors"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/belfryhq/belfry/internal/domain"
)

// boundedPool gives each statement outside a transaction the time that a transaction has. Where the host of Postgres has
// vanished, the kernel gives its connections up (see dial); but behind a pooler or a balancer the bytes still arrive
// somewhere, and then nothing else would ever end the wait. Loops that ask one thing after another would stand still.
type boundedPool struct{ pool *pgxpool.Pool }

// Exec implements sqlcgen.DBTX.
func (b boundedPool) Exec(ctx context.Context, sql string, args ...any) (pgconn.CommandTag, error) {
	l, cancel := limited(ctx)
	defer cancel()
	tag, err := b.pool.Exec(l.ctx, sql, args...)
	return tag, l.explain(err)
}

// Query implements sqlcgen.DBTX. The bound holds until the rows are closed.
func (b boundedPool) Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error) {
	l, cancel := limited(ctx)
	rows, err := b.pool.Query(l.ctx, sql, args...)
	if err != nil {
		err = l.explain(err)
		cancel()
		return nil, err
	}
	return &boundedRows{Rows: rows, limit: l, cancel: cancel}, nil
}

// QueryRow implements sqlcgen.DBTX.
func (b boundedPool) QueryRow(ctx context.Context, sql string, args ...any) pgx.Row {
	l, cancel := limited(ctx)
	return &boundedRow{Row: b.pool.QueryRow(l.ctx, sql, args...), limit: l, cancel: cancel}
}

// limit is a bound of ours within a caller's context.
type limit struct{ ctx, caller context.Context }

func limited(caller context.Context) (limit, context.CancelFunc) {
	ctx, cancel := context.WithTimeout(caller, txMax)
	return limit{ctx, caller}, cancel
}

// explain makes an error of a bound that passed Unavailable; to the caller, whose context goes on, it is no deadline.
func (l limit) explain(err error) error {
	if err != nil && l.ctx.Err() != nil && l.caller.Err() == nil {
		return domain.WrapError(domain.Unavailable, "Postgres did not answer in time", err)
	}
	return err
}

type boundedRows struct {
	pgx.Rows
	limit  limit
	cancel context.CancelFunc
	ended  error
}

// Close implements pgx.Rows.
func (r *boundedRows) Close() {
	r.Rows.Close()
	_ = r.Err() // explained while the caller's context and ours still tell whose bound it was
	r.cancel()
}

// Err implements pgx.Rows.
func (r *boundedRows) Err() error {
	if r.ended == nil {
		r.ended = r.limit.explain(r.Rows.Err())
	}
	return r.ended
}

type boundedRow struct {
	pgx.Row
	limit  limit
	cancel context.CancelFunc
}

// Scan implements pgx.Row.
func (r *boundedRow) Scan(dest ...any) error {
	defer r.cancel()
	return r.limit.explain(r.Row.Scan(dest...))
}

// quietMax is how long a listening connection may be silent before it is asked whether it still is one.
const quietMax = 20 * time.Second

// awaitNotification returns when a notification has come, or with the error that broke the connection. Who waits says
// nothing, so that nothing of what it says stays unacknowledged: it has to ask from time to time.
func awaitNotification(ctx context.Context, conn *pgx.Conn) error {
	for {
		quiet, cancel := context.WithTimeout(ctx, quietMax)
		_, err := conn.WaitForNotification(quiet)
		cancel()
		if err == nil || ctx.Err() != nil || !errors.Is(err, context.DeadlineExceeded) {
			return err
		}
		l, cancel := limited(ctx)
		err = l.explain(conn.Ping(l.ctx))
		cancel()
		if err != nil {
			return err
		}
	}
}
