package view_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/belfryhq/belfry/internal/domain"
	"github.com/belfryhq/belfry/internal/pgtest"
	"github.com/belfryhq/belfry/internal/store"
	"github.com/belfryhq/belfry/internal/store/logchunk"
	"github.com/belfryhq/belfry/internal/store/view"
)

func TestMain(m *testing.M) { pgtest.Main(m) }

type fixture struct {
	t    *testing.T
	pool *pgxpool.Pool
	view *view.Store
}

func newFixture(t *testing.T) *fixture {
	t.Helper()
	s, err := store.Open(t.Context(), store.Config{URL: pgtest.Database(t, store.Migrate), MaxConns: 1})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	return &fixture{t, s.Pool(), view.New(s.Pool())}
}

func (f *fixture) exec(sql string, args ...any) {
	f.t.Helper()
	if _, err := f.pool.Exec(f.t.Context(), sql, args...); err != nil {
		f.t.Fatal(err)
	}
}

// finished inserts a final run.
func (f *fixture) finished(id domain.RunID, job int, group, state, reason, cause string) {
	f.t.Helper()
	f.exec(`INSERT INTO runs_history (id, job_id, job_version, group_name, cause, state, reason, message, output, attempt,
	        fire_time, due_at, created_at, started_at, finished_at, last_line, instance, route)
	        VALUES ($1, $2, 1, $3, $4, $5, $6, 'm', 'o', 1, $7::timestamptz, $7, $7, $7, $7::timestamptz + interval '1 second', 0, 'one', '')`,
		id, job, group, cause, state, reason, id.Time())
}

func (f *fixture) live(id domain.RunID, job int, group, state string) {
	f.t.Helper()
	f.exec(`INSERT INTO runs_live (id, job_id, job_version, group_name, cause, state, fire_time, due_at)
	        VALUES ($1, $2, 1, $3, 'schedule', $4, $5, $5)`, id, job, group, state, id.Time())
}

// list reads all pages and returns the ids, shortened to their fire time's second and job.
func (f *fixture) list(filter view.RunFilter) string {
	f.t.Helper()
	var ids []string
	for pages := 0; ; pages++ {
		runs, next, err := f.view.Runs(f.t.Context(), filter)
		if err != nil {
			f.t.Fatal(err)
		}
		for _, r := range runs {
			ids = append(ids, fmt.Sprintf("%d.%d", r.ID.Time().Second(), r.JobID))
		}
		if next.IsZero() {
			return strings.Join(ids, " ")
		}
		if filter.Before = next; pages > 100 {
			f.t.Fatal("the pages have no end")
		}
	}
}

