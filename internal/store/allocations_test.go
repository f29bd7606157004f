//go:build !race

package store_test

import (
	"fmt"
	"runtime"
	"testing"
	"time"

	"github.com/belfryhq/belfry/internal/domain"
	"github.com/belfryhq/belfry/internal/engine"
	"github.com/belfryhq/belfry/internal/store"
)

// The steps in the life of a run of a plain job. A batch costs a little besides, so the figures are from the difference of two batches. A change of a
// figure is no fault, but must be meant. The race detector changes the figures.
func TestAllocationsOfARun(t *testing.T) {
	s, _ := open(t)
	var few, many map[string]measured
	for range 2 { // a statement that is new to its connection allocates more
		few, many = lifeOf(t, s, 25), lifeOf(t, s, 275)
	}
	for step, most := range map[string]float64{"plan": 7.3, "admit": 4.2, "mark": 15.3, "settle": 4.2} {
		runs := many[step].runs - few[step].runs
		if got := float64(many[step].allocations-few[step].allocations) / float64(runs); runs != 250 || got > most {
			t.Errorf("%s of %d runs: %.2f allocations for each, want at most %v", step, runs, got, most)
		}
	}
}

// measured is what a step of a life has allocated, for some runs.
type measured struct {
	runs        int // of planning: jobs
	allocations int64
}

// lifeOf takes a run of each of some jobs through its life. The jobs have been planned before.
func lifeOf(t *testing.T, s *store.Store, jobs int) map[string]measured {
	t.Helper()
	exec(t, s, `TRUNCATE jobs, runs_live CASCADE`)
	for i := range jobs {
		create(t, s, fmt.Sprint("job-", i), everySecond, parallel)
	}
	exec(t, s, `UPDATE job_versions SET valid_from = valid_from - interval '1 hour'`) // runs of jobs that were just changed take another path
	all := make(map[string]measured)
	count := func(step string, f func() (runs int, err error)) {
		t.Helper()
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		runs, err := f()
		runtime.ReadMemStats(&after)
		if err != nil {
			t.Fatal(err)
		}
		all[step] = measured{runs, int64(after.Mallocs - before.Mallocs)}
	}
	for planned := 0; planned < 2; {
		at := query[time.Time](t, s, `SELECT date_trunc('second', now()) + interval '5 seconds'`)
		exec(t, s, `DELETE FROM runs_live`)
		exec(t, s, `UPDATE job_due SET next_fire_time = $1, next_due_at = $1, decided_through = $1`, at)
		count("plan", func() (int, error) {
			planned, err := s.PlanDue(t.Context(), jobs, false)
			return planned.Jobs, err // its runs cost no more
		})
		if query[bool](t, s, `SELECT clock_timestamp() < $1`, at) { // past fire times take another path, too
			planned++
		}
	}
	exec(t, s, `DELETE FROM runs_live`)
	exec(t, s, `DELETE FROM job_due`)
	exec(t, s, `INSERT INTO runs_live (id, job_id, job_version, group_name, cause, plain, due_at)
		SELECT overlay(first_run_id(now())::text placing substr(md5(random()::text), 1, 12) from 25)::uuid, id, 1, 'g', 'manual', true, now() FROM jobs`)
	in := admissions(t, s, claim(t, s))
	var out store.Admitted
	count("admit", func() (_ int, err error) {
		out, err = s.Admit(t.Context(), in)
		return len(out.Bound), err
	})
	var started []engine.Started
	var ended []engine.Ended
	for _, r := range out.Bound {
		started = append(started, engine.Started{RunID: r.ID, Attempt: 1, Instance: r.Instance, BootID: r.BootID, Bind: r.Bind, StartedAt: s.Now()})
		ended = append(ended, result(s, r, domain.OutcomeSucceeded))
	}
	count("mark", func() (int, error) {
		_, err := s.MarkRunning(t.Context(), started)
		return len(started), err
	})
	count("settle", func() (int, error) {
		_, err := s.Settle(t.Context(), ended)
		return len(ended), err
	})
	return all
}
