package view_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/belfryhq/belfry/internal/domain"
	"github.com/belfryhq/belfry/internal/pgtest"
	"github.com/belfryhq/belfry/internal/store"
	"github.com/belfryhq/belfry/internal/store/view"
)

// search reads all pages of a search. It checks that the pages go back in time, and returns the runs as list does.
func (f *fixture) search(filter view.RunFilter, q view.RunSearch) (runs []string, pages int, last view.FoundRuns) {
	f.t.Helper()
	before := time.Now().AddDate(1, 0, 0)
	for {
		found, err := f.view.SearchRuns(f.t.Context(), filter, q)
		if err != nil {
			f.t.Fatal(err)
		}
		for _, r := range found.Runs {
			runs = append(runs, fmt.Sprintf("%d.%d", r.ID.Time().Second(), r.JobID))
		}
		if pages++; pages > 10_000 || len(found.Runs) > filter.Limit || found.SearchedBackTo.After(before) {
			f.t.Fatalf("page %d: %d runs, back to %s after %s", pages, len(found.Runs), found.SearchedBackTo, before)
		}
		if before = found.SearchedBackTo; found.Next.IsZero() {
			return runs, pages, found
		}
		if want := found.Next.Time().Add(time.Millisecond); !before.Equal(want) {
			f.t.Fatalf("page %d: back to %s, but the next one begins at %s", pages, before, found.Next.Time())
		}
		filter.Before = found.Next
	}
}