func TestRunsFiltersAndPages(t *testing.T) {
	f := newFixture(t)
	base := time.Now().UTC().Truncate(time.Minute)
	id := func(second, job int) domain.RunID {
		return domain.ScheduledRunID(domain.JobID(job), base.Add(time.Duration(second)*time.Second), 0)
	}
	f.finished(id(1, 1), 1, "a", "succeeded", "", "schedule")
	f.finished(id(2, 2), 2, "b", "failed", "timeout", "schedule")
	f.finished(id(3, 1), 1, "a", "failed", "handler_error", "misfire")
	f.finished(id(4, 2), 2, "b", "succeeded", "", "schedule")
	f.finished(id(5, 3), 3, "c", "cancelled", "killed", "schedule")
	f.live(id(6, 1), 1, "a", "queued")
	f.live(id(7, 2), 2, "b", "pending")
	failed := []domain.State{domain.Failed}
	for _, c := range []struct {
		name   string
		filter view.RunFilter
		want   string
	}{
		{"all", view.RunFilter{}, "7.2 6.1 5.3 4.2 3.1 2.2 1.1"},
		{"a job", view.RunFilter{JobID: 1}, "6.1 3.1 1.1"},
		{"a group", view.RunFilter{Group: "b"}, "7.2 4.2 2.2"},
		{"failed", view.RunFilter{States: failed}, "3.1 2.2"},
		{"failed of a job", view.RunFilter{States: failed, JobID: 1}, "3.1"},
		{"failed of a group", view.RunFilter{States: failed, Group: "b"}, "2.2"},
		{"failed for a reason", view.RunFilter{States: failed, Reason: "timeout"}, "2.2"},
		{"final", view.RunFilter{States: []domain.State{domain.Succeeded, domain.Cancelled}}, "5.3 4.2 1.1"},
		{"unfinished", view.RunFilter{States: []domain.State{domain.Pending, domain.Queued}}, "7.2 6.1"},
		{"unfinished of a job", view.RunFilter{States: []domain.State{domain.Queued}, JobID: 1}, "6.1"},
		{"of both sorts", view.RunFilter{States: []domain.State{domain.Queued, domain.Failed}}, "6.1 3.1 2.2"},
		{"a cause", view.RunFilter{Cause: "misfire"}, "3.1"},
		{"an instance", view.RunFilter{Instance: "one"}, "5.3 4.2 3.1 2.2 1.1"},
		{"no such instance", view.RunFilter{Instance: "two"}, ""},
		{"from", view.RunFilter{From: base.Add(5 * time.Second)}, "7.2 6.1 5.3"},
		{"to", view.RunFilter{To: base.Add(3 * time.Second)}, "2.2 1.1"},
		{"from and to", view.RunFilter{From: base.Add(3 * time.Second), To: base.Add(4 * time.Second)}, "3.1"},
		{"an empty range", view.RunFilter{From: base.Add(4 * time.Second), To: base.Add(3 * time.Second)}, ""},
		{"one group may be seen", view.RunFilter{Only: []string{"a"}}, "6.1 3.1 1.1"},
		{"two groups may be seen", view.RunFilter{Only: []string{"a", "c"}}, "6.1 5.3 3.1 1.1"},
		{"none may be seen", view.RunFilter{Only: []string{}}, ""},
		{"a hidden group", view.RunFilter{Only: []string{"a"}, Group: "b"}, ""},
		{"a hidden job", view.RunFilter{Only: []string{"a"}, JobID: 2}, ""},
		{"a hidden unfinished run", view.RunFilter{Only: []string{"a"}, States: []domain.State{domain.Pending}}, ""},
		{"hidden failures", view.RunFilter{Only: []string{"a", "c"}, States: failed}, "3.1"},
	} {
		for _, limit := range []int{1, 2, 50} {
			c.filter.Limit = limit
			if got := f.list(c.filter); got != c.want {
				t.Errorf("%s, %d a page: %s, want %s", c.name, limit, got, c.want)
			}
		}
	}
}

