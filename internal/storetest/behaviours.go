package storetest

import (
	"slices"
	"testing"
	"time"

	"github.com/belfryhq/belfry/internal/domain"
)

var behaviours = []struct {
	name string
	test func(*testing.T, *suite)
}{
	{"PlanMakesTheRunsOfTheHorizonOnce", planOnce},
	{"MissedFiresFollowThePolicy", missedFires},
	{"StrandedFiresFollowThePolicy", strandedFires},
	{"ClaimTakesWhatOthersPlanned", claimNear},
	{"AdmitComparesWhatTheRingSays", admitCompares},
	{"AdmitLeavesLateFiresToTheMisfirePolicy", admitTooLate},
	{"AdmittedWithoutAnInstanceWaits", waitAndAssign},
	{"SerialRunsFollowInOrder", serialOrder},
	{"DiscardLaterEndsTheNewRun", discards},
	{"ParallelRunsNeedNoSlot", parallelRuns},
	{"AheadOfDueOnlyAFreeSlot", aheadOfDue},
	{"InstanceScopeHoldsPerInstance", instanceSlots},
	{"ABroadcastExpandsOnceAndJoinsOnce", broadcasts},
	{"ABroadcastIsHeldWhole", heldBroadcast},
	{"ABroadcastThatWaitsIsExpandedLater", waitingBroadcast},
	{"ABroadcastInInstanceScopeIsHeldShardByShard", instanceBroadcast},
	{"ASerialRunWaitsForAnEarlierOneThatIsStranded", strandedFirst},
	{"UnbindComparesTheRound", unbinds},
	{"RaiseBindsComparesTheRound", raises},
	{"MarkRunningComparesTheRound", marks},
	{"SettlingTellsWhatItDid", dispositions},
	{"AnAttemptHandedBackIsRoutedAgain", unstarted},
	{"RetriesAreReplannedOnce", retried},
	{"RetriesOfADeletedJobEnd", retryOfDeleted},
	{"ChildrenArePlannedOnce", childrenOnce},
	{"AKillEndsWhatNobodyHas", killUnbound},
	{"AKillIsKeptForWhatAnInstanceHas", killBound},
	{"WaitingHasADeadline", deadlines},
	{"TimeoutsAreGivenUp", giveUps},
	{"WhatIsBoundIsFound", found},
	{"FixedDelayGoesOnAfterTheEnd", chain},
	{"HeldBehindNobodyIsReleased", orphans},
	{"AnEditForgetsNothing", edits},
	{"AKillBeforeDueHidesNoFireTimeFromAnEdit", killedAhead},
	{"AnEditServesWhatIsDueByTheOldVersion", lateEdit},
	{"ADisabledJobFiresByHandOnly", disabled},
	{"ADeleteEndsWhatHasNotStarted", deletes},
	{"RouteCountersAreShared", counters},
}

func planOnce(t *testing.T, s *suite) {
	job := s.job("a", everySecond)
	s.Advance(t, 3*time.Second)
	out := s.plan()
	equal(t, "jobs", out.Jobs, 1)
	if n := len(out.Runs); n < 10 || n > 30 { // three seconds past, eight ahead
		t.Fatalf("%d runs", n)
	}
	equal(t, "missed", out.Missed, 0)
	for _, r := range out.Runs {
		run := s.run(job.ID, r.RunID)
		equal(t, "id", r.RunID, domain.ScheduledRunID(job.ID, run.FireTime, 0))
		equal(t, "state", run.State, domain.Pending)
		equal(t, "cause", run.Cause, domain.CauseSchedule)
	}
	again := s.plan()
	if len(again.Runs) > 10 { // some seconds may have passed
		t.Fatalf("planned again: %+v", again.Runs)
	}
	equal(t, "runs", len(s.Runs(t, job.ID)), len(out.Runs)+len(again.Runs))
	equal(t, "in no other ring", len(s.claim()), 0)
}

// ledger sums a job's ledger.
func (s *suite) ledger(job domain.JobID) (n int) {
	for _, m := range s.Missed(s.t, job) {
		n += m.Count
	}
	return n
}

func causes(runs []Run) map[domain.Cause]int {
	out := make(map[domain.Cause]int)
	for _, r := range runs {
		out[r.Cause]++
	}
	return out
}

func missedFires(t *testing.T, s *suite) {
	for m, want := range map[domain.Misfire]int{domain.MisfireSkip: 0, domain.MisfireFireOnce: 1, domain.MisfireFireAll: 100} {
		job := s.job(string(m), everySecond, misfire(m))
		s.Advance(t, 126*time.Second)
		out := s.plan()
		made := causes(s.Runs(t, job.ID))
		equal(t, string(m)+": made up for", made[domain.CauseMisfire], want)
		if n := s.ledger(job.ID) + want; n < 119 || n > 140 {
			t.Errorf("%s: %d fire times are missed", m, n)
		}
		equal(t, string(m)+": missed", out.Missed, s.ledger(job.ID))
		if n := made[domain.CauseSchedule]; n < 12 || n > 14 { // five seconds past, eight ahead
			t.Errorf("%s: %d runs in time", m, n)
		}
		for _, r := range s.Runs(t, job.ID) {
			if r.Cause == domain.CauseMisfire && s.Now().Sub(r.DueAt) > time.Minute {
				t.Errorf("%s: a misfire run is due %s, not when that was decided", m, r.DueAt)
			}
		}
		_, _, err := s.SetEnabled(t.Context(), job.ID, false, 0, "test")
		s.must(err)
	}
}

