package storetest

import (
	"testing"
	"time"

	"github.com/belfryhq/belfry/internal/domain"
	"github.com/belfryhq/belfry/internal/engine"
	"github.com/belfryhq/belfry/internal/explain"
)

func fixedDelay(d time.Duration) edit {
	return func(sp *domain.JobSpec) {
		sp.Schedule = domain.Schedule{Kind: domain.ScheduleFixedDelay, Delay: domain.Duration(d)}
	}
}

// The delay counts from the end of the last attempt of the last shard.
func chainOverShards(t *testing.T, s *suite) {
	job := s.job("a", broadcast, retries(1), fixedDelay(time.Minute), func(sp *domain.JobSpec) {
		sp.RetryBackoff.Initial, sp.RetryBackoff.Max = domain.Duration(time.Second), domain.Duration(time.Second)
	})
	next := func() *domain.Instant {
		t.Helper()
		j, err := s.Jobs.Job(t.Context(), job.ID)
		s.must(err)
		return j.NextFireTime
	}
	planned := s.plan().Runs
	equal(t, "planned", len(planned), 1)
	out := s.expand(planned[0], "i1", "i2")
	s.settle(engine.Settled, s.result(out.Bound[0], domain.OutcomeSucceeded))
	equal(t, "next while a shard runs", next() == nil, true)
	s.settle(engine.Settled, s.result(out.Bound[1], domain.OutcomeFailed))
	equal(t, "next while a shard is retried", next() == nil, true)
	_, err := s.Replan(t.Context(), []domain.RunID{out.Bound[1].ID}, []int{1})
	s.must(err)
	s.Advance(t, 2*time.Second)
	run := s.one(s.admit(s.claim(), "i2").Bound)
	equal(t, "attempt", run.Attempt, 2)
	s.settle(engine.Settled, s.result(run, domain.OutcomeFailed))
	at := next()
	if at == nil || at.Sub(s.now()) < 55*time.Second || at.Sub(s.now()) > time.Minute {
		t.Fatalf("the next fire time is %v, at %v", at, s.now())
	}
}

// A schedule fires from start_at to end_at. After that, the job has no next fire time.
func window(t *testing.T, s *suite) {
	begin := s.now().Truncate(time.Second).Add(30 * time.Second)
	from, to := domain.At(begin), domain.At(begin.Add(3*time.Second))
	job := s.job("a", parallel, func(sp *domain.JobSpec) {
		sp.Schedule = domain.Schedule{Kind: domain.ScheduleCron, Expr: "* * * * * *", StartAt: &from, EndAt: &to}
	})
	equal(t, "planned before", len(s.plan().Runs), 0)
	equal(t, "the first", job.NextFireTime.Time, begin)
	s.Advance(t, 26*time.Second)
	s.plan()
	s.Advance(t, 3*time.Second)
	s.plan()
	runs := s.Runs(t, job.ID)
	equal(t, "fire times", len(runs), 4)
	for i, r := range runs {
		equal(t, "fire time", r.FireTime, begin.Add(time.Duration(i)*time.Second))
	}
	s.admit(firstDue(runs, job), "i1")
	s.Advance(t, time.Minute)
	equal(t, "planned after", len(s.plan().Runs), 0)
	after, err := s.Jobs.Job(t.Context(), job.ID)
	s.must(err)
	equal(t, "next", after.NextFireTime == nil, true)
	equal(t, "enabled", after.Enabled, true)
}

func firstDue(runs []Run, job domain.Job) (due []engine.Due) {
	for _, r := range runs {
		due = append(due, engine.Due{RunID: r.ID, JobID: job.ID, JobVersion: 1, Attempt: 1, DueAt: r.DueAt})
	}
	return due
}

