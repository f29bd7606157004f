package storetest

import (
	"slices"
	"testing"
	"time"

	"github.com/belfryhq/belfry/internal/domain"
	"github.com/belfryhq/belfry/internal/engine"
)

func dispositions(t *testing.T, s *suite) {
	job := s.job("a", parallel)
	run := s.start(job.ID, "i1")
	ok := s.result(run, domain.OutcomeSucceeded)
	foreign := ok
	foreign.Group = "h"
	s.settle(engine.WrongGroup, foreign)
	other := ok
	other.RunID = domain.NewRunID(s.now())
	s.settle(engine.UnknownRun, other)
	other.Group = ""
	s.settle(engine.Raced, other)
	otherBoot := s.lost(run)
	otherBoot.BootID = "b0"
	s.settle(engine.Raced, otherBoot)
	oldRound := s.lost(run)
	oldRound.Bind = 7
	s.settle(engine.Raced, oldRound)
	s.is(job.ID, run.ID, domain.Queued, "")

	out, err := s.Settle.Settle(t.Context(), []engine.Ended{ok, ok})
	s.must(err)
	if !slices.Equal(out.Dispositions, []engine.Disposition{engine.Settled, engine.Repeat}) {
		t.Fatalf("twice in a batch: %v", out.Dispositions)
	}
	s.settle(engine.Repeat, ok)
	s.is(job.ID, run.ID, domain.Succeeded, "")
	s.settle(engine.Raced, s.lost(run))
	failed := s.result(run, domain.OutcomeFailed)
	s.settle(engine.Late, failed)

	dead := s.start(job.ID, "i1")
	s.settle(engine.Settled, s.lost(dead))
	s.is(job.ID, dead.ID, domain.Failed, domain.ReasonLost)
	equal(t, "late", s.HasLate(t, dead.ID, 1), false)
	s.settle(engine.Late, s.result(dead, domain.OutcomeSucceeded))
	equal(t, "late", s.HasLate(t, dead.ID, 1), true)
	s.is(job.ID, dead.ID, domain.Failed, domain.ReasonLost)
}

func unstarted(t *testing.T, s *suite) {
	job := s.job("a")
	run := s.start(job.ID, "i1")
	raised, err := s.Verdict.RaiseBinds(t.Context(), []engine.LiveRun{run})
	s.must(err)
	s.settle(engine.Repeat, s.result(run, domain.OutcomeUnstarted)) // the result names the first bind
	s.is(job.ID, run.ID, domain.Queued, "")
	equal(t, "instance", s.run(job.ID, run.ID).Instance, "i1")
	res := s.settle(engine.Settled, s.result(raised[0], domain.OutcomeUnstarted))
	equal(t, "waiting", res.Waiting, true)
	equal(t, "instance", s.run(job.ID, run.ID).Instance, "")
	bound, _, err := s.Fire.AssignWaiting(t.Context(), engine.WaitingKey{Group: "g", Target: "echo"}, 10, func(runs []engine.WaitingRun) []engine.Binding {
		equal(t, "avoid", runs[0].Avoid, "i1")
		return []engine.Binding{to("i2")}
	})
	s.must(err)
	again := s.one(bound)
	equal(t, "the same attempt", again.Attempt, 1)
	equal(t, "bind", again.Bind, 3)
	// A result of the handler counts for any bind.
	end := s.result(again, domain.OutcomeSucceeded)
	end.Bind = 2
	s.settle(engine.Settled, end)

	killed := s.start(job.ID, "i1")
	_, err = s.Kill.RequestKill(t.Context(), killed.ID, domain.ReasonKilled, "test")
	s.must(err)
	s.settle(engine.Settled, s.result(killed, domain.OutcomeUnstarted))
	s.is(job.ID, killed.ID, domain.Cancelled, domain.ReasonKilled)
}

