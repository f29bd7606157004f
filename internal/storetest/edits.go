package storetest

import (
	"slices"
	"testing"
	"time"

	"github.com/belfryhq/belfry/internal/domain"
	"github.com/belfryhq/belfry/internal/engine"
)

// fireTimes returns the runs of a job by fire time, and fails if a fire time has two runs.
func (s *suite) fireTimes(job domain.JobID) map[time.Time]Run {
	s.t.Helper()
	out := make(map[time.Time]Run)
	for _, r := range s.Runs(s.t, job) {
		if _, twice := out[r.FireTime]; twice {
			s.t.Errorf("two runs of %s", r.FireTime)
		}
		out[r.FireTime] = r
	}
	return out
}

func edits(t *testing.T, s *suite) {
	job := s.job("a", everySecond, parallel)
	s.Advance(t, 2*time.Second)
	planned := s.plan().Runs
	slices.SortFunc(planned, func(a, b engine.Due) int { return a.DueAt.Compare(b.DueAt) })
	s.one(s.admit(planned[:1], "i1").Bound)
	before := s.fireTimes(job.ID)
	_, after, err := s.Jobs.EditJob(t.Context(), job.ID, 1, "test", func(sp *domain.JobSpec) error {
		sp.Param = "x"
		return nil
	})
	s.must(err)
	edited := s.now()
	equal(t, "version", after.Version, 2)
	for fire, r := range s.fireTimes(job.ID) {
		if fire.After(edited.Add(time.Second)) {
			t.Errorf("a run of %s is planned, although the edit removed it: version %d", fire, r.Version)
		}
	}
	s.plan()
	now := s.fireTimes(job.ID)
	for fire := range before {
		r, kept := now[fire]
		switch {
		case !kept:
			t.Errorf("the fire time %s has no run", fire)
		case fire.After(edited) && r.Version != 2:
			t.Errorf("the fire time %s, after the edit, has version %d", fire, r.Version)
		}
	}
	_, _, err = s.Jobs.EditJob(t.Context(), job.ID, 1, "test", func(sp *domain.JobSpec) error {
		sp.Param = "y"
		return nil
	})
	equal(t, "a stale version", domain.CodeOf(err), domain.Conflict)
	_, same, err := s.Jobs.EditJob(t.Context(), job.ID, 2, "test", func(*domain.JobSpec) error { return nil })
	s.must(err)
	equal(t, "an edit without a change", same.Version, 2)
}

func killedAhead(t *testing.T, s *suite) {
	job := s.job("a", everySecond, parallel)
	planned := s.plan().Runs
	last := slices.MaxFunc(planned, func(a, b engine.Due) int { return a.DueAt.Compare(b.DueAt) })
	_, err := s.Kill.RequestKill(t.Context(), last.RunID, domain.ReasonKilled, "test")
	s.must(err)
	_, _, err = s.Jobs.EditJob(t.Context(), job.ID, 0, "test", func(sp *domain.JobSpec) error {
		sp.Param = "x"
		return nil
	})
	s.must(err)
	s.plan()
	now := s.fireTimes(job.ID)
	for _, d := range planned {
		if _, there := now[d.DueAt]; !there {
			t.Errorf("the fire time %s has no run", d.DueAt)
		}
	}
	s.is(job.ID, last.RunID, domain.Cancelled, domain.ReasonKilled)
}

func lateEdit(t *testing.T, s *suite) {
	for _, m := range []domain.Misfire{domain.MisfireSkip, domain.MisfireFireOnce} {
		job := s.job("a"+string(m), everySecond, parallel, misfire(m))
		s.Advance(t, 20*time.Second) // no scheduler plans in this time
		_, _, err := s.Jobs.SetEnabled(t.Context(), job.ID, false, 0, "test")
		s.must(err)
		runs := s.fireTimes(job.ID)
		if n := len(runs) + s.ledger(job.ID); n < 19 || n > 40 {
			t.Errorf("%s: %d runs, %d missed", m, len(runs), s.ledger(job.ID))
		}
		for fire, r := range runs {
			if fire.After(s.now()) || r.Version != 1 {
				t.Errorf("%s: a run of %s, version %d", m, fire, r.Version)
			}
		}
		if len(runs) < 5 {
			t.Errorf("%s: %d runs within the tolerance", m, len(runs))
		}
	}
}

func disabled(t *testing.T, s *suite) {
	job := s.job("a", everyMinuteFromNow, parallel) // so that nothing is due yet when it is disabled
	_, after, err := s.Jobs.SetEnabled(t.Context(), job.ID, false, 0, "test")
	s.must(err)
	equal(t, "next", after.NextFireTime == nil, true)
	s.Advance(t, 10*time.Minute)
	equal(t, "planned", len(s.plan().Runs), 0)
	s.start(job.ID, "i1")
	before := s.now()
	_, after, err = s.Jobs.SetEnabled(t.Context(), job.ID, true, 0, "test")
	s.must(err)
	equal(t, "version", after.Version, 3)
	equal(t, "missed while it was disabled", s.ledger(job.ID), 0)
	if next := after.NextFireTime; next == nil || next.Before(before.Add(-time.Second)) {
		t.Errorf("next %v", next)
	}
	_, err = s.Jobs.Trigger(t.Context(), job.ID+1000, domain.Trigger{Cause: domain.CauseManual})
	if err == nil {
		t.Error("an unknown job was triggered")
	}
}

func deletes(t *testing.T, s *suite) {
	little := s.job("child")
	job := s.job("a", child(little.ID, domain.OnSuccess))
	_, err := s.Jobs.DeleteJob(t.Context(), little.ID, 0, "test")
	equal(t, "a child", domain.CodeOf(err), domain.Conflict)
	bound := s.start(job.ID, "i1")
	waits := s.trigger(job.ID, 1)[0]
	s.admit(s.claim(), "i1")
	pending := s.trigger(job.ID, 1)[0]
	_, err = s.Jobs.DeleteJob(t.Context(), job.ID, 0, "test")
	s.must(err)
	s.is(job.ID, waits, domain.Cancelled, domain.ReasonJobDeleted)
	s.is(job.ID, pending, domain.Cancelled, domain.ReasonJobDeleted)
	s.is(job.ID, bound.ID, domain.Queued, "")
	_, err = s.Jobs.Job(t.Context(), job.ID)
	equal(t, "the job", domain.CodeOf(err), domain.NotFound)
	s.settle(engine.Settled, s.result(bound, domain.OutcomeSucceeded))
	s.is(job.ID, bound.ID, domain.Succeeded, "")
	_, err = s.Jobs.DeleteJob(t.Context(), little.ID, 0, "test")
	s.must(err)
}

func counters(t *testing.T, s *suite) {
	job := s.job("a")
	for _, want := range []int64{0, 3, 6} {
		got, err := s.Fire.CountRoutes(t.Context(), map[domain.JobID]int{job.ID: 3})
		s.must(err)
		equal(t, "counter", got[job.ID], want)
	}
}
