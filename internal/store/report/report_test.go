package report_test

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/belfryhq/belfry/internal/domain"
	"github.com/belfryhq/belfry/internal/pgtest"
	"github.com/belfryhq/belfry/internal/store"
	"github.com/belfryhq/belfry/internal/store/report"
)

func TestMain(m *testing.M) { pgtest.Main(m) }

type fixture struct {
	t       *testing.T
	pool    *pgxpool.Pool
	reports *report.Store
}

func newFixture(t *testing.T) *fixture {
	t.Helper()
	s, err := store.Open(t.Context(), store.Config{URL: pgtest.Database(t, store.Migrate), MaxConns: 4})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	return &fixture{t, s.Pool(), report.New(s.Pool())}
}

func (f *fixture) exec(sql string, args ...any) {
	f.t.Helper()
	if _, err := f.pool.Exec(f.t.Context(), sql, args...); err != nil {
		f.t.Fatal(err)
	}
}

// insertRun is the history's part of settling: settled_at is left to its default.
const insertRun = `INSERT INTO runs_history (id, job_id, job_version, group_name, cause, state, reason, message, output, attempt,
	due_at, created_at, started_at, finished_at, lateness_ms, last_line, route)
	VALUES ($1, 1, 1, $2, 'schedule', $3, $4, '', '', 1, $5, $5, $5, $5::timestamptz + interval '2 seconds', $6, 0, '')`

// finish writes a run that started at the given time and took two seconds.
func (f *fixture) finish(group, state, reason string, started time.Time, lateness any) {
	f.t.Helper()
	f.exec(insertRun, domain.NewRunID(started), group, state, reason, started, lateness)
}

// settledLongAgo makes what is there old enough to be rolled up.
func (f *fixture) settledLongAgo() {
	f.t.Helper()
	f.exec(`UPDATE runs_history SET settled_at = now() - interval '40 seconds'`)
	f.exec(`UPDATE run_stats_mark SET through = now() - interval '1 minute'`)
}

// rollUp rolls up all there is and returns how many runs that were.
func (f *fixture) rollUp() (all int64) {
	f.t.Helper()
	for {
		runs, _, _, moved, err := f.reports.RollUp(f.t.Context(), 7*time.Second)
		if err != nil {
			f.t.Fatal(err)
		}
		if all += runs; !moved {
			return all
		}
	}
}

func (f *fixture) totals(only []string, from, to time.Time) *report.Count {
	f.t.Helper()
	c, err := f.reports.Totals(f.t.Context(), report.Scope{Only: only, From: from, To: to})
	if err != nil {
		f.t.Fatal(err)
	}
	if c.Now.Sub(c.Through) > time.Second {
		f.t.Errorf("counted through %s, now %s", c.Through, c.Now)
	}
	sum := report.NewCount(from)
	for _, s := range c.Steps {
		sum.Merge(s)
	}
	return sum
}