func strandedFires(t *testing.T, s *suite) {
	for _, m := range []domain.Misfire{domain.MisfireSkip, domain.MisfireFireOnce, domain.MisfireFireAll} {
		job := s.job(string(m), everySecond, misfire(m))
		s.Advance(t, time.Second)
		planned := len(s.plan().Runs)
		s.Advance(t, 20*time.Second)
		out, err := s.PlanStranded(t.Context(), 100)
		s.must(err)
		made := causes(s.Runs(t, job.ID))
		missed := s.ledger(job.ID)
		switch m {
		case domain.MisfireSkip:
			equal(t, "made up for", made[domain.CauseMisfire], 0)
		case domain.MisfireFireOnce:
			equal(t, "made up for", made[domain.CauseMisfire], 1)
		case domain.MisfireFireAll:
			equal(t, "missed", missed, 0)
		}
		if n := missed + made[domain.CauseMisfire]; n < planned || n < 14 || n > 40 {
			t.Errorf("%s: %d planned, %d missed, %v", m, planned, missed, made)
		}
		equal(t, "to ring", len(out.Runs), made[domain.CauseMisfire]+made[domain.CauseSchedule])
		again, err := s.PlanStranded(t.Context(), 100)
		s.must(err)
		equal(t, "stranded again", len(again.Runs)+again.Missed, 0)
		_, err = s.DeleteJob(t.Context(), job.ID, 0, "test")
		s.must(err)
	}
}

func claimNear(t *testing.T, s *suite) {
	job := s.job("a", parallel)
	made := s.trigger(job.ID, 3)
	claimed := s.claim()
	equal(t, "claimed", len(claimed), 3)
	for _, id := range made {
		if !slices.Contains(ids(claimed), id) {
			t.Errorf("run %s was not claimed", id)
		}
	}
	equal(t, "claimed again", len(s.claim()), 0)
	s.Advance(t, 2500*time.Millisecond)
	runs, stranded, err := s.ClaimNear(t.Context(), 2)
	s.must(err)
	equal(t, "taken over, two at a time", len(runs), 2)
	equal(t, "stranded", stranded, 2)
	equal(t, "the rest", len(s.claim()), 1)
}

func admitCompares(t *testing.T, s *suite) {
	job := s.job("a", parallel)
	s.trigger(job.ID, 1)
	due := s.claim()[0]
	for what, change := range map[string]func(*domain.Due){
		"another due instant": func(d *domain.Due) { d.DueAt = d.DueAt.Add(time.Millisecond) },
		"another version":     func(d *domain.Due) { d.JobVersion++ },
		"another attempt":     func(d *domain.Due) { d.Attempt++ },
		"another run":         func(d *domain.Due) { d.RunID = domain.NewRunID(s.Now()) },
	} {
		old := due
		change(&old)
		defs, err := s.Definitions(t.Context(), []domain.Due{due})
		s.must(err)
		out, err := s.Admit(t.Context(), []domain.Admission{{Due: old, Def: defs.Of(job.ID, 1), Binding: to("i1")}})
		s.must(err)
		equal(t, what, len(out.Bound)+len(out.Waiting)+len(out.Held)+len(out.Later)+len(out.Ended), 0)
	}
	run := s.one(s.admit([]domain.Due{due}, "i1").Bound)
	equal(t, "bind", run.Bind, 1)
	equal(t, "state", run.State, domain.Queued)
	equal(t, "instance and boot", run.Instance+"/"+run.BootID, "i1/b1")
	if run.BoundAt == nil || s.Now().Sub(*run.BoundAt).Abs() > 10*time.Second {
		t.Errorf("bound at %v, it is %s", run.BoundAt, s.Now())
	}
	out := s.admit([]domain.Due{due}, "i2")
	equal(t, "admitted again", len(out.Bound)+len(out.Waiting)+len(out.Held), 0)
}

func admitTooLate(t *testing.T, s *suite) {
	job := s.job("a", everySecond, parallel)
	s.Advance(t, time.Second)
	planned := s.plan().Runs
	s.Advance(t, 14*time.Second)
	out := s.admit(planned, "i1")
	equal(t, "admitted", len(out.Bound)+len(out.Waiting), 0)
	by := s.trigger(job.ID, 1)[0]
	s.Advance(t, 11*time.Second)
	bound := s.one(s.admit(s.claim(), "i1").Bound)
	equal(t, "by hand, however late", bound.ID, by)
}

func waitAndAssign(t *testing.T, s *suite) {
	job := s.job("a")
	s.trigger(job.ID, 1)
	out := s.admit(s.claim(), "")
	waits := s.one(out.Waiting)
	equal(t, "state", waits.State, domain.Queued)
	equal(t, "bind", waits.Bind, 0)
	keys, err := s.WaitingKeys(t.Context())
	s.must(err)
	key := domain.WaitingKey{Group: "g", Target: "echo"}
	if !slices.Equal(keys, []domain.WaitingKey{key}) {
		t.Fatalf("keys %+v", keys)
	}
	long, err := s.LongWaiting(t.Context(), 20*time.Second)
	s.must(err)
	equal(t, "long waiting", len(long), 0)
	s.Advance(t, 25*time.Second)
	long, err = s.LongWaiting(t.Context(), 20*time.Second)
	s.must(err)
	equal(t, "long waiting", len(long), 1)
	counts, err := s.WaitingCounts(t.Context())
	s.must(err)
	equal(t, "count", counts["no room"], 1)

	assign := func(k domain.WaitingKey, to domain.Binding) []domain.LiveRun {
		bound, _, err := s.AssignWaiting(t.Context(), k, 10, func(runs []domain.WaitingRun) []domain.Binding {
			out := make([]domain.Binding, len(runs))
			for i := range out {
				out[i] = to
			}
			return out
		})
		s.must(err)
		return bound
	}
	equal(t, "another kind", len(assign(domain.WaitingKey{Group: "g", Target: "else"}, to("i1"))), 0)
	equal(t, "nobody chosen", len(assign(key, to(""))), 0)
	run := s.one(assign(key, to("i1")))
	equal(t, "bind", run.Bind, 1)
	equal(t, "run", run.ID, waits.ID)
	equal(t, "assigned again", len(assign(key, to("i1"))), 0)
	keys, err = s.WaitingKeys(t.Context())
	s.must(err)
	equal(t, "keys", len(keys), 0)
	equal(t, "its slot is still its own", s.OwnedSlots(t), 1)
	s.settle(domain.Settled, s.result(run, domain.OutcomeSucceeded))
	equal(t, "slots", s.OwnedSlots(t), 0)
}

