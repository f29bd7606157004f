package followup

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/belfryhq/belfry/internal/pgtest"
	"github.com/belfryhq/belfry/internal/store"
	"github.com/belfryhq/belfry/migrations"
)

// Counting reads only the index by which River fetches jobs, however many finished jobs there are. It finds the oldest follow-up.
func TestMeterQuery(t *testing.T) {
	ctx := context.Background()
	pg, err := store.Open(ctx, store.Config{URL: pgtest.Database(t, store.Migrate)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pg.Close)
	if _, err := pg.Pool().Exec(ctx, `INSERT INTO `+migrations.RiverSchema+`.river_job (state, queue, kind, args, max_attempts, scheduled_at, priority)
		SELECT 'available', 'followup', 'retry', '{}', 1, now() - n * interval '1 minute', 1 FROM generate_series(1, 10) n`); err != nil {
		t.Fatal(err)
	}
	m := newMeter(pg.Pool(), migrations.RiverSchema, nil, nil)
	m.queues = []string{queue, alertQueue}
	var age float64
	row := pg.Pool().QueryRow(ctx, `SELECT max(x.age) FROM (`+m.sql+`) x(queue, state, n, age) WHERE x.n = 10`, m.queues, states, countMax)
	if err := row.Scan(&age); err != nil || age < 600 {
		t.Errorf("the oldest of ten follow-ups is %v s old (%v)", age, err)
	}
	rows, err := pg.Pool().Query(ctx, `EXPLAIN `+m.sql, m.queues, states, countMax)
	if err != nil {
		t.Fatal(err)
	}
	defer rows.Close()
	var plan strings.Builder
	for rows.Next() {
		var line string
		if err := rows.Scan(&line); err != nil {
			t.Fatal(err)
		}
		fmt.Fprintln(&plan, line)
	}
	if n := strings.Count(plan.String(), "river_job_prioritized_fetching_index"); n != 2 || strings.Contains(plan.String(), "Seq Scan") || strings.Contains(plan.String(), "Sort") {
		t.Errorf("the plan is\n%s", plan.String())
	}
}
