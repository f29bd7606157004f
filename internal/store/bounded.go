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

// boundedPool bounds each statement outside a transaction by the time of a transaction. If the host of Postgres has
// vanished, the kernel closes its connections (see dial). But a pooler or load balancer in between may still accept the
// bytes, and then only this bound ends the wait. Without it, loops that run one query after another would hang.
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

// limit is the store's own time limit within a caller's context.
type limit struct{ ctx, caller context.Context }

func limited(caller context.Context) (limit, context.CancelFunc) {
	ctx, cancel := context.WithTimeout(caller, txMax)
	return limit{ctx, caller}, cancel
}

// explain turns the error of an exceeded limit into Unavailable. The caller must not see a deadline error, because its
// own context has not ended.
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
	_ = r.Err() // while the contexts still show whose deadline passed
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

// quietMax is how long a listening connection may be silent before it is pinged.
const quietMax = 20 * time.Second

// awaitNotification returns nil after a notification, or the error that broke the connection. A listening client sends
// nothing, so it has no unacknowledged bytes by which the kernel could detect a broken connection. It must ping from
// time to time.
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
