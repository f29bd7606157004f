package store_test

import (
	"context"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"golang.org/x/sync/errgroup"

	"github.com/belfryhq/belfry/internal/domain"
	"github.com/belfryhq/belfry/internal/pgtest"
	"github.com/belfryhq/belfry/internal/store"
)

func TestMigrateAtOnce(t *testing.T) {
	url := pgtest.URL(t)
	var g errgroup.Group
	for range 5 {
		g.Go(func() error { return store.Migrate(t.Context(), url) })
	}
	if err := g.Wait(); err != nil {
		t.Fatal(err)
	}
	steps, err := store.MigrationStatus(t.Context(), url)
	if err != nil || len(steps) == 0 {
		t.Fatalf("%v, %v", steps, err)
	}
	for _, st := range steps {
		if st.AppliedAt.IsZero() {
			t.Errorf("%s is not applied", st.Name)
		}
	}
	s, _ := openAt(t, url)
	for _, schema := range []string{"belfry", "river"} {
		if query[int64](t, s, `SELECT count(*) FROM pg_class WHERE relnamespace = $1::text::regnamespace AND relkind IN ('r', 'p')`, schema) == 0 {
			t.Errorf("schema %s is empty", schema)
		}
	}
}

// other is a connection outside the store, which lists and ends the store's connections.
func other(t *testing.T, s *store.Store) *pgx.Conn {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), s.Pool().Config().ConnString())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close(context.WithoutCancel(t.Context())) })
	return conn
}

const endOthers = `SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()`

// After a backend was killed, at most one call per idle connection returns Unavailable. A transaction whose backend was killed
// before the commit is retried.
func TestBackendKilled(t *testing.T) {
	s, _ := open(t)
	job := create(t, s, "a")
	conn := other(t, s)
	for range 5 {
		if _, err := conn.Exec(t.Context(), endOthers); err != nil {
			t.Fatal(err)
		}
		for tries := 0; ; tries++ {
			_, err := s.Job(t.Context(), job.ID)
			if err == nil {
				break
			}
			if domain.CodeOf(err) != domain.Unavailable || tries > 16 {
				t.Fatalf("try %d: %v", tries, err)
			}
		}
	}
	// The next backend is killed while its transaction waits for a lock.
	tx, err := conn.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := tx.Exec(t.Context(), `SELECT FROM belfry.job_due FOR UPDATE`); err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() { done <- edit(t, s, "new") }()
	waitUntil(t, func() bool {
		var n int
		if err := conn.QueryRow(t.Context(), `SELECT count(*) FROM pg_locks WHERE NOT granted`).Scan(&n); err != nil {
			t.Fatal(err)
		}
		return n > 0
	})
	if _, err := conn.Exec(t.Context(), endOthers); err != nil {
		t.Fatal(err)
	}
	if err := tx.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := <-done; err != nil {
		t.Errorf("an edit whose backend was killed: %v", err)
	}
}

func TestNoServer(t *testing.T) {
	_, err := store.Open(t.Context(), store.Config{URL: "postgres://nobody@127.0.0.1:1/none?connect_timeout=2"})
	if domain.CodeOf(err) != domain.Unavailable {
		t.Errorf("no server: %v", err)
	}
	if _, err := store.Open(t.Context(), store.Config{URL: "postgres://%zz"}); domain.CodeOf(err) != domain.Invalid {
		t.Errorf("no URL: %v", err)
	}
}

func TestListen(t *testing.T) {
	s, _ := open(t)
	job := create(t, s, "a")
	conn := other(t, s)
	wakes := make(chan struct{}, 100)
	listen := func(ctx context.Context) <-chan error {
		done := make(chan error, 1)
		go func() { done <- s.Listen(ctx, func() { wakes <- struct{}{} }) }()
		return done
	}
	woken := func(why string) {
		t.Helper()
		select {
		case <-wakes:
		case <-time.After(patience):
			t.Fatalf("not woken by %s", why)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	done := listen(ctx)
	woken("its start")
	if err := edit(t, s, "new"); err != nil {
		t.Fatal(err)
	}
	woken("an edit")
	trigger(t, s, job.ID, 1)
	woken("a trigger")
	create(t, s, "b")
	woken("a new job")
	if _, err := conn.Exec(t.Context(), `SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE query LIKE 'LISTEN%'`); err != nil {
		t.Fatal(err)
	}
	if err := <-done; domain.CodeOf(err) != domain.Unavailable {
		t.Fatalf("a killed backend: %v", err)
	}
	done = listen(ctx)
	woken("its second start")
	cancel()
	if err := <-done; err != nil {
		t.Errorf("the end of its context: %v", err)
	}
}

// If a process stops in the middle of a transaction, Postgres releases its locks after a second, long before the waiting
// transactions time out.
func TestFrozenTransaction(t *testing.T) {
	s, _ := open(t)
	create(t, s, "a")
	tx, err := s.Pool().Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer tx.Rollback(context.WithoutCancel(t.Context()))
	if _, err := tx.Exec(t.Context(), `SELECT FROM job_due FOR UPDATE`); err != nil {
		t.Fatal(err)
	}
	begin := time.Now()
	if err := edit(t, s, "new"); err != nil {
		t.Fatalf("an edit behind a frozen transaction: %v", err)
	}
	if took := time.Since(begin); took < 500*time.Millisecond {
		t.Errorf("it waited for %s", took)
	}
}

// Postgres is available if it accepts writes. A standby answers queries, and its transactions are read-only.
func TestCheck(t *testing.T) {
	s, _ := open(t)
	if err := s.Check(t.Context()); err != nil {
		t.Error(err)
	}
	exec(t, s, `DO $$ BEGIN EXECUTE format('ALTER DATABASE %I SET default_transaction_read_only = on', current_database()); END $$`)
	s.Pool().Reset()
	if err := s.Check(t.Context()); domain.CodeOf(err) != domain.Unavailable {
		t.Errorf("a read-only database: %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := s.Check(ctx); domain.CodeOf(err) != domain.Unavailable {
		t.Errorf("without an answer: %v", err)
	}
}
