package storetest

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/belfryhq/belfry/internal/domain"
	"github.com/belfryhq/belfry/internal/engine"
	"github.com/belfryhq/belfry/internal/explain"
)

// ofJob runs a test that pauses a group with a pause of the job instead.
func ofJob(test func(*testing.T, *suite)) func(*testing.T, *suite) {
	return func(t *testing.T, s *suite) {
		s.pausesJobs = true
		test(t, s)
	}
}

// pause pauses the group or, in a test that runs ofJob, the job.
func (s *suite) pause(job domain.JobID, until time.Duration) domain.Pause {
	s.t.Helper()
	var end *time.Time
	if until > 0 {
		at := s.now().Add(until)
		end = &at
	}
	var p domain.Pause
	var err error
	if s.pausesJobs {
		p, err = s.Pauses.PauseJob(s.t.Context(), job, "new disks", end, "ann")
	} else {
		p, err = s.Pauses.PauseGroup(s.t.Context(), "g", "new disks", end, "ann")
	}
	s.must(err)
	return p
}

// resume ends what pause began.
func (s *suite) resume(job domain.JobID) (domain.Pause, error) {
	if s.pausesJobs {
		return s.Pauses.ResumeJob(s.t.Context(), job, "bob")
	}
	return s.Pauses.ResumeGroup(s.t.Context(), "g", "bob")
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
	p := s.pause(0, 0)
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
	ended, err := s.resume(0)
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
	_, err = s.resume(0)
	equal(t, "resumed twice", domain.CodeOf(err), domain.Conflict)
}

// A pause of one job leaves the other jobs of its group alone. If the group is paused too, the job waits for the end of both pauses, in
// any order, and the ledger names both.
func pausedTwice(t *testing.T, s *suite) {
	job := s.job("a", everySecond, parallel, misfire(domain.MisfireFireOnce))
	other := s.job("b", everySecond, parallel, misfire(domain.MisfireFireAll))
	planned := s.plan().Runs
	noneOf := func(runs []engine.Due) {
		t.Helper()
		for _, r := range runs {
			if r.JobID == job.ID {
				t.Errorf("a run of %s is planned", r.DueAt)
			}
		}
	}
	for _, groupFirst := range []bool{false, true} {
		s.pausesJobs = true
		p := s.pause(job.ID, 0)
		s.admit(slices.DeleteFunc(planned, func(r engine.Due) bool { return r.JobID != job.ID || !r.DueAt.Before(p.From) }), "i1")
		scheduled, _ := s.dueIn(job.ID, p.From, p.From.Add(time.Hour))
		equal(t, "runs that are due in the pause", scheduled, 0)
		if n, _ := s.dueIn(other.ID, p.From, p.From.Add(time.Hour)); n < 3 {
			t.Errorf("%d runs of the other job are left", n)
		}
		s.Advance(t, 10*time.Second)
		noneOf(s.plan().Runs)
		s.pausesJobs = false
		s.pause(0, 0)
		s.Advance(t, 5*time.Second)
		noneOf(s.plan().Runs)
		s.pausesJobs = !groupFirst
		_, err := s.resume(job.ID)
		s.must(err)
		s.tend()
		noneOf(s.plan().Runs)
		s.Advance(t, 5*time.Second)
		noneOf(s.plan().Runs)
		s.pausesJobs = groupFirst
		missed := s.ledger(job.ID)
		ended, err := s.resume(job.ID)
		s.must(err)
		s.tend()
		planned = s.plan().Runs
		expected := int(ended.To.Unix() - p.From.Unix())
		_, misfires := s.dueIn(job.ID, p.From, ended.To)
		equal(t, "misfire runs", misfires, 1)
		equal(t, "dropped", s.ledger(job.ID)-missed, expected-1)
		entries := s.Missed(t, job.ID)
		why := entries[len(entries)-1].Why
		if why.Code != explain.JobPaused || !strings.Contains(why.Text, "the job was paused from "+p.From.Format("2006-01-02T15:04:05")) {
			t.Errorf("the ledger says: %s", why)
		}
		if inGroup := strings.Contains(why.Text, "group g was paused from "); inGroup == groupFirst { // the last fire time lies in the pause that ended last
			t.Errorf("the ledger says: %s", why)
		}
		_, misfires = s.dueIn(other.ID, p.From, ended.To)
		if misfires == 0 {
			t.Error("the other job has no misfires of the group's pause")
		}
	}
	_, err := s.Pauses.ResumeJob(t.Context(), job.ID, "bob")
	equal(t, "resumed twice", domain.CodeOf(err), domain.Conflict)
	_, err = s.Pauses.PauseJob(t.Context(), 12345, "new disks", nil, "ann")
	equal(t, "no such job", domain.CodeOf(err), domain.NotFound)
}

func pauseUntil(t *testing.T, s *suite) {
	job := s.job("a", everySecond, parallel)
	s.pause(job.ID, time.Hour)
	s.Advance(t, 10*time.Second)
	s.plan()
	p := s.pause(job.ID, 5*time.Second) // the second call changes the end of the current pause
	equal(t, "planned in the pause", len(s.plan().Runs), 0)
	s.Advance(t, 5*time.Second)
	s.tend()
	s.plan()
	scheduled, _ := s.dueIn(job.ID, time.Time{}, p.To)
	equal(t, "runs of the pause", scheduled, 0)
	if after, _ := s.dueIn(job.ID, p.To, p.To.Add(time.Minute)); after < 5 {
		t.Errorf("%d runs are planned after the pause", after)
	}
	_, err := s.resume(job.ID)
	equal(t, "resumed when it is over", domain.CodeOf(err), domain.Conflict)
}

func pausedEdit(t *testing.T, s *suite) {
	job := s.job("a", everySecond, parallel, misfire(domain.MisfireFireAll))
	p := s.pause(job.ID, 0)
	s.Advance(t, 10*time.Second)
	s.plan()
	_, _, err := s.Jobs.EditJob(t.Context(), job.ID, 0, "ann", func(sp *domain.JobSpec) error { sp.Param = "new"; return nil })
	s.must(err)
	if n := s.ledger(job.ID); n < 9 || n > 12 {
		t.Errorf("%d fire times were dropped", n)
	}
	s.Advance(t, 10*time.Second)
	equal(t, "planned in the pause", len(s.plan().Runs), 0)
	_, err = s.resume(job.ID)
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
	s.pause(job.ID, 0)
	s.Advance(t, 20*time.Second)
	equal(t, "planned in the pause", len(s.plan().Runs), 0)
	_, err := s.resume(job.ID)
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
	s.pause(job.ID, 0)
	_, err = s.resume(job.ID)
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
