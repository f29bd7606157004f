package storetest

import (
	"slices"
	"testing"
	"time"

	"github.com/belfryhq/belfry/internal/domain"
	"github.com/belfryhq/belfry/internal/engine"
	"github.com/belfryhq/belfry/internal/explain"
)

func admitCompares(t *testing.T, s *suite) {
	job := s.job("a", parallel)
	s.trigger(job.ID, 1)
	due := s.claim()[0]
	for what, change := range map[string]func(*engine.Due){
		"another due instant": func(d *engine.Due) { d.DueAt = d.DueAt.Add(time.Millisecond) },
		"another version":     func(d *engine.Due) { d.JobVersion++ },
		"another attempt":     func(d *engine.Due) { d.Attempt++ },
		"another run":         func(d *engine.Due) { d.RunID = domain.NewRunID(s.now()) },
	} {
		old := due
		change(&old)
		defs, err := s.Fire.Definitions(t.Context(), []engine.Due{due})
		s.must(err)
		out, err := s.Fire.Admit(t.Context(), []engine.Admission{{Due: old, Def: defs.Of(job.ID, 1), Binding: to("i1")}})
		s.must(err)
		equal(t, what, len(out.Bound)+len(out.Waiting)+len(out.Held)+len(out.Later)+len(out.Ended), 0)
	}
	run := s.one(s.admit([]engine.Due{due}, "i1").Bound)
	equal(t, "bind", run.Bind, 1)
	equal(t, "state", run.State, domain.Queued)
	equal(t, "instance and boot", run.Instance+"/"+run.BootID, "i1/b1")
	if run.BoundAt == nil || s.now().Sub(*run.BoundAt).Abs() > 10*time.Second {
		t.Errorf("bound at %v, it is %s", run.BoundAt, s.now())
	}
	out := s.admit([]engine.Due{due}, "i2")
	equal(t, "admitted again", len(out.Bound)+len(out.Waiting)+len(out.Held), 0)
}

func admitTooLate(t *testing.T, s *suite) {
	job := s.job("a", everySecond, parallel)
	s.Advance(t, time.Second)
	planned := s.plan().Runs
	s.Advance(t, 16*time.Second)
	out := s.admit(planned, "i1")
	equal(t, "admitted", len(out.Bound)+len(out.Waiting), 0)
	by := s.trigger(job.ID, 1)[0]
	s.Advance(t, 11*time.Second)
	bound := s.one(s.admit(s.claim(), "i1").Bound)
	equal(t, "a manual run, however late", bound.ID, by)
}

