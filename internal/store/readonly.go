package store

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// readOnlyGate holds back statements that write while Postgres accepts no writes. All parts of a process retry their statements several times a
// second, and Postgres logs each failure with the whole statement.
//
// The gate closes when Postgres refuses a statement because it is read-only, and remembers the text of the statement. While the gate is closed,
// it asks before each statement that it remembers whether the session accepts writes. The question costs little and is not logged. If the answer
// is no, the statement fails as Postgres would have let it fail. If the answer is yes, the gate opens and the statement is sent, so the gate
// delays nothing. Statements that only read are never held back.
//
// It is a tracer of pgx, so it sees the statements of all stores and of River on the pool.
type readOnlyGate struct {
	closed  atomic.Bool
	writes  sync.Map // the texts of statements that Postgres has refused
	entries atomic.Int64
}

const (
	readOnlyState = "25006" // SQLSTATE read_only_sql_transaction
	// writesKept bounds the remembered statements. The code has a few hundred texts.
	writesKept = 2000
)

// tracedContext carries the text of a statement to the end of the statement.
type tracedContext struct {
	context.Context
	sql string
}

// refusedContext is a context that has ended. pgx sends no statement with it and returns its error.
type refusedContext struct {
	context.Context
	done <-chan struct{} // closed
}

func (r refusedContext) Done() <-chan struct{} { return r.done }

func (refusedContext) Err() error {
	return &pgconn.PgError{Severity: "ERROR", Code: readOnlyState, Message: "Postgres is read-only, the statement was not sent"}
}

// TraceQueryStart implements pgx.QueryTracer.
func (g *readOnlyGate) TraceQueryStart(ctx context.Context, conn *pgx.Conn, data pgx.TraceQueryStartData) context.Context {
	if g.closed.Load() && g.refuses(ctx, conn, data.SQL) {
		done := make(chan struct{})
		close(done)
		return refusedContext{ctx, done}
	}
	return tracedContext{ctx, data.SQL}
}

// refuses reports whether a statement would fail because Postgres is read-only.
func (g *readOnlyGate) refuses(ctx context.Context, conn *pgx.Conn, sql string) bool {
	if _, known := g.writes.Load(sql); !known {
		return false
	}
	results, err := conn.PgConn().Exec(ctx, `SELECT current_setting('transaction_read_only')`).ReadAll()
	if err != nil || len(results) != 1 || len(results[0].Rows) != 1 {
		return false // the statement fails for the same reason
	}
	if string(results[0].Rows[0][0]) == "on" {
		return true
	}
	g.closed.Store(false)
	return false
}

// TraceQueryEnd implements pgx.QueryTracer.
func (g *readOnlyGate) TraceQueryEnd(ctx context.Context, _ *pgx.Conn, data pgx.TraceQueryEndData) {
	if traced, sent := ctx.(tracedContext); sent {
		g.learn(traced.sql, data.Err)
	}
}

// TraceBatchStart implements pgx.BatchTracer.
func (g *readOnlyGate) TraceBatchStart(ctx context.Context, conn *pgx.Conn, data pgx.TraceBatchStartData) context.Context {
	if !g.closed.Load() {
		return ctx
	}
	for _, q := range data.Batch.QueuedQueries {
		if g.refuses(ctx, conn, q.SQL) {
			done := make(chan struct{})
			close(done)
			return refusedContext{ctx, done}
		}
	}
	return ctx
}

// TraceBatchQuery implements pgx.BatchTracer.
func (g *readOnlyGate) TraceBatchQuery(ctx context.Context, _ *pgx.Conn, data pgx.TraceBatchQueryData) {
	if _, refused := ctx.(refusedContext); !refused {
		g.learn(data.SQL, data.Err)
	}
}

// TraceBatchEnd implements pgx.BatchTracer.
func (g *readOnlyGate) TraceBatchEnd(context.Context, *pgx.Conn, pgx.TraceBatchEndData) {}

// learn remembers a statement, and closes the gate, if Postgres refused the statement because it is read-only.
func (g *readOnlyGate) learn(sql string, err error) {
	if err == nil {
		return
	}
	var refusal *pgconn.PgError
	if !errors.As(err, &refusal) || refusal.Code != readOnlyState {
		return
	}
	if g.entries.Load() < writesKept {
		if _, known := g.writes.LoadOrStore(sql, struct{}{}); !known {
			g.entries.Add(1)
		}
	}
	g.closed.Store(true)
}
