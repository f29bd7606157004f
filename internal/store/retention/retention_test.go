package retention_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/belfryhq/belfry/internal/domain"
	"github.com/belfryhq/belfry/internal/pgtest"
	"github.com/belfryhq/belfry/internal/store"
	"github.com/belfryhq/belfry/internal/store/retention"
)

func TestMain(m *testing.M) { pgtest.Main(m) }

const day = 24 * time.Hour

type fixture struct {
	t    *testing.T
	s    *store.Store
	pool *pgxpool.Pool
}

func newFixture(t *testing.T) *fixture {
	t.Helper()
	s, err := store.Open(t.Context(), store.Config{URL: pgtest.Database(t, store.Migrate), MaxConns: 6})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	return &fixture{t, s, s.Pool()}
}

func (f *fixture) exec(sql string, args ...any) {
	f.t.Helper()
	if _, err := f.pool.Exec(f.t.Context(), sql, args...); err != nil {
		f.t.Fatal(err)
	}
}

func (f *fixture) one(sql string, args ...any) string {
	f.t.Helper()
	var v string
	if err := f.pool.QueryRow(f.t.Context(), sql, args...).Scan(&v); err != nil {
		f.t.Fatal(err)
	}
	return v
}

// run writes a finished run of a job, with an attempt before its last, a late result and a line of log.
func (f *fixture) run(job int, ago time.Duration) {
	f.t.Helper()
	at := time.Now().Add(-ago)
	if err := f.s.MakeDays(f.t.Context(), []time.Time{at}); err != nil {
		f.t.Fatal(err)
	}
	id := domain.NewRunID(at)
	f.exec(`INSERT INTO runs_history (id, job_id, job_version, group_name, cause, state, reason, message, output, attempt, due_at, created_at, finished_at, last_line, route)
		VALUES ($1, $2, 1, 'g', 'api', 'succeeded', '', '', '', 2, $3, $3, $3, 1, '')`, id, job, at)
	f.exec(`INSERT INTO run_attempts (run_id, attempt, finished_at, outcome, reason, message, last_line) VALUES ($1, 1, $2, 'failed', '', '', 0)`, id, at)
	f.exec(`INSERT INTO late_results (run_id, attempt, instance, outcome, reason, message, output) VALUES ($1, 1, 'i', 'failed', '', '', '')`, id)
	f.exec(`INSERT INTO run_logs (run_id, attempt, first_line, last_line, lines) VALUES ($1, 2, 1, 1, '')`, id)
}

func (f *fixture) job(id int, keeps string) {
	f.t.Helper()
	f.exec(`INSERT INTO groups (name, token_sha256) VALUES ('g', 'x') ON CONFLICT DO NOTHING`)
	f.exec(`INSERT INTO jobs (id, group_name, name, enabled, kind, spec, version, created_at, updated_at)
		VALUES ($1::int, 'g', $1::int::text, true, 'none', jsonb_build_object('retention', $2::text), 1, now(), now())`, id, keeps)
}

// left counts the runs of each job, and all attempts, late results and log chunks.
func (f *fixture) left() string {
	f.t.Helper()
	return f.one(`SELECT coalesce((SELECT string_agg(job_id || ':' || n, ' ' ORDER BY job_id) FROM (SELECT job_id, count(*) AS n FROM runs_history GROUP BY 1) x), '')
		|| ', ' || (SELECT count(*) FROM run_attempts) || ' ' || (SELECT count(*) FROM late_results) || ' ' || (SELECT count(*) FROM run_logs)`)
}

func (f *fixture) keep() {
	f.t.Helper()
	if err := retention.New(f.pool).Keep(f.t.Context(), 30*day, 7*day); err != nil {
		f.t.Fatal(err)
	}
}

func TestEachJobsRetention(t *testing.T) {
	f := newFixture(t)
	f.job(1, "")      // the server's 30 days
	f.job(2, "48h")   // two days
	f.job(3, "1200h") // fifty
	for _, ago := range []time.Duration{time.Hour, 3 * day, 40 * day, 60 * day} {
		for job := range 3 {
			f.run(job+1, ago)
		}
	}
	f.keep()
	if got, want := f.left(), "1:2 2:1 3:3, 6 6 5"; got != want { // the logs of forty days ago are gone with their day
		t.Errorf("left are %s, want %s", got, want)
	}
	forty := time.Now().Add(-40 * day).UTC().Format("20060102")
	if mark := f.one(`SELECT coalesce(obj_description(to_regclass('runs_history_' || $1)), 'none')`, forty); mark != retention.Kept {
		t.Errorf("the day of forty days ago is marked %q", mark)
	}
	f.keep()
	if got, want := f.left(), "1:2 2:1 3:3, 6 6 5"; got != want {
		t.Errorf("after another pass left are %s, want %s", got, want)
	}
	// A rewritten day has all indexes, accepts late runs, and is dropped when the last job stops keeping its runs.
	if n := f.one(`SELECT count(*)::text FROM pg_inherits i JOIN pg_index x ON x.indexrelid = i.inhrelid WHERE x.indrelid = to_regclass('runs_history_' || $1)`, forty); n != f.one(
		`SELECT count(*)::text FROM pg_index WHERE indrelid = 'runs_history'::regclass`) {
		t.Errorf("the rewritten day has %s indexes, not all of the table's", n)
	}
	f.run(3, 40*day)
	f.exec(`UPDATE jobs SET spec = '{"retention": ""}' WHERE id = 3`)
	f.keep()
	if got, want := f.left(), "1:2 2:1 3:2, 5 5 5"; got != want {
		t.Errorf("after the last retention has ended, left are %s, want %s", got, want)
	}
}

