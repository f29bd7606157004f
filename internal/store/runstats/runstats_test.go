package runstats_test

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/belfryhq/belfry/internal/domain"
	"github.com/belfryhq/belfry/internal/pgtest"
	"github.com/belfryhq/belfry/internal/store"
	statstore "github.com/belfryhq/belfry/internal/store/runstats"
	"github.com/belfryhq/belfry/migrations"
)

func TestMain(m *testing.M) { pgtest.Main(m) }

type fixture struct {
	t       *testing.T
	pool    *pgxpool.Pool
	reports *statstore.Store
}

func newFixture(t *testing.T) *fixture {
	t.Helper()
	return fixtureOf(t, 4)
}

func fixtureOf(t *testing.T, conns int32) *fixture {
	t.Helper()
	s, err := store.Open(t.Context(), store.Config{URL: pgtest.Database(t, store.Migrate), MaxConns: conns})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	f := &fixture{t, s.Pool(), statstore.New(s.Pool())}
	f.exec(`UPDATE run_stats_mark SET through = now(), missed_through = now(), health_through = now()`) // the copied template database has older marks
	return f
}

func (f *fixture) exec(sql string, args ...any) {
	f.t.Helper()
	if _, err := f.pool.Exec(f.t.Context(), sql, args...); err != nil {
		f.t.Fatal(err)
	}
}

// insertRun inserts a row of the history like settling: settled_at has its default value.
const insertRun = `INSERT INTO runs_history (id, job_id, job_version, group_name, cause, state, reason, message, output, attempt,
	due_at, created_at, started_at, finished_at, lateness_ms, last_line, route)
	VALUES ($1, 1, 1, $2, 'schedule', $3, $4, '', '', 1, $5, $5, $5, $5::timestamptz + interval '2 seconds', $6, 0, '')`

// finish writes a run that started at the given time and took two seconds.
func (f *fixture) finish(group, state, reason string, started time.Time, lateness any) {
	f.t.Helper()
	f.exec(insertRun, domain.NewRunID(started), group, state, reason, started, lateness)
}

// settledLongAgo makes all finished runs old enough to be rolled up.
func (f *fixture) settledLongAgo() {
	f.t.Helper()
	f.exec(`UPDATE runs_history SET settled_at = now() - interval '40 seconds'`)
	f.exec(`UPDATE run_stats_mark SET through = now() - interval '1 minute'`)
}

// rollUp rolls up all settled runs and returns their number.
func (f *fixture) rollUp() (all int64) {
	f.t.Helper()
	for {
		runs, _, _, more, err := f.reports.RollUp(f.t.Context(), 7*time.Second)
		if err != nil {
			f.t.Fatal(err)
		}
		if all += runs; !more {
			return all
		}
	}
}

func (f *fixture) totals(only []string, from, to time.Time) *statstore.Count {
	f.t.Helper()
	c, err := f.reports.Totals(f.t.Context(), statstore.Scope{Only: only, From: from, To: to})
	if err != nil {
		f.t.Fatal(err)
	}
	if !c.Through.Equal(c.Now) { // runs that are not rolled up yet are counted as well
		f.t.Errorf("counted through %s, now %s", c.Through, c.Now)
	}
	sum := statstore.NewCount(from)
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
			t.Errorf("%s: a user without groups gets a count of %d", when, none.All())
		}
		if some := f.totals(nil, base.Add(2*time.Minute), base.Add(time.Hour)); some.All() != 3 {
			t.Errorf("%s: from the second minute to the end of the hour %d", when, some.All())
		}
		if some := f.totals(nil, base.Add(2*time.Minute), base.Add(91*time.Minute)); some.All() != 4 {
			t.Errorf("%s: over the edge of an hour %d", when, some.All())
		}
	}
	check("before")
	f.settledLongAgo()
	check("when due")
	if n := f.rollUp(); n != 5 {
		t.Errorf("%d runs were rolled up, want 5", n)
	}
	check("after")
	if n := f.rollUp(); n != 0 {
		t.Errorf("%d runs were rolled up twice", n)
	}
	series, err := f.reports.Series(t.Context(), statstore.Scope{From: base, To: base.Add(3 * time.Hour)}, time.Hour)
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

