package storetest

import (
	"slices"
	"testing"
	"time"

	"github.com/belfryhq/belfry/internal/domain"
	"github.com/belfryhq/belfry/internal/engine"
)

func coverEarly(sp *domain.JobSpec) { sp.Block = domain.BlockCoverEarly }

// comes triggers a run and admits it for an instance.
func (s *suite) comes(job domain.JobID, instance string) (domain.RunID, engine.Admitted) {
	s.t.Helper()
	s.Advance(s.t, 2*time.Millisecond) // ids of one millisecond have no order
	id := s.trigger(job, 1)[0]
	return id, s.admit(s.claim(), instance)
}

// did checks how many runs an admission bound, held, ended, killed and released.
func (s *suite) did(what string, out engine.Admitted, bound, held, ended, kills, released int) {
	s.t.Helper()
	got := []int{len(out.Bound), len(out.Held), len(out.Ended), len(out.Kills), len(out.Released)}
	if want := []int{bound, held, ended, kills, released}; !slices.Equal(got, want) {
		s.t.Fatalf("%s: bound, held, ended, kills, released are %v, want %v: %+v", what, got, want, out)
	}
}

// cancelled returns the result that the instance of a covered run reports.
func (s *suite) cancelled(r engine.LiveRun) engine.Ended {
	e := s.result(r, domain.OutcomeCancelled)
	e.Reason = domain.ReasonCovered
	return e
}

func covers(t *testing.T, s *suite) {
	job := s.job("a", coverEarly, retries(2)).ID
	a := s.start(job, "i1")
	b, out := s.comes(job, "i1")
	s.did("the running run is killed, the new one waits", out, 0, 1, 0, 1, 0)
	equal(t, "killed", out.Kills[0].ID, a.ID)
	equal(t, "why", out.Kills[0].KillReason, domain.ReasonCovered)
	c, out := s.comes(job, "i2")
	s.did("the newest waits instead", out, 0, 1, 1, 0, 0)
	s.is(job, b, domain.Skipped, domain.ReasonCovered)
	_, err := s.Kill.RequestKill(t.Context(), a.ID, domain.ReasonKilled, "test")
	s.must(err)
	released := s.settle(engine.Settled, s.cancelled(a)).Released
	s.is(job, a.ID, domain.Cancelled, domain.ReasonCovered) // the first request counts
	equal(t, "released", released[0].RunID, c)
	run := s.one(s.admit(released, "i1").Bound)

	// A covered run that succeeds stays succeeded.
	d, out := s.comes(job, "i1")
	s.did("covers again", out, 0, 1, 0, 1, 0)
	released = s.settle(engine.Settled, s.result(run, domain.OutcomeSucceeded)).Released
	s.is(job, run.ID, domain.Succeeded, "")
	run = s.one(s.admit(released, "i1").Bound)
	equal(t, "the next", run.ID, d)

	// A covered run that dies is not retried.
	e, out := s.comes(job, "i1")
	s.did("covers again", out, 0, 1, 0, 1, 0)
	released = s.settle(engine.Settled, s.lost(run)).Released
	s.is(job, run.ID, domain.Cancelled, domain.ReasonCovered)
	run = s.one(s.admit(released, "i1").Bound)
	equal(t, "the next", run.ID, e)

	// A covered run that waits for its next attempt is not retried.
	s.settle(engine.Settled, s.result(run, domain.OutcomeFailed))
	equal(t, "state", s.run(job, run.ID).State, domain.Retrying)
	f, out := s.comes(job, "")
	s.did("it is unbound, so it ends at once", out, 0, 1, 1, 0, 1)
	s.is(job, run.ID, domain.Cancelled, domain.ReasonCovered)
	s.did("it waits for room", s.admit(out.Released, ""), 0, 0, 0, 0, 0)
	g, out := s.comes(job, "i1")
	s.did("a run that waits for room ends at once", out, 0, 1, 1, 0, 1)
	s.is(job, f, domain.Cancelled, domain.ReasonCovered)
	keys, err := s.Assign.WaitingKeys(t.Context())
	s.must(err)
	equal(t, "waiting keys", len(keys), 0)
	run = s.one(s.admit(out.Released, "i1").Bound)
	equal(t, "the next", run.ID, g)
	s.settle(engine.Settled, s.result(run, domain.OutcomeSucceeded))
	equal(t, "slots", s.OwnedSlots(t), 0)
}

