package store_test

import (
	"testing"

	"github.com/belfryhq/belfry/internal/pgtest"
	"github.com/belfryhq/belfry/internal/store"
)

// Autovacuum is off for runs_live, which Vacuum handles, and ANALYZE uses a small sample of the tables that all runs pass through:
// at maximum load, both took a twentieth of the CPU time of Postgres. A new column brings back the full sample, unless its
// migration lowers its statistics target.
func TestAutovacuumHasLittleToDo(t *testing.T) {
	s, _ := open(t)
	exec(t, s, `SELECT make_day(current_date + 40)`)
	wide := query[int64](t, s, `SELECT count(*) FROM pg_attribute a JOIN pg_class c ON c.oid = a.attrelid
		WHERE (c.oid = 'runs_live'::regclass OR c.oid = to_regclass('runs_history_' || to_char(current_date + 40, 'YYYYMMDD')))
		  AND a.attnum > 0 AND NOT a.attisdropped AND COALESCE(a.attstattarget, -1) NOT BETWEEN 1 AND 20`)
	if wide != 0 {
		t.Errorf("%d columns have the default statistics target", wide)
	}
	if !query[bool](t, s, `SELECT COALESCE(reloptions, '{}') @> '{autovacuum_vacuum_insert_threshold=-1,autovacuum_vacuum_threshold=500000}' FROM pg_class WHERE oid = 'runs_live'::regclass`) {
		t.Error("autovacuum has its default thresholds for runs_live")
	}
}

// Dead rows are seen until they are vacuumed, so that Vacuum is not called at rest.
func TestDeadRowsAreVacuumed(t *testing.T) {
	s, _ := openAt(t, pgtest.Database(t, store.Migrate), 1) // one connection, because each keeps its counters until it flushes them
	dead := func(when string, want bool) {
		t.Helper()
		exec(t, s, `SELECT pg_stat_force_next_flush()`)
		exec(t, s, `SELECT`)
		if g, err := s.Glance(t.Context()); err != nil || g.Dead != want || g.ManyDead {
			t.Errorf("%s: %+v, %v", when, g, err)
		}
	}
	exec(t, s, `INSERT INTO groups (name, token_sha256) VALUES ('g', 'x')`)
	create(t, s, "a", parallel)
	exec(t, s, `VACUUM job_due`)
	dead("with a new job", false)
	exec(t, s, `UPDATE job_due SET next_due_at = next_due_at`)
	dead("after an update", true)
	if err := s.Vacuum(t.Context(), false); err != nil {
		t.Fatal(err)
	}
	dead("after a vacuum", false)
}