// A transaction in progress holds the roll-up back. Otherwise, the runs that it settles would never be counted.
func TestRollUpWaitsForTransactionsUnderWay(t *testing.T) {
	f := newFixture(t)
	f.exec(`UPDATE run_stats_mark SET through = now() - interval '10 minutes'`)
	tx := pgtest.Begin(t, f.pool)
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

// Reading and rolling up must not read the bulk of the history, which contains many old days.
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

// missedOf returns how many fire times went to the ledger.
func (f *fixture) missedOf(only []string, from, to time.Time) int64 {
	f.t.Helper()
	c, err := f.reports.Totals(f.t.Context(), statstore.Scope{Only: only, From: from, To: to})
	if err != nil {
		f.t.Fatal(err)
	}
	return c.Missed
}

// twoGroupsMiss creates job 1 in group a, job 2 in group b, and job 3, which was in b and is deleted. Over four hours from base on,
// they alternately miss 1, 10 and 100 fire times. The inserted rows do not name the group.
func (f *fixture) twoGroupsMiss(base time.Time) {
	f.t.Helper()
	f.exec(`INSERT INTO groups (name, token_sha256) VALUES ('a', 'a'), ('b', 'b')`)
	f.exec(`INSERT INTO jobs (id, group_name, name, enabled, kind, spec, version, created_at, updated_at)
		SELECT i, g, i, true, 'none', '{}', 1, now(), now() FROM (VALUES (1, 'a'), (2, 'b')) v (i, g)`)
	f.exec(`INSERT INTO job_versions (job_id, version, spec, created_at, valid_from, changed_by, change)
		SELECT 3, v, jsonb_build_object('group', g), now(), now(), '', 'edited' FROM (VALUES (1, 'a'), (2, 'b')) w (v, g)`)
	f.exec(`INSERT INTO missed (job_id, first_fire_time, last_fire_time, count, policy, why, at)
		SELECT 1 + i % 3, now(), now(), (10 ^ (i % 3))::bigint, 'skip', '', $1::timestamptz + i * interval '1 minute' FROM generate_series(0, 239) i`, base)
}

// checkMissed compares with what twoGroupsMiss wrote.
func (f *fixture) checkMissed(when string, base time.Time) {
	f.t.Helper()
	for _, c := range []struct {
		what     string
		only     []string
		from, to time.Duration
		want     int64
	}{
		{"all", nil, 0, 4 * time.Hour, 80 * 111},
		{"of a", []string{"a"}, 0, 4 * time.Hour, 80},
		{"of b and an unknown group", []string{"b", "c"}, 0, 4 * time.Hour, 80 * 110},
		{"for a user without groups", []string{}, 0, 4 * time.Hour, 0},
		{"of some minutes", nil, 61 * time.Minute, 64 * time.Minute, 111},
		{"over the edges of two hours", nil, 57 * time.Minute, 123 * time.Minute, 22 * 111},
		{"of whole hours", []string{"b"}, time.Hour, 3 * time.Hour, 40 * 110},
		{"before", nil, -time.Hour, 0, 0},
	} {
		if n := f.missedOf(c.only, base.Add(c.from), base.Add(c.to)); n != c.want {
			f.t.Errorf("%s, %s: %d missed, want %d", when, c.what, n, c.want)
		}
	}
}

func TestMissedCountOnceBeforeAndAfterTheRollUp(t *testing.T) {
	f := newFixture(t)
	base := time.Now().UTC().Truncate(time.Hour).Add(-5 * time.Hour)
	f.twoGroupsMiss(base)
	mark := func(missed time.Time) {
		t.Helper()
		f.exec(`UPDATE run_stats_mark SET through = now() - interval '1 minute', missed_through = $1`, missed)
	}
	mark(base)
	f.checkMissed("before", base)
	f.rollUp()
	f.checkMissed("between the roll-ups, because the mark for runs was ahead", base)
	for range 3 { // the mark for runs starts again, the other one continues
		f.exec(`UPDATE run_stats_mark SET through = now() - interval '1 minute'`)
		if _, through, now, _, err := f.reports.RollUp(t.Context(), 100*time.Minute); err != nil || now.Sub(through) > 30*time.Second {
			t.Fatal(through, err)
		}
	}
	f.checkMissed("after", base)
	f.exec(`UPDATE missed SET count = 1000`)
	f.checkMissed("from the statistics alone", base)
}

// The missed fire times of a group are read from the statistics, so the cost depends neither on other groups nor on the number of
// jobs.
func TestMissedAreCountedWithoutTheLedger(t *testing.T) {
	f := fixtureOf(t, 1) // one connection, because the test reads its counters
	f.exec(`INSERT INTO missed (job_id, group_name, first_fire_time, last_fire_time, count, policy, why, at)
		SELECT i, 'g' || i % 20, now(), now(), 1, 'skip', '', now() - i * interval '4 s' FROM generate_series(1, 20000) i`)
	f.exec(`UPDATE run_stats_mark SET through = now() - interval '1 minute', missed_through = now() - interval '2 days'`)
	if _, through, now, more, err := f.reports.RollUp(t.Context(), 72*time.Hour); err != nil || more || now.Sub(through) > 30*time.Second {
		t.Fatal(through, more, err)
	}
	read := func() (rows int64) {
		t.Helper()
		f.exec(`SELECT pg_stat_force_next_flush()`)
		if err := f.pool.QueryRow(t.Context(), `SELECT seq_tup_read + idx_tup_fetch FROM pg_stat_user_tables WHERE relname = 'missed'`).Scan(&rows); err != nil {
			t.Fatal(err)
		}
		return rows
	}
	now := time.Now()
	before := read()
	for _, only := range [][]string{nil, {"g7"}} {
		if n := f.missedOf(only, now.Add(-48*time.Hour), now); n != 20000 && len(only) == 0 || n != 1000 && len(only) > 0 {
			t.Errorf("of %q %d are counted", only, n)
		}
	}
	if n := read() - before; n > 100 {
		t.Errorf("%d entries of the ledger were read", n)
	}
}

// An update to this version counts what was missed before, each in the group of its job.
func TestMissedOfFormerVersionsCount(t *testing.T) {
	f := newFixture(t)
	base := time.Now().UTC().Truncate(time.Hour).Add(-5 * time.Hour)
	f.twoGroupsMiss(base)
	f.migrateAgain("00024_missed_by_group.sql")
	f.checkMissed("after the update", base)
}

// migrateAgain reverts a migration and applies it again.
func (f *fixture) migrateAgain(file string) {
	f.t.Helper()
	text, err := migrations.FS.ReadFile(file)
	if err != nil {
		f.t.Fatal(err)
	}
	up, down, _ := strings.Cut(string(text), "-- +goose Down")
	f.exec(down)
	f.exec(up)
}

// rowsRead returns how many rows of tables a query reads, with the settings that the store uses for the history.
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
	p, err := f.reports.Present(t.Context(), []string{"a"})
	if want := (statstore.Present{Held: 1, Queued: 1, Running: 2, Retrying: 1, Jobs: 2, Enabled: 1}); err != nil || p != want {
		t.Errorf("%+v, want %+v, %v", p, want, err)
	}
	if p, err := f.reports.Present(t.Context(), []string{"b"}); err != nil || p != (statstore.Present{}) {
		t.Errorf("of another group: %+v, %v", p, err)
	}
	const ages = `FROM (VALUES (60), (3600)) s (span), (VALUES (interval '1 hour'), ('5 days'), ('500 days')) a (age)`
	f.exec(`INSERT INTO run_stats SELECT span, now() - age, 'a', 'failed', '', 1, 1 ` + ages)
	f.exec(`INSERT INTO missed_stats SELECT span, now() - age, 'a', 1 ` + ages)
	if err := f.reports.Tend(t.Context()); err != nil {
		t.Fatal(err)
	}
	for _, table := range []string{"run_stats", "missed_stats"} {
		var left int
		if err := f.pool.QueryRow(t.Context(), `SELECT count(*) FROM `+table).Scan(&left); err != nil || left != 3 {
			t.Errorf("%d rows of %s are left, want the last hour's two and the hour of five days ago; %v", left, table, err)
		}
	}
}

