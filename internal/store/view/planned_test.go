package view_test

import (
	"slices"
	"testing"
	"time"

	"github.com/belfryhq/belfry/internal/domain"
	"github.com/belfryhq/belfry/internal/store/view"
)

// planned inserts a run that is pending and due at a given instant.
func (f *fixture) planned(id domain.RunID, job int, group string, due time.Time, held bool) {
	f.t.Helper()
	f.exec(`INSERT INTO runs_live (id, job_id, job_version, group_name, cause, state, fire_time, due_at, held, held_by)
	        VALUES ($1, $2, 1, $3, 'schedule', 'pending', $4, $5, $6, CASE WHEN $6 THEN gen_random_uuid() END)`, id, job, group, id.Time(), due, held)
}

// pages reads all pages and returns the ids. Every page but the last must be full.
func (f *fixture) pages(filter view.RunFilter) (ids []domain.RunID) {
	f.t.Helper()
	for {
		runs, next, err := f.view.Runs(f.t.Context(), filter)
		if err != nil {
			f.t.Fatal(err)
		}
		for _, r := range runs {
			ids = append(ids, r.ID)
		}
		if next.IsZero() {
			return ids
		}
		if len(runs) != filter.Limit {
			f.t.Fatalf("a page of %d has %d runs", filter.Limit, len(runs))
		}
		filter.Before = next
	}
}

// A list without planned runs has runs that are due, held runs, and planned runs that ended, such as killed ones. The instants are an
// hour away, so that no run comes due while the test runs.
func TestUnplannedRuns(t *testing.T) {
	f := newFixture(t)
	now := time.Now().UTC()
	next := byte(0)
	at := func(d time.Duration) domain.RunID {
		next++
		id := domain.FirstRunID(now.Add(d))
		id[6], id[8], id[15] = 0x80, 0x80, next
		return id
	}
	killed, second, jitter := at(time.Hour), at(time.Hour), at(-time.Minute)
	f.finished(killed, 1, "a", "cancelled", "killed", "schedule")
	f.planned(second, 1, "a", now.Add(time.Hour), false)
	f.planned(jitter, 1, "a", now.Add(time.Hour), false)
	held, due := at(-2*time.Minute), at(-3*time.Minute)
	f.planned(held, 1, "a", now.Add(time.Hour), true) // its block policy held it before it was due
	f.planned(due, 1, "a", now.Add(-3*time.Minute), false)
	retrying, old := at(-4*time.Minute), at(-5*time.Minute)
	f.live(retrying, 1, "a", "retrying")
	f.exec(`UPDATE runs_live SET due_at = now() + interval '1 hour' WHERE id = $1`, retrying)
	f.finished(old, 1, "a", "succeeded", "", "schedule")
	all := []domain.RunID{second, killed, jitter, held, due, retrying, old}
	slices.SortFunc(all, func(a, b domain.RunID) int { return slices.Compare(b[:], a[:]) })
	without := slices.DeleteFunc(slices.Clone(all), func(id domain.RunID) bool { return id == second || id == jitter })
	for _, c := range []struct {
		name   string
		filter view.RunFilter
		want   []domain.RunID
	}{
		{"with planned runs", view.RunFilter{}, all},
		{"all", view.RunFilter{Unplanned: true}, without},
		{"of a job", view.RunFilter{Unplanned: true, JobID: 1}, without},
		{"of a group", view.RunFilter{Unplanned: true, Group: "a"}, without},
		{"of two groups", view.RunFilter{Unplanned: true, Only: []string{"a", "b"}}, without},
		{"of another group", view.RunFilter{Unplanned: true, Only: []string{"b"}}, nil},
		{"pending", view.RunFilter{Unplanned: true, States: []domain.State{domain.Pending}}, []domain.RunID{held, due}},
		{"pending or final", view.RunFilter{Unplanned: true, States: []domain.State{domain.Pending, domain.Succeeded}}, []domain.RunID{held, due, old}},
		{"retrying", view.RunFilter{Unplanned: true, States: []domain.State{domain.Retrying}}, []domain.RunID{retrying}},
		{"before a run", view.RunFilter{Unplanned: true, Before: due}, []domain.RunID{retrying, old}},
	} {
		for _, limit := range []int{1, 2, 50} {
			c.filter.Limit = limit
			if got := f.pages(c.filter); !slices.Equal(got, c.want) {
				t.Errorf("%s, %d a page: %s, want %s", c.name, limit, got, c.want)
			}
		}
	}
	f.exec(`UPDATE runs_live SET parent_run_id = $1`, old)
	for _, limit := range []int{1, 50} {
		want := []domain.RunID{held, due, retrying}
		if got := f.pages(view.RunFilter{Unplanned: true, ParentRunID: old, Limit: limit}); !slices.Equal(got, want) {
			t.Errorf("the children, %d a page: %s, want %s", limit, got, want)
		}
	}
}

// A page without planned runs does not read the planned runs, however many there are.
func TestPlannedRunsAreNotRead(t *testing.T) {
	const planned = 20_000
	f := newFixture(t)
	f.exec(`ALTER TABLE runs_live SET (autovacuum_enabled = false)`)
	f.exec(`INSERT INTO runs_history (id, job_id, job_version, group_name, cause, state, reason, message, output, attempt, due_at, created_at, finished_at, last_line, route)
	        SELECT (substr(first_run_id(now())::text, 1, 14) || '8000-8000-' || lpad(to_hex(i), 12, '0'))::uuid, i % 500, 1, 'g' || i % 10, 'schedule',
	          'succeeded', '', '', '', 1, now(), now(), now(), 0, '' FROM generate_series(1, 5000) i`)
	f.exec(`INSERT INTO runs_live (id, job_id, job_version, group_name, cause, due_at)
	        SELECT (substr(first_run_id(at)::text, 1, 14) || '8000-8000-' || lpad(to_hex(i), 12, '0'))::uuid, 500 + i, 1, 'g' || i % 10, 'schedule', at
	          FROM (SELECT i, now() + interval '1 hour' + i % 5 * interval '1 second' AS at FROM generate_series(1, $1::int) i) s`, planned)
	read := func() (rows int64) {
		f.exec(`SELECT pg_stat_force_next_flush()`)
		if err := f.pool.QueryRow(t.Context(), `SELECT seq_tup_read + idx_tup_fetch FROM pg_stat_user_tables WHERE relname = 'runs_live'`).Scan(&rows); err != nil {
			t.Fatal(err)
		}
		return rows
	}
	before := read()
	if _, _, err := f.view.Runs(t.Context(), view.RunFilter{Limit: 50}); err != nil || read()-before < 50 {
		t.Fatalf("the counters do not change, so this test cannot fail (%v)", err)
	}
	for _, statistics := range []string{"none", "true"} {
		for name, filter := range map[string]view.RunFilter{
			"all": {}, "of a group": {Group: "g3"}, "of a job": {JobID: 7}, "of some groups": {Only: []string{"g1", "g2"}},
			"pending": {States: []domain.State{domain.Pending}}, "succeeded": {States: []domain.State{domain.Succeeded}},
		} {
			filter.Unplanned, filter.Limit = true, 50
			before := read()
			for range 7 { // after five calls, the generic plan is cached
				if _, _, err := f.view.Runs(t.Context(), filter); err != nil {
					t.Fatal(err)
				}
			}
			if rows := (read() - before) / 7; rows > 500 {
				t.Errorf("%s, statistics %s: %d live runs were read for a page", name, statistics, rows)
			}
		}
		f.exec(`ANALYZE runs_live, runs_history`)
		f.exec(`DISCARD PLANS`)
	}
}
