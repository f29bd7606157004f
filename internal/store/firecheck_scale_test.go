package store_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/belfryhq/belfry/internal/domain"
	"github.com/belfryhq/belfry/internal/explain"
	"github.com/belfryhq/belfry/internal/firecheck"
	"github.com/belfryhq/belfry/internal/pgtest"
	"github.com/belfryhq/belfry/internal/store"
	"github.com/belfryhq/belfry/internal/store/view"
)

// TestFireCheckScales checks the fire times of busy jobs among very many idle ones, over a history of more than a hundred
// thousand runs. No page may read a big table sequentially, neither with the statistics of empty tables nor with the actual ones.
func TestFireCheckScales(t *testing.T) {
	if testing.Short() {
		t.Skip("NOT COVERED: the plans of the fire check's queries, with -short")
	}
	s, err := store.Open(t.Context(), store.Config{URL: pgtest.Database(t, store.Migrate), MaxConns: 1})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	idle, busy := volume(100_000, 200_000), volume(12, 30)
	const seconds = 10_000
	end := aMinuteAgo(s)
	fillAuditWorld(t, s, idle, busy, seconds, end)
	w := &scale{t: t, s: s, slowest: make(map[string]time.Duration)}
	check := view.NewFireCheck(s.Pool(), s.Zone(), s.Settings().Tolerance)
	timed := func(name string, call func() error) {
		t.Helper()
		begun := time.Now()
		if err := call(); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		w.slowest[name] = max(w.slowest[name], time.Since(begun))
	}
	round := func(t *testing.T) {
		w.t = t
		before := w.read(bigTables)
		for i := range 8 {
			timed("500 idle jobs", func() error {
				_, n, next, _, err := check.Unexplained(t.Context(), end.Add(-time.Hour), end, firecheck.Cursor{Job: domain.JobID(busy + i*10_000)}, 500, 20_000)
				if err == nil && (n != 500 || next.Job == 0) {
					err = fmt.Errorf("%d fire times, next %+v", n, next)
				}
				return err
			})
			timed("20,000 fire times", func() error {
				found, n, _, _, err := check.Unexplained(t.Context(), end.Add(-seconds*time.Second), end, firecheck.Cursor{Job: domain.JobID(i)}, 500, 20_000)
				if err == nil && (n != 20_000 || len(found) != 0) {
					err = fmt.Errorf("%d fire times, %d unexplained", n, len(found))
				}
				return err
			})
			timed("a page of belfry audit", func() error {
				page, _, _, err := check.Page(t.Context(), view.FireScope{Job: domain.JobID(i + 1), Since: end.Add(-seconds * time.Second), Until: end}, firecheck.Cursor{})
				if err == nil && (page.Counts[firecheck.FateRan] < 1000 || page.Counts[firecheck.FateRan] != sum(page.Counts)) {
					err = fmt.Errorf("found %v", page.Counts)
				}
				return err
			})
			timed("why", func() error {
				why, err := check.Why(t.Context(), domain.JobID(i+1), domain.At(end.Add(-time.Hour)).String(), explain.English)
				if err == nil && why.Fate != firecheck.FateRan {
					err = fmt.Errorf("%s", why.Answer)
				}
				return err
			})
		}
		if n := w.read(bigTables) - before; n > 8*batch {
			t.Errorf("%d rows of big tables were read in sequence", n)
		}
	}
	t.Run("statistics of empty tables", round)
	exec(t, s, `ANALYZE`)
	exec(t, s, `DISCARD PLANS`)
	t.Run("true statistics", round)
	for name, d := range w.slowest {
		t.Logf("%-24s at most %s", name, d.Truncate(100*time.Microsecond))
	}
}

func sum(counts map[firecheck.Fate]int) (n int) {
	for _, c := range counts {
		n += c
	}
	return n
}

// fillAuditWorld inserts jobs that fired every second, with their runs, and jobs that fire once an hour and never ran.
func fillAuditWorld(t *testing.T, s *store.Store, idle, busy, seconds int, end time.Time) {
	t.Helper()
	for _, table := range column[string](t, s, `SELECT relname::text FROM pg_class WHERE relkind = 'r' AND relnamespace = 'belfry'::regnamespace`) {
		exec(t, s, `ALTER TABLE `+pgx.Identifier{table}.Sanitize()+` SET (autovacuum_enabled = false)`)
	}
	exec(t, s, `ANALYZE`)
	begin := end.Add(-time.Duration(seconds) * time.Second)
	exec(t, s, `INSERT INTO groups (name, token_sha256) VALUES ('g', 'x')`)
	exec(t, s, `SELECT make_day(d) FROM unnest($1::date[]) d`, []time.Time{begin, end})
	spec := func(every string) string {
		return `{"group": "g", "name": "n", "handler": "echo", "enabled": true, "schedule": {"kind": "fixed_rate", "every": "` + every + `", "start_at": "2020-01-01T00:00:00Z"}}`
	}
	_, _ = s.Pool().Exec(t.Context(), `SET session_replication_role = replica`) // see fillWorld
	exec(t, s, `INSERT INTO jobs (group_name, name, enabled, kind, spec, version, created_at, updated_at)
		SELECT 'g', 'j' || i, true, 'fixed_rate', (CASE WHEN i <= $3 THEN $1 ELSE $2 END)::jsonb, 1, $5, $5 FROM generate_series(1, $3::int + $4::int) i`,
		spec("1s"), spec("1h"), busy, idle, begin)
	exec(t, s, `INSERT INTO job_versions (job_id, version, spec, created_at, valid_from, changed_by, change)
		SELECT id, 1, spec, created_at, created_at, 'test', 'created' FROM jobs`)
	// Planning has not decided the fire times of the idle jobs in this hour yet.
	exec(t, s, `INSERT INTO job_due (job_id, version, next_fire_time, next_due_at)
		SELECT id, 1, f, f FROM (SELECT id, CASE WHEN id <= $1 THEN now() + interval '1 h' ELSE $2::timestamptz END AS f FROM jobs) x`, busy, begin)
	for job := range busy {
		rows := make([][]any, seconds)
		for i := range rows {
			f := begin.Add(time.Duration(i+1) * time.Second)
			rows[i] = []any{domain.ScheduledRunID(domain.JobID(job+1), f, 0), job + 1, 1, "g", "schedule", "succeeded", "", "", "", 1, f, f, f, f, f, f, 0, "i1", ""}
		}
		_, err := s.Pool().CopyFrom(t.Context(), pgx.Identifier{"runs_history"}, []string{"id", "job_id", "job_version", "group_name", "cause", "state",
			"reason", "message", "output", "attempt", "fire_time", "due_at", "created_at", "dispatched_at", "started_at", "finished_at", "last_line",
			"instance", "route"}, pgx.CopyFromRows(rows))
		if err != nil {
			t.Fatal(err)
		}
	}
	exec(t, s, `RESET session_replication_role`)
}