// A user may end held and covered runs.
func coverAndKill(t *testing.T, s *suite) {
	job := s.job("a", coverEarly).ID
	a := s.start(job, "i1")
	b, _ := s.comes(job, "i1")
	out, err := s.Kill.RequestKill(t.Context(), b, domain.ReasonKilled, "test")
	s.must(err)
	equal(t, "it has ended", len(out.Bound), 0)
	s.is(job, b, domain.Cancelled, domain.ReasonKilled)
	out, err = s.Kill.RequestKill(t.Context(), a.ID, domain.ReasonKilled, "test")
	s.must(err)
	equal(t, "killed again", s.one(out.Bound).KillReason, domain.ReasonCovered)
	equal(t, "no run is released", len(s.settle(engine.Settled, s.cancelled(a)).Released), 0)
	equal(t, "slots", s.OwnedSlots(t), 0)
	// A run that is killed first and covered later ends as killed.
	a = s.start(job, "i1")
	_, err = s.Kill.RequestKill(t.Context(), a.ID, domain.ReasonKilled, "test")
	s.must(err)
	c, held := s.comes(job, "i1")
	s.did("it is killed already", held, 0, 1, 0, 0, 0)
	released := s.settle(engine.Settled, s.cancelled(a)).Released
	s.is(job, a.ID, domain.Cancelled, domain.ReasonKilled)
	// A run that was released and is not yet fired can be killed.
	equal(t, "released", released[0].RunID, c)
	_, err = s.Kill.RequestKill(t.Context(), c, domain.ReasonKilled, "test")
	s.must(err)
	s.is(job, c, domain.Cancelled, domain.ReasonKilled)
	equal(t, "slots", s.OwnedSlots(t), 0)
}

func coverTogether(t *testing.T, s *suite) {
	job := s.job("a", coverEarly).ID
	all := s.trigger(job, 3)
	due := s.claim()
	newest := due[2].RunID
	out := s.admit(due, "i1")
	s.did("the newest runs", out, 1, 0, 2, 0, 0)
	equal(t, "the newest", out.Bound[0].ID, newest)
	for _, id := range all {
		if id != newest {
			s.is(job, id, domain.Skipped, domain.ReasonCovered)
		}
	}
	// A retry is not offered if a newer run, which covers it, is admitted in the same batch.
	again := s.job("b", coverEarly, retries(1)).ID
	a := s.start(again, "i1")
	s.settle(engine.Settled, s.result(a, domain.OutcomeFailed))
	n, err := s.Replan(t.Context(), []domain.RunID{a.ID}, []int{1})
	s.must(err)
	equal(t, "replanned", n, 1)
	s.Advance(t, 2*time.Second)
	s.trigger(again, 1)
	due = s.claim()
	equal(t, "due", len(due), 2)
	out = s.admit(due, "i1")
	s.did("covered before it is offered", out, 0, 1, 0, 1, 0)
	equal(t, "killed", out.Kills[0].ID, a.ID)
	equal(t, "attempt", out.Kills[0].Attempt, 2)
}

