package jobchange_test

import (
	"strings"
	"testing"

	"github.com/belfryhq/belfry/internal/domain"
	"github.com/belfryhq/belfry/internal/pgtest"
	"github.com/belfryhq/belfry/internal/store"
	"github.com/belfryhq/belfry/internal/store/jobchange"
)

func TestMain(m *testing.M) { pgtest.Main(m) }

func TestChanges(t *testing.T) {
	s, err := store.Open(t.Context(), store.Config{URL: pgtest.Database(t, store.Migrate), MaxConns: 1})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	// Job 1: version 2 is an edit, 3 disables, 4 is an edit with another script, 5 enables. Job 2: 200 versions that only enable or disable it, after an edit.
	if _, err := s.Pool().Exec(t.Context(), `INSERT INTO job_versions (job_id, version, spec, created_at, valid_from, changed_by, change)
		SELECT 1, v, jsonb_build_object('script', jsonb_build_object('version', s)), now(), '2026-03-01T02:00:00Z'::timestamptz + v * interval '1 hour', 'user' || v, c
		  FROM (VALUES (1, 1, 'created'), (2, 1, 'edited'), (3, 1, 'disabled'), (4, 2, 'edited'), (5, 2, 'enabled'), (6, 2, 'calendar')) x (v, s, c)
		UNION ALL
		SELECT 2, v, '{}', now(), now(), 'ann', CASE v WHEN 2 THEN 'edited' ELSE 'enabled' END FROM generate_series(1, 202) v`); err != nil {
		t.Fatal(err)
	}
	at := func(version int, instance, executor string) domain.LastSuccess {
		return domain.LastSuccess{Version: version, Instance: instance, ExecutorVersion: executor}
	}
	cases := []struct {
		job       domain.JobID
		good, bad domain.LastSuccess
		want      string
	}{
		{1, at(1, "a", "1.4"), at(1, "a", "1.4"), ""},
		{1, at(1, "", ""), at(2, "", ""), "the job was edited, from version 1 to version 2, last by user2 at 2026-03-01T04:00:00.000Z"},
		{1, at(2, "", ""), at(3, "", ""), ""},
		{1, at(1, "", ""), at(5, "", ""), "the job was edited, from version 1 to version 5, last by user4 at 2026-03-01T06:00:00.000Z; the script was edited, from version 1 to version 2"},
		{1, at(5, "", ""), at(6, "", ""), "the job was edited, from version 5 to version 6, last by user6 at 2026-03-01T08:00:00.000Z"},
		{1, at(4, "", ""), at(2, "", ""), "the script was edited, from version 2 to version 1"},
		{1, at(1, "a", "1.4"), at(1, "b", "1.5"), "the version of the executor changed from 1.4 to 1.5; the instance changed from a to b"},
		{1, at(1, "a", "1.4"), at(1, "", ""), ""},
		{1, at(1, "a", ""), at(1, "a", "1.5"), ""},
		{2, at(1, "", ""), at(2, "", ""), "the job was edited, from version 1 to version 2, last by ann at "},
		{2, at(1, "", ""), at(202, "", ""), ""}, // the edit is not among the newest 100 versions
		{3, at(1, "a", ""), at(2, "b", ""), "the instance changed from a to b"},
	}
	var jobs []jobchange.Failing
	for _, c := range cases {
		jobs = append(jobs, jobchange.Failing{Job: c.job, Success: c.good,
			Failure: domain.LastFailure{Version: c.bad.Version, Instance: c.bad.Instance, ExecutorVersion: c.bad.ExecutorVersion}})
	}
	changes, err := jobchange.Of(t.Context(), s.Pool(), jobs)
	if err != nil {
		t.Fatal(err)
	}
	for i, c := range cases {
		var texts []string
		for _, e := range changes[i] {
			texts = append(texts, e.Text)
		}
		got := strings.Join(texts, "; ")
		if got != c.want && (!strings.HasSuffix(c.want, " at ") || !strings.HasPrefix(got, c.want)) {
			t.Errorf("job %d from %+v to %+v: %q, want %q", c.job, c.good, c.bad, got, c.want)
		}
	}
	if none, err := jobchange.Of(t.Context(), s.Pool(), nil); err != nil || len(none) != 0 {
		t.Errorf("without jobs: %v, %v", none, err)
	}
}
