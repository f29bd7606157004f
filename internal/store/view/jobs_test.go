package view_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/belfryhq/belfry/internal/domain"
	"github.com/belfryhq/belfry/internal/store/view"
	"github.com/belfryhq/belfry/migrations"
)

// manyJobs inserts the jobs 1 to n, every fifth in group a, the others in b. The name of job 12,000 contains "Needle". Jobs 1
// and 12,000 have the tag rare and use a calendar. Job 7 is a child of all jobs but the first, and job 8 of jobs 1 and 12,000.
func (f *fixture) manyJobs(n int) {
	f.t.Helper()
	f.exec(`INSERT INTO groups (name, token_sha256) VALUES ('a', 'a'), ('b', 'b'), ('none', 'n')`)
	f.exec(`INSERT INTO jobs (id, group_name, name, enabled, kind, tags, spec, version, created_at, updated_at)
	        SELECT i, CASE WHEN i % 5 = 0 THEN 'a' ELSE 'b' END, CASE i WHEN 12000 THEN 'a Needle' ELSE 'job ' || i END, i % 3 <> 0, 'none',
	               CASE WHEN i IN (1, 12000) THEN ARRAY['rare', 'x'] ELSE ARRAY['x'] END,
	               '{"handler":"echo","description":"is one of many","schedule":{"kind":"none"}}', 1, now(), now()
	          FROM generate_series(1, $1::int) i`, n)
	f.exec(`INSERT INTO job_children (parent_id, child_id) SELECT i, 7 FROM generate_series(2, $1::int) i UNION SELECT unnest(ARRAY[12000, 1]), 8`, n)
	f.exec(`INSERT INTO calendars (name, description, days_off, updated_by) VALUES ('holidays', '', '{}', '')`)
	f.exec(`UPDATE jobs SET calendar = 'holidays' WHERE id IN (1, 12000)`)
	f.exec(`VACUUM ANALYZE jobs, job_children`)
}

// jobs reads all pages. It returns the number of pages, the number of empty pages, and the ids.
func (f *fixture) jobs(filter view.JobFilter) (pages, empty int, ids []domain.JobID) {
	f.t.Helper()
	for {
		jobs, next, err := f.view.Jobs(f.t.Context(), filter)
		if err != nil {
			f.t.Fatal(err)
		}
		if pages++; len(jobs) == 0 {
			empty++
		}
		if len(jobs) > filter.Limit || next != 0 && next <= filter.After {
			f.t.Fatalf("%d jobs of %d, next %d after %d", len(jobs), filter.Limit, next, filter.After)
		}
		for _, j := range jobs {
			ids = append(ids, j.ID)
		}
		if filter.After = next; next == 0 {
			return pages, empty, ids
		}
	}
}

// blocks returns how many blocks of jobs and of their tags have been read.
func (f *fixture) blocks() (n int64) {
	f.t.Helper()
	f.exec(`SELECT pg_stat_force_next_flush()`)
	if err := f.pool.QueryRow(f.t.Context(), `SELECT sum(heap_blks_read + heap_blks_hit + idx_blks_read + idx_blks_hit)
		FROM pg_statio_user_tables WHERE relname IN ('jobs', 'job_tags')`).Scan(&n); err != nil {
		f.t.Fatal(err)
	}
	return n
}