func serialOrder(t *testing.T, s *suite) {
	for _, scope := range []domain.BlockScope{domain.ScopeCluster, domain.ScopeInstance} {
		job := s.job(string(scope), func(sp *domain.JobSpec) { sp.BlockScope = scope })
		want := s.trigger(job.ID, 6)
		slices.SortFunc(want, func(a, b domain.RunID) int { return slices.Compare(a[:], b[:]) })
		out := s.admit(s.claim(), "i1")
		equal(t, "held", len(out.Held), 5)
		var got []domain.RunID
		for len(out.Bound) > 0 {
			run := s.one(out.Bound)
			got = append(got, run.ID)
			out = s.admit(s.settle(domain.Settled, s.result(run, domain.OutcomeSucceeded)).Released, "i1")
		}
		if !slices.Equal(got, want) {
			t.Errorf("%s: %v ran, want %v", scope, got, want)
		}
		equal(t, "slots", s.OwnedSlots(t), 0)
	}
}

func discards(t *testing.T, s *suite) {
	job := s.job("a", discardLater)
	run := s.start(job.ID, "i1")
	late := s.trigger(job.ID, 1)[0]
	out := s.admit(s.claim(), "i1")
	equal(t, "ended", len(out.Ended), 1)
	s.is(job.ID, late, domain.Skipped, domain.ReasonDiscarded)
	s.settle(domain.Settled, s.result(run, domain.OutcomeSucceeded))
	s.start(job.ID, "i1")
}

func parallelRuns(t *testing.T, s *suite) {
	job := s.job("a", parallel)
	s.trigger(job.ID, 3)
	equal(t, "bound", len(s.admit(s.claim(), "i1").Bound), 3)
	equal(t, "slots", s.OwnedSlots(t), 0)
}

func aheadOfDue(t *testing.T, s *suite) {
	job := s.job("a", everySecond)
	s.Advance(t, 2*time.Second) // so that some are due, and some are not
	planned := s.plan().Runs
	slices.SortFunc(planned, func(a, b domain.Due) int { return a.DueAt.Compare(b.DueAt) })
	out := s.admit(planned, "i1")
	run := s.one(out.Bound)
	equal(t, "the earliest", run.ID, planned[0].RunID)
	if len(out.Held) < 1 || len(out.Later) < 1 {
		t.Fatalf("%d held, %d later", len(out.Held), len(out.Later))
	}
	for _, l := range out.Later {
		if !l.AtDue || !l.DueAt.After(run.DueAt) {
			t.Errorf("later: %+v", l)
		}
	}
	equal(t, "all", len(out.Held)+len(out.Later)+1, len(planned))
	s.is(job.ID, out.Later[0].RunID, domain.Pending, "")
}

func instanceSlots(t *testing.T, s *suite) {
	job := s.job("a", instanceScope)
	a := s.start(job.ID, "i1")
	b := s.start(job.ID, "i2")
	s.trigger(job.ID, 1)
	out := s.admit(s.claim(), "i1")
	equal(t, "held on i1", len(out.Held), 1)
	equal(t, "i2 releases nobody", len(s.settle(domain.Settled, s.result(b, domain.OutcomeSucceeded)).Released), 0)
	released := s.settle(domain.Settled, s.result(a, domain.OutcomeSucceeded)).Released
	equal(t, "released", len(released), 1)
	equal(t, "slots", s.OwnedSlots(t), 0) // it is routed anew
	s.one(s.admit(released, "i2").Bound)
	// A retry frees the slot of its instance.
	retry := s.job("b", instanceScope, retries(1))
	run := s.start(retry.ID, "i1")
	before := s.OwnedSlots(t)
	s.settle(domain.Settled, s.result(run, domain.OutcomeFailed))
	equal(t, "slots after a try", s.OwnedSlots(t), before-1)
}

func shards(instances ...string) (out []domain.ShardBinding) {
	for _, i := range instances {
		out = append(out, domain.ShardBinding{Binding: to(i), Pin: i})
	}
	return out
}

// expand fires a broadcast over instances.
func (s *suite) expand(due domain.Due, instances ...string) domain.Admitted {
	s.t.Helper()
	defs, err := s.Definitions(s.t.Context(), []domain.Due{due})
	s.must(err)
	out, err := s.ExpandBroadcast(s.t.Context(), due, defs.Of(due.JobID, due.JobVersion), shards(instances...))
	s.must(err)
	return out
}