func coverInTime(t *testing.T, s *suite) {
	job := s.job("a", everySecond, coverEarly).ID
	s.Advance(t, 2*time.Second)
	planned := s.plan().Runs
	slices.SortFunc(planned, func(a, b engine.Due) int { return a.DueAt.Compare(b.DueAt) })
	out := s.admit(planned, "i1")
	run := s.one(out.Bound)
	equal(t, "kills", len(out.Kills), 0)
	equal(t, "held", len(out.Held), 0)
	if len(out.Ended) < 1 || len(out.Later) < 1 || len(out.Ended)+len(out.Later)+1 != len(planned) {
		t.Fatalf("%d ended and %d are later, of %d", len(out.Ended), len(out.Later), len(planned))
	}
	equal(t, "the newest that is due", run.ID, planned[len(out.Ended)].RunID)
	s.is(job, out.Later[0].RunID, domain.Pending, "")
	// A run that fires late, because its scheduler died, does not end a newer run.
	other := s.job("b", everySecond, coverEarly).ID
	s.Advance(t, 3*time.Second)
	planned = slices.DeleteFunc(s.plan().Runs, func(d engine.Due) bool { return d.JobID != other })
	slices.SortFunc(planned, func(a, b engine.Due) int { return a.DueAt.Compare(b.DueAt) })
	s.did("the second", s.admit(planned[1:2], "i1"), 1, 0, 0, 0, 0)
	s.did("the first", s.admit(planned[:1], "i1"), 0, 0, 1, 0, 0)
	s.is(other, planned[0].RunID, domain.Skipped, domain.ReasonCovered)
	s.did("the third", s.admit(planned[2:3], "i1"), 0, 1, 0, 1, 0)
	s.is(other, planned[1].RunID, domain.Queued, "")
}

func coverInstance(t *testing.T, s *suite) {
	job := s.job("a", coverEarly, instanceScope).ID
	a, b := s.start(job, "i1"), s.start(job, "i2")
	c, out := s.comes(job, "i1")
	s.did("it covers only the run on its instance", out, 0, 1, 0, 1, 0)
	equal(t, "killed", out.Kills[0].ID, a.ID)
	d, out := s.comes(job, "i1")
	s.did("the newest waits instead", out, 0, 1, 1, 0, 0)
	s.is(job, c, domain.Skipped, domain.ReasonCovered)
	released := s.settle(engine.Settled, s.cancelled(a)).Released
	equal(t, "released", released[0].RunID, d)
	out = s.admit(released, "i2")
	s.did("it is routed again, and covers there", out, 0, 1, 0, 1, 0)
	equal(t, "killed", out.Kills[0].ID, b.ID)
	released = s.settle(engine.Settled, s.cancelled(b)).Released
	// A newer run is admitted before the run that was released.
	s.Advance(t, 2*time.Millisecond)
	e := s.start(job, "i1")
	s.did("it is covered by the newer one", s.admit(released, "i1"), 0, 0, 1, 0, 0)
	s.is(job, d, domain.Skipped, domain.ReasonCovered)
	// Two waiting runs are assigned to the instance of another run.
	s.Advance(t, 2*time.Millisecond)
	s.trigger(job, 2)
	due := s.claim()
	equal(t, "waiting", len(s.admit(due, "").Waiting), 2)
	bound, others, err := s.Fire.AssignWaiting(t.Context(), engine.WaitingKey{Group: "g", Target: "echo"}, 10, func(runs []engine.WaitingRun) []engine.Binding {
		equal(t, "runs to choose for", len(runs), 2)
		return []engine.Binding{to("i1"), to("i1")}
	})
	s.must(err)
	equal(t, "bound", len(bound), 0)
	equal(t, "ended", len(others.Ended), 1)
	equal(t, "killed", s.one(others.Kills).ID, e.ID)
	s.is(job, due[0].RunID, domain.Skipped, domain.ReasonCovered)
	released = s.settle(engine.Settled, s.cancelled(e)).Released
	equal(t, "released", released[0].RunID, due[1].RunID)
	keys, err := s.Assign.WaitingKeys(t.Context())
	s.must(err)
	equal(t, "waiting keys", len(keys), 0)
	run := s.one(s.admit(released, "i1").Bound)
	s.settle(engine.Settled, s.result(run, domain.OutcomeSucceeded))
	equal(t, "slots", s.OwnedSlots(t), 0)
}