func retried(t *testing.T, s *suite) {
	job := s.job("a", retries(2))
	run := s.start(job.ID, "i1")
	res := s.settle(engine.Settled, s.lost(run))
	equal(t, "state", res.Changes[0].State, domain.Retrying)
	equal(t, "its slot", s.OwnedSlots(t), 1)
	ups := s.FollowUps(t)
	if len(ups) != 1 || !ups[0].Retry || ups[0].RunID != run.ID || ups[0].Attempt != 1 {
		t.Fatalf("follow-ups %+v", ups)
	}
	equal(t, "before its follow-up", len(s.claim()), 0)
	replan := func(attempt int) int {
		n, err := s.Replan(t.Context(), []domain.RunID{run.ID}, []int{attempt})
		s.must(err)
		return n
	}
	equal(t, "another attempt", replan(2), 0)
	equal(t, "this attempt", replan(1), 1)
	equal(t, "again", replan(1), 0)
	due := s.claim()
	equal(t, "claimed", len(due), 1)
	equal(t, "attempt", due[0].Attempt, 2)
	equal(t, "avoid", due[0].Avoid, "i1")
	again := s.one(s.admit(due, "i2").Bound)
	s.settle(engine.Late, s.result(run, domain.OutcomeSucceeded))
	equal(t, "the first attempt's late result", s.HasLate(t, run.ID, 1), true)
	s.settle(engine.Settled, s.result(again, domain.OutcomeFailed))
	s.settle(engine.Repeat, s.result(again, domain.OutcomeFailed))
	s.FollowUps(t)
	s.Advance(t, 5*time.Second) // no worker processes its follow-up
	n, err := s.Reconcile.ReplanOverdue(t.Context(), 10)
	s.must(err)
	equal(t, "overdue", n, 1)
	last := s.one(s.admit(s.claim(), "i1").Bound)
	equal(t, "attempt", last.Attempt, 3)
	s.settle(engine.Settled, s.result(last, domain.OutcomeFailed))
	s.is(job.ID, run.ID, domain.Failed, domain.ReasonHandlerError)

	permanent := s.start(job.ID, "i1")
	e := s.result(permanent, domain.OutcomeFailed)
	e.Permanent = true
	s.settle(engine.Settled, e)
	s.is(job.ID, permanent.ID, domain.Failed, domain.ReasonHandlerError)
}

func retryOfDeleted(t *testing.T, s *suite) {
	job := s.job("a", retries(2))
	run := s.start(job.ID, "i1")
	_, err := s.Jobs.DeleteJob(t.Context(), job.ID, 0, "test")
	s.must(err)
	s.settle(engine.Settled, s.result(run, domain.OutcomeFailed))
	s.is(job.ID, run.ID, domain.Failed, domain.ReasonHandlerError)
}

func childrenOnce(t *testing.T, s *suite) {
	good, bad := s.job("good"), s.job("bad")
	job := s.job("a", child(good.ID, domain.OnSuccess), child(bad.ID, domain.OnFailure))
	run := s.start(job.ID, "i1")
	e := s.result(run, domain.OutcomeSucceeded)
	e.Output = "forty-two"
	s.settle(engine.Settled, e)
	ups := s.FollowUps(t)
	if len(ups) != 1 || ups[0].ChildJob != good.ID || ups[0].RunID != run.ID || ups[0].Retry {
		t.Fatalf("follow-ups %+v", ups)
	}
	for range 2 {
		s.must(s.PlanChild(t.Context(), run.ID, good.ID, ups[0].EndedAt))
	}
	made := s.Runs(t, good.ID)
	equal(t, "children", len(made), 1)
	equal(t, "parent", made[0].Parent, run.ID)
	equal(t, "cause", made[0].Cause, domain.CauseChild)
	bound := s.one(s.admit(s.claim(), "i1").Bound)
	s.settle(engine.Settled, s.result(bound, domain.OutcomeSucceeded))
	s.must(s.PlanChild(t.Context(), run.ID, good.ID, ups[0].EndedAt)) // a repeat after the child has ended
	equal(t, "children", len(s.Runs(t, good.ID)), 1)
	s.is(good.ID, made[0].ID, domain.Succeeded, "")
	outputs, err := s.Offer.ParentOutputs(t.Context(), []domain.RunID{run.ID})
	s.must(err)
	equal(t, "the parent's output", outputs[run.ID], "forty-two")
}

// drained: an attempt whose instance shut down is retried at once, whatever the backoff, and on another instance.
// Without a retry left, the run fails.
func drained(t *testing.T, s *suite) {
	job := s.job("a", retries(1), func(sp *domain.JobSpec) {
		sp.RetryBackoff = domain.RetryBackoff{Initial: domain.Duration(time.Hour), Factor: 1, Max: domain.Duration(time.Hour)}
	})
	end := func(r engine.LiveRun) engine.Ended {
		e := s.result(r, domain.OutcomeFailed)
		e.Reason = domain.ReasonDrained
		return e
	}
	run := s.start(job.ID, "i1")
	equal(t, "state", s.settle(engine.Settled, end(run)).Changes[0].State, domain.Retrying)
	n, err := s.Replan(t.Context(), []domain.RunID{run.ID}, []int{1})
	s.must(err)
	equal(t, "replanned", n, 1)
	due := s.claim()
	equal(t, "claimed at once", len(due), 1)
	equal(t, "avoid", due[0].Avoid, "i1")
	s.settle(engine.Settled, end(s.one(s.admit(due, "i2").Bound)))
	s.is(job.ID, run.ID, domain.Failed, domain.ReasonDrained)
}
