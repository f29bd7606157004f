package store

import (
	"context"
	"errors"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/belfryhq/belfry/internal/pgtest"
)

// A transaction with fewer round trips does the same as one of pgx, also when a statement fails that is sent later.
func TestPipedTransactions(t *testing.T) {
	conn, err := pgx.Connect(t.Context(), pgtest.URL(t))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close(context.Background()) })
	if _, err := conn.Exec(t.Context(), `CREATE TABLE n (i int PRIMARY KEY)`); err != nil {
		t.Fatal(err)
	}
	failed := errors.New("failed")
	const insert, count = `INSERT INTO n VALUES ($1)`, `SELECT count(*) FROM n WHERE i >= $1`
	// put inserts later.
	put := func(tx *pipedTx, i int) { laterTx{tx}.Exec(t.Context(), insert, i) } //nolint:errcheck // always nil
	exec := func(tx *pipedTx, sql string, args ...any) error {
		_, err := tx.Exec(t.Context(), sql, args...)
		return err
	}
	counts := func(tx *pipedTx, want int) error {
		var n int
		if err := tx.QueryRow(t.Context(), count, 0).Scan(&n); err != nil || n != want {
			t.Errorf("%d rows are visible, want %d (%v)", n, want, err)
		}
		return nil
	}
	for _, c := range []struct {
		what string
		do   func(tx *pipedTx) error
		rows int
		err  any // an error that Is or As finds
	}{
		{"nothing", func(*pipedTx) error { return nil }, 0, nil},
		{"one statement", func(tx *pipedTx) error { return exec(tx, insert, 1) }, 1, nil},
		{"statements without arguments", func(tx *pipedTx) error { return exec(tx, `INSERT INTO n VALUES (1); INSERT INTO n VALUES (2)`) }, 2, nil},
		{"later ones only", func(tx *pipedTx) error { put(tx, 1); put(tx, 2); return nil }, 2, nil},
		{"a later one before a query", func(tx *pipedTx) error { put(tx, 1); return counts(tx, 1) }, 1, nil},
		{"a later one after a query", func(tx *pipedTx) error { counts(tx, 0); put(tx, 1); return counts(tx, 1) }, 1, nil}, //nolint:errcheck // always nil
		{"a failure", func(tx *pipedTx) error { exec(tx, insert, 1); put(tx, 2); return failed }, 0, failed},               //nolint:errcheck // it is rolled back
		{"a failure before anything is sent", func(tx *pipedTx) error { put(tx, 1); return failed }, 0, failed},
		{"a faulty first statement", func(tx *pipedTx) error { return exec(tx, `INSERT INTO missing VALUES ($1)`, 1) }, 0, "42P01"},
		{"a faulty later one before the commit", func(tx *pipedTx) error { put(tx, 1); put(tx, 1); return nil }, 0, "23505"},
		{"a faulty later one before a query", func(tx *pipedTx) error {
			put(tx, 1)
			put(tx, 1)
			return tx.QueryRow(t.Context(), count, 0).Scan(new(int))
		}, 0, "23505"},
		{"an error that is ignored", func(tx *pipedTx) error { exec(tx, `SELECT 1/$1::int`, 0); put(tx, 1); return nil }, 0, "25P02"}, //nolint:errcheck // see above
		{"no row", func(tx *pipedTx) error {
			return tx.QueryRow(t.Context(), `SELECT i FROM n WHERE i = $1`, 7).Scan(new(int))
		}, 0, pgx.ErrNoRows},
		{"rows that are not read", func(tx *pipedTx) error {
			rows, err := tx.Query(t.Context(), `SELECT generate_series(1, $1::int)`, 1000)
			if err != nil || !rows.Next() {
				t.Errorf("%v", err)
			}
			rows.Close()
			return exec(tx, insert, 1)
		}, 1, nil},
		{"rows that fail", func(tx *pipedTx) error {
			rows, err := tx.Query(t.Context(), `SELECT 10 / (5 - i) FROM generate_series(1, $1::int) i`, 1000)
			if err != nil {
				return err
			}
			_, err = pgx.CollectRows(rows, pgx.RowTo[int])
			return err
		}, 0, "22012"},
		{"a savepoint, a batch and a copy", func(tx *pipedTx) error {
			put(tx, 1)
			inner, err := tx.Begin(t.Context())
			if err != nil {
				return err
			}
			inner.Exec(t.Context(), insert, 2) //nolint:errcheck // it is rolled back
			if err := inner.Rollback(t.Context()); err != nil {
				return err
			}
			put(tx, 3)
			b := &pgx.Batch{}
			b.Queue(insert, 4)
			if err := tx.SendBatch(t.Context(), b).Close(); err != nil {
				return err
			}
			put(tx, 5)
			_, err = tx.CopyFrom(t.Context(), pgx.Identifier{"n"}, []string{"i"}, pgx.CopyFromRows([][]any{{6}}))
			return err
		}, 5, nil},
	} {
		err := inTx(t.Context(), conn, c.do)
		var said *pgconn.PgError
		switch want := c.err.(type) {
		case nil:
			if err != nil {
				t.Errorf("%s: %v", c.what, err)
			}
		case error:
			if !errors.Is(err, want) {
				t.Errorf("%s: %v, want %v", c.what, err, want)
			}
		case string:
			if !errors.As(err, &said) || said.Code != want {
				t.Errorf("%s: %v, want %s", c.what, err, want)
			}
		}
		if s := conn.PgConn().TxStatus(); s != 'I' {
			t.Fatalf("%s: afterwards, the state of the connection is %c", c.what, s)
		}
		var rows int
		if err := conn.QueryRow(t.Context(), count, 0).Scan(&rows); err != nil || rows != c.rows {
			t.Errorf("%s: %d rows, want %d (%v)", c.what, rows, c.rows, err)
		}
		if _, err := conn.Exec(t.Context(), `TRUNCATE n`); err != nil {
			t.Fatal(err)
		}
	}
}