func broadcasts(t *testing.T, s *suite) {
	bad, always := s.job("bad"), s.job("always")
	job := s.job("a", broadcast, child(bad.ID, domain.OnFailure), child(always.ID, domain.OnAlways))
	s.trigger(job.ID, 1)
	due := s.claim()[0]
	out := s.expand(due, "i1", "i2", "i3")
	equal(t, "shards", len(out.Bound), 3)
	for i, r := range out.Bound {
		equal(t, "shard", *r.Shard, domain.Shard{Index: i, Total: 3})
		equal(t, "id", r.ID, domain.ShardRunID(due.RunID, i))
		equal(t, "broadcast", *r.BroadcastID, due.RunID)
		equal(t, "pin", r.Pin, r.Instance)
		equal(t, "bind", r.Bind, 1)
	}
	again := s.expand(due, "i1", "i2")
	equal(t, "expanded again", len(again.Bound)+len(again.Waiting), 0)
	s.trigger(job.ID, 1)
	held := s.expand(s.claim()[0], "i1")
	equal(t, "the next is held", len(held.Held), 1)
	equal(t, "joined", s.settle(domain.Settled, s.result(out.Bound[0], domain.OutcomeSucceeded)).Joined, 0)
	equal(t, "joined", s.settle(domain.Settled, s.result(out.Bound[1], domain.OutcomeFailed)).Joined, 0)
	equal(t, "children", len(s.FollowUps(t)), 0)
	res := s.settle(domain.Settled, s.result(out.Bound[2], domain.OutcomeSucceeded))
	equal(t, "joined", res.Joined, 1)
	equal(t, "released", len(res.Released), 1)
	s.settle(domain.Repeat, s.result(out.Bound[2], domain.OutcomeSucceeded))
	ups := s.FollowUps(t)
	equal(t, "children", len(ups), 2)
	for _, u := range ups {
		equal(t, "parent", u.RunID, due.RunID)
	}
	next := s.expand(res.Released[0], "i1")
	equal(t, "the next", len(next.Bound), 1)
}

func heldBroadcast(t *testing.T, s *suite) {
	job := s.job("a", broadcast)
	s.trigger(job.ID, 1)
	first := s.expand(s.claim()[0], "i1")
	s.trigger(job.ID, 1)
	due := s.claim()[0]
	equal(t, "held", len(s.expand(due, "i1", "i2").Held), 1)
	equal(t, "runs", len(s.Runs(t, job.ID)), 2)
	released := s.settle(domain.Settled, s.result(first.Bound[0], domain.OutcomeSucceeded)).Released
	equal(t, "shards", len(s.expand(released[0], "i1", "i2").Bound), 2)
}

func waitingBroadcast(t *testing.T, s *suite) {
	job := s.job("a", broadcast)
	s.trigger(job.ID, 1)
	waits := s.one(s.admit(s.claim(), "").Waiting)
	bound, expand, err := s.AssignWaiting(t.Context(), domain.WaitingKey{Group: "g", Target: "echo"}, 10, func(runs []domain.WaitingRun) []domain.Binding {
		equal(t, "to bind", len(runs), 0)
		return nil
	})
	s.must(err)
	equal(t, "bound", len(bound), 0)
	run := s.one(expand)
	equal(t, "run", run.ID, waits.ID)
	out := s.expand(run.Due(), "i1", "")
	equal(t, "bound", len(out.Bound), 1)
	equal(t, "waiting", len(out.Waiting), 1)
	keys, err := s.WaitingKeys(t.Context())
	s.must(err)
	equal(t, "kinds that wait", len(keys), 1)
}

func instanceBroadcast(t *testing.T, s *suite) {
	job := s.job("a", broadcast, instanceScope)
	s.trigger(job.ID, 1)
	first := s.expand(s.claim()[0], "i1", "i2")
	equal(t, "the first", len(first.Bound), 2)
	s.trigger(job.ID, 1)
	second := s.expand(s.claim()[0], "i1", "i2", "i3", "i3")
	equal(t, "where nothing runs", len(second.Bound), 2)
	equal(t, "held", len(second.Held), 2)
	released := s.settle(domain.Settled, s.result(first.Bound[0], domain.OutcomeSucceeded)).Released
	equal(t, "released on i1", len(released), 1)
	equal(t, "its instance", released[0].Pin, "i1")
	s.one(s.admit(released, "i1").Bound)
	s.settle(domain.Settled, s.result(second.Bound[0], domain.OutcomeSucceeded))
	equal(t, "slots while a second shard is on i3", s.OwnedSlots(t), 3)
	s.settle(domain.Settled, s.result(second.Bound[1], domain.OutcomeSucceeded))
	equal(t, "slots", s.OwnedSlots(t), 2)
}

func strandedFirst(t *testing.T, s *suite) {
	job := s.job("a")
	earlier := s.trigger(job.ID, 1)[0]
	stranded := s.claim()
	s.Advance(t, time.Second)
	s.trigger(job.ID, 1)
	out := s.admit(s.claim(), "i1")
	equal(t, "held", len(out.Held), 1)
	run := s.one(s.admit(stranded, "i1").Bound)
	equal(t, "the earlier one", run.ID, earlier)
	equal(t, "released", len(s.settle(domain.Settled, s.result(run, domain.OutcomeSucceeded)).Released), 1)
}

