package store_test

import "testing"

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