// The cost of a list must depend on its size only, whatever plan is cached. Like the server's pool, the pool of this test uses
// generic plans.
func TestRunsDoNotScan(t *testing.T) {
	f := newFixture(t)
	f.exec(`INSERT INTO runs_history (id, job_id, job_version, group_name, cause, state, reason, message, output, attempt,
	          due_at, created_at, finished_at, last_line, route)
	        SELECT (substr(first_run_id(at)::text, 1, 14) || '8000-8000-' || lpad(to_hex(i), 12, '0'))::uuid, i % 500, 1, 'g' || i % 100, 'schedule',
	          CASE WHEN i % 1000 = 0 THEN 'failed' ELSE 'succeeded' END, '', '', '', 1, at, at, at, 0, ''
	          FROM (SELECT i, date_trunc('day', now()) - interval '20 hours' + i * interval '1 second' AS at FROM generate_series(1, 100000) i) s`)
	f.exec(`ANALYZE runs_history`)
	f.exec(`INSERT INTO runs_live (id, job_id, job_version, group_name, cause, due_at) SELECT gen_random_uuid(), 1, 1, 'g1', 'manual', now() FROM generate_series(1, 5)`)
	read := func() (rows int64) {
		f.exec(`SELECT pg_stat_force_next_flush()`)
		err := f.pool.QueryRow(t.Context(), `SELECT sum(seq_tup_read + coalesce(idx_tup_fetch, 0)) FROM pg_stat_user_tables
			WHERE relname LIKE 'runs\_history%'`).Scan(&rows)
		if err != nil {
			t.Fatal(err)
		}
		return rows
	}
	noon := time.Now().UTC().Truncate(24 * time.Hour).Add(-12 * time.Hour)
	for _, c := range []struct {
		name   string
		filter view.RunFilter
		rows   int64 // the number of rows that may be read
	}{
		{"newest", view.RunFilter{}, 500},
		{"a job", view.RunFilter{JobID: 7}, 500},
		{"a group", view.RunFilter{Group: "g7"}, 500},
		{"failed", view.RunFilter{States: []domain.State{domain.Failed}}, 500},
		{"a range", view.RunFilter{From: noon, To: noon.Add(time.Minute)}, 500},
		{"before an id", view.RunFilter{Before: domain.FirstRunID(noon)}, 500},
		{"unfinished", view.RunFilter{States: []domain.State{domain.Pending}}, 500},
		{"rare in a job", view.RunFilter{JobID: 7, Cause: "manual"}, 2000},
	} {
		c.filter.Limit = 50
		before := read()
		for range 7 { // after five calls, the generic plan is cached
			if _, _, err := f.view.Runs(t.Context(), c.filter); err != nil {
				t.Fatal(err)
			}
		}
		if rows := (read() - before) / 7; rows > c.rows {
			t.Errorf("%s: %d rows were read for a page", c.name, rows)
		}
	}
}

func TestRunDetail(t *testing.T) {
	f := newFixture(t)
	id := domain.NewRunID(time.Now())
	f.exec(`INSERT INTO job_versions (job_id, version, spec, created_at, valid_from, changed_by, change)
	        VALUES (9, 4, '{"name":"report","retries":2,"param":"job''s own"}', now(), now(), 'me', 'created')`)
	f.exec(`INSERT INTO runs_history (id, job_id, job_version, group_name, cause, state, reason, message, output, attempt,
	          due_at, created_at, dispatched_at, started_at, finished_at, last_line, instance, route, shard_index, shard_total, lateness_ms)
	        VALUES ($1, 9, 4, 'g', 'manual', 'failed', 'timeout', $2, '', 2, now(), now(), now(), now(), now() + interval '1500 ms', 0, 'two', 'why', 0, 3, 7)`,
		id, strings.Repeat("x", 5000))
	f.exec(`INSERT INTO run_attempts (run_id, attempt, instance, boot_id, finished_at, outcome, reason, message, last_line)
	        VALUES ($1, 1, 'one', 'b1', now(), 'failed', 'lost', '', 0)`, id)
	f.exec(`UPDATE runs_history SET boot_id = 'b2' WHERE id = $1`, id)
	f.exec(`INSERT INTO executor_boots (group_name, boot_id, instance, version, host)
	        VALUES ('g', 'b1', 'one', '1.4', 'host-a'), ('g', 'b2', 'two', '1.5', 'host-b'), ('other', 'b2', 'two', '9', 'host-c')`)
	f.exec(`INSERT INTO late_results (run_id, attempt, instance, outcome, reason, message, output) VALUES ($1, 1, 'one', 'succeeded', '', '', '')`, id)
	r, err := f.view.Run(t.Context(), id)
	if err != nil {
		t.Fatal(err)
	}
	if r.JobName != "report" || r.Param != "job's own" || r.MaxAttempts != 3 || *r.DurationMS != 1500 || r.Shard.Total != 3 || len(r.Message) != 5000 {
		t.Errorf("the run is %+v", r)
	}
	if len(r.Attempts) != 2 || r.Attempts[0].LateOutcome != "succeeded" || r.Attempts[0].Reason != domain.ReasonLost ||
		r.Attempts[1].Instance != "two" || r.Attempts[1].Outcome != "failed" || r.Attempts[1].Reason != domain.ReasonTimeout {
		t.Errorf("the attempts are %+v", r.Attempts)
	}
	if a := r.Attempts; a[0].ExecutorVersion != "1.4" || a[0].Host != "host-a" || a[1].ExecutorVersion != "1.5" || a[1].Host != "host-b" {
		t.Errorf("the executors of the attempts are %+v", a)
	}
	list, _, err := f.view.Runs(t.Context(), view.RunFilter{Limit: 1})
	if err != nil || len(list[0].Message) != 1024 {
		t.Errorf("in a list the message has %d bytes (%v)", len(list[0].Message), err)
	}
	// While a run is being moved to the history, both tables may contain it.
	f.live(id, 9, "g", "running")
	if r, err := f.view.Run(t.Context(), id); err != nil || r.State != domain.Failed {
		t.Errorf("in both tables, the run is %s (%v)", r.State, err)
	}
	if list := f.list(view.RunFilter{Limit: 10}); strings.Contains(list, " ") {
		t.Errorf("it is listed as %s", list)
	}
	if _, err := f.view.Run(t.Context(), domain.NewRunID(time.Now())); domain.CodeOf(err) != domain.NotFound {
		t.Errorf("an unknown run: %v", err)
	}
}