// A bulk action is deleted a week after its end, with the list of its new runs.
func TestBulkActions(t *testing.T) {
	f := newFixture(t)
	for _, ended := range []string{`now() - interval '8 days'`, `now() - interval '6 days'`, `NULL`} {
		f.exec(`INSERT INTO bulk_actions (action, filter, user_id, token_id, created_by, remote, created_at, finished_at, matched, at_least, jobs)
			VALUES ('retry', '{}', 1, 0, 'ann', '', now() - interval '9 days', ` + ended + `, 1, false, '[]')`)
		f.exec(`INSERT INTO bulk_runs (bulk_id, run_id) SELECT max(id), gen_random_uuid() FROM bulk_actions`)
	}
	if err := retention.New(f.pool).Keep(t.Context(), 30*24*time.Hour, 30*24*time.Hour); err != nil {
		t.Fatal(err)
	}
	if got := f.one(`SELECT string_agg(id::text, ' ' ORDER BY id) || ', ' || (SELECT string_agg(bulk_id::text, ' ' ORDER BY bulk_id) FROM bulk_runs) FROM bulk_actions`); got != "2 3, 2 3" {
		t.Errorf("left: %s", got)
	}
}

// A process of an executor is kept while any job keeps runs that may name it.
func TestExecutorBoots(t *testing.T) {
	f := newFixture(t)
	f.exec(`INSERT INTO executor_boots (group_name, boot_id, instance, version, host, last_seen)
		SELECT 'g', days::text, 'one', '', '', now() - make_interval(days => days) FROM unnest(ARRAY[1, 40, 100]) days`)
	keep := func(want string) {
		t.Helper()
		if err := retention.New(f.pool).Keep(t.Context(), 30*day, 7*day); err != nil {
			t.Fatal(err)
		}
		if got := f.one(`SELECT string_agg(boot_id, ' ' ORDER BY last_seen) FROM executor_boots`); got != want {
			t.Errorf("left: %s; want %s", got, want)
		}
	}
	f.exec(`INSERT INTO groups (name, token_sha256) VALUES ('g', '\x00')`)
	f.exec(`INSERT INTO jobs (group_name, name, enabled, kind, spec, version, created_at, updated_at)
		VALUES ('g', 'keeps-long', false, 'none', '{"retention":"1200h"}', 1, now(), now())`)
	keep("40 1")
	f.exec(`DELETE FROM jobs`)
	keep("1")
}

// A job's last scheduled run is kept beyond the retention. Otherwise, an edit could plan its fire time again.
func TestLastScheduledRunStays(t *testing.T) {
	f := newFixture(t)
	f.job(1, "1h")
	for _, ago := range []time.Duration{26 * time.Hour, 25 * time.Hour, 24 * time.Hour} {
		f.run(1, ago)
	}
	f.exec(`UPDATE runs_history SET cause = 'schedule' WHERE id <> (SELECT max(id::text)::uuid FROM runs_history)`)
	last := f.one(`SELECT max(id::text) FROM runs_history WHERE cause = 'schedule'`)
	f.keep()
	if got := f.one(`SELECT string_agg(id::text, ' ') FROM runs_history`); got != last {
		t.Errorf("left is %s, want %s", got, last)
	}
}

func TestDropDays(t *testing.T) {
	f := newFixture(t)
	for _, ago := range []time.Duration{3 * day, 10 * day, 40 * day} {
		if err := f.s.MakeDays(t.Context(), []time.Time{time.Now().Add(-ago)}); err != nil {
			t.Fatal(err)
		}
	}
	both := make(chan error, 2) // two dispatchers at once
	for range 2 {
		go func() { both <- retention.New(f.pool).Keep(t.Context(), 30*day, 7*day) }()
	}
	for range 2 {
		if err := <-both; err != nil {
			t.Error(err)
		}
	}
	for _, table := range []struct {
		name string
		ago  int
		kept bool
	}{
		{"runs_history", 3, true}, {"runs_history", 10, true}, {"runs_history", 40, false}, {"run_attempts", 10, true},
		{"late_results", 40, false}, {"run_logs", 3, true}, {"run_logs", 10, false}, {"run_logs", 0, true},
	} {
		name := table.name + time.Now().UTC().AddDate(0, 0, -table.ago).Format("_20060102")
		if kept := f.one(`SELECT count(*)::text FROM pg_class WHERE relname = $1`, name) == "1"; kept != table.kept {
			t.Errorf("%s: kept %v, want %v", fmt.Sprint(name), kept, table.kept)
		}
	}
}
