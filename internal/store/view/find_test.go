package view_test

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/belfryhq/belfry/internal/store/runstats"
	"github.com/belfryhq/belfry/internal/words"
)

// Names are indexed by Postgres, and searched and checked by package words.
func TestWordsInPostgres(t *testing.T) {
	f := newFixture(t)
	character := rapid.OneOf(rapid.RuneFrom([]rune("aB1 _-./数据ァ한ДёΣÄß×º「Ａ１🔔\u3007\u3031\ufb00\u2160\U00020001")), rapid.Rune())
	rapid.Check(t, func(t *rapid.T) {
		name := strings.ReplaceAll(rapid.StringOfN(character, 0, 60, -1).Draw(t, "name"), "\x00", "")
		var starts []string
		if err := f.pool.QueryRow(context.Background(), `SELECT coalesce(array_agg(w), '{}') FROM word_starts($1) w`, name).Scan(&starts); err != nil {
			t.Fatal(err)
		}
		want := words.Starts(name)
		slices.Sort(starts)
		slices.Sort(want)
		if !slices.Equal(starts, want) {
			t.Fatalf("%q: Postgres finds %q, package words %q", name, starts, want)
		}
	})
}

func (f *fixture) found(only []string, text string, limit int) string {
	f.t.Helper()
	found, err := f.view.Find(f.t.Context(), only, text, limit)
	if err != nil {
		f.t.Fatal(err)
	}
	jobs := make([]string, len(found.Jobs))
	for i, j := range found.Jobs {
		jobs[i] = fmt.Sprintf("%d:%s/%s", j.ID, j.Group, j.Name)
	}
	return fmt.Sprint(found.Groups, jobs, found.Tags)
}

func TestFind(t *testing.T) {
	f := newFixture(t)
	f.exec(`INSERT INTO groups (name, token_sha256) VALUES ('billing', 'a'), ('ops-eu', 'b'), ('billing-eu', 'c')`)
	f.exec(`INSERT INTO jobs (id, group_name, name, enabled, kind, tags, spec, version, created_at, updated_at)
	        SELECT v.*, '{}', 1, now(), now() FROM (VALUES (1, 'billing', 'Nightly report', true, 'none', '{prod}'::text[]), (2, 'ops-eu', 'nightly-backup.db', true, 'none', '{prod,Eu}'),
	        (3, 'billing-eu', 'report', true, 'none', '{preview}'), (4, 'ops-eu', '数据库备份', true, 'none', '{}')) v`)
	for _, c := range []struct {
		only       []string
		text, want string
	}{
		{nil, "report", "[] [3:billing-eu/report 1:billing/Nightly report] []"},
		{nil, "REP nigh", "[] [1:billing/Nightly report] []"},
		{nil, "eport", "[] [] []"},
		{nil, "db", "[] [2:ops-eu/nightly-backup.db] []"},
		{nil, "备份", "[] [4:ops-eu/数据库备份] []"},
		{nil, "eu rep", "[] [3:billing-eu/report] []"},
		{nil, "billing", "[billing billing-eu] [3:billing-eu/report 1:billing/Nightly report] []"},
		{nil, "billing/nightly", "[] [1:billing/Nightly report] []"},
		{nil, "eu", "[billing-eu ops-eu] [3:billing-eu/report 4:ops-eu/数据库备份 2:ops-eu/nightly-backup.db] []"},
		{nil, "Eu", "[billing-eu ops-eu] [3:billing-eu/report 4:ops-eu/数据库备份 2:ops-eu/nightly-backup.db] [Eu]"},
		{nil, "pr", "[] [] [prod preview]"},
		{nil, "PRO", "[] [] [prod]"},
		{nil, "  ", "[] [] []"},
		{nil, "-", "[] [] []"},
		{[]string{}, "report", "[] [] []"},
		{[]string{"billing"}, "nightly", "[] [1:billing/Nightly report] []"},
		{[]string{"billing", "ops-eu"}, "nightly", "[] [1:billing/Nightly report 2:ops-eu/nightly-backup.db] []"},
		{[]string{"ops-eu"}, "billing", "[] [] []"},
		{[]string{"ops-eu"}, "pr", "[] [] [prod]"},
	} {
		if got := f.found(c.only, c.text, 10); got != c.want {
			t.Errorf("%q in %v: %s, want %s", c.text, c.only, got, c.want)
		}
	}
	if got := f.found(nil, "nightly", 1); got != "[] [1:billing/Nightly report] []" {
		t.Errorf("limited: %s", got)
	}
	f.exec(`UPDATE jobs SET name = 'weekly' WHERE id = 1`)
	f.exec(`UPDATE jobs SET group_name = 'billing' WHERE id = 3`)
	f.exec(`DELETE FROM jobs WHERE id = 4`)
	for text, want := range map[string]string{"nightly": "[] [2:ops-eu/nightly-backup.db] []", "week": "[] [1:billing/weekly] []", "备": "[] [] []"} {
		if got := f.found(nil, text, 10); got != want {
			t.Errorf("%q after changes: %s, want %s", text, got, want)
		}
	}
	if got := f.found([]string{"billing"}, "report", 10); got != "[] [3:billing/report] []" {
		t.Errorf("in another group: %s", got)
	}
}