// Jitter delays the due instant by less than the jitter, always by the same amount, and never changes the fire time. A
// once job fires once.
func onceWithJitter(t *testing.T, s *suite) {
	at := domain.At(s.now().Truncate(time.Second).Add(40 * time.Second))
	const jitter = 20 * time.Second
	job := s.job("a", parallel, func(sp *domain.JobSpec) {
		sp.Schedule = domain.Schedule{Kind: domain.ScheduleOnce, At: &at, Jitter: domain.Duration(jitter)}
	})
	equal(t, "next", job.NextFireTime.Time, at.Time)
	var run engine.Due
	for range 40 { // in steps of a second, so that the run is planned before it is due
		s.Advance(t, 2*time.Second)
		for _, r := range s.plan().Runs {
			equal(t, "planned before", run.RunID.IsZero(), true)
			run = r
		}
	}
	equal(t, "run", run.RunID, domain.ScheduledRunID(job.ID, at.Time, 0))
	if late := run.DueAt.Sub(at.Time); late < 0 || late >= jitter {
		t.Errorf("it is due %s after its fire time", late)
	}
	runs := s.Runs(t, job.ID)
	equal(t, "runs", len(runs), 1)
	equal(t, "fire time", runs[0].FireTime, at.Time)
}

// A kill ends a waiting broadcast as a whole. After the broadcast is expanded, it ends one shard, and the others
// continue.
func killBroadcast(t *testing.T, s *suite) {
	always, success := s.job("always"), s.job("success")
	job := s.job("a", broadcast, parallel, child(always.ID, domain.OnAlways), child(success.ID, domain.OnSuccess))
	waits := s.trigger(job.ID, 1)[0]
	s.one(s.admit(s.claim(), "").Waiting)
	kill := func(run domain.RunID) engine.KillResult {
		t.Helper()
		out, err := s.Kill.RequestKill(t.Context(), run, domain.ReasonKilled, "ann")
		s.must(err)
		return out
	}
	kill(waits)
	s.is(job.ID, waits, domain.Cancelled, domain.ReasonKilled)
	ups := s.FollowUps(t)
	equal(t, "children of a killed run", len(ups), 1)
	equal(t, "child", ups[0].ChildJob, always.ID)

	first := s.trigger(job.ID, 1)[0]
	out := s.expand(s.claim()[0], "i1", "i2")
	equal(t, "killed", s.one(kill(domain.ShardRunID(first, 1)).Bound).Instance, "i2")
	s.settle(engine.Settled, s.result(out.Bound[1], domain.OutcomeFailed))
	s.is(job.ID, out.Bound[1].ID, domain.Cancelled, domain.ReasonKilled)
	equal(t, "children before the join", len(s.FollowUps(t)), 0)
	s.settle(engine.Settled, s.result(out.Bound[0], domain.OutcomeSucceeded))
	s.is(job.ID, first, domain.Succeeded, "")
	ups = s.FollowUps(t)
	equal(t, "children of a broadcast with a killed shard", len(ups), 1)
	equal(t, "child", ups[0].ChildJob, always.ID)
}

// A run that the block policy skips starts the children that match always.
func childrenOfSkipped(t *testing.T, s *suite) {
	always, failure := s.job("always"), s.job("failure")
	job := s.job("a", discardLater, child(always.ID, domain.OnAlways), child(failure.ID, domain.OnFailure))
	s.start(job.ID, "i1")
	skipped := s.trigger(job.ID, 1)[0]
	s.admit(s.claim(), "i1")
	s.is(job.ID, skipped, domain.Skipped, domain.ReasonDiscarded)
	ups := s.FollowUps(t)
	equal(t, "children", len(ups), 1)
	equal(t, "child", ups[0].ChildJob, always.ID)
	equal(t, "parent", ups[0].RunID, skipped)
}

// If the database's clock steps forward by more than the tolerance, the fire times in between are misfires, and the ledger
// names the step.
func clockStep(t *testing.T, s *suite) {
	job := s.job("a", everySecond, misfire(domain.MisfireSkip))
	s.plan()
	before := s.now()
	s.Advance(t, 30*time.Second)
	s.plan()
	missed := s.Missed(t, job.ID)
	equal(t, "ledger entries", len(missed), 1)
	why := missed[0].Why
	equal(t, "code", why.Code, explain.ClockStepped)
	step, _ := why.Args["step_ms"].(int64)
	if step < 29_900 || step > 30_100 {
		t.Errorf("the step is %d ms", step)
	}
	if m := missed[0]; m.Count < 10 || m.First.Before(before.Add(-time.Second)) {
		t.Errorf("%d fire times are missed, the first is %s, at %s", m.Count, m.First, before)
	}
}
