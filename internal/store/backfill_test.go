package store_test

import (
	"runtime"
	"slices"
	"testing"
	"time"

	"github.com/belfryhq/belfry/internal/domain"
	"github.com/belfryhq/belfry/internal/store"
)

// backfill creates each backfill in a separate millisecond, because run ids are ordered by it.
func backfill(t testing.TB, s *store.Store, job domain.JobID, from, to time.Time, most int) domain.Backfilled {
	t.Helper()
	for begun := s.Now(); s.Now().Sub(begun) < 2*time.Millisecond; {
		runtime.Gosched()
	}
	out, err := s.Backfill(t.Context(), job, domain.Backfill{From: from, To: to, Max: most})
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// Backfilled runs fire in the order of their fire times, one after the other where the job is serial.
func TestBackfillRunsInOrder(t *testing.T) {
	s, _ := open(t)
	job := create(t, s, "a", func(sp *domain.JobSpec) {
		sp.Schedule = domain.Schedule{Kind: domain.ScheduleCron, Expr: "0 * * * *"}
		sp.Enabled = false
	})
	from := time.Date(2021, 3, 1, 10, 0, 0, 0, time.UTC)
	first := backfill(t, s, job.ID, from, from.Add(5*time.Hour), 3)
	if len(first.RunIDs) != 3 || first.Next == nil || !first.Next.Equal(from.Add(3*time.Hour)) {
		t.Fatalf("%+v", first)
	}
	rest := backfill(t, s, job.ID, first.Next.Time, from.Add(5*time.Hour), 0)
	if len(rest.RunIDs) != 2 || rest.Next != nil { // the end is exclusive
		t.Fatalf("%+v", rest)
	}
	again := backfill(t, s, job.ID, from, from.Add(time.Hour), 0)
	all := slices.Concat(first.RunIDs, rest.RunIDs, again.RunIDs)
	var ran []time.Time
	out := admit(t, s, claim(t, s))
	for i := range all {
		if len(out.Bound) != 1 {
			t.Fatalf("run %d: %d are bound at once", i, len(out.Bound))
		}
		run := out.Bound[0]
		if run.ID != all[i] || run.Cause != domain.CauseBackfill {
			t.Fatalf("run %d is %s of cause %s", i, run.ID, run.Cause)
		}
		ran = append(ran, run.FireTime.UTC())
		res := settle(t, s, settled, result(s, run, domain.OutcomeSucceeded))
		out = admit(t, s, res.Released)
	}
	want := []time.Time{from, from.Add(time.Hour), from.Add(2 * time.Hour), from.Add(3 * time.Hour), from.Add(4 * time.Hour), from}
	if !slices.EqualFunc(ran, want, time.Time.Equal) {
		t.Errorf("ran %v", ran)
	}
	if got, err := s.Job(t.Context(), job.ID); err != nil || got.LastFireTime != nil {
		t.Errorf("the last fire time is %v, though the job never fired: %v", got.LastFireTime, err)
	}
}

func TestBackfillRefuses(t *testing.T) {
	s, _ := open(t)
	now := s.Now()
	hourly := create(t, s, "hourly", func(sp *domain.JobSpec) {
		sp.Schedule = domain.Schedule{Kind: domain.ScheduleCron, Expr: "0 * * * *"}
	})
	byHand := create(t, s, "by hand")
	chain := create(t, s, "chain", func(sp *domain.JobSpec) {
		sp.Schedule = domain.Schedule{Kind: domain.ScheduleFixedDelay, Delay: domain.Duration(time.Hour)}
	})
	for name, c := range map[string]struct {
		job domain.JobID
		b   domain.Backfill
	}{
		"no range":        {hourly.ID, domain.Backfill{}},
		"the wrong order": {hourly.ID, domain.Backfill{From: now, To: now.Add(-time.Hour)}},
		"the future":      {hourly.ID, domain.Backfill{From: now.Add(time.Hour), To: now.Add(2 * time.Hour)}},
		"too many":        {hourly.ID, domain.Backfill{From: now.Add(-time.Hour), To: now, Max: 1001}},
		"no schedule":     {byHand.ID, domain.Backfill{From: now.Add(-time.Hour), To: now}},
		"a chain":         {chain.ID, domain.Backfill{From: now.Add(-time.Hour), To: now}},
	} {
		if _, err := s.Backfill(t.Context(), c.job, c.b); domain.CodeOf(err) != domain.Invalid {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := s.Backfill(t.Context(), 999, domain.Backfill{From: now.Add(-time.Hour), To: now}); domain.CodeOf(err) != domain.NotFound {
		t.Errorf("no such job: %v", err)
	}
	// Future fire times are left out, and a dry run plans nothing.
	out, err := s.Backfill(t.Context(), hourly.ID, domain.Backfill{From: now.Add(-2 * time.Hour), To: now.Add(24 * time.Hour), DryRun: true})
	if err != nil || len(out.FireTimes) != 2 || len(out.RunIDs) != 0 {
		t.Errorf("%+v %v", out, err)
	}
	if n := query[int64](t, s, `SELECT count(*) FROM runs_live WHERE cause = 'backfill'`); n != 0 {
		t.Errorf("%d runs", n)
	}
}