func waitAndAssign(t *testing.T, s *suite) {
	job := s.job("a")
	s.trigger(job.ID, 1)
	out := s.admit(s.claim(), "")
	waits := s.one(out.Waiting)
	equal(t, "state", waits.State, domain.Queued)
	equal(t, "bind", waits.Bind, 0)
	keys, err := s.Assign.WaitingKeys(t.Context())
	s.must(err)
	key := engine.WaitingKey{Group: "g", Target: "echo"}
	if !slices.Equal(keys, []engine.WaitingKey{key}) {
		t.Fatalf("keys %+v", keys)
	}
	long, err := s.Fire.LongWaiting(t.Context(), 20*time.Second)
	s.must(err)
	equal(t, "long waiting", len(long), 0)
	s.Advance(t, 25*time.Second)
	long, err = s.Fire.LongWaiting(t.Context(), 20*time.Second)
	s.must(err)
	equal(t, "long waiting", len(long), 1)
	counts, err := s.Assign.WaitingCounts(t.Context())
	s.must(err)
	equal(t, "count", counts[explain.NoRoom], 1)

	assign := func(k engine.WaitingKey, to engine.Binding) []engine.LiveRun {
		bound, _, err := s.Fire.AssignWaiting(t.Context(), k, 10, func(runs []engine.WaitingRun) []engine.Binding {
			out := make([]engine.Binding, len(runs))
			for i := range out {
				out[i] = to
			}
			return out
		})
		s.must(err)
		return bound
	}
	equal(t, "another key", len(assign(engine.WaitingKey{Group: "g", Target: "else"}, to("i1"))), 0)
	equal(t, "no instance chosen", len(assign(key, to(""))), 0)
	run := s.one(assign(key, to("i1")))
	equal(t, "bind", run.Bind, 1)
	equal(t, "run", run.ID, waits.ID)
	equal(t, "assigned again", len(assign(key, to("i1"))), 0)
	keys, err = s.Assign.WaitingKeys(t.Context())
	s.must(err)
	equal(t, "keys", len(keys), 0)
	equal(t, "its slot is kept", s.OwnedSlots(t), 1)
	s.settle(engine.Settled, s.result(run, domain.OutcomeSucceeded))
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
			out = s.admit(s.settle(engine.Settled, s.result(run, domain.OutcomeSucceeded)).Released, "i1")
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
	s.settle(engine.Settled, s.result(run, domain.OutcomeSucceeded))
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
	s.Advance(t, 2*time.Second) // after which some runs are due and some are not
	planned := s.plan().Runs
	slices.SortFunc(planned, func(a, b engine.Due) int { return a.DueAt.Compare(b.DueAt) })
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
	equal(t, "released on i2", len(s.settle(engine.Settled, s.result(b, domain.OutcomeSucceeded)).Released), 0)
	released := s.settle(engine.Settled, s.result(a, domain.OutcomeSucceeded)).Released
	equal(t, "released", len(released), 1)
	equal(t, "slots", s.OwnedSlots(t), 0) // it is routed again
	s.one(s.admit(released, "i2").Bound)
	// A run that is going to be retried frees the slot of its instance.
	retry := s.job("b", instanceScope, retries(1))
	run := s.start(retry.ID, "i1")
	before := s.OwnedSlots(t)
	s.settle(engine.Settled, s.result(run, domain.OutcomeFailed))
	equal(t, "slots after a try", s.OwnedSlots(t), before-1)
}

func shards(instances ...string) (out []engine.ShardBinding) {
	for _, i := range instances {
		out = append(out, engine.ShardBinding{Binding: to(i), Pin: i})
	}
	return out
}

// expand fires a broadcast with a shard for each given instance.
func (s *suite) expand(due engine.Due, instances ...string) engine.Admitted {
	s.t.Helper()
	defs, err := s.Fire.Definitions(s.t.Context(), []engine.Due{due})
	s.must(err)
	out, err := s.Fire.ExpandBroadcast(s.t.Context(), due, defs.Of(due.JobID, due.JobVersion), shards(instances...))
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
	equal(t, "joined", s.settle(engine.Settled, s.result(out.Bound[0], domain.OutcomeSucceeded)).Joined, 0)
	equal(t, "joined", s.settle(engine.Settled, s.result(out.Bound[1], domain.OutcomeFailed)).Joined, 0)
	equal(t, "children", len(s.FollowUps(t)), 0)
	res := s.settle(engine.Settled, s.result(out.Bound[2], domain.OutcomeSucceeded))
	equal(t, "joined", res.Joined, 1)
	equal(t, "released", len(res.Released), 1)
	s.settle(engine.Repeat, s.result(out.Bound[2], domain.OutcomeSucceeded))
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
	released := s.settle(engine.Settled, s.result(first.Bound[0], domain.OutcomeSucceeded)).Released
	equal(t, "shards", len(s.expand(released[0], "i1", "i2").Bound), 2)
}

func waitingBroadcast(t *testing.T, s *suite) {
	job := s.job("a", broadcast)
	s.trigger(job.ID, 1)
	waits := s.one(s.admit(s.claim(), "").Waiting)
	bound, others, err := s.Fire.AssignWaiting(t.Context(), engine.WaitingKey{Group: "g", Target: "echo"}, 10, func(runs []engine.WaitingRun) []engine.Binding {
		equal(t, "to bind", len(runs), 0)
		return nil
	})
	s.must(err)
	equal(t, "bound", len(bound), 0)
	run := s.one(others.Expand)
	equal(t, "run", run.ID, waits.ID)
	out := s.expand(run.Due(), "i1", "")
	equal(t, "bound", len(out.Bound), 1)
	equal(t, "waiting", len(out.Waiting), 1)
	keys, err := s.Assign.WaitingKeys(t.Context())
	s.must(err)
	equal(t, "waiting keys", len(keys), 1)
}