// Every page size and every bound of the work finds each matching run once, whatever index the filter uses.
func TestRunSearch(t *testing.T) {
	f := newFixture(t)
	base := time.Now().UTC().Truncate(time.Minute).Add(-time.Minute)
	id := func(second, job int) domain.RunID {
		return domain.ScheduledRunID(domain.JobID(job), base.Add(time.Duration(second)*time.Second), 0)
	}
	f.exec(`INSERT INTO job_versions (job_id, version, spec, created_at, valid_from, changed_by, change)
	        VALUES (1, 1, '{"name":"one","param":"Region EU-west"}', now(), now(), 'me', 'created'), (2, 1, '{"name":"two"}', now(), now(), 'me', 'created')`)
	f.finished(id(1, 1), 1, "a", "succeeded", "", "schedule")
	f.finished(id(2, 2), 2, "b", "failed", "timeout", "schedule")
	f.finished(id(3, 1), 1, "a", "failed", "handler_error", "misfire")
	f.finished(id(4, 2), 2, "b", "succeeded", "", "schedule")
	f.finished(id(5, 3), 3, "c", "cancelled", "killed", "schedule")
	f.live(id(6, 1), 1, "a", "queued")
	f.live(id(7, 2), 2, "b", "pending")
	f.exec(`UPDATE runs_history SET message = 'Disk FULL on /dev/sda1' WHERE id = ANY ($1)`, []domain.RunID{id(2, 2), id(3, 1)})
	f.exec(`UPDATE runs_history SET output = E'100% done\nÄpfel_7' WHERE id = $1`, id(4, 2))
	f.exec(`UPDATE runs_history SET param = 'disk full?' WHERE id = ANY ($1)`, []domain.RunID{id(5, 3), id(1, 1)})
	f.exec(`UPDATE runs_live SET message = 'the disk is full', param = 'region us' WHERE id = $1`, id(7, 2))
	// A run that is being moved to the history is in both tables.
	f.live(id(10, 1), 1, "a", "running")
	f.exec(`UPDATE runs_live SET message = 'moving' WHERE id = $1`, id(10, 1))
	f.finished(id(10, 1), 1, "a", "failed", "handler_error", "schedule")
	f.exec(`UPDATE runs_history SET message = 'disk full at last' WHERE id = $1`, id(10, 1))
	family, child := id(8, 1), id(9, 2)
	f.finished(family, 1, "a", "succeeded", "", "schedule")
	f.finished(child, 2, "b", "succeeded", "", "child")
	f.exec(`UPDATE runs_history SET output = 'child of a disk full run', parent_run_id = $2 WHERE id = $1`, child, family)
	f.exec(`INSERT INTO bulk_actions (action, filter, user_id, token_id, created_by, remote, matched, at_least, jobs) VALUES ('retry', '{}', 1, 0, 'me', '', 1, false, '[]')`)
	f.exec(`INSERT INTO bulk_runs (bulk_id, run_id) SELECT 1, unnest($1::uuid[])`, []domain.RunID{id(2, 2), id(3, 1), id(4, 2), domain.NewRunID(base)})
	failed := []domain.State{domain.Failed}
	for _, c := range []struct {
		name   string
		filter view.RunFilter
		text   string
		want   string
	}{
		{"message and param, ignoring case", view.RunFilter{}, "DISK full", "10.1 9.2 5.3 3.1 2.2 1.1"},
		{"message of a live run", view.RunFilter{}, "disk is", "7.2"},
		{"old message of a run that has ended", view.RunFilter{}, "moving", ""},
		{"output", view.RunFilter{}, "äPFEL", "4.2"},
		{"no pattern language", view.RunFilter{}, "0% d", "4.2"},
		{"no wildcard", view.RunFilter{}, "d_sk", ""},
		{"the param of the job's version", view.RunFilter{}, "eu-WEST", "10.1 8.1 6.1 3.1"},
		{"the param of the run", view.RunFilter{}, "region us", "7.2"},
		{"over two lines", view.RunFilter{}, "done\nä", "4.2"},
		{"of a job", view.RunFilter{JobID: 1}, "disk full", "10.1 3.1 1.1"},
		{"of a group", view.RunFilter{Group: "b"}, "disk", "9.2 7.2 2.2"},
		{"failed", view.RunFilter{States: failed}, "full", "10.1 3.1 2.2"},
		{"failed of a group", view.RunFilter{States: failed, Group: "a"}, "full", "10.1 3.1"},
		{"unfinished", view.RunFilter{States: []domain.State{domain.Queued, domain.Pending}}, "region", "7.2 6.1"},
		{"cause", view.RunFilter{Cause: "misfire"}, "full", "3.1"},
		{"reason", view.RunFilter{Reason: "timeout"}, "disk full", "2.2"},
		{"instance", view.RunFilter{Instance: "two"}, "full", ""},
		{"from and to", view.RunFilter{From: base.Add(2 * time.Second), To: base.Add(5 * time.Second)}, "full", "3.1 2.2"},
		{"visible groups", view.RunFilter{Only: []string{"a", "c"}}, "disk", "10.1 5.3 3.1 1.1"},
		{"no visible group", view.RunFilter{Only: []string{}}, "disk", ""},
		{"a hidden group", view.RunFilter{Only: []string{"a"}, Group: "b"}, "disk", ""},
		{"children", view.RunFilter{ParentRunID: family}, "disk", "9.2"},
		{"children without the text", view.RunFilter{ParentRunID: family}, "region", ""},
		{"of a bulk action", view.RunFilter{BulkID: 1}, "disk", "3.1 2.2"},
		{"of a bulk action and a group", view.RunFilter{BulkID: 1, Group: "b"}, "disk", "2.2"},
		{"of another bulk action", view.RunFilter{BulkID: 2}, "disk", ""},
	} {
		for _, size := range []struct{ limit, bound int }{{1, 1}, {2, 3}, {50, 1}, {50, 20_000}} {
			f.view.BoundSearches(size.bound, time.Hour)
			c.filter.Limit = size.limit
			runs, _, _ := f.search(c.filter, view.RunSearch{Text: c.text})
			if got := strings.Join(runs, " "); got != c.want {
				t.Errorf("%s, %d a page, %d texts a page: %s, want %s", c.name, size.limit, size.bound, got, c.want)
			}
		}
	}
	if got := f.list(view.RunFilter{BulkID: 1, Limit: 2}); got != "4.2 3.1 2.2" {
		t.Errorf("the runs of the bulk action are listed as %s", got)
	}
	// At the end, searched back to says where the range or the history begins.
	for _, c := range []struct {
		filter view.RunFilter
		want   time.Time
	}{
		{view.RunFilter{Limit: 50}, base.Add(time.Second)},
		{view.RunFilter{Limit: 50, From: base.Add(-time.Hour)}, base.Add(-time.Hour)},
		{view.RunFilter{Limit: 50, Before: id(1, 1)}, base.Add(time.Second)},
		{view.RunFilter{Limit: 50, Group: "none"}, time.Time{}},
	} {
		f.view.BoundSearches(20_000, time.Hour)
		if _, pages, last := f.search(c.filter, view.RunSearch{Text: "disk"}); pages != 1 || !last.SearchedBackTo.Equal(c.want) {
			t.Errorf("%+v: %d pages, back to %s, want %s", c.filter, pages, last.SearchedBackTo, c.want)
		}
	}
}

