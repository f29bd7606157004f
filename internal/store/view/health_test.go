package view_test

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/belfryhq/belfry/internal/domain"
	"github.com/belfryhq/belfry/internal/store/view"
)

// healthyJobs inserts the jobs 1 to n. Every fifth is in group a, the others are in b. Half of the jobs have finished runs, a tenth has failed, and
// every 50th is failing. Many have the same p95, and two thirds have a next fire time.
func (f *fixture) healthyJobs(n int) {
	f.t.Helper()
	f.exec(`INSERT INTO groups (name, token_sha256) VALUES ('a', 'a'), ('b', 'b'), ('none', 'n')`)
	f.exec(`INSERT INTO jobs (id, group_name, name, enabled, kind, tags, spec, version, created_at, updated_at)
	        SELECT i, CASE WHEN i % 5 = 0 THEN 'a' ELSE 'b' END, 'job ' || i * 7919 % 1000 || '.' || i, i % 3 <> 0, 'none', '{}',
	               '{"handler":"echo","schedule":{"kind":"none"}}', 1, now(), now() FROM generate_series(1, $1::int) i`, n)
	f.exec(`INSERT INTO job_due (job_id, version, next_fire_time, next_due_at) SELECT i, 1, at, at
	          FROM (SELECT i, CASE WHEN i % 3 <> 0 THEN date_trunc('hour', now()) + i % 700 * interval '1 min' END AS at FROM generate_series(1, $1::int) i) x`, n)
	f.exec(`INSERT INTO job_health (job_id, success_at, success_version, hour, hour_succeeded, p95, success_run, durations, past_succeeded)
	        SELECT i, now(), 1, 0, 0, i % 97, gen_random_uuid(), '\x50', '' FROM generate_series(2, $1::int, 2) i WHERE i % 30 <> 0`, n)
	f.exec(`INSERT INTO job_failures (job_id, failing, streak, version, hour, hour_failed, failing_since, failed_at, run, past_failed, reason, message, group_name)
	        SELECT i, i % 50 = 0, 1, 1, 0, 0, now() - i * 7919 % 10007 * interval '1 s', now() - i * 31 % 5003 * interval '1 s', gen_random_uuid(), '', '', '',
	               CASE WHEN i % 5 = 0 THEN 'a' ELSE 'b' END FROM generate_series(10, $1::int, 10) i`, n)
	f.exec(`VACUUM ANALYZE`)
}

// sorted reads all pages and returns the ids.
func (f *fixture) sorted(filter view.JobFilter, sort view.JobSort) (ids []domain.JobID) {
	f.t.Helper()
	var after view.JobPlace
	for pages := 0; ; pages++ {
		jobs, next, err := f.view.SortedJobs(f.t.Context(), filter, sort, after)
		if err != nil {
			f.t.Fatal(err)
		}
		for _, j := range jobs {
			ids = append(ids, j.ID)
		}
		if next == nil {
			return ids
		}
		if after = *next; pages > 1000 {
			f.t.Fatal("the pages have no end")
		}
	}
}

