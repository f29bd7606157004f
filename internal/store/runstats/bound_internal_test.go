package runstats

import (
	"context"
	"fmt"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/belfryhq/belfry/internal/domain"
	"github.com/belfryhq/belfry/internal/pgtest"
	"github.com/belfryhq/belfry/internal/store"
)

// openPool opens a store, and returns its pool.
func openPool(t *testing.T, url string) *pgxpool.Pool {
	t.Helper()
	s, err := store.Open(t.Context(), store.Config{URL: url, MaxConns: 4})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	return s.Pool()
}

func must(t *testing.T, tx interface {
	QueryRow(ctx context.Context, sql string, args ...any) pgx.Row
}, sql string, args ...any) (at time.Time) {
	t.Helper()
	if err := tx.QueryRow(t.Context(), sql, args...).Scan(&at); err != nil {
		t.Fatal(err)
	}
	return at
}

// A transaction may settle runs long after it began. Whether it already has a transaction id or not, no roll-up passes its start.
func TestRunsOfALateTransactionAreRolledUp(t *testing.T) {
	t.Parallel()
	address, clock := pgtest.DatabaseWithClock(t, store.Migrate)
	pool := openPool(t, address)
	stats := New(pool)
	through := func() time.Time { return must(t, pool, `SELECT through FROM run_stats_mark`) }
	rollUp := func() (all int64) {
		t.Helper()
		for {
			runs, _, _, more, err := stats.RollUp(t.Context(), time.Minute)
			if err != nil {
				t.Fatal(err)
			}
			if all += runs; !more {
				return all
			}
		}
	}
	const insert = `INSERT INTO runs_history (id, job_id, job_version, group_name, cause, state, reason, message, output, attempt,
		due_at, created_at, finished_at, last_line, route)
		VALUES ($1, 1, 1, 'a', 'schedule', 'succeeded', '', '', '', 1, now(), now(), now(), 0, '') RETURNING settled_at`
	ahead := time.Duration(0)
	for _, early := range []bool{true, false} { // whether it takes its id early
		tx := pgtest.Begin(t, pool)
		begun := must(t, tx, `SELECT now()`)
		if early {
			if _, err := tx.Exec(t.Context(), `SELECT pg_current_xact_id()`); err != nil {
				t.Fatal(err)
			}
		}
		for _, later := range []time.Duration{10 * time.Second, 15 * time.Second, 80 * time.Second} {
			if !early && later > Behind {
				continue
			}
			clock.Set(ahead + later)
			if n := rollUp(); n != 0 || through().After(begun) || begun.Sub(through()) > leastStep && later > 10*time.Second {
				t.Fatalf("early %t: %s after the start of a transaction, %d runs are counted, through %s before its start", early, later, n, begun.Sub(through()))
			}
		}
		if settled := must(t, tx, insert, domain.NewRunID(begun)); settled.Before(through()) {
			t.Errorf("early %t: a run is settled at %s, after the mark has passed %s", early, settled, through())
		}
		if err := tx.Commit(t.Context()); err != nil {
			t.Fatal(err)
		}
		if n := rollUp(); n != 1 {
			t.Errorf("early %t: %d runs are counted, want 1", early, n)
		}
		ahead += 80 * time.Second
		clock.Set(ahead)
	}
	reader := pgtest.Begin(t, pool) // such as a dump
	begun := must(t, reader, `SELECT now()`)
	clock.Set(ahead + 80*time.Second)
	if rollUp(); !through().After(begun.Add(70 * time.Second)) {
		t.Errorf("a transaction that only reads holds the roll-up back: through %s, begun %s", through(), begun)
	}
}

// Postgres does not show when transactions of other users began. Unless they cannot write runs, the bound allows for them.
func TestTheBoundAllowsForHiddenTransactions(t *testing.T) {
	t.Parallel()
	address := pgtest.Database(t, store.Migrate)
	pool := openPool(t, address)
	exec := func(format string, args ...any) {
		t.Helper()
		if _, err := pool.Exec(t.Context(), fmt.Sprintf(format, args...)); err != nil {
			t.Fatal(err)
		}
	}
	name := "r" + strings.ReplaceAll(domain.NewRunID(time.Now()).String(), "-", "")
	for _, role := range []string{name + "a", name + "b"} {
		exec(`CREATE ROLE %s LOGIN PASSWORD 'x'`, role)
		t.Cleanup(func() {
			if _, err := pool.Exec(context.Background(), fmt.Sprintf(`DROP OWNED BY %s; DROP ROLE %[1]s`, role)); err != nil {
				t.Error(err)
			}
		})
		exec(`GRANT USAGE ON SCHEMA belfry TO %s`, role)
	}
	connect := func(role string) *pgx.Conn {
		t.Helper()
		u, err := url.Parse(address)
		if err != nil {
			t.Fatal(err)
		}
		u.User = url.UserPassword(role, "x")
		conn, err := pgx.Connect(t.Context(), u.String())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = conn.Close(context.Background()) })
		if _, err := conn.Exec(t.Context(), `SET search_path = belfry`); err != nil {
			t.Fatal(err)
		}
		return conn
	}
	own, other := connect(name+"a"), connect(name+"b")
	behind := func() time.Duration {
		t.Helper()
		pool.Reset() // the superuser's sessions are hidden too
		for others := 1; others > 0; {
			if err := own.QueryRow(t.Context(), `SELECT count(*) FROM pg_stat_activity
				WHERE datname = current_database() AND usename NOT LIKE $1 || '%'`, name).Scan(&others); err != nil {
				t.Fatal(err)
			}
		}
		tx, err := own.Begin(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		defer tx.Rollback(t.Context())
		now := must(t, tx, `SELECT clock_timestamp()`)
		bound, err := safeBound(t.Context(), tx, now)
		if err != nil {
			t.Fatal(err)
		}
		return now.Sub(bound)
	}
	if _, err := other.Exec(t.Context(), `BEGIN; SELECT 1`); err != nil {
		t.Fatal(err)
	}
	if got := behind(); got != margin {
		t.Errorf("because of a user who may not write runs, the bound is %s behind, want %s", got, margin)
	}
	exec(`GRANT INSERT ON runs_history TO %s`, name+"b")
	if got := behind(); got != Behind {
		t.Errorf("because of a user who may write runs, the bound is %s behind, want %s", got, Behind)
	}
}