// A retried run is due later than a newer run. It does not cover the newer run, neither in its batch nor if both
// find the slot taken.
func coverRetry(t *testing.T, s *suite) {
	job := s.job("a", coverEarly, instanceScope, retries(1)).ID
	// both fails the given run and triggers a newer one. It claims the newer run, which is due first, and the retry.
	both := func(old engine.LiveRun) []engine.Due {
		t.Helper()
		s.Advance(t, 2*time.Millisecond)
		newer := s.trigger(job, 1)
		s.Advance(t, 2*time.Millisecond)
		s.settle(engine.Settled, s.result(old, domain.OutcomeFailed))
		n, err := s.Replan(t.Context(), []domain.RunID{old.ID}, []int{1})
		s.must(err)
		equal(t, "replanned", n, 1)
		s.Advance(t, 2*time.Second)
		due := s.claim()
		equal(t, "due", len(due), 2)
		equal(t, "due first", due[0].RunID, newer[0])
		equal(t, "due second", due[1].RunID, old.ID)
		return due
	}
	old := s.start(job, "i1")
	due := both(old)
	out := s.admit(due, "i1")
	s.did("the newer one runs", out, 1, 0, 1, 0, 0)
	equal(t, "it runs", out.Bound[0].ID, due[0].RunID)
	s.is(job, old.ID, domain.Skipped, domain.ReasonCovered)
	s.settle(engine.Settled, s.result(out.Bound[0], domain.OutcomeSucceeded))

	first := s.start(job, "i2")
	s.Advance(t, 2*time.Millisecond)
	old = s.start(job, "i1")
	due = both(old)
	out = s.admit(due, "i2")
	s.did("the newer one is held", out, 0, 1, 1, 1, 0)
	equal(t, "held", out.Held[0], due[0].RunID)
	equal(t, "killed", out.Kills[0].ID, first.ID)
	s.is(job, old.ID, domain.Skipped, domain.ReasonCovered)
}

func coverBroadcast(t *testing.T, s *suite) {
	always := s.job("child", parallel).ID
	job := s.job("a", coverEarly, broadcast, child(always, domain.OnFailure)).ID
	s.trigger(job, 1)
	out := s.expand(s.claim()[0], "i1", "i2", "")
	equal(t, "bound", len(out.Bound), 2)
	first := out.Bound
	second := s.trigger(job, 1)[0]
	out = s.expand(s.claim()[0], "i1", "i2")
	s.did("as a whole", out, 0, 1, 1, 2, 0)
	s.is(job, out.Ended[0].RunID, domain.Cancelled, domain.ReasonCovered) // the shard without an instance
	s.Advance(t, 2*time.Millisecond)
	third := s.trigger(job, 1)[0]
	out = s.expand(s.claim()[0], "i1", "i2")
	s.did("the newest waits instead", out, 0, 1, 1, 0, 0)
	s.is(job, second, domain.Skipped, domain.ReasonCovered)
	equal(t, "not all have ended", len(s.settle(engine.Settled, s.cancelled(first[0])).Released), 0)
	ended := s.settle(engine.Settled, s.cancelled(first[1]))
	equal(t, "joined", ended.Joined, 1)
	equal(t, "released", ended.Released[0].RunID, third)
	for _, u := range s.FollowUps(t) {
		if u.ChildJob == always && u.RunID == first[0].ID {
			t.Error("a covered broadcast has not failed")
		}
	}
	out = s.expand(ended.Released[0], "i1", "i2")
	equal(t, "bound", len(out.Bound), 2)

	// With block scope instance, each shard covers the run on its own instance. A held shard is covered by the next one.
	apart := s.job("b", coverEarly, broadcast, instanceScope).ID
	s.trigger(apart, 1)
	a := s.expand(s.claim()[0], "i1", "i2").Bound
	equal(t, "bound", len(a), 2)
	s.settle(engine.Settled, s.result(a[1], domain.OutcomeSucceeded))
	s.Advance(t, 2*time.Millisecond)
	s.trigger(apart, 1)
	out = s.expand(s.claim()[0], "i1", "i2")
	s.did("one shard starts, one waits", out, 1, 1, 0, 1, 0)
	b := out.Bound[0]
	s.Advance(t, 2*time.Millisecond)
	s.trigger(apart, 1)
	out = s.expand(s.claim()[0], "i1", "i2")
	s.did("both wait", out, 0, 2, 1, 1, 0)
	joined := s.settle(engine.Settled, s.cancelled(b))
	equal(t, "joined", joined.Joined, 1)
	equal(t, "released", len(joined.Released), 1)
	equal(t, "released", len(s.settle(engine.Settled, s.cancelled(a[0])).Released), 1)
}
