package storetest

import (
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/belfryhq/belfry/internal/domain"
	"github.com/belfryhq/belfry/internal/engine"
	"github.com/belfryhq/belfry/internal/plan"
)

var behaviours = []struct {
	name string
	test func(*testing.T, *suite)
}{
	{"PlanPlansTheRunsOfTheHorizonOnce", planOnce},
	{"AtRestOneStatementIsEnough", atRest},
	{"MissedFiresFollowThePolicy", missedFires},
	{"StrandedFiresFollowThePolicy", strandedFires},
	{"ClaimTakesRunsThatOthersPlanned", claimNear},
	{"RunsThatAreHandedBackAreClaimed", handBack},
	{"AdmitComparesTheRunWithTheRing", admitCompares},
	{"AdmitLeavesLateRunsToTheMisfirePolicy", admitTooLate},
	{"AStepOfTheClockIsTheReasonOfMissedFireTimes", clockStep},
	{"ARunWithoutAnInstanceWaits", waitAndAssign},
	{"SerialRunsFollowInOrder", serialOrder},
	{"DiscardLaterEndsTheNewRun", discards},
	{"ParallelRunsNeedNoSlot", parallelRuns},
	{"NearPlanningLeavesTheOtherRuns", planNear},
	{"AheadOfDueAdmitNeedsAFreeSlot", aheadOfDue},
	{"InstanceScopeHoldsPerInstance", instanceSlots},
	{"ABroadcastExpandsOnceAndJoinsOnce", broadcasts},
	{"ABroadcastIsHeldAsAWhole", heldBroadcast},
	{"ABroadcastThatWaitsIsExpandedLater", waitingBroadcast},
	{"ABroadcastInInstanceScopeIsHeldShardByShard", instanceBroadcast},
	{"ASerialRunWaitsForAnEarlierOneThatIsStranded", strandedFirst},
	{"CoverEarlyEndsTheRunningRun", covers},
	{"CoveredAndHeldRunsCanBeKilled", coverAndKill},
	{"TheNewestOfManyRunsCovers", coverTogether},
	{"CoveringIsDecidedWhenTheRunIsDue", coverInTime},
	{"CoverEarlyPerInstance", coverInstance},
	{"ARetryIsNoNewerThanItsRun", coverRetry},
	{"ABroadcastCoversAsAWhole", coverBroadcast},
	{"UnbindComparesTheBind", unbinds},
	{"RaiseBindsComparesTheBind", raises},
	{"MarkRunningComparesTheBind", marks},
	{"SettleReturnsADisposition", dispositions},
	{"AnUnstartedAttemptIsRoutedAgain", unstarted},
	{"RetriesAreReplannedOnce", retried},
	{"DrainedAttemptsAreRetriedAtOnce", drained},
	{"RetriesOfADeletedJobEnd", retryOfDeleted},
	{"MessagesOfTheEngineHaveNotes", engineMessages},
	{"ChildrenArePlannedOnce", childrenOnce},
	{"TracesAreInherited", inheritedTraces},
	{"ShardsShareTheirTrace", tracedBroadcast},
	{"AKillEndsAnUnboundRun", killUnbound},
	{"AKillOfABoundRunIsKept", killBound},
	{"WaitingHasADeadline", deadlines},
	{"ARunIsGivenUpAfterItsTimeout", giveUps},
	{"BoundRunsAreFound", found},
	{"FixedDelayFiresAfterTheEndOfTheRun", chain},
	{"AHeldRunWithoutAnOwnerIsReleased", orphans},
	{"AnEditLosesNoFireTime", edits},
	{"AKillBeforeDueHidesNoFireTimeFromAnEdit", killedAhead},
	{"AnEditLeavesDueFireTimesToTheOldVersion", lateEdit},
	{"ADisabledJobFiresOnlyWhenTriggered", disabled},
	{"ADeleteEndsRunsThatHaveNotStarted", deletes},
	{"RouteCountersAreShared", counters},
	{"EveryVersionOfAScriptIsKept", scriptVersions},
	{"UsesAreSharedAndExpire", sharedUses},
	{"RunsOfRoutesThatAskWaitApart", waitApart},
	{"APauseTakesRunsBackAndCausesMisfires", pauses},
	{"APauseOfAJobAndOfItsGroup", pausedTwice},
	{"APauseEndsByItself", pauseUntil},
	{"APauseOfAJobEndsByItself", ofJob(pauseUntil)},
	{"AnEditInAPauseDropsEarlierFireTimes", pausedEdit},
	{"AnEditInAPauseOfTheJobDropsEarlierFireTimes", ofJob(pausedEdit)},
	{"APauseOfAFixedDelayJob", pausedChain},
	{"APauseOfOneFixedDelayJob", ofJob(pausedChain)},
	{"AKillBeforeAPauseStays", killedThenPaused},
	{"AKillBeforeAPauseOfTheJobStays", ofJob(killedThenPaused)},
	{"FixedDelayCountsFromTheLastAttemptOfTheLastShard", chainOverShards},
	{"AScheduleFiresWithinItsWindow", window},
	{"AOnceJobFiresOnceAndJitterDelaysIt", onceWithJitter},
	{"AKillOfABroadcast", killBroadcast},
	{"ASkippedRunStartsItsAlwaysChildren", childrenOfSkipped},
}