func TestMissed(t *testing.T) {
	f := newFixture(t)
	f.exec(`INSERT INTO missed (job_id, first_fire_time, last_fire_time, count, policy, why) SELECT 1 + i % 2, now(), now(), i, 'skip', 'late' FROM generate_series(1, 6) i`)
	first, err := f.view.Missed(t.Context(), 1, 0, 2)
	if err != nil || len(first) != 2 || first[0].Count != 6 || first[1].Count != 4 {
		t.Fatalf("the first page is %v (%v)", first, err)
	}
	if rest, err := f.view.Missed(t.Context(), 1, first[1].ID, 2); err != nil || len(rest) != 1 || rest[0].Count != 2 {
		t.Errorf("the rest is %v (%v)", rest, err)
	}
}

// The newest entries are found quickly, even those of a group with few and old entries. They have the name and the group that
// the job had at that time.
func TestLatestMissed(t *testing.T) {
	f := newFixture(t)
	base := time.Now().UTC().Truncate(time.Hour).Add(-10 * time.Hour)
	at := func(minute int) time.Time { return base.Add(time.Duration(minute) * time.Minute) }
	f.exec(`INSERT INTO groups (name, token_sha256) VALUES ('quiet', 'q'), ('new', 'n')`)
	f.exec(`INSERT INTO jobs (id, group_name, name, enabled, kind, spec, version, created_at, updated_at) VALUES (1, 'quiet', 'old', true, 'none', '{}', 1, now(), now())`)
	version := func(v int, name string, from time.Time) {
		f.exec(`INSERT INTO job_versions (job_id, version, spec, created_at, valid_from, changed_by, change)
		        VALUES (1, $1, jsonb_build_object('name', $2::text), $3, $3, '', 'edited')`, v, name, from)
	}
	version(1, "old", base)
	miss := func(count, minute int) {
		f.exec(`INSERT INTO missed (job_id, first_fire_time, last_fire_time, count, policy, why, at) VALUES (1, $2, $2, $1, 'skip', 'late', $2)`, count, at(minute))
	}
	miss(1, 1)
	miss(2, 1)
	miss(3, 2)
	version(2, "moved", at(3))
	f.exec(`UPDATE jobs SET group_name = 'new', name = 'moved'`)
	miss(4, 4)
	f.exec(`INSERT INTO missed (job_id, group_name, first_fire_time, last_fire_time, count, policy, why, at)
	        SELECT 100 + i, 'loud', $1, $1, 9, 'skip', 'late', $1::timestamptz + i * interval '1 ms' FROM generate_series(1, 20000) i`, at(5))
	f.exec(`ANALYZE missed`)
	read := func() (rows int64) {
		f.exec(`SELECT pg_stat_force_next_flush()`)
		if err := f.pool.QueryRow(t.Context(), `SELECT seq_tup_read + idx_tup_fetch FROM pg_stat_user_tables WHERE relname = 'missed'`).Scan(&rows); err != nil {
			t.Fatal(err)
		}
		return rows
	}
	for _, c := range []struct {
		name     string
		only     []string
		from, to time.Time
		limit    int
		want     string
	}{
		{"of all", nil, base, at(60), 2, "loud  9, loud  9"},
		{"of a group", []string{"quiet"}, base, at(60), 10, "quiet old 3, quiet old 2, quiet old 1"},
		{"no more than asked for", []string{"quiet"}, base, at(60), 2, "quiet old 3, quiet old 2"},
		{"of several, one named twice", []string{"new", "quiet", "new", "none"}, base, at(60), 3, "new moved 4, quiet old 3, quiet old 2"},
		{"of all for some minutes", nil, at(2), at(5), 10, "new moved 4, quiet old 3"},
		{"some minutes of a group", []string{"quiet"}, at(1), at(2), 10, "quiet old 2, quiet old 1"},
		{"for a user without groups", []string{}, base, at(60), 10, ""},
	} {
		before := read()
		latest, err := f.view.LatestMissed(t.Context(), c.only, c.from, c.to, c.limit)
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, m := range latest {
			got = append(got, fmt.Sprintf("%s %s %d", m.Group, m.JobName, m.Count))
		}
		if all := strings.Join(got, ", "); all != c.want || latest == nil {
			t.Errorf("%s: %s, want %s", c.name, all, c.want)
		}
		if n := read() - before; n > 100 {
			t.Errorf("%s: %d entries were read", c.name, n)
		}
	}
}