func TestSortedJobs(t *testing.T) {
	f := newFixture(t)
	f.healthyJobs(1500)
	yes := true
	values := map[view.JobSort][2]string{ // the value of a job, and its order
		view.SortID: {"NULL::text", ""}, view.SortName: {"j.name", ""}, view.SortNextFireTime: {"d.next_due_at", ""}, view.SortLastFailure: {"f.failed_at", "DESC"},
		view.SortFailingSince: {"CASE WHEN f.failing THEN f.failing_since END", ""}, view.SortP95: {"h.p95", "DESC"},
	}
	for _, c := range []struct {
		filter view.JobFilter
		where  string
	}{
		{view.JobFilter{}, "true"},
		{view.JobFilter{Group: "a"}, "j.group_name = 'a'"},
		{view.JobFilter{Only: []string{"b", "a", "none"}}, "true"},
		{view.JobFilter{Only: []string{"b"}, Group: "a"}, "false"},
		{view.JobFilter{Only: []string{}}, "false"},
		{view.JobFilter{Health: domain.HealthFailing}, "f.failing"},
		{view.JobFilter{Health: domain.HealthFailing, Group: "b", Enabled: &yes}, "f.failing AND j.group_name = 'b' AND j.enabled"},
		{view.JobFilter{Health: domain.HealthOK, Query: "JOB 7"}, "f.failing IS NOT TRUE AND coalesce(h.job_id, f.job_id) IS NOT NULL AND j.name LIKE 'job 7%'"},
		{view.JobFilter{Health: domain.HealthUnknown, Only: []string{"b"}}, "h.job_id IS NULL AND f.job_id IS NULL AND j.group_name = 'b'"},
	} {
		for sort, value := range values {
			rows, err := f.pool.Query(t.Context(), fmt.Sprintf(`SELECT j.id FROM jobs j LEFT JOIN job_health h ON h.job_id = j.id LEFT JOIN job_failures f ON f.job_id = j.id LEFT JOIN job_due d ON d.job_id = j.id
				WHERE %s ORDER BY %s IS NULL, %[2]s %s, CASE WHEN %[2]s IS NOT NULL THEN j.id END %[3]s, j.id`, c.where, value[0], value[1]))
			if err != nil {
				t.Fatal(err)
			}
			var want []domain.JobID
			for rows.Next() {
				var id domain.JobID
				if err := rows.Scan(&id); err != nil {
					t.Fatal(err)
				}
				want = append(want, id)
			}
			for _, limit := range []int{137, 500} {
				c.filter.Limit = limit
				if got := f.sorted(c.filter, sort); !slices.Equal(got, want) {
					t.Errorf("%+v by %q, %d a page: %d jobs, want %d in another order or number", c.filter, sort, limit, len(got), len(want))
				}
			}
		}
	}
	for _, place := range []view.JobPlace{{ID: 1, Key: "x"}, {ID: 1, Key: "99999"}} {
		if _, _, err := f.view.SortedJobs(t.Context(), view.JobFilter{Limit: 1}, view.SortP95, place); !errors.Is(err, view.ErrPlace) {
			t.Errorf("at the place %+v: %v", place, err)
		}
	}
}

// ran inserts finished runs of the jobs 1 to n, in the last 20 hours. Every 100th has failed.
func (f *fixture) ran(jobs, runs int) {
	f.t.Helper()
	f.exec(`INSERT INTO runs_history (id, job_id, job_version, group_name, cause, state, reason, message, output, attempt, fire_time, due_at, created_at, finished_at, last_line, route)
	        SELECT (substr(first_run_id(at)::text, 1, 14) || '8000-8000-' || lpad(to_hex(i), 12, '0'))::uuid, 1 + i::bigint * 7919 % $1::int, 1,
	          CASE WHEN (1 + i::bigint * 7919 % $1::int) % 5 = 0 THEN 'a' ELSE 'b' END, 'schedule', CASE WHEN i % 100 = 0 THEN 'failed' ELSE 'succeeded' END, '', 'hay', 'more hay', 1,
	          at, at, at, at, 0, ''
	          FROM (SELECT i, now() - interval '20 hours' * i / $2::int AS at FROM generate_series(1, $2::int) i) s`, jobs, runs)
	f.exec(`VACUUM ANALYZE runs_history`)
}

// rowsRead returns how many rows of the jobs, their health and their runs have been read.
func (f *fixture) rowsRead() (rows int64) {
	f.t.Helper()
	f.exec(`SELECT pg_stat_force_next_flush()`)
	if err := f.pool.QueryRow(f.t.Context(), `SELECT sum(seq_tup_read + coalesce(idx_tup_fetch, 0)) FROM pg_stat_user_tables
		WHERE relname IN ('jobs', 'job_health', 'job_failures', 'job_due', 'job_versions', 'runs_live') OR relname LIKE 'runs\_history%'`).Scan(&rows); err != nil {
		f.t.Fatal(err)
	}
	return rows
}

// The cost of a page does not depend on the number of jobs or runs, at its beginning or later. The long tier has 1,200,000 runs.
func TestListsDoNotScan(t *testing.T) {
	runs := 120_000
	if os.Getenv("BELFRY_TEST_LONG") != "" {
		runs = 1_200_000
	} else if testing.Short() {
		t.Skip("NOT COVERED: lists of 100,000 jobs and their runs, with -short")
	}
	f := newFixture(t)
	f.healthyJobs(100_000)
	f.ran(100_000, runs)
	t.Run("jobs", func(t *testing.T) { f.sortedJobsDoNotScan(t) })
	t.Run("searches", func(t *testing.T) { f.searchesDoNotScan(t) })
}