// planNear plans the near runs first, and then all. Together these are the runs that one call for all plans.
func planNear(t *testing.T, s *suite) {
	job := s.job("a", everySecond, parallel)
	far := s.job("b", parallel, func(sp *domain.JobSpec) {
		begin := domain.At(s.now().Add(4900 * time.Millisecond).Truncate(time.Millisecond))
		sp.Schedule = domain.Schedule{Kind: domain.ScheduleFixedRate, Every: domain.Duration(time.Minute), StartAt: &begin}
	})
	near, err := s.Scheduler.PlanDue(t.Context(), 100, true)
	s.must(err)
	if n := len(near.Runs); n < 1 || n > 3 {
		t.Errorf("%d runs of one-second fires are near", n)
	}
	for _, d := range near.Runs {
		if d.JobID != job.ID || d.DueAt.After(s.now().Add(plan.DefaultSettings().Near)) {
			t.Errorf("job %d is planned for %s, which is not near", d.JobID, d.DueAt)
		}
	}
	s.plan()
	equal(t, "runs that are not near", len(s.fireTimes(far.ID)), 1)
	fires := slices.SortedFunc(maps.Keys(s.fireTimes(job.ID)), time.Time.Compare)
	if n := len(fires); n < 5 || !fires[0].Equal(near.Runs[0].DueAt) || fires[n-1].Sub(fires[0]) != time.Duration(n-1)*time.Second {
		t.Errorf("planned near and then all: %v", fires)
	}

	// For a late job, each visit plans one step of fire times at most, and reports that more are left.
	last := fires[len(fires)-1]
	s.Advance(t, last.Add(3500*time.Millisecond).Sub(s.now()))
	for visits := 1; visits < 20; visits++ {
		out, err := s.Scheduler.PlanDue(t.Context(), 100, true)
		s.must(err)
		if n := len(out.Runs); visits == 1 && (n != 2 || !out.Runs[0].DueAt.Equal(last.Add(time.Second))) || n > 4 {
			t.Fatalf("visit %d plans %+v, want a second's worth from %v on", visits, out.Runs, last.Add(time.Second))
		}
		if !out.More {
			equal(t, "visits", visits >= 3, true)
			break
		}
	}
}

func planOnce(t *testing.T, s *suite) {
	job := s.job("a", everySecond)
	s.Advance(t, 3*time.Second)
	out := s.plan()
	equal(t, "jobs", out.Jobs, 1)
	if n := len(out.Runs); n < 8 || n > 30 { // three seconds past, five to ten ahead
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
	equal(t, "claimed after planning", len(s.claim()), 0)
}

// ledger returns the number of fire times in a job's missed ledger.
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
		equal(t, string(m)+": misfire runs", made[domain.CauseMisfire], want)
		if n := s.ledger(job.ID) + want; n < 119 || n > 140 {
			t.Errorf("%s: %d fire times are missed", m, n)
		}
		equal(t, string(m)+": missed", out.Missed, s.ledger(job.ID))
		if n := made[domain.CauseSchedule]; n < 9 || n > 16 { // five seconds past, five to ten ahead
			t.Errorf("%s: %d runs in time", m, n)
		}
		for _, r := range s.Runs(t, job.ID) {
			if r.Cause == domain.CauseMisfire && s.now().Sub(r.DueAt) > time.Minute {
				t.Errorf("%s: a misfire run is due %s, and not at the decision", m, r.DueAt)
			}
		}
		_, _, err := s.Jobs.SetEnabled(t.Context(), job.ID, false, 0, "test")
		s.must(err)
	}
}