// chunk stores lines first to last of an attempt, age ago.
func (f *fixture) chunk(run domain.RunID, attempt int, first, last int64, age time.Duration) {
	f.t.Helper()
	var lines []domain.LogLine
	for n := first; n <= last; n++ {
		lines = append(lines, domain.LogLine{N: n, Level: "info", Text: fmt.Sprintf("%d/%d", attempt, n)})
	}
	f.exec(`INSERT INTO run_logs (run_id, attempt, first_line, last_line, stored_at, lines) VALUES ($1, $2, $3, $4, now() - $5::interval, $6)`,
		run, attempt, first, last, age, logchunk.Encode(lines))
}

func texts(p view.LogPage) string {
	var out []string
	for _, l := range p.Lines {
		out = append(out, l.Text)
	}
	return strings.Join(out, " ")
}

func (f *fixture) log(run domain.RunID, from int64, limit int) view.LogPage {
	f.t.Helper()
	p, err := f.view.Log(context.Background(), run, from, limit, view.LogFilter{})
	if err != nil {
		f.t.Fatal(err)
	}
	return p
}

func TestLogPagesOverAttempts(t *testing.T) {
	f := newFixture(t)
	id := domain.NewRunID(time.Now())
	f.finished(id, 1, "g", "succeeded", "", "schedule")
	f.exec(`UPDATE runs_history SET attempt = 2, last_line = 4, finished_at = now()`)
	f.chunk(id, 1, 1, 2, time.Minute)
	f.chunk(id, 1, 3, 3, time.Minute)
	f.chunk(id, 2, 1, 4, time.Minute)
	f.chunk(id, 2, 3, 4, time.Minute) // a chunk that overlaps
	const want = "1/1 1/2 1/3 2/1 2/2 2/3 2/4"
	for _, limit := range []int{1, 2, 3, 4, 100} {
		var got []string
		var numbers []int64
		from := int64(0)
		for pages := 0; ; pages++ {
			p := f.log(id, from, limit)
			if len(p.Lines) > 0 {
				got = append(got, texts(p))
			}
			for _, l := range p.Lines {
				numbers = append(numbers, l.N)
			}
			if from = p.Next; p.End {
				break
			}
			if pages > 10 {
				t.Fatalf("%d a page: no end", limit)
			}
		}
		if strings.Join(got, " ") != want || !slices.IsSorted(numbers) || numbers[3] != 1_000_000_001 {
			t.Errorf("%d a page: %v, numbers %v", limit, got, numbers)
		}
	}
	if p := f.log(id, view.Position(1, 3), 2); texts(p) != "1/3 2/1" {
		t.Errorf("from the third line on: %s", texts(p))
	}
}