// A page of a search reads at most 10,000 jobs, and the next page continues from there.
func TestJobSearch(t *testing.T) {
	f := newFixture(t)
	f.manyJobs(12_500)
	disabled := false
	for _, c := range []struct {
		what   string
		filter view.JobFilter
		want   string // numbers of pages, empty pages and jobs; the first and the last job
	}{
		{"a rare word", view.JobFilter{Query: "nEEdle"}, "2 1 1 12000 12000"},
		{"the word, in its group", view.JobFilter{Query: "needle", Group: "a"}, "1 0 1 12000 12000"},
		{"the word, in the other group, which has as many jobs as a page reads", view.JobFilter{Query: "needle", Group: "b"}, "2 2 0"},
		{"the word, for a user of both groups", view.JobFilter{Query: "needle", Only: []string{"b", "a", "a"}}, "2 1 1 12000 12000"},
		{"the word, in a group that the user does not see", view.JobFilter{Query: "needle", Only: []string{"b"}, Group: "a"}, "1 1 0"},
		{"the word, for a user without groups", view.JobFilter{Query: "needle", Only: []string{}}, "1 1 0"},
		{"a tag", view.JobFilter{Tag: "rare"}, "1 0 2 1 12000"},
		{"a tag in a group", view.JobFilter{Tag: "rare", Group: "a"}, "1 0 1 12000 12000"},
		{"a tag and a word", view.JobFilter{Tag: "rare", Query: "needle"}, "1 0 1 12000 12000"},
		{"a tag and a word that no job has", view.JobFilter{Tag: "x", Query: "nothing"}, "2 2 0"},
		{"a word of many jobs, in a group", view.JobFilter{Query: "job 1234", Group: "b"}, "2 1 9 1234 12349"},
		{"all jobs of a group", view.JobFilter{Group: "a", Limit: 500}, "5 0 2500 5 12500"},
		{"the disabled jobs of a group", view.JobFilter{Enabled: &disabled, Group: "a", Limit: 400}, "3 0 833 15 12495"},
		{"parents", view.JobFilter{Child: 8}, "1 0 2 1 12000"},
		{"parents in a group", view.JobFilter{Child: 8, Group: "a"}, "1 0 1 12000 12000"},
		{"parents with a tag and a word", view.JobFilter{Child: 8, Tag: "rare", Query: "job"}, "1 0 1 1 1"},
		{"parents with a tag that no job has", view.JobFilter{Child: 8, Tag: "none"}, "1 1 0"},
		{"parents that the user does not see", view.JobFilter{Child: 8, Only: []string{"none"}}, "1 1 0"},
		{"parents of a job without parents", view.JobFilter{Child: 9}, "1 1 0"},
		{"many parents", view.JobFilter{Child: 7, Query: "needle"}, "2 1 1 12000 12000"},
		{"many parents in a group", view.JobFilter{Child: 7, Group: "a", Limit: 2500}, "2 0 2500 5 12500"},
		{"by calendar", view.JobFilter{Calendar: "holidays"}, "1 0 2 1 12000"},
		{"by calendar and group, tag and word", view.JobFilter{Calendar: "holidays", Group: "a", Tag: "rare", Query: "needle"}, "1 0 1 12000 12000"},
		{"by a calendar that no job names", view.JobFilter{Calendar: "nix"}, "1 1 0"},
		{"parents by calendar", view.JobFilter{Child: 7, Calendar: "holidays", Limit: 30000}, "1 0 1 12000 12000"},
		{"of two groups, in order", view.JobFilter{Only: []string{"b", "a", "none"}, Limit: 5000}, "3 0 12500 1 12500"},
	} {
		if c.filter.Limit == 0 {
			c.filter.Limit = 50
		}
		pages, empty, ids := f.jobs(c.filter)
		got := fmt.Sprint(pages, empty, len(ids))
		if len(ids) > 0 {
			got += fmt.Sprint(" ", ids[0], " ", ids[len(ids)-1])
		}
		if got != c.want {
			t.Errorf("%s: %s, want %s", c.what, got, c.want)
		}
		for i := range ids {
			if i > 0 && ids[i] <= ids[i-1] {
				t.Errorf("%s: %d comes after %d", c.what, ids[i], ids[i-1])
				break
			}
		}
	}
	// If few jobs are disabled, the first page finds them.
	if _, err := f.pool.Exec(t.Context(), `UPDATE jobs SET enabled = id <> 12499`); err != nil {
		t.Fatal(err)
	}
	for _, group := range []string{"", "b"} {
		pages, _, ids := f.jobs(view.JobFilter{Enabled: &disabled, Group: group, Limit: 50})
		if pages != 1 || len(ids) != 1 || ids[0] != 12499 {
			t.Errorf("the only one that is disabled, of group %q: %d pages, %v", group, pages, ids)
		}
	}
	// If no further job is disabled, the index shows that at once.
	f.exec(`VACUUM ANALYZE jobs`)
	before := f.blocks()
	if pages, _, ids := f.jobs(view.JobFilter{Enabled: &disabled, Only: []string{"a", "b"}, After: 12499, Limit: 50}); pages != 1 || len(ids) != 0 {
		t.Errorf("after the last that is disabled: %d pages, %v", pages, ids)
	}
	if n := f.blocks() - before; n > 30 {
		t.Errorf("%d blocks were read to find none", n)
	}
	// The cost of a page of jobs with a tag depends on the size of the page, not on the number of jobs with the tag.
	for _, filter := range []view.JobFilter{{Tag: "x", Limit: 5}, {Tag: "x", Group: "a", Limit: 5}, {Tag: "rare", Limit: 5}, {Tag: "rare", Only: []string{"a", "b"}, Limit: 5}} {
		before := f.blocks()
		jobs, _, err := f.view.Jobs(t.Context(), filter)
		if n := f.blocks() - before; err != nil || len(jobs) < 2 || n > 100 {
			t.Errorf("%d blocks were read for %d jobs with tag %s of group %q, %v", n, len(jobs), filter.Tag, filter.Group, err)
		}
	}
	// A small page reads few jobs.
	jobs, next, err := f.view.Jobs(t.Context(), view.JobFilter{Query: "one of MANY", Limit: 3})
	if err != nil || len(jobs) != 3 || next < 3 || next > 250 {
		t.Errorf("%d jobs, next %d, %v", len(jobs), next, err)
	}
}