func unbinds(t *testing.T, s *suite) {
	job := s.job("a", instanceScope)
	run := s.start(job.ID, "i1")
	unbind := func(bind, attempt int) (waiting, killed []domain.LiveRun) {
		waiting, killed, err := s.Unbind(t.Context(), []domain.Refusal{{RunID: run.ID, Attempt: attempt, Bind: bind, Why: "full", Avoid: "i1"}})
		s.must(err)
		return waiting, killed
	}
	waiting, _ := unbind(run.Bind+1, 1)
	equal(t, "of another round", len(waiting), 0)
	waiting, _ = unbind(run.Bind, 2)
	equal(t, "of another attempt", len(waiting), 0)
	waiting, killed := unbind(run.Bind, 1)
	equal(t, "killed", len(killed), 0)
	w := s.one(waiting)
	equal(t, "instance", w.Instance, "")
	equal(t, "avoid", w.Avoid, "i1")
	equal(t, "bind", w.Bind, 1)
	equal(t, "slots", s.OwnedSlots(t), 0)
	waiting, _ = unbind(run.Bind, 1)
	equal(t, "again", len(waiting), 0)

	run = s.start(job.ID, "i2")
	_, err := s.RequestKill(t.Context(), run.ID, domain.ReasonKilled, "test")
	s.must(err)
	waiting, killed = unbind(run.Bind, 1)
	equal(t, "waiting", len(waiting), 0)
	equal(t, "killed", len(killed), 1)
}

func raises(t *testing.T, s *suite) {
	run := s.start(s.job("a").ID, "i1")
	raised, err := s.RaiseBinds(t.Context(), []domain.LiveRun{run})
	s.must(err)
	equal(t, "bind", s.one(raised).Bind, 2)
	equal(t, "boot", raised[0].BootID, "b1")
	again, err := s.RaiseBinds(t.Context(), []domain.LiveRun{run})
	s.must(err)
	equal(t, "by old knowledge", len(again), 0)
}

func marks(t *testing.T, s *suite) {
	job := s.job("a")
	run := s.start(job.ID, "i1")
	mark := func(change func(*domain.Started)) int {
		st := domain.Started{RunID: run.ID, Attempt: 1, Instance: "i1", BootID: "b1", Bind: 1, StartedAt: s.Now()}
		change(&st)
		changes, err := s.MarkRunning(t.Context(), []domain.Started{st})
		s.must(err)
		return len(changes)
	}
	equal(t, "another round", mark(func(st *domain.Started) { st.Bind = 2 }), 0)
	equal(t, "another boot", mark(func(st *domain.Started) { st.BootID = "b2" }), 0)
	equal(t, "another attempt", mark(func(st *domain.Started) { st.Attempt = 2 }), 0)
	equal(t, "this one", mark(func(*domain.Started) {}), 1)
	s.is(job.ID, run.ID, domain.Running, "")
	equal(t, "again", mark(func(*domain.Started) {}), 0)
}

func dispositions(t *testing.T, s *suite) {
	job := s.job("a", parallel)
	run := s.start(job.ID, "i1")
	ok := s.result(run, domain.OutcomeSucceeded)
	foreign := ok
	foreign.Group = "h"
	s.settle(domain.WrongGroup, foreign)
	other := ok
	other.RunID = domain.NewRunID(s.Now())
	s.settle(domain.UnknownRun, other)
	other.Group = ""
	s.settle(domain.Raced, other)
	otherBoot := s.lost(run)
	otherBoot.BootID = "b0"
	s.settle(domain.Raced, otherBoot)
	oldRound := s.lost(run)
	oldRound.Bind = 7
	s.settle(domain.Raced, oldRound)
	s.is(job.ID, run.ID, domain.Queued, "")

	out, err := s.Settle(t.Context(), []domain.Ended{ok, ok})
	s.must(err)
	if !slices.Equal(out.Dispositions, []domain.Disposition{domain.Settled, domain.Repeat}) {
		t.Fatalf("twice in a batch: %v", out.Dispositions)
	}
	s.settle(domain.Repeat, ok)
	s.is(job.ID, run.ID, domain.Succeeded, "")
	s.settle(domain.Raced, s.lost(run))
	failed := s.result(run, domain.OutcomeFailed)
	s.settle(domain.Late, failed)

	dead := s.start(job.ID, "i1")
	s.settle(domain.Settled, s.lost(dead))
	s.is(job.ID, dead.ID, domain.Failed, domain.ReasonLost)
	equal(t, "late", s.HasLate(t, dead.ID, 1), false)
	s.settle(domain.Late, s.result(dead, domain.OutcomeSucceeded))
	equal(t, "late", s.HasLate(t, dead.ID, 1), true)
	s.is(job.ID, dead.ID, domain.Failed, domain.ReasonLost)
}

func unstarted(t *testing.T, s *suite) {
	job := s.job("a")
	run := s.start(job.ID, "i1")
	raised, err := s.RaiseBinds(t.Context(), []domain.LiveRun{run})
	s.must(err)
	s.settle(domain.Repeat, s.result(run, domain.OutcomeUnstarted)) // it speaks of the first round
	s.is(job.ID, run.ID, domain.Queued, "")
	equal(t, "instance", s.run(job.ID, run.ID).Instance, "i1")
	res := s.settle(domain.Settled, s.result(raised[0], domain.OutcomeUnstarted))
	equal(t, "waiting", res.Waiting, true)
	equal(t, "instance", s.run(job.ID, run.ID).Instance, "")
	bound, _, err := s.AssignWaiting(t.Context(), domain.WaitingKey{Group: "g", Target: "echo"}, 10, func(runs []domain.WaitingRun) []domain.Binding {
		equal(t, "avoid", runs[0].Avoid, "i1")
		return []domain.Binding{to("i2")}
	})
	s.must(err)
	again := s.one(bound)
	equal(t, "the same attempt", again.Attempt, 1)
	equal(t, "bind", again.Bind, 3)
	// A handler's own end counts in any round.
	end := s.result(again, domain.OutcomeSucceeded)
	end.Bind = 2
	s.settle(domain.Settled, end)

	killed := s.start(job.ID, "i1")
	_, err = s.RequestKill(t.Context(), killed.ID, domain.ReasonKilled, "test")
	s.must(err)
	s.settle(domain.Settled, s.result(killed, domain.OutcomeUnstarted))
	s.is(job.ID, killed.ID, domain.Cancelled, domain.ReasonKilled)
}