// searchesDoNotScan searches a text that no run has. Each page reads 2,000 runs, and some more rows to find them: group a has a fifth of the runs, so
// Postgres may filter the runs of all groups.
func (f *fixture) searchesDoNotScan(t *testing.T) {
	const page = 2000 // runs
	f.view.BoundSearches(page, time.Hour)
	for _, c := range []struct {
		name   string
		filter view.RunFilter
	}{
		{"all", view.RunFilter{}},
		{"of a group", view.RunFilter{Group: "a"}},
		{"of some groups", view.RunFilter{Only: []string{"a", "b"}}},
		{"of a job", view.RunFilter{JobID: 77}},
		{"failed", view.RunFilter{States: []domain.State{domain.Failed}}},
		{"failed of a group", view.RunFilter{States: []domain.State{domain.Failed}, Group: "a"}},
	} {
		c.filter.Limit = 50
		for n := range 3 {
			before := f.rowsRead()
			found, err := f.view.SearchRuns(t.Context(), c.filter, view.RunSearch{Text: "needle"})
			if err != nil {
				t.Fatal(err)
			}
			if rows := f.rowsRead() - before; rows > 20*page {
				t.Errorf("%s: page %d of a search reads %d rows", c.name, n, rows)
			}
			if found.Next.IsZero() {
				break
			}
			c.filter.Before = found.Next
		}
	}
}

func (f *fixture) sortedJobsDoNotScan(t *testing.T) {
	for _, filter := range []view.JobFilter{{}, {Health: domain.HealthFailing}, {Only: []string{"a", "b"}}, {Group: "a", Health: domain.HealthFailing}, {Group: "b", Health: domain.HealthFailing}} {
		for _, sort := range []view.JobSort{view.SortID, view.SortName, view.SortNextFireTime, view.SortLastFailure, view.SortFailingSince, view.SortP95} {
			if sort == view.SortID && filter.Health == "" {
				continue // Jobs lists them
			}
			filter.Limit = 50
			var after view.JobPlace
			for page := range 4 {
				before := f.rowsRead()
				jobs, next, err := f.view.SortedJobs(t.Context(), filter, sort, after)
				if err != nil {
					t.Fatal(err)
				}
				// A page reads 10,000 jobs at most: from the index, the job, its health, and its next fire time.
				most := int64(5000)
				switch {
				case filter.Health != "" && sort == view.SortID:
					most = 1000 // the first 250 failing jobs of the groups
				case filter.Health != "":
					most = 60_000
				}
				if n := f.rowsRead() - before; n > most {
					t.Errorf("%+v by %q: page %d of %d jobs reads %d rows", filter, sort, page, len(jobs), n)
				}
				if next == nil {
					break
				}
				after = *next
			}
		}
	}
}