// A reader who gets masked texts cannot find a secret by guessing it, and finds what the masked texts say.
func TestRunSearchHidesSecrets(t *testing.T) {
	f := newFixture(t)
	f.exec(`INSERT INTO job_versions (job_id, version, spec, created_at, valid_from, changed_by, change)
	        VALUES (1, 1, '{"name":"one","param":"{\"api_token\":\"hunter2-job\",\"month\":\"May\"}"}', now(), now(), 'me', 'created')`)
	id := domain.NewRunID(time.Now())
	f.finished(id, 1, "a", "failed", "", "schedule")
	f.exec(`UPDATE runs_history SET message = 'login failed: password=hunter2-message', output = 'curl -u me:hunter2-output x'`)
	for text, want := range map[string][2]bool{ // found in the texts, and in the masked texts
		"hunter2-message": {true, false}, "hunter2-output": {true, false}, "hunter2-job": {true, false}, "password=h": {true, false},
		"login FAILED": {true, true}, "may": {true, true}, "password=•": {false, true},
	} {
		for i, masked := range []bool{false, true} {
			runs, _, _ := f.search(view.RunFilter{Limit: 5}, view.RunSearch{Text: text, Masked: masked})
			if found := len(runs) > 0; found != want[i] {
				t.Errorf("%q, masked %v: found %v", text, masked, found)
			}
		}
	}
	f.exec(`UPDATE runs_history SET param = 'token: hunter2-run'`)
	if runs, _, _ := f.search(view.RunFilter{Limit: 5}, view.RunSearch{Text: "hunter2-run", Masked: true}); len(runs) > 0 {
		t.Error("the secret of the run's own param is found")
	}
}