func TestTags(t *testing.T) {
	f := newFixture(t)
	f.exec(`INSERT INTO groups (name, token_sha256) VALUES ('a', 'a'), ('b', 'b')`)
	f.exec(`INSERT INTO jobs (id, group_name, name, enabled, kind, tags, spec, version, created_at, updated_at)
	        SELECT i, 'a', i, true, 'none', t, '{}', 1, now(), now() FROM (VALUES (1, '{x,y,y}'::text[]), (2, '{x}'), (3, '{}')) v (i, t)`)
	check := func(what string, want ...string) {
		t.Helper()
		for _, fold := range []string{"", ", folded"} {
			if fold != "" {
				if err := runstats.New(f.pool).Tend(t.Context()); err != nil {
					t.Fatal(err)
				}
			}
			for i, c := range []struct {
				only  []string
				begin string
			}{{nil, ""}, {nil, "x"}, {[]string{"a"}, ""}, {[]string{"b", "a"}, "y"}, {[]string{}, ""}} {
				tags, err := f.view.Tags(t.Context(), c.only, c.begin, 10)
				if err != nil || fmt.Sprint(tags) != want[i] {
					t.Errorf("%s%s: tags of %v with %q: %v, %v, want %s", what, fold, c.only, c.begin, tags, err, want[i])
				}
			}
		}
	}
	check("at first", "[{x 2} {y 1}]", "[{x 2}]", "[{x 2} {y 1}]", "[{y 1}]", "[]")
	f.exec(`UPDATE jobs SET tags = '{y,x,y}' WHERE id = 3`)
	f.exec(`UPDATE jobs SET tags = '{y,z}', name = 'one' WHERE id = 1`)
	check("with other tags", "[{x 2} {y 2} {z 1}]", "[{x 2}]", "[{x 2} {y 2} {z 1}]", "[{y 2}]", "[]")
	f.exec(`UPDATE jobs SET group_name = 'b' WHERE id = 3`)
	check("in another group", "[{x 2} {y 2} {z 1}]", "[{x 2}]", "[{x 1} {y 1} {z 1}]", "[{y 2}]", "[]")
	f.exec(`DELETE FROM jobs WHERE id = 1`)
	check("deleted", "[{x 2} {y 1}]", "[{x 2}]", "[{x 1}]", "[{y 1}]", "[]")
	var rows int
	if err := f.pool.QueryRow(t.Context(), `SELECT count(*) FROM tag_counts`).Scan(&rows); err != nil || rows != 3 {
		t.Errorf("%d rows remain, want 3: %v", rows, err)
	}
}