func retried(t *testing.T, s *suite) {
	job := s.job("a", retries(2))
	run := s.start(job.ID, "i1")
	res := s.settle(domain.Settled, s.lost(run))
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
	equal(t, "this one", replan(1), 1)
	equal(t, "again", replan(1), 0)
	due := s.claim()
	equal(t, "claimed", len(due), 1)
	equal(t, "attempt", due[0].Attempt, 2)
	equal(t, "avoid", due[0].Avoid, "i1")
	again := s.one(s.admit(due, "i2").Bound)
	s.settle(domain.Late, s.result(run, domain.OutcomeSucceeded))
	equal(t, "the first attempt's late result", s.HasLate(t, run.ID, 1), true)
	s.settle(domain.Settled, s.result(again, domain.OutcomeFailed))
	s.settle(domain.Repeat, s.result(again, domain.OutcomeFailed))
	s.FollowUps(t)
	s.Advance(t, 5*time.Second) // its follow-up is not worked
	n, err := s.ReplanOverdue(t.Context(), 10)
	s.must(err)
	equal(t, "overdue", n, 1)
	last := s.one(s.admit(s.claim(), "i1").Bound)
	equal(t, "attempt", last.Attempt, 3)
	s.settle(domain.Settled, s.result(last, domain.OutcomeFailed))
	s.is(job.ID, run.ID, domain.Failed, domain.ReasonHandlerError)

	permanent := s.start(job.ID, "i1")
	e := s.result(permanent, domain.OutcomeFailed)
	e.Permanent = true
	s.settle(domain.Settled, e)
	s.is(job.ID, permanent.ID, domain.Failed, domain.ReasonHandlerError)
}

func retryOfDeleted(t *testing.T, s *suite) {
	job := s.job("a", retries(2))
	run := s.start(job.ID, "i1")
	_, err := s.DeleteJob(t.Context(), job.ID, 0, "test")
	s.must(err)
	s.settle(domain.Settled, s.result(run, domain.OutcomeFailed))
	s.is(job.ID, run.ID, domain.Failed, domain.ReasonHandlerError)
}

func childrenOnce(t *testing.T, s *suite) {
	good, bad := s.job("good"), s.job("bad")
	job := s.job("a", child(good.ID, domain.OnSuccess), child(bad.ID, domain.OnFailure))
	run := s.start(job.ID, "i1")
	e := s.result(run, domain.OutcomeSucceeded)
	e.Output = "forty-two"
	s.settle(domain.Settled, e)
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
	s.settle(domain.Settled, s.result(bound, domain.OutcomeSucceeded))
	s.must(s.PlanChild(t.Context(), run.ID, good.ID, ups[0].EndedAt)) // also when it has ended
	equal(t, "children", len(s.Runs(t, good.ID)), 1)
	s.is(good.ID, made[0].ID, domain.Succeeded, "")
	outputs, err := s.ParentOutputs(t.Context(), []domain.RunID{run.ID})
	s.must(err)
	equal(t, "the parent's output", outputs[run.ID], "forty-two")
}

func killUnbound(t *testing.T, s *suite) {
	job := s.job("a")
	run := s.trigger(job.ID, 1)[0]
	due := s.claim()
	out, err := s.RequestKill(t.Context(), run, domain.ReasonKilled, "test")
	s.must(err)
	equal(t, "bound", len(out.Bound), 0)
	s.is(job.ID, run, domain.Cancelled, domain.ReasonKilled)
	equal(t, "fired all the same", len(s.admit(due, "i1").Bound), 0)
	_, err = s.RequestKill(t.Context(), run, domain.ReasonKilled, "test")
	equal(t, "a final run", domain.CodeOf(err), domain.Conflict)
	_, err = s.RequestKill(t.Context(), domain.NewRunID(s.Now()), domain.ReasonKilled, "test")
	equal(t, "an unknown run", domain.CodeOf(err), domain.NotFound)
	// What is held goes, too, and what holds it stays.
	a := s.start(job.ID, "i1")
	held := s.trigger(job.ID, 1)[0]
	s.admit(s.claim(), "i1")
	_, err = s.RequestKill(t.Context(), held, domain.ReasonKilled, "test")
	s.must(err)
	equal(t, "released", len(s.settle(domain.Settled, s.result(a, domain.OutcomeSucceeded)).Released), 0)
}

func killBound(t *testing.T, s *suite) {
	job := s.job("a", retries(3))
	run := s.start(job.ID, "i1")
	out, err := s.RequestKill(t.Context(), run.ID, domain.ReasonKilled, "test")
	s.must(err)
	equal(t, "to be told", s.one(out.Bound).KillRequested, true)
	late, err := s.UnconfirmedKills(t.Context(), 20*time.Second, 10)
	s.must(err)
	equal(t, "unconfirmed", len(late), 0)
	s.Advance(t, 25*time.Second)
	late, err = s.UnconfirmedKills(t.Context(), 20*time.Second, 10)
	s.must(err)
	equal(t, "unconfirmed", len(late), 1)
	silent, err := s.Silent(t.Context(), time.Second, 10)
	s.must(err)
	equal(t, "silent", len(silent), 0) // the kill's reconciler asks about it
	s.settle(domain.Settled, s.result(run, domain.OutcomeFailed))
	s.is(job.ID, run.ID, domain.Cancelled, domain.ReasonKilled)

	success := s.start(job.ID, "i1")
	_, err = s.RequestKill(t.Context(), success.ID, domain.ReasonKilled, "test")
	s.must(err)
	s.settle(domain.Settled, s.result(success, domain.OutcomeSucceeded))
	s.is(job.ID, success.ID, domain.Succeeded, "")
}