// A page ends at its bounds, makes progress in any case, and ends with the request.
func TestRunSearchIsBounded(t *testing.T) {
	f, begun := newFixture(t), time.Now()
	f.exec(`INSERT INTO runs_history (id, job_id, job_version, group_name, cause, state, reason, message, output, attempt, due_at, created_at, finished_at, last_line, route)
	        SELECT (substr(first_run_id(now() - i * interval '1 second')::text, 1, 14) || '8000-8000-' || lpad(to_hex(i), 12, '0'))::uuid, 1, 1, 'g', 'manual',
	          'succeeded', '', CASE WHEN i = 1200 THEN 'needle' ELSE 'hay' END, repeat('x', CASE WHEN i <= 100 THEN 65536 ELSE 10 END), 1, now(), now(), now(), 0, ''
	          FROM generate_series(1, 1200) i`)
	f.view.BoundSearches(500, time.Hour)
	found, err := f.view.SearchRuns(t.Context(), view.RunFilter{Limit: 50}, view.RunSearch{Text: "needle"})
	if err != nil || len(found.Runs) != 0 || found.Next.IsZero() || found.SearchedBackTo.Before(begun.Add(-13*time.Minute)) {
		t.Errorf("%d runs, next %s, back to %s, %v", len(found.Runs), found.Next, found.SearchedBackTo, err)
	}
	if runs, pages, _ := f.search(view.RunFilter{Limit: 50}, view.RunSearch{Text: "needle"}); len(runs) != 1 || pages < 2 || pages > 3 {
		t.Errorf("%d runs on %d pages", len(runs), pages)
	}
	f.view.BoundSearches(20_000, 0) // each page ends after its first batch
	if runs, pages, _ := f.search(view.RunFilter{Limit: 50}, view.RunSearch{Text: "needle"}); len(runs) != 1 || pages < 6 {
		t.Errorf("%d runs on %d pages", len(runs), pages)
	}
	free := f.view.OccupySearches()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := f.view.SearchRuns(ctx, view.RunFilter{Limit: 50}, view.RunSearch{Text: "needle"}); !errors.Is(err, context.Canceled) {
		t.Errorf("a request that is gone: %v", err)
	}
	if _, err := f.view.SearchRuns(t.Context(), view.RunFilter{Limit: 50}, view.RunSearch{Text: "needle"}); domain.CodeOf(err) != domain.Limited {
		t.Errorf("one search too many: %v", err)
	}
	free()
	if _, err := f.view.SearchRuns(ctx, view.RunFilter{Limit: 50}, view.RunSearch{Text: "needle"}); err == nil {
		t.Error("a search without a reader continues")
	}
	f.search(view.RunFilter{Limit: 50}, view.RunSearch{Text: "needle"})
}

// BenchmarkRunSearch measures the cost of one searched run. Each operation is a page over 20,000 runs with texts of usual size.
func BenchmarkRunSearch(b *testing.B) {
	const runs = 40_000
	s, err := store.Open(b.Context(), store.Config{URL: pgtest.Database(b, store.Migrate)})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(s.Close)
	for _, sql := range []string{
		`INSERT INTO job_versions (job_id, version, spec, created_at, valid_from, changed_by, change)
		 SELECT i, 1, '{"name":"n","param":"{\"month\":\"2026-11\",\"region\":\"eu\"}"}', now(), now(), 'b', 'created' FROM generate_series(0, 999) i`,
		fmt.Sprintf(`INSERT INTO runs_history (id, job_id, job_version, group_name, cause, state, reason, message, output, attempt, due_at, created_at, finished_at, last_line, route)
		 SELECT (substr(first_run_id(now() - i * interval '1 second')::text, 1, 14) || '8000-8000-' || lpad(to_hex(i), 12, '0'))::uuid, i %% 1000, 1, 'g' || i %% 10, 'schedule',
		   CASE WHEN i %% 10 = 0 THEN 'failed' ELSE 'succeeded' END, '', CASE WHEN i %% 10 = 0 THEN 'exit status 1: cannot reach the database at 10.0.0.' || i %% 200 ELSE '' END,
		   '{"rows":' || i || ',"seconds":3.5,"file":"/data/out/' || i || '.csv"}', 1, now(), now(), now(), 0, '' FROM generate_series(1, %d) i`, runs),
		`VACUUM ANALYZE runs_history`,
	} {
		if _, err := s.Pool().Exec(b.Context(), sql); err != nil {
			b.Fatal(err)
		}
	}
	v := view.New(s.Pool())
	v.BoundSearches(20_000, time.Hour)
	for _, masked := range []bool{false, true} {
		b.Run(fmt.Sprintf("masked=%v", masked), func(b *testing.B) {
			for b.Loop() {
				if found, err := v.SearchRuns(b.Context(), view.RunFilter{Limit: 50}, view.RunSearch{Text: "no such text", Masked: masked}); err != nil || found.Next.IsZero() {
					b.Fatal(found.Next, err)
				}
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/20_000, "ns/run")
		})
	}
}
