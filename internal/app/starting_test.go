package app

import (
	"bufio"
	"context"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/belfryhq/belfry/internal/config"
	"github.com/belfryhq/belfry/internal/pgtest"
	"github.com/belfryhq/belfry/internal/store"
)

func TestMain(m *testing.M) { pgtest.Main(m) }

func connect(t *testing.T, url string) *pgx.Conn {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close(context.WithoutCancel(t.Context())) })
	return conn
}

// If the Postgres connection of a role breaks during the role's start, for example because Postgres restarts, the role tries
// again.
func TestPostgresGoesBeneathAStart(t *testing.T) {
	url := pgtest.Database(t, store.Migrate)
	for _, table := range []string{"goose_db_version", "users", "groups"} { // in the order in which the console reads them
		t.Run(table, func(t *testing.T) {
			lock, err := connect(t, url).Begin(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			other := connect(t, url) // within a transaction, pg_stat_activity is a snapshot
			if _, err := lock.Exec(t.Context(), `LOCK TABLE belfry.`+table); err != nil {
				t.Fatal(err)
			}

			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			c := config.DefaultConsole()
			c.DatabaseURL, c.NATSURL, c.HTTP = config.URL(url), "nats://127.0.0.1:1", "127.0.0.1:0"
			said, stdout := io.Pipe()
			ended := make(chan error, 1)
			go func() {
				ended <- (&App{Stdout: stdout, Stderr: io.Discard}).Console(ctx, c)
				_ = stdout.Close()
			}()
			started := make(chan bool, 1)
			go func() {
				lines := bufio.NewScanner(said)
				for lines.Scan() && !strings.HasPrefix(lines.Text(), "console: ") {
				}
				started <- strings.HasPrefix(lines.Text(), "console: ")
				_, _ = io.Copy(io.Discard, said)
			}()

			const cut = `SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'`
			tick := time.NewTicker(10 * time.Millisecond)
			defer tick.Stop()
			for n := 0; n == 0; <-tick.C {
				select {
				case err := <-ended:
					t.Fatalf("ended before its connection was terminated: %v", err)
				default:
				}
				if err := other.QueryRow(t.Context(), cut).Scan(&n); err != nil {
					t.Fatal(err)
				}
			}
			if err := lock.Rollback(t.Context()); err != nil {
				t.Fatal(err)
			}

			if !<-started {
				t.Error("not started")
			}
			cancel()
			if err := <-ended; err != nil {
				t.Error(err)
			}
		})
	}
}