func TestTagsFollowTheirJobs(t *testing.T) {
	f := newFixture(t)
	f.exec(`INSERT INTO groups (name, token_sha256) VALUES ('a', 'a'), ('b', 'b')`)
	f.exec(`INSERT INTO jobs (id, group_name, name, enabled, kind, tags, spec, version, created_at, updated_at)
	        SELECT i, 'a', i, true, 'none', t, '{}', 1, now(), now() FROM (VALUES (1, '{x,y}'::text[]), (2, '{x}'), (3, '{}')) v (i, t)`)
	check := func(what string, want ...string) {
		t.Helper()
		for i, filter := range []view.JobFilter{{Tag: "x"}, {Tag: "x", Group: "a"}, {Tag: "x", Only: []string{"a", "b"}}, {Tag: "y"}} {
			filter.Limit = 10
			if _, _, ids := f.jobs(filter); fmt.Sprint(ids) != want[i] {
				t.Errorf("%s, %+v: %v, want %s", what, filter, ids, want[i])
			}
		}
	}
	check("at first", "[1 2]", "[1 2]", "[1 2]", "[1]")
	f.exec(`UPDATE jobs SET tags = '{y,x,y}' WHERE id = 3`)
	f.exec(`UPDATE jobs SET tags = '{x}', name = 'one' WHERE id = 1`)
	check("with other tags", "[1 2 3]", "[1 2 3]", "[1 2 3]", "[3]")
	f.exec(`UPDATE jobs SET group_name = 'b' WHERE id = 2`)
	check("in another group", "[1 2 3]", "[1 3]", "[1 2 3]", "[3]")
	f.exec(`DELETE FROM jobs WHERE id = 3`)
	check("deleted", "[1 2]", "[1]", "[1 2]", "[]")
	text, err := migrations.FS.ReadFile("00026_job_tags.sql")
	if err != nil {
		t.Fatal(err)
	}
	up, down, _ := strings.Cut(string(text), "-- +goose Down")
	f.exec(down)
	f.exec(up)
	check("after an update to this version", "[1 2]", "[1]", "[1 2]", "[]")
}
