package store

import (
	"cmp"
	"context"
	"errors"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/belfryhq/belfry/internal/store/sqlcgen"
)

// pipedTx is a transaction with fewer round trips: its BEGIN is sent together with its first statement. A statement that returns nothing can
// be sent with the next one, or with the COMMIT: see later. Most transactions are small, so much of their cost is waiting for answers.
type pipedTx struct {
	pgx.Tx    // nil until BEGIN is sent
	conn      *pgx.Conn
	queued    []*pgx.QueuedQuery // not sent yet
	committed bool
}

// inTx runs f in a transaction on a connection. If f sends nothing, nor does inTx.
func inTx(ctx context.Context, conn *pgx.Conn, f func(tx *pipedTx) error) (err error) {
	tx := &pipedTx{conn: conn}
	defer func() {
		if undone := tx.Rollback(ctx); undone != nil && !errors.Is(undone, pgx.ErrTxClosed) && err == nil {
			err = undone
		}
	}()
	if err := f(tx); err != nil {
		return err
	}
	return tx.Commit(ctx)
}

// later returns queries whose statements without results are sent together with the next statement of the transaction. Their errors come
// from that statement, or from the COMMIT.
func later(tx pgx.Tx) *sqlcgen.Queries {
	if t, piped := tx.(*pipedTx); piped {
		return sqlcgen.New(laterTx{t})
	}
	return sqlcgen.New(tx)
}

type laterTx struct{ *pipedTx }

// Exec implements sqlcgen.DBTX. The tag is always empty.
func (t laterTx) Exec(_ context.Context, sql string, args ...any) (pgconn.CommandTag, error) {
	tx := t.pipedTx
	tx.queued = append(tx.queued, &pgx.QueuedQuery{SQL: sql, Arguments: args})
	return pgconn.CommandTag{}, nil
}

// behind reports whether something has to be sent before the next statement.
func (t *pipedTx) behind() bool { return t.Tx == nil || len(t.queued) > 0 }

// send sends what was not sent yet, and then a statement, if sql is not empty. The results begin with those of the statement.
func (t *pipedTx) send(ctx context.Context, sql string, args ...any) (pgx.BatchResults, error) {
	b := &pgx.Batch{}
	begins := t.Tx == nil
	if begins {
		b.BeginTx(pgx.TxOptions{})
	}
	b.QueuedQueries = append(b.QueuedQueries, t.queued...)
	t.queued = nil
	before := b.Len()
	if sql != "" {
		b.Queue(sql, args...)
	}
	results := t.conn.SendBatch(ctx, b)
	if begins {
		t.Tx = results.Tx()
	}
	for range before {
		if _, err := results.Exec(); err != nil {
			results.Close() //nolint:errcheck // the first error counts
			return nil, err
		}
	}
	return results, nil
}

// flush sends what was not sent yet.
func (t *pipedTx) flush(ctx context.Context) error {
	if !t.behind() {
		return nil
	}
	results, err := t.send(ctx, "")
	if err != nil {
		return err
	}
	return results.Close()
}

// Exec implements pgx.Tx.
func (t *pipedTx) Exec(ctx context.Context, sql string, args ...any) (tag pgconn.CommandTag, err error) {
	if len(args) == 0 { // it may be several statements, which a batch does not allow
		if err := t.flush(ctx); err != nil {
			return tag, err
		}
	}
	if !t.behind() {
		return t.Tx.Exec(ctx, sql, args...)
	}
	results, err := t.send(ctx, sql, args...)
	if err != nil {
		return tag, err
	}
	tag, err = results.Exec()
	return tag, cmp.Or(err, results.Close())
}

// Query implements pgx.Tx.
func (t *pipedTx) Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error) {
	if !t.behind() {
		return t.Tx.Query(ctx, sql, args...)
	}
	results, err := t.send(ctx, sql, args...)
	if err != nil {
		return nil, err
	}
	rows, err := results.Query()
	if err != nil {
		return nil, cmp.Or(err, results.Close())
	}
	return &pipedRows{Rows: rows, results: results}, nil
}

