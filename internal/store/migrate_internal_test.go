package store

import (
	"context"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/belfryhq/belfry/internal/pgtest"
)

// Processes of the previous release work while the schema is migrated. If one of their transactions deadlocks with a migration, the
// migration is repeated.
func TestMigrateAfterADeadlock(t *testing.T) {
	t.Parallel()
	url := pgtest.URL(t)
	db, err := openSQL(url)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	provider, err := newProvider(t.Context(), db)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := provider.UpTo(t.Context(), 30); err != nil { // the next migration locks runs_live before missed
		t.Fatal(err)
	}
	conn, err := pgx.Connect(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(context.WithoutCancel(t.Context()))
	exec := func(sql string) {
		t.Helper()
		if _, err := conn.Exec(t.Context(), sql); err != nil {
			t.Fatalf("%s: %v", sql, err)
		}
	}
	count := func(sql string) (n int) {
		t.Helper()
		if err := conn.QueryRow(t.Context(), sql).Scan(&n); err != nil {
			t.Fatalf("%s: %v", sql, err)
		}
		return n
	}
	// A transaction that finds itself in a deadlock after its timeout is aborted. It must be that of the migration.
	exec(`ALTER DATABASE ` + pgx.Identifier{conn.Config().Database}.Sanitize() + ` SET deadlock_timeout = '5s'`)
	exec(`SET deadlock_timeout = '10min'`)
	exec(`BEGIN`)
	exec(`SELECT FROM belfry.missed`)
	done := make(chan error, 1)
	go func() { done <- Migrate(t.Context(), url) }()
	for tick := time.NewTicker(10 * time.Millisecond); count(`SELECT count(*) FROM pg_locks WHERE relation = 'belfry.missed'::regclass AND NOT granted`) == 0; {
		select {
		case <-tick.C:
		case err := <-done:
			t.Fatalf("the migration did not wait: %v", err)
		}
	}
	exec(`SELECT FROM belfry.runs_live`) // waits until the migration is aborted
	exec(`COMMIT`)
	if err := <-done; err != nil {
		t.Error(err)
	}
}