func strandedFires(t *testing.T, s *suite) {
	for _, m := range []domain.Misfire{domain.MisfireSkip, domain.MisfireFireOnce, domain.MisfireFireAll} {
		job := s.job(string(m), everySecond, misfire(m))
		s.Advance(t, time.Second)
		planned := len(s.plan().Runs)
		s.Advance(t, 20*time.Second)
		before := s.now()
		out, err := s.Scheduler.PlanStranded(t.Context(), 100)
		s.must(err)
		made := causes(s.Runs(t, job.ID))
		missed := s.ledger(job.ID)
		switch m {
		case domain.MisfireSkip:
			equal(t, "misfire runs", made[domain.CauseMisfire], 0)
		case domain.MisfireFireOnce:
			equal(t, "misfire runs", made[domain.CauseMisfire], 1)
		case domain.MisfireFireAll:
			equal(t, "missed", missed, 0)
		}
		if n := missed + made[domain.CauseMisfire]; n < planned || n < 14 || n > 40 {
			t.Errorf("%s: %d planned, %d missed, %v", m, planned, missed, made)
		}
		equal(t, "returned runs", len(out.Runs), made[domain.CauseMisfire]+made[domain.CauseSchedule])
		again, err := s.Scheduler.PlanStranded(t.Context(), 100)
		s.must(err)
		// In each second of the test, one more run becomes stranded, and another one is planned.
		if n, more := len(again.Runs)+again.Missed, 2+2*int(s.now().Unix()-before.Unix()); n > more {
			t.Errorf("%s: %d are stranded again, expected at most %d", m, n, more)
		}
		_, err = s.Jobs.DeleteJob(t.Context(), job.ID, 0, "test")
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
	runs, stranded, err := s.Scheduler.ClaimNear(t.Context(), 2)
	s.must(err)
	equal(t, "taken over, two at a time", len(runs), 2)
	equal(t, "stranded", stranded, 2)
	equal(t, "the rest", len(s.claim()), 1)
}

func handBack(t *testing.T, s *suite) {
	s.job("a", everySecond, parallel)
	planned := s.plan().Runs
	if len(planned) < 5 {
		t.Fatalf("%d runs were planned", len(planned))
	}
	last := planned[2:5] // due within the horizon, and so late that they are not stranded before the end of the test
	claimed := func() []engine.Due {
		return slices.DeleteFunc(s.claim(), func(d engine.Due) bool { return !slices.Contains(ids(last), d.RunID) })
	}
	equal(t, "claimed while they are in a ring", len(claimed()), 0)

	// An entry that does not describe the run changes nothing, and neither does that of a run that was fired.
	for _, change := range []func(*engine.Due){
		func(d *engine.Due) { d.Attempt++ },
		func(d *engine.Due) { d.JobVersion++ },
		func(d *engine.Due) { d.DueAt = d.DueAt.Add(time.Second) },
		func(d *engine.Due) { d.RunID = domain.NewRunID(s.now()) },
	} {
		d := last[0]
		change(&d)
		s.must(s.Scheduler.HandBack(t.Context(), []engine.Due{d}))
	}
	s.one(s.admit(last[:1], "i1").Bound)
	s.must(s.Scheduler.HandBack(t.Context(), last[:1]))
	equal(t, "claimed after entries without effect", len(claimed()), 0)

	s.must(s.Scheduler.HandBack(t.Context(), last[1:]))
	s.must(s.Scheduler.HandBack(t.Context(), last[1:])) // as after a lost answer
	s.must(s.Scheduler.HandBack(t.Context(), nil))
	equal(t, "claimed", fmt.Sprint(claimed()), fmt.Sprint(last[1:]))
	equal(t, "claimed again", len(claimed()), 0)
}
