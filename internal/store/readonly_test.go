package store_test

import (
	"testing"

	"github.com/belfryhq/belfry/internal/domain"
	"github.com/belfryhq/belfry/internal/pgtest"
	"github.com/belfryhq/belfry/internal/store"
	"github.com/belfryhq/belfry/internal/store/pgerr"
)

// While Postgres is read-only, it receives each statement that writes once, and statements that read work. The first statement after that succeeds.
func TestReadOnlyPostgresReceivesNoWrites(t *testing.T) {
	s, _ := openAt(t, pgtest.Database(t, store.Migrate), 1)
	exec(t, s, `INSERT INTO groups (name, token_sha256) VALUES ('g', 'x')`)
	job := create(t, s, "a")
	writes := []func() error{
		func() error { _, err := s.Attend(t.Context(), 0, "me"); return err },
		func() error {
			_, err := s.Pool().Exec(t.Context(), `UPDATE groups SET description = ''`)
			return pgerr.Translate(err)
		},
		func() error {
			_, err := s.Pool().Exec(t.Context(), `UPDATE groups SET description = $1`, "x")
			return pgerr.Translate(err)
		},
	}
	failures := func() int64 { // a statement that fails rolls its transaction back
		exec(t, s, `SELECT pg_stat_force_next_flush()`)
		return query[int64](t, s, `SELECT xact_rollback FROM pg_stat_database WHERE datname = current_database()`)
	}
	for range 2 {
		exec(t, s, `SET default_transaction_read_only = on`)
		before := failures()
		for range 20 {
			for i, write := range writes {
				if err := write(); domain.CodeOf(err) != domain.Unavailable {
					t.Fatalf("write %d: %v", i, err)
				}
			}
			if _, err := s.Job(t.Context(), job.ID); err != nil {
				t.Fatal(err)
			}
		}
		if n := failures() - before; n < 1 || n > int64(len(writes)) {
			t.Errorf("Postgres refused %d statements, want one for each of the %d", n, len(writes))
		}
		if _, err := s.DeleteJob(t.Context(), job.ID, 0, "me"); domain.CodeOf(err) != domain.Unavailable {
			t.Errorf("a transaction: %v", err)
		}
		exec(t, s, `SET default_transaction_read_only = off`)
		for i, write := range writes {
			if err := write(); err != nil {
				t.Errorf("write %d, after the end: %v", i, err)
			}
		}
	}
	if _, err := s.DeleteJob(t.Context(), job.ID, 0, "me"); err != nil {
		t.Error(err)
	}
}