// namedJobs inserts jobs from..to. Nine of ten have a common word, group and tag; every thousandth has a rare word.
func (f *fixture) namedJobs(from, to int) {
	f.t.Helper()
	f.exec(`INSERT INTO groups (name, token_sha256) SELECT 'g' || i, i::text::bytea FROM generate_series(0, 9) i ON CONFLICT DO NOTHING`)
	f.exec(`INSERT INTO groups (name, token_sha256) VALUES ('small', 's') ON CONFLICT DO NOTHING`)
	// As the triggers do, but in one statement each.
	f.exec(`ALTER TABLE jobs DISABLE TRIGGER USER`)
	f.exec(`INSERT INTO jobs (id, group_name, name, enabled, kind, tags, spec, version, created_at, updated_at)
	        SELECT i, CASE WHEN i % 500 = 11 THEN 'small' ELSE 'g' || i % 10 END, CASE WHEN i % 10 = 0 THEN 'weekly-' ELSE 'nightly-' END || CASE WHEN i % 1000 = 7 THEN 'rare-' ELSE 'report-' END || i,
	               true, 'none', ARRAY['all', 'tag' || i % 500], '{}', 1, now(), now() FROM generate_series($1::int, $2::int) i`, from, to)
	f.exec(`INSERT INTO job_words SELECT w, group_name, id, name FROM jobs, regexp_split_to_table(name, '-') w WHERE id BETWEEN $1 AND $2`, from, to)
	f.exec(`INSERT INTO tag_counts (tag, group_name, jobs) SELECT tag, group_name, count(*) FROM jobs, unnest(tags) tag WHERE id BETWEEN $1 AND $2 GROUP BY 1, 2`, from, to)
	f.exec(`INSERT INTO job_counts SELECT group_name, count(*), count(*) FROM jobs WHERE id BETWEEN $1 AND $2 GROUP BY 1`, from, to)
	f.exec(`INSERT INTO job_failures (job_id, failing, streak, version, hour, hour_failed, failing_since, failed_at, run, past_failed, reason, message, group_name)
	        SELECT id, true, 1, 1, 0, 0, now(), now(), gen_random_uuid(), '', '', '', group_name FROM jobs WHERE id BETWEEN $1 AND $2 AND id % 100 = 3`, from, to)
	f.exec(`INSERT INTO job_pauses (job_id, group_name, from_at, to_at, reason, paused_by)
	        SELECT id, group_name, now(), CASE WHEN id % 200 = 3 THEN now() END, '', '' FROM jobs WHERE id BETWEEN $1 AND $2 AND id % 100 = 3`, from, to)
	f.exec(`ALTER TABLE jobs ENABLE TRIGGER USER`)
	if err := runstats.New(f.pool).Tend(f.t.Context()); err != nil {
		f.t.Fatal(err)
	}
	// Reading along an index costs no other block only once vacuum has marked the rows as visible to all. It does not while another transaction of
	// this database has an older snapshot, such as one of autovacuum.
	for visible := false; !visible; {
		f.exec(`VACUUM ANALYZE jobs, job_words, tag_counts, job_failures, job_pauses`)
		if err := f.pool.QueryRow(f.t.Context(), `SELECT relallvisible = relpages FROM pg_class WHERE oid = 'job_words'::regclass`).Scan(&visible); err != nil {
			f.t.Fatal(err)
		}
	}
}

// blocksOf returns how many blocks of tables and their indexes have been read.
func (f *fixture) blocksOf(tables ...string) (n int64) {
	f.t.Helper()
	f.exec(`SELECT pg_stat_force_next_flush()`)
	if err := f.pool.QueryRow(f.t.Context(), `SELECT sum(heap_blks_read + heap_blks_hit + coalesce(idx_blks_read + idx_blks_hit, 0))
		FROM pg_statio_user_tables WHERE relname = ANY ($1)`, tables).Scan(&n); err != nil {
		f.t.Fatal(err)
	}
	return n
}

const fewBlocks = 400

