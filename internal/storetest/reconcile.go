package storetest

import (
	"testing"
	"time"

	"github.com/belfryhq/belfry/internal/domain"
	"github.com/belfryhq/belfry/internal/engine"
	"github.com/belfryhq/belfry/internal/explain"
)

func killUnbound(t *testing.T, s *suite) {
	job := s.job("a")
	run := s.trigger(job.ID, 1)[0]
	due := s.claim()
	out, err := s.Kill.RequestKill(t.Context(), run, domain.ReasonKilled, "test")
	s.must(err)
	equal(t, "bound", len(out.Bound), 0)
	s.is(job.ID, run, domain.Cancelled, domain.ReasonKilled)
	equal(t, "fired after the kill", len(s.admit(due, "i1").Bound), 0)
	_, err = s.Kill.RequestKill(t.Context(), run, domain.ReasonKilled, "test")
	equal(t, "a final run", domain.CodeOf(err), domain.Conflict)
	_, err = s.Kill.RequestKill(t.Context(), domain.NewRunID(s.now()), domain.ReasonKilled, "test")
	equal(t, "an unknown run", domain.CodeOf(err), domain.NotFound)
	// A held run ends too, and its owner stays.
	a := s.start(job.ID, "i1")
	held := s.trigger(job.ID, 1)[0]
	s.admit(s.claim(), "i1")
	_, err = s.Kill.RequestKill(t.Context(), held, domain.ReasonKilled, "test")
	s.must(err)
	equal(t, "released", len(s.settle(engine.Settled, s.result(a, domain.OutcomeSucceeded)).Released), 0)
}

func killBound(t *testing.T, s *suite) {
	job := s.job("a", retries(3))
	run := s.start(job.ID, "i1")
	out, err := s.Kill.RequestKill(t.Context(), run.ID, domain.ReasonKilled, "test")
	s.must(err)
	equal(t, "kill requested", s.one(out.Bound).KillRequested, true)
	late, err := s.Reconcile.UnconfirmedKills(t.Context(), 20*time.Second, 10)
	s.must(err)
	equal(t, "unconfirmed", len(late), 0)
	s.Advance(t, 25*time.Second)
	late, err = s.Reconcile.UnconfirmedKills(t.Context(), 20*time.Second, 10)
	s.must(err)
	equal(t, "unconfirmed", len(late), 1)
	silent, err := s.Verdict.Silent(t.Context(), []string{"g"}, time.Second, 10)
	s.must(err)
	equal(t, "silent", len(silent), 0) // the kill's reconciler checks it
	s.settle(engine.Settled, s.result(run, domain.OutcomeFailed))
	s.is(job.ID, run.ID, domain.Cancelled, domain.ReasonKilled)

	success := s.start(job.ID, "i1")
	_, err = s.Kill.RequestKill(t.Context(), success.ID, domain.ReasonKilled, "test")
	s.must(err)
	s.settle(engine.Settled, s.result(success, domain.OutcomeSucceeded))
	s.is(job.ID, success.ID, domain.Succeeded, "")
}

func deadlines(t *testing.T, s *suite) {
	job := s.job("a", func(sp *domain.JobSpec) { sp.StartDeadline = domain.Duration(10 * time.Second) })
	s.trigger(job.ID, 1)
	waits := s.one(s.admit(s.claim(), "").Waiting)
	past, err := s.Reconcile.PastDeadline(t.Context(), 10)
	s.must(err)
	equal(t, "past", len(past), 0)
	s.Advance(t, 11*time.Second)
	past, err = s.Reconcile.PastDeadline(t.Context(), 10)
	s.must(err)
	equal(t, "past", s.one(past).ID, waits.ID)
	s.settle(engine.Settled, engine.Ended{
		RunID: waits.ID, Attempt: 1, Outcome: domain.OutcomeFailed, Reason: domain.ReasonNoExecutor, Permanent: true, FinishedAt: s.now(),
	})
	s.is(job.ID, waits.ID, domain.Failed, domain.ReasonNoExecutor)
	past, err = s.Reconcile.PastDeadline(t.Context(), 10)
	s.must(err)
	equal(t, "past", len(past), 0)
	// A run that is admitted late still has its full start deadline.
	s.trigger(job.ID, 1)
	s.Advance(t, 13*time.Second)
	s.one(s.admit(s.claim(), "").Waiting)
	past, err = s.Reconcile.PastDeadline(t.Context(), 10)
	s.must(err)
	equal(t, "past", len(past), 0)
}

