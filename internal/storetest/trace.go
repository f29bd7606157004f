package storetest

import (
	"testing"
	"time"

	"github.com/belfryhq/belfry/internal/domain"
	"github.com/belfryhq/belfry/internal/engine"
	"github.com/belfryhq/belfry/internal/trace"
)

// caller is the trace of a caller, as a run stores it.
const caller = "4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"

// inheritedTraces: a run keeps the trace that it continues, its children continue it too, and so do the children of a run that began
// its trace.
func inheritedTraces(t *testing.T, s *suite) {
	last := s.job("last", parallel) // its first run stays unfinished
	next := s.job("next", child(last.ID, domain.OnSuccess), retries(1), func(sp *domain.JobSpec) { sp.RetryBackoff.Initial = domain.Duration(time.Millisecond) })
	first := s.job("first", child(next.ID, domain.OnSuccess))
	follow := func(parent engine.LiveRun, job domain.JobID) engine.LiveRun {
		t.Helper()
		s.settle(engine.Settled, s.result(parent, domain.OutcomeSucceeded))
		ups := s.FollowUps(t)
		equal(t, "follow-ups", len(ups), 1)
		s.must(s.PlanChild(t.Context(), parent.ID, job, ups[0].EndedAt))
		return s.one(s.admit(s.claim(), "i1").Bound)
	}
	for _, stored := range []string{caller, ""} {
		_, err := s.Jobs.Trigger(t.Context(), first.ID, domain.Trigger{Cause: domain.CauseAPI, Trace: stored})
		s.must(err)
		run := s.one(s.admit(s.claim(), "i1").Bound)
		equal(t, "the trace of a triggered run", run.Trace, stored)
		second := follow(run, next.ID)
		equal(t, "the trace of a child", second.Trace, trace.OfChild(stored, run.ID, run.ID).String())
		s.settle(engine.Settled, s.result(second, domain.OutcomeFailed))
		s.FollowUps(t)
		_, err = s.Replan(t.Context(), []domain.RunID{second.ID}, []int{1})
		s.must(err)
		again := s.one(s.admit(s.claim(), "i1").Bound)
		equal(t, "attempt", again.Attempt, 2)
		equal(t, "the trace of a retry", again.Trace, second.Trace)
		equal(t, "the trace of a grandchild", follow(again, last.ID).Trace, trace.OfChild(second.Trace, second.ID, second.ID).String())
	}
}

// tracedBroadcast: all shards of a broadcast are in one trace.
func tracedBroadcast(t *testing.T, s *suite) {
	job := s.job("a", broadcast)
	_, err := s.Jobs.Trigger(t.Context(), job.ID, domain.Trigger{Cause: domain.CauseAPI, Trace: caller})
	s.must(err)
	out := s.expand(s.claim()[0], "i1", "i2")
	equal(t, "shards", len(out.Bound), 2)
	for _, r := range out.Bound {
		equal(t, "the trace of a shard", r.Trace, caller)
	}
}