func TestRunsCountOnceBeforeAndAfterTheRollUp(t *testing.T) {
	f := newFixture(t)
	base := time.Now().UTC().Truncate(time.Hour).Add(-3 * time.Hour)
	f.finish("a", "succeeded", "", base.Add(time.Minute), 0)
	f.finish("a", "failed", "timeout", base.Add(2*time.Minute), 100)
	f.finish("a", "succeeded", "", base.Add(90*time.Minute), 3)
	f.finish("b", "succeeded", "", base.Add(10*time.Minute), 5000)
	f.finish("b", "skipped", "discarded", base.Add(10*time.Minute), nil)
	want := map[domain.State]int64{"succeeded": 3, "failed": 1, "skipped": 1}
	check := func(when string) {
		t.Helper()
		all := f.totals(nil, base, base.Add(3*time.Hour))
		if !maps.Equal(all.Runs, want) || all.Reasons["timeout"] != 1 || all.Reasons["discarded"] != 1 || all.Duration != 10*time.Second {
			t.Errorf("%s: %v, %v, %s", when, all.Runs, all.Reasons, all.Duration)
		}
		if a := f.totals([]string{"a"}, base, base.Add(3*time.Hour)); a.All() != 3 || *a.Late(0.5) != 3 || *a.Late(0.99) < 100 || *a.Late(0.99) > 120 {
			t.Errorf("%s: of group a %d, half %d, 99 of 100 %d", when, a.All(), *a.Late(0.5), *a.Late(0.99))
		}
		if none := f.totals([]string{}, base, base.Add(3*time.Hour)); none.All() != 0 || none.Late(0.5) != nil {
			t.Errorf("%s: whoever may see no group counts %d", when, none.All())
		}
		if some := f.totals(nil, base.Add(2*time.Minute), base.Add(time.Hour)); some.All() != 3 {
			t.Errorf("%s: from the second minute to the end of the hour %d", when, some.All())
		}
		if some := f.totals(nil, base.Add(2*time.Minute), base.Add(91*time.Minute)); some.All() != 4 {
			t.Errorf("%s: over the edge of an hour %d", when, some.All())
		}
	}
	check("before")
	if n := f.rollUp(); n != 0 {
		t.Errorf("%d runs were rolled up within the time of a transaction", n)
	}
	f.settledLongAgo()
	check("when due")
	if n := f.rollUp(); n != 5 {
		t.Errorf("%d runs were rolled up, want 5", n)
	}
	check("after")
	if n := f.rollUp(); n != 0 {
		t.Errorf("%d runs were rolled up twice", n)
	}
	series, err := f.reports.Series(t.Context(), report.Scope{From: base, To: base.Add(3 * time.Hour)}, time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	var got string
	for _, s := range series.Steps {
		got += fmt.Sprintf("%s %d, ", s.At.Sub(base), s.All())
	}
	if got != "0s 4, 1h0m0s 1, " {
		t.Errorf("by hours: %s", got)
	}
}

// A transaction that is still under way holds the roll-up back, or what it settles would never be counted.
func TestRollUpWaitsForTransactionsUnderWay(t *testing.T) {
	f := newFixture(t)
	f.exec(`UPDATE run_stats_mark SET through = now() - interval '10 minutes'`)
	tx, err := f.pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer tx.Rollback(context.WithoutCancel(t.Context()))
	if _, err := tx.Exec(t.Context(), `SET idle_in_transaction_session_timeout = 0`); err != nil {
		t.Fatal(err)
	}
	start := time.Now().UTC()
	if _, err := tx.Exec(t.Context(), insertRun, domain.NewRunID(start), "a", "succeeded", "", start, 0); err != nil {
		t.Fatal(err)
	}
	f.rollUp()
	var through, settled time.Time
	if err := f.pool.QueryRow(t.Context(), `SELECT through FROM run_stats_mark`).Scan(&through); err != nil {
		t.Fatal(err)
	}
	if err := tx.QueryRow(t.Context(), `SELECT settled_at FROM runs_history`).Scan(&settled); err != nil {
		t.Fatal(err)
	}
	if !settled.After(through) {
		t.Errorf("the mark is at %s, and the run will be settled at %s", through, settled)
	}
	if err := tx.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	if c := f.totals(nil, start.Add(-time.Minute), start.Add(time.Minute)); c.All() != 1 {
		t.Errorf("the run counts %d times", c.All())
	}
}

// Reading and rolling up must not look at the history's bulk: many days of it are there, settled long ago.
func TestNeitherReadsTheHistory(t *testing.T) {
	f := newFixture(t)
	day := time.Now().UTC().Truncate(24*time.Hour).AddDate(0, 0, -3)
	const bulk = 60_000
	for d := range 3 {
		f.exec(`SELECT make_day($1::date)`, day.AddDate(0, 0, d))
		f.exec(`INSERT INTO runs_history (id, job_id, job_version, group_name, cause, state, reason, message, output, attempt,
			due_at, created_at, started_at, finished_at, lateness_ms, last_line, route, settled_at)
			SELECT (substr(first_run_id($1::timestamptz + n * interval '1 second')::text, 1, 24) || lpad(to_hex(n), 12, '0'))::uuid, 1, 1, 'a', 'schedule', 'succeeded', '', '', '', 1,
			       t, t, t, t, 1, 0, '', t FROM generate_series(1, $2::int) n, LATERAL (SELECT $1::timestamptz + n * interval '1 second' AS t) x`,
			day.AddDate(0, 0, d), bulk)
	}
	if err := f.reports.Tend(t.Context()); err != nil {
		t.Fatal(err)
	}
	now := time.Now().UTC()
	for range 100 {
		f.finish("a", "succeeded", "", now.Add(-time.Minute), 1)
	}
	for name, where := range map[string]string{
		"the roll-up": `settled_at >= now() - interval '1 minute' AND settled_at < now()`,
		"the tail":    `settled_at >= now() - interval '1 minute' AND finished_at >= now() - interval '1 day'`,
	} {
		if rows := f.rowsRead(`SELECT count(*) FROM runs_history h WHERE ` + where); rows > 5000 {
			t.Errorf("%s reads %.0f rows of %d", name, rows, 3*bulk)
		}
	}
	if c := f.totals(nil, now.Add(-time.Hour), now); c.All() != 100 {
		t.Errorf("%d runs counted, want 100", c.All())
	}
}

// rowsRead returns how many rows of tables a query looks at, under the settings that the store reads the history with.
func (f *fixture) rowsRead(query string) (rows float64) {
	f.t.Helper()
	tx, err := f.pool.Begin(f.t.Context())
	if err != nil {
		f.t.Fatal(err)
	}
	defer tx.Rollback(context.WithoutCancel(f.t.Context()))
	if _, err := tx.Exec(f.t.Context(), `SET LOCAL enable_seqscan = off; SET LOCAL enable_indexscan = off`); err != nil {
		f.t.Fatal(err)
	}
	var text string
	if err := tx.QueryRow(f.t.Context(), `EXPLAIN (ANALYZE, TIMING OFF, FORMAT JSON) `+query).Scan(&text); err != nil {
		f.t.Fatal(err)
	}
	var plans []struct{ Plan planNode }
	if err := json.Unmarshal([]byte(text), &plans); err != nil {
		f.t.Fatal(err)
	}
	return plans[0].Plan.read()
}

type planNode struct {
	Relation string     `json:"Relation Name"`
	Rows     float64    `json:"Actual Rows"`
	Loops    float64    `json:"Actual Loops"`
	Filtered float64    `json:"Rows Removed by Filter"`
	Recheck  float64    `json:"Rows Removed by Index Recheck"`
	Plans    []planNode `json:"Plans"`
}

func (n planNode) read() (rows float64) {
	if n.Relation != "" {
		rows = (n.Rows + n.Filtered + n.Recheck) * n.Loops
	}
	for _, p := range n.Plans {
		rows += p.read()
	}
	return rows
}

func TestPresentAndSweep(t *testing.T) {
	f := newFixture(t)
	f.exec(`INSERT INTO groups (name, token_sha256) VALUES ('a', 'x')`)
	f.exec(`INSERT INTO jobs (id, group_name, name, enabled, kind, spec, version, created_at, updated_at)
		VALUES (1, 'a', 'one', true, 'none', '{}', 1, now(), now()), (2, 'a', 'two', false, 'none', '{}', 1, now(), now())`)
	for i, state := range []string{"pending", "queued", "running", "running", "retrying"} {
		f.exec(`INSERT INTO runs_live (id, job_id, job_version, group_name, cause, state, due_at, held)
			VALUES ($1, 1, 1, 'a', 'schedule', $2, now(), $3)`, domain.NewRunID(time.Now()), state, i == 0)
	}
	f.exec(`INSERT INTO missed (job_id, first_fire_time, last_fire_time, count, policy, why) VALUES (1, now(), now(), 7, 'skip', '')`)
	now := time.Now()
	scope := report.Scope{Only: []string{"a"}, From: now.Add(-time.Hour), To: now.Add(time.Hour)}
	p, err := f.reports.Present(t.Context(), scope)
	if want := (report.Present{Held: 1, Queued: 1, Running: 2, Retrying: 1, Jobs: 2, Enabled: 1, Missed: 7}); err != nil || p != want {
		t.Errorf("%+v, want %+v, %v", p, want, err)
	}
	scope.Only = []string{"b"}
	if p, err := f.reports.Present(t.Context(), scope); err != nil || p != (report.Present{}) {
		t.Errorf("of another group: %+v, %v", p, err)
	}
	f.exec(`INSERT INTO run_stats SELECT span, now() - age, 'a', 'failed', '', 1, 1
		FROM (VALUES (60), (3600)) s (span), (VALUES (interval '1 hour'), ('5 days'), ('500 days')) a (age)`)
	if err := f.reports.Tend(t.Context()); err != nil {
		t.Fatal(err)
	}
	var left int
	if err := f.pool.QueryRow(t.Context(), `SELECT count(*) FROM run_stats`).Scan(&left); err != nil || left != 3 {
		t.Errorf("%d rows are left, want the last hour's two and the hour of five days ago; %v", left, err)
	}
}

// To count jobs reads an index that is small beside them.
func TestJobsAreCountedFromAnIndex(t *testing.T) {
	f := newFixture(t)
	f.exec(`INSERT INTO groups (name, token_sha256) VALUES ('a', 'a'), ('b', 'b'), ('none', 'n')`)
	f.exec(`INSERT INTO jobs (group_name, name, enabled, kind, spec, version, created_at, updated_at)
		SELECT CASE i % 4 WHEN 0 THEN 'a' ELSE 'b' END, i, i % 8 <> 0, 'none', jsonb_build_object('description', repeat('long', 50)), 1, now(), now()
		  FROM generate_series(1, 12000) i`)
	f.exec(`VACUUM ANALYZE jobs`)
	want := map[string]report.JobCount{"a": {Jobs: 3000, Enabled: 1500}, "b": {Jobs: 9000, Enabled: 9000}}
	if got, err := f.reports.JobCounts(t.Context()); err != nil || !maps.Equal(got, want) {
		t.Errorf("%v, want %v, %v", got, want, err)
	}
	query, err := os.ReadFile("query/report.sql")
	if err != nil {
		t.Fatal(err)
	}
	_, sql, _ := strings.Cut(string(query), "-- name: JobCounts :many")
	_, sql, _ = strings.Cut(sql, "\nSELECT")
	sql, _, _ = strings.Cut(sql, ";")
	var plan string
	if err := f.pool.QueryRow(t.Context(), `EXPLAIN (FORMAT JSON) SELECT`+sql).Scan(&plan); err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(plan, "Index Only Scan") || !strings.Contains(plan, "jobs_counted") {
		t.Errorf("jobs are counted by %s", plan)
	}
}

func TestLatenessIsAFifthTooHighAtMost(t *testing.T) {
	f := newFixture(t)
	base := time.Now().UTC().Truncate(time.Hour).Add(-time.Hour)
	for i, ms := range []int64{0, 1, 2, 3, 4, 7, 10, 100, 999, 1000, 5000, 86_400_000} {
		group := fmt.Sprintf("g%d", i)
		f.finish(group, "succeeded", "", base, ms)
		got := f.totals([]string{group}, base, base.Add(time.Hour)).Late(0.99)
		if got == nil || *got < ms || float64(*got) > 1.2*float64(ms) {
			t.Errorf("%d ms late is told as %v", ms, got)
		}
	}
}