func TestLogEnd(t *testing.T) {
	f := newFixture(t)
	id := domain.NewRunID(time.Now())
	f.live(id, 1, "g", "running")
	if p := f.log(id, 1, 10); p.End || len(p.Lines) != 0 || p.Next != 1 || p.Lines == nil {
		t.Errorf("before the first line: %+v", p)
	}
	f.chunk(id, 1, 1, 2, 0)
	if p := f.log(id, 1, 10); p.End || texts(p) != "1/1 1/2" || p.Next != 3 {
		t.Errorf("while it runs: %+v", p)
	}
	f.exec(`DELETE FROM runs_live`)
	f.finished(id, 1, "g", "succeeded", "", "schedule")
	f.exec(`UPDATE runs_history SET last_line = 4, finished_at = now()`)
	if p := f.log(id, 3, 10); p.End {
		t.Errorf("the page is the last although two lines are missing: %+v", p)
	}
	f.chunk(id, 1, 3, 4, 0)
	if p := f.log(id, 3, 10); !p.End || texts(p) != "1/3 1/4" {
		t.Errorf("with all lines: %+v", p)
	}
	if p := f.log(id, 3, 1); p.End {
		t.Error("a page that is not the last says end")
	}
	f.exec(`UPDATE runs_history SET last_line = 9`)
	if p := f.log(id, 5, 10); p.End {
		t.Error("it ends although lines are missing")
	}
	f.exec(`UPDATE runs_history SET finished_at = now() - interval '6 seconds'`)
	if p := f.log(id, 5, 10); !p.End {
		t.Error("it waits for lines that will not come")
	}
}

// If a chunk is stored before its predecessor, a reader must not skip the predecessor.
func TestLogGap(t *testing.T) {
	f := newFixture(t)
	id := domain.NewRunID(time.Now())
	f.live(id, 1, "g", "running")
	f.chunk(id, 1, 1, 2, 0)
	f.chunk(id, 1, 5, 6, 0)
	if p := f.log(id, 1, 10); texts(p) != "1/1 1/2" || p.Next != 3 {
		t.Errorf("before the gap is filled: %s, next %d", texts(p), p.Next)
	}
	f.chunk(id, 1, 3, 4, 0)
	if p := f.log(id, 3, 10); texts(p) != "1/3 1/4 1/5 1/6" {
		t.Errorf("after: %s", texts(p))
	}
	f.chunk(id, 1, 9, 9, 3*time.Second)
	if p := f.log(id, 7, 10); texts(p) != "1/9" {
		t.Errorf("over an old gap: %s", texts(p))
	}
}

func TestLogPageIsBounded(t *testing.T) {
	f := newFixture(t)
	id := domain.NewRunID(time.Now())
	f.live(id, 1, "g", "running")
	var lines []domain.LogLine
	for n := range int64(500) {
		lines = append(lines, domain.LogLine{N: n + 1, Level: "info", Text: strings.Repeat("x", 16<<10)})
	}
	f.exec(`INSERT INTO run_logs (run_id, attempt, first_line, last_line, lines) VALUES ($1, 1, 1, 500, $2)`, id, logchunk.Encode(lines))
	if p := f.log(id, 1, 1000); len(p.Lines) > 70 || len(p.Lines) == 0 {
		t.Errorf("a page has %d lines of 16 KiB", len(p.Lines))
	}
}