// QueryRow implements pgx.Tx.
func (t *pipedTx) QueryRow(ctx context.Context, sql string, args ...any) pgx.Row {
	if !t.behind() {
		return t.Tx.QueryRow(ctx, sql, args...)
	}
	rows, err := t.Query(ctx, sql, args...)
	return pipedRow{rows, err}
}

// Commit implements pgx.Tx.
func (t *pipedTx) Commit(ctx context.Context) error {
	if t.Tx == nil && len(t.queued) == 0 {
		return nil
	}
	if len(t.queued) == 0 {
		return t.Tx.Commit(ctx)
	}
	results, err := t.send(ctx, "commit")
	if err != nil {
		return err
	}
	tag, err := results.Exec()
	if err = cmp.Or(err, results.Close()); err != nil {
		return err
	}
	t.committed = true
	if tag.String() == "ROLLBACK" {
		return pgx.ErrTxCommitRollback
	}
	return nil
}

// Rollback implements pgx.Tx.
func (t *pipedTx) Rollback(ctx context.Context) error {
	if t.queued = nil; t.Tx == nil || t.committed {
		return nil
	}
	return t.Tx.Rollback(ctx)
}

// Begin implements pgx.Tx.
func (t *pipedTx) Begin(ctx context.Context) (pgx.Tx, error) {
	if err := t.flush(ctx); err != nil {
		return nil, err
	}
	return t.Tx.Begin(ctx)
}

// CopyFrom implements pgx.Tx.
func (t *pipedTx) CopyFrom(ctx context.Context, table pgx.Identifier, columns []string, rows pgx.CopyFromSource) (int64, error) {
	if err := t.flush(ctx); err != nil {
		return 0, err
	}
	return t.Tx.CopyFrom(ctx, table, columns, rows)
}

// SendBatch implements pgx.Tx.
func (t *pipedTx) SendBatch(ctx context.Context, b *pgx.Batch) pgx.BatchResults {
	if err := t.flush(ctx); err != nil {
		return pgx.FailedBatchResults(b, err)
	}
	return t.Tx.SendBatch(ctx, b)
}

// Prepare implements pgx.Tx.
func (t *pipedTx) Prepare(ctx context.Context, name, sql string) (*pgconn.StatementDescription, error) {
	if err := t.flush(ctx); err != nil {
		return nil, err
	}
	return t.Tx.Prepare(ctx, name, sql)
}

// Conn implements pgx.Tx.
func (t *pipedTx) Conn() *pgx.Conn { return t.conn }

// pipedRows are the rows of the last statement of a batch.
type pipedRows struct {
	pgx.Rows
	results pgx.BatchResults
	closed  bool
	err     error
}

// Close implements pgx.Rows.
func (r *pipedRows) Close() {
	if r.closed {
		return
	}
	r.closed = true
	r.Rows.Close()
	r.err = cmp.Or(r.Rows.Err(), r.results.Close())
}

// Next implements pgx.Rows. It closes the rows after the last one, as pgx does.
func (r *pipedRows) Next() bool {
	if r.Rows.Next() {
		return true
	}
	r.Close()
	return false
}

// Err implements pgx.Rows.
func (r *pipedRows) Err() error { return cmp.Or(r.Rows.Err(), r.err) }

type pipedRow struct {
	rows pgx.Rows
	err  error
}

// Scan implements pgx.Row.
func (r pipedRow) Scan(dest ...any) error {
	if r.err != nil {
		return r.err
	}
	defer r.rows.Close()
	if !r.rows.Next() {
		return cmp.Or(r.rows.Err(), pgx.ErrNoRows)
	}
	err := r.rows.Scan(dest...)
	r.rows.Close()
	return cmp.Or(err, r.rows.Err())
}
