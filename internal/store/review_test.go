package store_test

import (
	"testing"
	"time"

	"github.com/belfryhq/belfry/internal/domain"
	"github.com/belfryhq/belfry/internal/engine"
	"github.com/belfryhq/belfry/internal/store"
)

// If a misfire policy serves a fire time days later, the day of the run has no partition yet. The block policy must still
// be able to end the run, without delaying other jobs of the same batch.
func TestMissingDayDelaysNoOtherJob(t *testing.T) {
	s, _ := open(t)
	old := create(t, s, "old", func(sp *domain.JobSpec) {
		sp.Schedule = domain.Schedule{Kind: domain.ScheduleCron, Expr: "0 0 * * *"}
		sp.Misfire, sp.Block = domain.MisfireFireAll, domain.BlockDiscardLater
	})
	other := create(t, s, "other")
	exec(t, s, `UPDATE job_due SET next_fire_time = now() - interval '8 days', next_due_at = now() - interval '8 days' WHERE job_id = $1`, old.ID)
	planned, err := s.PlanDue(t.Context(), 10, false)
	if err != nil || len(planned.Runs) < 8 {
		t.Fatalf("%+v, %v", planned, err)
	}
	trigger(t, s, other.ID, 1)
	out := admit(t, s, append(planned.Runs, claim(t, s)...))
	if len(out.Bound) != 2 || len(out.Ended) != len(planned.Runs)-1 {
		t.Errorf("%d bound, %d ended of %d", len(out.Bound), len(out.Ended), len(planned.Runs))
	}
	if _, err := s.DeleteJob(t.Context(), old.ID, 0, "test"); err != nil {
		t.Error(err)
	}
}

// After a long outage, many jobs are planned in passes that each stay below Postgres's timeout for idle transactions.
func TestLongOutageIsWorkedOff(t *testing.T) {
	s, _ := open(t)
	const jobs = 60
	for i := range jobs {
		create(t, s, "j"+time.Duration(i).String(), func(sp *domain.JobSpec) {
			sp.Schedule = domain.Schedule{Kind: domain.ScheduleCron, Expr: "* * * * * *", TimeZone: "Europe/Berlin"}
		})
	}
	exec(t, s, `UPDATE job_due SET next_fire_time = now() - interval '5 hours', next_due_at = now() - interval '5 hours'`)
	missed := 0
	for pass := 0; ; pass++ {
		planned, err := s.PlanDue(t.Context(), 500, false)
		if err != nil {
			t.Fatal(err)
		}
		missed += planned.Missed
		if !planned.More && planned.Jobs < 500 {
			break
		}
		if pass == 1000 {
			t.Fatal("it never ends")
		}
	}
	if least := jobs * 5 * 3590; missed < least {
		t.Errorf("%d missed, want at least %d", missed, least)
	}
}

// A message about one binding of an attempt does not apply to its next binding to the same boot.
func TestOldBindingsChangeNothing(t *testing.T) {
	s, _ := open(t)
	job := create(t, s, "a", parallel)
	first := start(t, s, job.ID)
	back := result(s, first, domain.OutcomeUnstarted)
	back.Bind = 1
	settle(t, s, settled, back)
	bound, _, err := s.AssignWaiting(t.Context(), store.WaitingKey{Group: "g", Target: "echo"}, 10, func(runs []store.Waiting) []engine.Binding {
		return []engine.Binding{{Instance: first.Instance, BootID: first.BootID}}
	})
	if err != nil || len(bound) != 1 || bound[0].Bind != 2 {
		t.Fatalf("%+v, %v", bound, err)
	}
	changes, err := s.MarkRunning(t.Context(), []store.Started{{
		RunID: first.ID, Attempt: 1, Instance: first.Instance, BootID: first.BootID, Bind: 1, StartedAt: s.Now(),
	}})
	if err != nil || len(changes) != 0 {
		t.Errorf("an old acceptance: %+v, %v", changes, err)
	}
	unsaid := result(s, first, domain.OutcomeUnstarted) // from an executor that does not report the offer round
	lost := result(s, first, domain.OutcomeFailed)
	lost.Group, lost.Reason, lost.Bind = "", domain.ReasonLost, 1
	res, err := s.Settle(t.Context(), []engine.Ended{unsaid, lost})
	if err != nil || len(res.Changes) != 0 {
		t.Errorf("%+v, %v", res, err)
	}
	settle(t, s, settled, result(s, bound[0], domain.OutcomeSucceeded))
}