func deadlines(t *testing.T, s *suite) {
	job := s.job("a", func(sp *domain.JobSpec) { sp.StartDeadline = domain.Duration(10 * time.Second) })
	s.trigger(job.ID, 1)
	waits := s.one(s.admit(s.claim(), "").Waiting)
	past, err := s.PastDeadline(t.Context(), 10)
	s.must(err)
	equal(t, "past", len(past), 0)
	s.Advance(t, 11*time.Second)
	past, err = s.PastDeadline(t.Context(), 10)
	s.must(err)
	equal(t, "past", s.one(past).ID, waits.ID)
	s.settle(domain.Settled, domain.Ended{
		RunID: waits.ID, Attempt: 1, Outcome: domain.OutcomeFailed, Reason: domain.ReasonNoExecutor, Permanent: true, FinishedAt: s.Now(),
	})
	s.is(job.ID, waits.ID, domain.Failed, domain.ReasonNoExecutor)
	past, err = s.PastDeadline(t.Context(), 10)
	s.must(err)
	equal(t, "past", len(past), 0)
	// What is admitted late has its time all the same.
	s.trigger(job.ID, 1)
	s.Advance(t, 13*time.Second)
	s.one(s.admit(s.claim(), "").Waiting)
	past, err = s.PastDeadline(t.Context(), 10)
	s.must(err)
	equal(t, "past", len(past), 0)
}

func giveUps(t *testing.T, s *suite) {
	job := s.job("a", func(sp *domain.JobSpec) { sp.Timeout = domain.Duration(5 * time.Second) })
	run := s.start(job.ID, "i1")
	s.Advance(t, 20*time.Second)
	past, err := s.PastGiveUp(t.Context(), 10)
	s.must(err)
	equal(t, "within the grace", len(past), 0)
	s.Advance(t, 20*time.Second)
	past, err = s.PastGiveUp(t.Context(), 10)
	s.must(err)
	equal(t, "past it", s.one(past).ID, run.ID)
}

