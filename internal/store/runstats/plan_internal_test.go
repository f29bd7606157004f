package runstats

import (
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/belfryhq/belfry/internal/pgtest"
	"github.com/belfryhq/belfry/internal/store"
)

// Whatever the planner's cost estimate of reading the history, Postgres starts no parallel workers and compiles no plan.
func TestTheHistoryIsReadWithoutCeremony(t *testing.T) {
	s, err := store.Open(t.Context(), store.Config{URL: pgtest.Database(t, store.Migrate), MaxConns: 1})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	tx := pgtest.Begin(t, s.Pool())
	defer tx.Rollback(t.Context())
	if _, err := tx.Exec(t.Context(), `SET LOCAL parallel_setup_cost = 0; SET LOCAL parallel_tuple_cost = 0; SET LOCAL jit_above_cost = 0;
		SET LOCAL min_parallel_table_scan_size = 0; SET LOCAL max_parallel_workers_per_gather = 2; SET LOCAL jit = on`); err != nil {
		t.Fatal(err)
	}
	plan := func() string {
		rows, err := tx.Query(t.Context(), `EXPLAIN SELECT count(*) FROM runs_history h WHERE h.settled_at >= now()`)
		if err != nil {
			t.Fatal(err)
		}
		lines, err := pgx.CollectRows(rows, pgx.RowTo[string])
		if err != nil {
			t.Fatal(err)
		}
		return strings.Join(lines, "\n")
	}
	if p := plan(); !strings.Contains(p, "Gather") {
		t.Fatalf("nothing that could be spared:\n%s", p)
	}
	if err := byIndex(t.Context(), tx); err != nil {
		t.Fatal(err)
	}
	if p := plan(); strings.Contains(p, "Gather") || strings.Contains(p, "JIT") {
		t.Errorf("the plan is\n%s", p)
	}
}