func giveUps(t *testing.T, s *suite) {
	job := s.job("a", func(sp *domain.JobSpec) { sp.Timeout = domain.Duration(5 * time.Second) })
	run := s.start(job.ID, "i1")
	s.Advance(t, 20*time.Second)
	past, err := s.Reconcile.PastGiveUp(t.Context(), "g", 10)
	s.must(err)
	equal(t, "within the grace", len(past), 0)
	s.Advance(t, 20*time.Second)
	past, err = s.Reconcile.PastGiveUp(t.Context(), "g", 10)
	s.must(err)
	equal(t, "past it", s.one(past).ID, run.ID)
	past, err = s.Reconcile.PastGiveUp(t.Context(), "another", 10)
	s.must(err)
	equal(t, "past it of another group", len(past), 0)
}

func found(t *testing.T, s *suite) {
	job := s.job("a", parallel)
	a, b := s.start(job.ID, "i1"), s.start(job.ID, "i2")
	boots, err := s.Verdict.BoundBoots(t.Context(), time.Second)
	s.must(err)
	equal(t, "boots", len(boots), 2)
	runs, err := s.Verdict.RunsOf(t.Context(), engine.BoundBoot{Group: "g", Instance: "i1", BootID: "b1"}, domain.NilRunID, 10)
	s.must(err)
	equal(t, "of i1", s.one(runs).ID, a.ID)
	runs, err = s.Verdict.RunsOf(t.Context(), engine.BoundBoot{Group: "g", Instance: "i1", BootID: "b1"}, a.ID, 10)
	s.must(err)
	equal(t, "after it", len(runs), 0)
	silent, err := s.Verdict.Silent(t.Context(), []string{"g"}, 20*time.Second, 10)
	s.must(err)
	equal(t, "silent", len(silent), 0)
	s.Advance(t, 25*time.Second)
	_, err = s.Settle.MarkRunning(t.Context(), []engine.Started{{RunID: b.ID, Attempt: 1, Instance: "i2", BootID: "b1", Bind: 1, StartedAt: s.now()}})
	s.must(err)
	silent, err = s.Verdict.Silent(t.Context(), []string{"g"}, 20*time.Second, 10)
	s.must(err)
	equal(t, "silent", s.one(silent).ID, a.ID)
	silent, err = s.Verdict.Silent(t.Context(), []string{"another"}, 20*time.Second, 10)
	s.must(err)
	equal(t, "silent of another group", len(silent), 0)
	boots, err = s.Verdict.BoundBoots(t.Context(), 20*time.Second)
	s.must(err)
	for _, boot := range boots {
		equal(t, "silent runs of "+boot.Instance, boot.Silent, map[string]int{"i1": 1}[boot.Instance])
	}
}

func chain(t *testing.T, s *suite) {
	job := s.job("a", func(sp *domain.JobSpec) {
		sp.Schedule = domain.Schedule{Kind: domain.ScheduleFixedDelay, Delay: domain.Duration(10 * time.Second)}
	})
	planned := s.plan()
	equal(t, "the first", len(planned.Runs), 1)
	run := s.one(s.admit(planned.Runs, "i1").Bound)
	s.Advance(t, time.Minute)
	equal(t, "while it runs", len(s.plan().Runs), 0)
	n, err := s.Reconcile.GoOnChains(t.Context(), 10)
	s.must(err)
	equal(t, "while it runs", n, 0)
	s.settle(engine.Settled, s.result(run, domain.OutcomeSucceeded))
	equal(t, "before the delay", len(s.plan().Runs), 0)
	s.Advance(t, 7*time.Second)
	planned = s.plan()
	equal(t, "the second", len(planned.Runs), 1)
	if gap := planned.Runs[0].DueAt.Sub(s.now()); gap < 0 || gap > 4*time.Second {
		t.Errorf("the second is due in %s", gap)
	}
	s.one(s.admit(planned.Runs, "i1").Bound)
	_, _, err = s.Jobs.EditJob(t.Context(), job.ID, 0, "test", func(sp *domain.JobSpec) error {
		sp.Param = "x"
		return nil
	})
	s.must(err)
	s.Advance(t, 20*time.Second)
	equal(t, "edited while it runs", len(s.plan().Runs), 0)
}

func orphans(t *testing.T, s *suite) {
	job := s.job("a", instanceScope)
	run := s.start(job.ID, "i1")
	held := s.trigger(job.ID, 1)[0]
	s.admit(s.claim(), "i1")
	none, err := s.Reconcile.ReleaseOrphans(t.Context(), 10)
	s.must(err)
	equal(t, "with an owner", len(none), 0)
	_, _, err = s.Offer.Unbind(t.Context(), []engine.Refusal{{RunID: run.ID, Attempt: 1, Bind: 1, Why: explain.Of(explain.Refused, "i1", "full")}})
	s.must(err)
	released, err := s.Reconcile.ReleaseOrphans(t.Context(), 10)
	s.must(err)
	equal(t, "released", len(released), 1)
	equal(t, "run", released[0].RunID, held)
	s.one(s.admit(released, "i1").Bound)
	none, err = s.Reconcile.ReleaseOrphans(t.Context(), 10)
	s.must(err)
	equal(t, "again", len(none), 0)
}