func instanceBroadcast(t *testing.T, s *suite) {
	job := s.job("a", broadcast, instanceScope)
	s.trigger(job.ID, 1)
	first := s.expand(s.claim()[0], "i1", "i2")
	equal(t, "the first", len(first.Bound), 2)
	s.trigger(job.ID, 1)
	second := s.expand(s.claim()[0], "i1", "i2", "i3", "i3")
	equal(t, "bound on idle instances", len(second.Bound), 2)
	equal(t, "held", len(second.Held), 2)
	released := s.settle(engine.Settled, s.result(first.Bound[0], domain.OutcomeSucceeded)).Released
	equal(t, "released on i1", len(released), 1)
	equal(t, "its instance", released[0].Pin, "i1")
	s.one(s.admit(released, "i1").Bound)
	s.settle(engine.Settled, s.result(second.Bound[0], domain.OutcomeSucceeded))
	equal(t, "slots while a second shard is on i3", s.OwnedSlots(t), 3)
	s.settle(engine.Settled, s.result(second.Bound[1], domain.OutcomeSucceeded))
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
	equal(t, "released", len(s.settle(engine.Settled, s.result(run, domain.OutcomeSucceeded)).Released), 1)
}

func unbinds(t *testing.T, s *suite) {
	job := s.job("a", instanceScope)
	run := s.start(job.ID, "i1")
	unbind := func(bind, attempt int) (waiting, killed []engine.LiveRun) {
		waiting, killed, err := s.Offer.Unbind(t.Context(), []engine.Refusal{{RunID: run.ID, Attempt: attempt, Bind: bind, Why: explain.Of(explain.Refused, "i1", "full"), Avoid: "i1"}})
		s.must(err)
		return waiting, killed
	}
	waiting, _ := unbind(run.Bind+1, 1)
	equal(t, "of another bind", len(waiting), 0)
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
	_, err := s.Kill.RequestKill(t.Context(), run.ID, domain.ReasonKilled, "test")
	s.must(err)
	waiting, killed = unbind(run.Bind, 1)
	equal(t, "waiting", len(waiting), 0)
	equal(t, "killed", len(killed), 1)
}

func raises(t *testing.T, s *suite) {
	run := s.start(s.job("a").ID, "i1")
	raised, err := s.Verdict.RaiseBinds(t.Context(), []engine.LiveRun{run})
	s.must(err)
	equal(t, "bind", s.one(raised).Bind, 2)
	equal(t, "boot", raised[0].BootID, "b1")
	again, err := s.Verdict.RaiseBinds(t.Context(), []engine.LiveRun{run})
	s.must(err)
	equal(t, "raised again with the old bind", len(again), 0)
}

func marks(t *testing.T, s *suite) {
	job := s.job("a")
	run := s.start(job.ID, "i1")
	mark := func(change func(*engine.Started)) int {
		st := engine.Started{RunID: run.ID, Attempt: 1, Instance: "i1", BootID: "b1", Bind: 1, StartedAt: s.now()}
		change(&st)
		changes, err := s.Settle.MarkRunning(t.Context(), []engine.Started{st})
		s.must(err)
		return len(changes)
	}
	equal(t, "another bind", mark(func(st *engine.Started) { st.Bind = 2 }), 0)
	equal(t, "another boot", mark(func(st *engine.Started) { st.BootID = "b2" }), 0)
	equal(t, "another attempt", mark(func(st *engine.Started) { st.Attempt = 2 }), 0)
	equal(t, "this one", mark(func(*engine.Started) {}), 1)
	s.is(job.ID, run.ID, domain.Running, "")
	equal(t, "again", mark(func(*engine.Started) {}), 0)
}