// Waiting runs whose job's slot on the instance is taken leave the queue, so that they do not block the others.
func TestBlockedRunsDoNotStandInFront(t *testing.T) {
	s, _ := open(t)
	serial := create(t, s, "serial", instanceScope)
	other := create(t, s, "other", parallel)
	trigger(t, s, serial.ID, 5)
	in := admissions(t, s, claim(t, s))
	trigger(t, s, other.ID, 1)
	in = append(in, admissions(t, s, claim(t, s))...)
	for i := range in {
		in[i].Binding = engine.Binding{Waiting: "no room"}
	}
	if out, err := s.Admit(t.Context(), in); err != nil || len(out.Waiting) != 6 {
		t.Fatalf("%+v, %v", out, err)
	}
	to := func(runs []store.Waiting) []engine.Binding {
		out := make([]engine.Binding, len(runs))
		for i := range out {
			out[i] = engine.Binding{Instance: "i1", BootID: "b1"}
		}
		return out
	}
	key := store.WaitingKey{Group: "g", Target: "echo"}
	bound, _, err := s.AssignWaiting(t.Context(), key, 5, to)
	if err != nil || len(bound) != 1 || bound[0].JobID != serial.ID {
		t.Fatalf("%+v, %v", bound, err)
	}
	rest, _, err := s.AssignWaiting(t.Context(), key, 5, to)
	if err != nil || len(rest) != 1 || rest[0].JobID != other.ID {
		t.Fatalf("%+v, %v", rest, err)
	}
	if order := drain(t, s, store.Admitted{Bound: bound}); len(order) != 5 {
		t.Errorf("%d of 5 serial runs ran", len(order))
	}
}

// A timeout does not apply to runs that wait for an instance, because they have not started.
func TestWaitingRunsAreNotOverdue(t *testing.T) {
	s, _ := open(t)
	job := create(t, s, "a", parallel, func(sp *domain.JobSpec) { sp.Timeout = domain.Duration(time.Second) })
	trigger(t, s, job.ID, 1)
	in := admissions(t, s, claim(t, s))
	in[0].Binding = engine.Binding{Waiting: "no room"}
	if _, err := s.Admit(t.Context(), in); err != nil {
		t.Fatal(err)
	}
	run := start(t, s, job.ID)
	exec(t, s, `UPDATE runs_live SET give_up_at = now() - interval '1 minute' WHERE give_up_at IS NOT NULL`)
	over, err := s.PastGiveUp(t.Context(), "g", 10)
	if err != nil || len(over) != 1 || over[0].ID != run.ID {
		t.Errorf("%+v, %v", over, err)
	}
}

// New runs queue behind runs that have found no room for a long time, but not behind runs that wait for the next assignment.
func TestLongWaiting(t *testing.T) {
	s, _ := open(t)
	for name, age := range map[string]string{"long": "5 s", "short": "1 s"} {
		job := create(t, s, name, parallel, func(sp *domain.JobSpec) { sp.Handler = name })
		trigger(t, s, job.ID, 1)
		in := admissions(t, s, claim(t, s))
		in[0].Binding = engine.Binding{Waiting: "no room"}
		if _, err := s.Admit(t.Context(), in); err != nil {
			t.Fatal(err)
		}
		exec(t, s, `UPDATE runs_waiting SET due_at = now() - $2::interval WHERE job_id = $1`, job.ID, age)
	}
	if keys, err := s.LongWaiting(t.Context(), 3*time.Second); err != nil || len(keys) != 1 || keys[0].Target != "long" {
		t.Errorf("%+v, %v", keys, err)
	}
	if keys, err := s.WaitingKeys(t.Context()); err != nil || len(keys) != 2 {
		t.Errorf("%+v, %v", keys, err)
	}
}
