package storetest

import (
	"strings"
	"testing"
	"time"

	"github.com/belfryhq/belfry/internal/domain"
	"github.com/belfryhq/belfry/internal/engine"
)

func (s *suite) pause(until time.Duration) domain.Pause {
	s.t.Helper()
	var end *time.Time
	if until > 0 {
		at := s.now().Add(until)
		end = &at
	}
	p, err := s.Pauses.PauseGroup(s.t.Context(), "g", "new disks", end, "ann")
	s.must(err)
	return p
}

func (s *suite) tend() {
	s.t.Helper()
	for more := true; more; {
		var err error
		more, err = s.Scheduler.TendPauses(s.t.Context(), 2)
		s.must(err)
	}
}

// dueIn counts by cause the runs of a job whose fire time is in a span. Fire times are whole seconds.
func (s *suite) dueIn(job domain.JobID, from, to time.Time) (scheduled, misfires int) {
	s.t.Helper()
	for _, r := range s.Runs(s.t, job) {
		switch {
		case r.FireTime.Before(from) || !r.FireTime.Before(to):
		case r.Cause == domain.CauseMisfire:
			misfires++
		case r.Cause == domain.CauseSchedule:
			scheduled++
		}
	}
	return scheduled, misfires
}

func pauses(t *testing.T, s *suite) {
	policies := []domain.Misfire{domain.MisfireSkip, domain.MisfireFireOnce, domain.MisfireFireAll}
	var jobs []domain.Job
	for _, m := range policies {
		jobs = append(jobs, s.job(string(m), everySecond, parallel, misfire(m)))
	}
	var before []engine.Due
	planned := s.plan().Runs
	p := s.pause(0)
	for _, r := range planned {
		if r.DueAt.Before(p.From) {
			before = append(before, r)
		}
	}
	s.admit(before, "i1") // runs that are due before the pause fire
	equal(t, "planned in the pause", len(s.plan().Runs), 0)
	for _, job := range jobs {
		scheduled, _ := s.dueIn(job.ID, p.From, p.From.Add(time.Hour))
		equal(t, "runs that are due in the pause", scheduled, 0)
	}
	s.Advance(t, 20*time.Second)
	equal(t, "planned in the pause", len(s.plan().Runs), 0)
	equal(t, "jobs that are visited in the pause", s.plan().Jobs, 0)
	s.trigger(jobs[0].ID, 1)
	equal(t, "claimed: a manual trigger works in a pause", len(s.claim()), 1)
	ended, err := s.Pauses.ResumeGroup(t.Context(), "g", "bob")
	s.must(err)
	s.tend()
	s.plan()
	expected := int(ended.To.Unix() - p.From.Unix())
	for i, made := range []int{0, 1, expected} {
		scheduled, misfires := s.dueIn(jobs[i].ID, p.From, ended.To)
		equal(t, "scheduled runs of the pause", scheduled, 0)
		equal(t, string(policies[i])+": misfire runs", misfires, made)
		equal(t, string(policies[i])+": dropped", s.ledger(jobs[i].ID), expected-made)
		for _, m := range s.Missed(t, jobs[i].ID) {
			if !strings.HasPrefix(m.Why.Text, "group g was paused from "+p.From.Format("2006-01-02T15:04:05")) || !strings.Contains(m.Why.Text, "by ann (new disks)") {
				t.Errorf("the ledger says: %s", m.Why)
			}
		}
		if after, _ := s.dueIn(jobs[i].ID, ended.To, ended.To.Add(time.Minute)); after < 5 {
			t.Errorf("%d runs are planned after the pause", after)
		}
	}
	_, err = s.Pauses.ResumeGroup(t.Context(), "g", "bob")
	equal(t, "resumed twice", domain.CodeOf(err), domain.Conflict)
}

func pauseUntil(t *testing.T, s *suite) {
	job := s.job("a", everySecond, parallel)
	s.pause(time.Hour)
	s.Advance(t, 10*time.Second)
	s.plan()
	p := s.pause(5 * time.Second) // the second call changes the end of the current pause
	equal(t, "planned in the pause", len(s.plan().Runs), 0)
	s.Advance(t, 5*time.Second)
	s.tend()
	s.plan()
	scheduled, _ := s.dueIn(job.ID, time.Time{}, p.To)
	equal(t, "runs of the pause", scheduled, 0)
	if after, _ := s.dueIn(job.ID, p.To, p.To.Add(time.Minute)); after < 5 {
		t.Errorf("%d runs are planned after the pause", after)
	}
	_, err := s.Pauses.ResumeGroup(t.Context(), "g", "bob")
	equal(t, "resumed when it is over", domain.CodeOf(err), domain.Conflict)
}

func pausedEdit(t *testing.T, s *suite) {
	job := s.job("a", everySecond, parallel, misfire(domain.MisfireFireAll))
	p := s.pause(0)
	s.Advance(t, 10*time.Second)
	s.plan()
	_, _, err := s.Jobs.EditJob(t.Context(), job.ID, 0, "ann", func(sp *domain.JobSpec) error { sp.Param = "new"; return nil })
	s.must(err)
	if n := s.ledger(job.ID); n < 9 || n > 12 {
		t.Errorf("%d fire times were dropped", n)
	}
	s.Advance(t, 10*time.Second)
	equal(t, "planned in the pause", len(s.plan().Runs), 0)
	_, err = s.Pauses.ResumeGroup(t.Context(), "g", "bob")
	s.must(err)
	s.tend()
	s.plan()
	if _, misfires := s.dueIn(job.ID, p.From, s.now()); misfires < 9 || misfires > 12 {
		t.Errorf("%d misfires, want those since the edit", misfires)
	}
}

func pausedChain(t *testing.T, s *suite) {
	job := s.job("a", func(sp *domain.JobSpec) {
		sp.Schedule = domain.Schedule{Kind: domain.ScheduleFixedDelay, Delay: domain.Duration(3 * time.Second)}
	})
	run := s.one(s.admit(s.plan().Runs, "i1").Bound)
	s.settle(engine.Settled, s.result(run, domain.OutcomeSucceeded))
	equal(t, "planned after the end", len(s.plan().Runs), 1)
	s.pause(0)
	s.Advance(t, 20*time.Second)
	equal(t, "planned in the pause", len(s.plan().Runs), 0)
	_, err := s.Pauses.ResumeGroup(t.Context(), "g", "bob")
	s.must(err)
	s.tend()
	s.plan() // the fire time of the pause is dropped, and the next delay starts here
	equal(t, "dropped", s.ledger(job.ID), 1)
	equal(t, "planned after the pause", len(s.plan().Runs), 1)
}

// If a run was killed before it was due, a pause that ends at once does not plan it again.
func killedThenPaused(t *testing.T, s *suite) {
	job := s.job("a", everySecond, parallel)
	planned := s.plan().Runs
	last := planned[len(planned)-1]
	_, err := s.Kill.RequestKill(t.Context(), last.RunID, domain.ReasonKilled, "ann")
	s.must(err)
	s.pause(0)
	_, err = s.Pauses.ResumeGroup(t.Context(), "g", "ann")
	s.must(err)
	s.tend()
	s.plan()
	seen := 0
	for _, r := range s.Runs(t, job.ID) {
		if r.ID == last.RunID {
			seen++
			equal(t, "state", r.State, domain.Cancelled)
		}
	}
	equal(t, "records of the fire time", seen, 1)
}