func found(t *testing.T, s *suite) {
	job := s.job("a", parallel)
	a, b := s.start(job.ID, "i1"), s.start(job.ID, "i2")
	boots, err := s.BoundBoots(t.Context())
	s.must(err)
	equal(t, "boots", len(boots), 2)
	runs, err := s.RunsOf(t.Context(), domain.BoundBoot{Group: "g", Instance: "i1", BootID: "b1"}, domain.NilRunID, 10)
	s.must(err)
	equal(t, "of i1", s.one(runs).ID, a.ID)
	runs, err = s.RunsOf(t.Context(), domain.BoundBoot{Group: "g", Instance: "i1", BootID: "b1"}, a.ID, 10)
	s.must(err)
	equal(t, "after it", len(runs), 0)
	silent, err := s.Silent(t.Context(), 20*time.Second, 10)
	s.must(err)
	equal(t, "silent", len(silent), 0)
	s.Advance(t, 25*time.Second)
	_, err = s.MarkRunning(t.Context(), []domain.Started{{RunID: b.ID, Attempt: 1, Instance: "i2", BootID: "b1", Bind: 1, StartedAt: s.Now()}})
	s.must(err)
	silent, err = s.Silent(t.Context(), 20*time.Second, 10)
	s.must(err)
	equal(t, "silent", s.one(silent).ID, a.ID)
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
	n, err := s.GoOnChains(t.Context(), 10)
	s.must(err)
	equal(t, "while it runs", n, 0)
	s.settle(domain.Settled, s.result(run, domain.OutcomeSucceeded))
	equal(t, "before the delay", len(s.plan().Runs), 0)
	s.Advance(t, 7*time.Second)
	planned = s.plan()
	equal(t, "the second", len(planned.Runs), 1)
	if gap := planned.Runs[0].DueAt.Sub(s.Now()); gap < 0 || gap > 4*time.Second {
		t.Errorf("the second is due in %s", gap)
	}
	s.one(s.admit(planned.Runs, "i1").Bound)
	_, _, err = s.EditJob(t.Context(), job.ID, 0, "test", func(sp *domain.JobSpec) error {
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
	none, err := s.ReleaseOrphans(t.Context(), 10)
	s.must(err)
	equal(t, "behind somebody", len(none), 0)
	_, _, err = s.Unbind(t.Context(), []domain.Refusal{{RunID: run.ID, Attempt: 1, Bind: 1, Why: "full"}})
	s.must(err)
	released, err := s.ReleaseOrphans(t.Context(), 10)
	s.must(err)
	equal(t, "released", len(released), 1)
	equal(t, "run", released[0].RunID, held)
	s.one(s.admit(released, "i1").Bound)
	none, err = s.ReleaseOrphans(t.Context(), 10)
	s.must(err)
	equal(t, "again", len(none), 0)
}

// fireTimes returns each fire time of a job's runs, and fails where there are two runs of one.
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
	slices.SortFunc(planned, func(a, b domain.Due) int { return a.DueAt.Compare(b.DueAt) })
	s.one(s.admit(planned[:1], "i1").Bound)
	before := s.fireTimes(job.ID)
	_, after, err := s.EditJob(t.Context(), job.ID, 1, "test", func(sp *domain.JobSpec) error {
		sp.Param = "x"
		return nil
	})
	s.must(err)
	edited := s.Now()
	equal(t, "version", after.Version, 2)
	for fire, r := range s.fireTimes(job.ID) {
		if fire.After(edited.Add(time.Second)) {
			t.Errorf("a run of %s is planned that the edit took back: version %d", fire, r.Version)
		}
	}
	s.plan()
	now := s.fireTimes(job.ID)
	for fire := range before {
		r, kept := now[fire]
		switch {
		case !kept:
			t.Errorf("the fire time %s is forgotten", fire)
		case fire.After(edited) && r.Version != 2:
			t.Errorf("the fire time %s, after the edit, has version %d", fire, r.Version)
		}
	}
	_, _, err = s.EditJob(t.Context(), job.ID, 1, "test", func(sp *domain.JobSpec) error {
		sp.Param = "y"
		return nil
	})
	equal(t, "a stale version", domain.CodeOf(err), domain.Conflict)
	_, same, err := s.EditJob(t.Context(), job.ID, 2, "test", func(*domain.JobSpec) error { return nil })
	s.must(err)
	equal(t, "an edit of nothing", same.Version, 2)
}

func killedAhead(t *testing.T, s *suite) {
	job := s.job("a", everySecond, parallel)
	planned := s.plan().Runs
	last := slices.MaxFunc(planned, func(a, b domain.Due) int { return a.DueAt.Compare(b.DueAt) })
	_, err := s.RequestKill(t.Context(), last.RunID, domain.ReasonKilled, "test")
	s.must(err)
	_, _, err = s.EditJob(t.Context(), job.ID, 0, "test", func(sp *domain.JobSpec) error {
		sp.Param = "x"
		return nil
	})
	s.must(err)
	s.plan()
	now := s.fireTimes(job.ID)
	for _, d := range planned {
		if _, there := now[d.DueAt]; !there {
			t.Errorf("the fire time %s is forgotten", d.DueAt)
		}
	}
	s.is(job.ID, last.RunID, domain.Cancelled, domain.ReasonKilled)
}

func lateEdit(t *testing.T, s *suite) {
	for _, m := range []domain.Misfire{domain.MisfireSkip, domain.MisfireFireOnce} {
		job := s.job("a"+string(m), everySecond, parallel, misfire(m))
		s.Advance(t, 20*time.Second) // no scheduler looked meanwhile
		_, _, err := s.SetEnabled(t.Context(), job.ID, false, 0, "test")
		s.must(err)
		runs := s.fireTimes(job.ID)
		if n := len(runs) + s.ledger(job.ID); n < 19 || n > 40 {
			t.Errorf("%s: %d runs, %d missed", m, len(runs), s.ledger(job.ID))
		}
		for fire, r := range runs {
			if fire.After(s.Now()) || r.Version != 1 {
				t.Errorf("%s: a run of %s, version %d", m, fire, r.Version)
			}
		}
		if len(runs) < 5 {
			t.Errorf("%s: %d runs within the tolerance", m, len(runs))
		}
	}
}

func disabled(t *testing.T, s *suite) {
	job := s.job("a", everySecond, parallel)
	_, after, err := s.SetEnabled(t.Context(), job.ID, false, 0, "test")
	s.must(err)
	equal(t, "next", after.NextFireTime == nil, true)
	s.Advance(t, 10*time.Second)
	equal(t, "planned", len(s.plan().Runs), 0)
	s.start(job.ID, "i1")
	_, after, err = s.SetEnabled(t.Context(), job.ID, true, 0, "test")
	s.must(err)
	equal(t, "version", after.Version, 3)
	equal(t, "missed while it was disabled", s.ledger(job.ID), 0)
	if next := after.NextFireTime; next == nil || next.Before(s.Now().Add(-time.Second)) {
		t.Errorf("next %v", next)
	}
	_, err = s.Trigger(t.Context(), job.ID+1000, domain.Trigger{Cause: domain.CauseManual})
	if err == nil {
		t.Error("an unknown job was triggered")
	}
}

func deletes(t *testing.T, s *suite) {
	little := s.job("child")
	job := s.job("a", child(little.ID, domain.OnSuccess))
	_, err := s.DeleteJob(t.Context(), little.ID, 0, "test")
	equal(t, "a child", domain.CodeOf(err), domain.Conflict)
	bound := s.start(job.ID, "i1")
	waits := s.trigger(job.ID, 1)[0]
	s.admit(s.claim(), "i1")
	pending := s.trigger(job.ID, 1)[0]
	_, err = s.DeleteJob(t.Context(), job.ID, 0, "test")
	s.must(err)
	s.is(job.ID, waits, domain.Cancelled, domain.ReasonJobDeleted)
	s.is(job.ID, pending, domain.Cancelled, domain.ReasonJobDeleted)
	s.is(job.ID, bound.ID, domain.Queued, "")
	_, err = s.Job(t.Context(), job.ID)
	equal(t, "the job", domain.CodeOf(err), domain.NotFound)
	s.settle(domain.Settled, s.result(bound, domain.OutcomeSucceeded))
	s.is(job.ID, bound.ID, domain.Succeeded, "")
	_, err = s.DeleteJob(t.Context(), little.ID, 0, "test")
	s.must(err)
}

func counters(t *testing.T, s *suite) {
	job := s.job("a")
	for _, want := range []int64{0, 3, 6} {
		got, err := s.CountRoutes(t.Context(), map[domain.JobID]int{job.ID: 3})
		s.must(err)
		equal(t, "counter", got[job.ID], want)
	}
}
