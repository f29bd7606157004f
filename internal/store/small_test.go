package store_test

import (
	"testing"

	"github.com/belfryhq/belfry/internal/domain"
	"github.com/belfryhq/belfry/internal/pgtest"
	"github.com/belfryhq/belfry/internal/store"
)

// TestSmallBatches fires and settles single runs while 3,000 runs are live. Reading all of them for one run is expensive, but
// a planner that estimates each batch at a thousand runs would choose to do so.
func TestSmallBatches(t *testing.T) {
	s, _ := openAt(t, pgtest.Database(t, store.Migrate), 1) // one connection, because each keeps its counters until it flushes them
	exec(t, s, `INSERT INTO groups (name, token_sha256) VALUES ('g', 'x')`)
	job := create(t, s, "a", parallel)
	family := create(t, s, "b", parallel, func(sp *domain.JobSpec) { sp.Children = []domain.Child{{JobID: job.ID, On: domain.OnSuccess}} })
	slotted := create(t, s, "c")
	behind := create(t, s, "d")
	const live = 3000
	exec(t, s, `INSERT INTO runs_live (id, job_id, job_version, group_name, cause, due_at, held, held_on)
		SELECT overlay(gen_random_uuid()::text placing substr(first_run_id(now())::text, 1, 14) from 1)::uuid, $1, 1, 'g', 'manual', now(), true, ''
		  FROM generate_series(1, $2::int)`, behind.ID, live)
	exec(t, s, `VACUUM ANALYZE runs_live`)
	exec(t, s, `DISCARD PLANS`)
	w := &scale{t: t, s: s}
	least := func(name string, do func()) {
		t.Helper()
		before := w.looked()
		do()
		if n := w.looked() - before; n > live/10 {
			t.Errorf("%s read %d index entries; there are %d live runs", name, n, live)
		}
	}
	for _, j := range []domain.Job{job, family, slotted} {
		for range 3 {
			trigger(t, s, j.ID, 1)
			in := admissions(t, s, claim(t, s))
			var out store.Admitted
			var err error
			least("Admit", func() { out, err = s.Admit(t.Context(), in) })
			if err != nil || len(out.Bound) != 1 {
				t.Fatalf("%d bound, %v", len(out.Bound), err)
			}
			r := out.Bound[0]
			started := store.Started{RunID: r.ID, Attempt: 1, Instance: r.Instance, BootID: r.BootID, Bind: r.Bind, StartedAt: s.Now()}
			least("MarkRunning", func() { _, err = s.MarkRunning(t.Context(), []store.Started{started}) })
			if err != nil {
				t.Fatal(err)
			}
			least("Settle", func() { settle(t, s, settled, result(s, r, domain.OutcomeSucceeded)) })
		}
	}
}