// Each change of jobs changes the job counts at once. Summing up the changes does not change the counts.
func TestJobsAreCounted(t *testing.T) {
	f := newFixture(t)
	f.exec(`INSERT INTO groups (name, token_sha256) VALUES ('a', 'a'), ('b', 'b'), ('none', 'n')`)
	f.exec(`INSERT INTO jobs (id, group_name, name, enabled, kind, spec, version, created_at, updated_at)
		SELECT i, CASE i % 4 WHEN 0 THEN 'a' ELSE 'b' END, i, i % 8 <> 0, 'none', '{}', 1, now(), now() FROM generate_series(1, 1200) i`)
	rows := func() (n int) {
		t.Helper()
		if err := f.pool.QueryRow(t.Context(), `SELECT count(*) FROM job_counts`).Scan(&n); err != nil {
			t.Fatal(err)
		}
		return n
	}
	check := func(what string, want map[string]statstore.JobCount) {
		t.Helper()
		for _, when := range []string{"then", "summed up"} {
			if got, err := f.reports.JobCounts(t.Context()); err != nil || !maps.Equal(got, want) {
				t.Errorf("%s, %s: %v, want %v, %v", what, when, got, want, err)
			}
			if err := f.reports.Tend(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
	}
	check("at first", map[string]statstore.JobCount{"a": {Jobs: 300, Enabled: 150}, "b": {Jobs: 900, Enabled: 900}})
	f.exec(`UPDATE jobs SET enabled = false WHERE id <= 100`)
	f.exec(`UPDATE jobs SET name = name || '!'`)
	check("disabled, and renamed", map[string]statstore.JobCount{"a": {Jobs: 300, Enabled: 137}, "b": {Jobs: 900, Enabled: 825}})
	for id := range 150 { // 75 jobs of each group
		f.exec(`UPDATE jobs SET group_name = 'none' WHERE id = $1`, 301+4*(id/2)+3*(id%2))
	}
	if n := rows(); n < 300 {
		t.Errorf("300 changes left %d rows, want at least 300", n)
	}
	check("moved", map[string]statstore.JobCount{"a": {Jobs: 225, Enabled: 100}, "b": {Jobs: 825, Enabled: 750}, "none": {Jobs: 150, Enabled: 112}})
	if n := rows(); n != 3 {
		t.Errorf("summed up there are %d rows, want one for each group", n)
	}
	f.exec(`DELETE FROM jobs WHERE group_name <> 'b'`)
	check("deleted", map[string]statstore.JobCount{"b": {Jobs: 825, Enabled: 750}})
	tx, err := f.pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := tx.Exec(t.Context(), `DELETE FROM jobs`); err != nil {
		t.Fatal(err)
	}
	if err := tx.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	check("after the deletion was rolled back", map[string]statstore.JobCount{"b": {Jobs: 825, Enabled: 750}})
	f.migrateAgain("00025_job_counts.sql")
	check("after an update to this version", map[string]statstore.JobCount{"b": {Jobs: 825, Enabled: 750}})
}

func TestLatenessIsAFifthTooHighAtMost(t *testing.T) {
	f := newFixture(t)
	base := time.Now().UTC().Truncate(time.Hour).Add(-time.Hour)
	for i, ms := range []int64{0, 1, 2, 3, 4, 7, 10, 100, 999, 1000, 5000, 86_400_000} {
		group := fmt.Sprintf("g%d", i)
		f.finish(group, "succeeded", "", base, ms)
		got := f.totals([]string{group}, base, base.Add(time.Hour)).Late(0.99)
		if got == nil || *got < ms || float64(*got) > 1.2*float64(ms) {
			t.Errorf("a lateness of %d ms is reported as %v", ms, got)
		}
	}
}