// The cost of a search, of the list of tags, and of the states of groups does not grow with the number of jobs: with ten or a hundred times as many,
// each reads at most twice as many blocks. Below fewBlocks, the plan and the places of the rows decide.
func TestFindCostsTheSame(t *testing.T) {
	few, many := 10_000, 100_000
	if os.Getenv("BELFRY_TEST_LONG") != "" {
		many = 1_000_000
	} else if testing.Short() {
		t.Skip("NOT COVERED: searches among 100,000 jobs, with -short")
	}
	f := newFixture(t)
	stats := runstats.New(f.pool)
	find := func(only []string, text string) func() (string, error) {
		return func() (string, error) {
			found, err := f.view.Find(t.Context(), only, text, 10)
			return fmt.Sprint(len(found.Groups), len(found.Jobs), len(found.Tags)), err
		}
	}
	tags := func(only []string, begin string) func() (string, error) {
		return func() (string, error) {
			found, err := f.view.Tags(t.Context(), only, begin, 10)
			return fmt.Sprint(len(found)), err
		}
	}
	all := []string{"g0", "g1", "g2", "g3", "g4", "g5", "g6", "g7", "g8", "g9", "small"}
	scenes := []struct {
		name string
		read func() (string, error)
		want string
	}{
		{"a common word", find(nil, "nightly"), "0 10 0"},
		{"the beginning of a common word", find(nil, "n"), "0 10 0"},
		{"the beginning of many words", find(nil, "1"), "0 10 0"},
		{"common words", find(nil, "nightly report"), "0 10 0"},
		{"common words without a job", find(nil, "nightly weekly"), "0 0 0"},
		{"a rare and a common word", find(nil, "rare nightly"), "0 10 0"},
		{"a group and a common word", find(nil, "g3 nightly"), "0 10 0"},
		{"a group", find(nil, "g3"), "1 10 0"},
		{"no job", find(nil, "none"), "0 0 0"},
		{"in a small group", find([]string{"small"}, "nightly"), "0 10 0"},
		{"common words in a small group", find([]string{"small"}, "weekly nightly"), "0 0 0"},
		{"in some groups", find([]string{"g1", "small"}, "nightly report"), "0 10 0"},
		{"in all groups", find(all, "nightly rare"), "0 10 0"},
		{"tags", tags(nil, ""), "10"},
		{"tags by their beginning", tags(nil, "tag1"), "10"},
		{"tags of groups", tags([]string{"g1", "g2"}, ""), "10"},
		{"tags of groups by their beginning", tags([]string{"g1", "g2"}, "tag1"), "10"},
		{"states of groups", func() (string, error) {
			s, err := stats.GroupStates(t.Context(), []string{"g3"})
			return fmt.Sprintf("failing %t, paused %t", s["g3"].Failing > 0, s["g3"].Paused > 0), err
		}, "failing true, paused true"},
	}
	tables := []string{"jobs", "job_words", "tag_counts", "job_failures", "job_pauses", "groups"}
	measure := func() []int64 {
		blocks := make([]int64, len(scenes))
		for i, s := range scenes {
			before := f.blocksOf(tables...)
			got, err := s.read()
			if blocks[i] = f.blocksOf(tables...) - before; err != nil {
				t.Fatal(s.name, err)
			}
			if got != s.want {
				t.Errorf("%s: %s, want %s", s.name, got, s.want)
			}
		}
		return blocks
	}
	f.namedJobs(1, few)
	before := measure()
	f.namedJobs(few+1, many)
	for i, after := range measure() {
		t.Logf("%s: %d blocks among %d jobs, %d among %d", scenes[i].name, before[i], few, after, many)
		if scenes[i].name == "states of groups" {
			continue // grows up to 1,000 jobs of each state
		}
		if after > max(2*before[i], fewBlocks) {
			t.Errorf("%s: %d blocks among %d jobs, %d among %d", scenes[i].name, before[i], few, after, many)
		}
	}
	states, err := stats.GroupStates(t.Context(), []string{"g3", "g4", "nowhere"})
	if g := states["g3"]; err != nil || g.Failing > runstats.MostCounted || states["g4"] != (runstats.GroupState{}) || states["nowhere"] != (runstats.GroupState{}) {
		t.Errorf("%v, %v", states, err)
	}
}