// A failed run names the last success before it and what changed since then, also if the job has succeeded since, and also if the success is
// only known from the health of the job.
func TestSinceSuccess(t *testing.T) {
	f := newFixture(t)
	begin := time.Now().UTC().Add(-2 * time.Hour).Truncate(time.Second)
	at := func(second int) domain.RunID {
		return domain.FirstRunID(begin.Add(time.Duration(second) * time.Second))
	}
	f.exec(`INSERT INTO groups (name, token_sha256) VALUES ('a', 'a')`)
	f.exec(`INSERT INTO jobs (id, group_name, name, enabled, kind, spec, version, created_at, updated_at)
		SELECT i, 'a', i, true, 'none', '{}', 2, now(), now() FROM generate_series(1, 2) i`)
	f.exec(`INSERT INTO job_versions (job_id, version, spec, created_at, valid_from, changed_by, change)
		VALUES (1, 1, '{}', now(), now(), 'ann', 'created'), (1, 2, '{}', now(), now(), 'ben', 'edited')`)
	f.exec(`INSERT INTO executor_boots (group_name, boot_id, instance, version, host) VALUES ('a', 'b1', 'one', '1.4', ''), ('a', 'b2', 'two', '1.5', '')`)
	run := func(id domain.RunID, state string, version int, instance, boot string) {
		f.finished(id, 1, "a", state, "", "schedule")
		f.exec(`UPDATE runs_history SET job_version = $2, instance = $3, boot_id = $4 WHERE id = $1`, id, version, instance, boot)
	}
	run(at(1), "failed", 1, "one", "b1")
	run(at(10), "succeeded", 1, "one", "b1")
	run(at(20), "cancelled", 1, "one", "b1")
	failed, sibling := at(30), at(30)
	sibling[15]++
	run(failed, "failed", 2, "two", "b2")
	run(sibling, "succeeded", 2, "two", "b2")
	run(at(40), "succeeded", 2, "two", "b2")
	check := func(id domain.RunID, want string) {
		t.Helper()
		r, err := f.view.Run(t.Context(), id)
		if err != nil {
			t.Fatal(err)
		}
		success, changes, err := f.view.SinceSuccess(t.Context(), r)
		if err != nil {
			t.Fatal(err)
		}
		got := ""
		if success != nil {
			got = fmt.Sprintf("%v on %s %s:", success.RunID.Time().Sub(begin), success.Instance, success.ExecutorVersion)
		}
		for _, c := range changes {
			got += " " + string(c.Code)
		}
		if got != want {
			t.Errorf("the run of %v: %q, want %q", id.Time().Sub(begin), got, want)
		}
	}
	check(failed, "10s on one 1.4: job_edited executor_changed instance_changed")
	check(at(1), "")

	// Later, the job fails more often than the walk looks back. The health of the job still knows the newest success.
	f.exec(`INSERT INTO runs_history (id, job_id, job_version, group_name, cause, state, reason, message, output, attempt, due_at, created_at, finished_at, last_line, route)
		SELECT (substr(first_run_id(at)::text, 1, 14) || '8000-8000-' || lpad(to_hex(i), 12, '0'))::uuid, 1, 2, 'a', 'schedule', 'failed', '', '', '', 1, at, at, at, 0, ''
		  FROM (SELECT i, $1::timestamptz + i * interval '1 second' AS at FROM generate_series(1, 2000) i) s`, begin.Add(time.Minute))
	var last domain.RunID
	if err := f.pool.QueryRow(t.Context(), `SELECT max(id::text)::uuid FROM runs_history`).Scan(&last); err != nil {
		t.Fatal(err)
	}
	check(last, "")
	f.exec(`INSERT INTO job_health (job_id, success_at, success_version, hour, hour_succeeded, p95, success_run, durations, past_succeeded, success_instance)
		VALUES (1, now(), 2, 0, 0, 1, $1, '\x50', '', 'two')`, at(40))
	check(last, "40s on two :")
	check(failed, "10s on one 1.4: job_edited executor_changed instance_changed")
	f.exec(`UPDATE job_health SET success_run = $1`, domain.FirstRunID(time.Now()))
	check(last, "")
}

// The search for the success before a run reads a bounded number of rows along the index, whatever the history has.
func TestSinceSuccessDoesNotScan(t *testing.T) {
	f := newFixture(t)
	f.exec(`INSERT INTO runs_history (id, job_id, job_version, group_name, cause, state, reason, message, output, attempt,
	          due_at, created_at, finished_at, last_line, route)
	        SELECT (substr(first_run_id(at)::text, 1, 14) || '8000-8000-' || lpad(to_hex(i), 12, '0'))::uuid, i % 10, 1, 'g', 'schedule',
	          CASE WHEN i % 10 = 1 OR i % 700 = 2 THEN 'failed' ELSE 'succeeded' END, '', '', '', 1, at, at, at, 0, ''
	          FROM (SELECT i, date_trunc('day', now()) - interval '20 hours' + i * interval '1 second' AS at FROM generate_series(1, 50000) i) s`)
	f.exec(`ANALYZE runs_history`)
	read := func() (rows int64) {
		f.exec(`SELECT pg_stat_force_next_flush()`)
		if err := f.pool.QueryRow(t.Context(), `SELECT sum(seq_tup_read + coalesce(idx_tup_fetch, 0)) FROM pg_stat_user_tables
			WHERE relname LIKE 'runs\_history%'`).Scan(&rows); err != nil {
			t.Fatal(err)
		}
		return rows
	}
	for _, c := range []struct {
		job  int
		most int64
	}{{1, 1000}, {2, 3}} { // job 1 has never succeeded, and job 2 nearly always
		run := domain.Run{ID: domain.FirstRunID(time.Now().UTC().Truncate(24 * time.Hour).Add(-7 * time.Hour)), JobID: domain.JobID(c.job)}
		before := read()
		for range 7 { // after five calls, the generic plan is cached
			if _, _, err := f.view.SinceSuccess(t.Context(), run); err != nil {
				t.Fatal(err)
			}
		}
		if rows := (read() - before) / 7; rows == 0 || rows > c.most {
			t.Errorf("job %d: %d rows were read, want 1 to %d", c.job, rows, c.most)
		}
	}
}
