package store_test

import (
	"slices"
	"testing"
	"time"

	"github.com/belfryhq/belfry/internal/domain"
	"github.com/belfryhq/belfry/internal/engine"
	"github.com/belfryhq/belfry/internal/store"
)

// TestReconcilersFindTheirOwn creates one run of every kind that a reconciler repairs, and healthy runs. It checks that each
// reconciler finds only the runs of its kind.
func TestReconcilersFindTheirOwn(t *testing.T) {
	s, _ := open(t)
	// Everything that a reconciler must not repair is due in hours, long after the end of the test.
	job := create(t, s, "a", parallel, func(sp *domain.JobSpec) {
		sp.Timeout, sp.Retries = domain.Duration(time.Hour), 1
		sp.RetryBackoff.Initial, sp.RetryBackoff.Max = domain.Duration(time.Hour), domain.Duration(time.Hour)
	})
	bound := func() domain.RunID { return start(t, s, job.ID).ID }
	running := func() domain.RunID {
		r := start(t, s, job.ID)
		if c, err := s.MarkRunning(t.Context(), []store.Started{{RunID: r.ID, Attempt: 1, Instance: "i1", BootID: "b1", Bind: r.Bind, StartedAt: s.Now()}}); err != nil || len(c) != 1 {
			t.Fatalf("%v, %v", c, err)
		}
		return r.ID
	}
	unbound := func() domain.RunID {
		id := trigger(t, s, job.ID, 1)[0]
		in := admissions(t, s, claim(t, s))
		in[0].Binding = engine.Binding{Waiting: "no room"}
		if out, err := s.Admit(t.Context(), in); err != nil || len(out.Waiting) != 1 {
			t.Fatalf("%+v, %v", out, err)
		}
		return id
	}
	retrying := func() domain.RunID {
		r := start(t, s, job.ID)
		settle(t, s, settled, result(s, r, domain.OutcomeFailed))
		return r.ID
	}
	age := func(id domain.RunID, columns string) domain.RunID {
		exec(t, s, `UPDATE runs_live SET `+columns+` WHERE id = $1`, id)
		return id
	}
	bound()
	running()
	unbound()
	retrying()
	silent := age(bound(), `bound_at = now() - interval '3 h', due_at = now() - interval '3 h'`)
	age(bound(), `bound_at = now() - interval '3 h', due_at = now() + interval '3 h'`) // bound ahead of due
	overtime := age(running(), `give_up_at = now() - interval '1 s'`)
	killed := age(running(), `kill_requested_at = now() - interval '10 h'`)
	age(running(), `kill_requested_at = now()`)
	late := unbound()
	exec(t, s, `UPDATE runs_waiting SET deadline_at = now() - interval '1 s' WHERE run_id = $1`, late)
	stray := unbound()
	exec(t, s, `DELETE FROM runs_waiting WHERE run_id = $1`, stray)
	overdue := age(retrying(), `due_at = now() - interval '1 s'`)

	found := func(name string, runs []engine.LiveRun, err error, want ...domain.RunID) {
		t.Helper()
		var ids []domain.RunID
		for _, r := range runs {
			ids = append(ids, r.ID)
		}
		if err != nil || !slices.Equal(ids, want) {
			t.Errorf("%s found %v, %v; want %v", name, ids, err, want)
		}
	}
	runs, err := s.Silent(t.Context(), []string{"g"}, 2*time.Hour, 100)
	found("Silent", runs, err, silent)
	runs, err = s.PastGiveUp(t.Context(), "g", 100)
	found("PastGiveUp", runs, err, overtime)
	runs, err = s.UnconfirmedKills(t.Context(), 5*time.Hour, 100)
	found("UnconfirmedKills", runs, err, killed)
	runs, err = s.PastDeadline(t.Context(), 100)
	found("PastDeadline", runs, err, late)

	if n, err := s.ReturnStrays(t.Context(), 100); err != nil || n != 1 {
		t.Errorf("ReturnStrays: %d, %v", n, err)
	}
	if n := query[int64](t, s, `SELECT count(*) FROM runs_waiting WHERE run_id = $1`, stray); n != 1 {
		t.Error("the stray does not wait")
	}
	if n, err := s.ReturnStrays(t.Context(), 100); err != nil || n != 0 {
		t.Errorf("ReturnStrays again: %d, %v", n, err)
	}
	if n, err := s.ReplanOverdue(t.Context(), 100); err != nil || n != 1 {
		t.Errorf("ReplanOverdue: %d, %v", n, err)
	}
	if got := claim(t, s); len(got) != 1 || got[0].RunID != overdue || got[0].Attempt != 2 {
		t.Errorf("claimed %+v, want the overdue retry", got)
	}
	boots, err := s.BoundBoots(t.Context(), 2*time.Hour)
	want := []store.BoundBoot{{Group: "g", Instance: "i1", BootID: "b1", Runs: 7, Silent: 1, Running: 4, Overdue: 1}}
	if err != nil || !slices.Equal(boots, want) {
		t.Errorf("BoundBoots: %+v, %v", boots, err)
	}
	if runs, err := s.RunsOf(t.Context(), want[0], domain.NilRunID, 100); err != nil || len(runs) != 7 {
		t.Errorf("RunsOf: %d, %v", len(runs), err)
	}
	if runs, err := s.RunsOf(t.Context(), store.BoundBoot{Group: "g", Instance: "i1", BootID: "b0"}, domain.NilRunID, 100); err != nil || len(runs) != 0 {
		t.Errorf("RunsOf another boot: %d, %v", len(runs), err)
	}
}

// A crash of Postgres cannot cause this state; manual SQL can.
func TestReleaseOrphans(t *testing.T) {
	for _, scope := range []domain.BlockScope{domain.ScopeCluster, domain.ScopeInstance} {
		s, _ := open(t)
		job := create(t, s, "a", func(sp *domain.JobSpec) { sp.BlockScope = scope })
		healthy := create(t, s, "b", func(sp *domain.JobSpec) { sp.BlockScope = scope })
		for _, id := range []domain.JobID{job.ID, healthy.ID} {
			trigger(t, s, id, 3)
		}
		if out := admit(t, s, claim(t, s)); len(out.Bound) != 2 || len(out.Held) != 4 {
			t.Fatalf("%+v", out)
		}
		if due, err := s.ReleaseOrphans(t.Context(), 10); err != nil || len(due) != 0 {
			t.Errorf("%s: released %+v, %v, behind live runs", scope, due, err)
		}
		exec(t, s, `DELETE FROM runs_live WHERE job_id = $1 AND NOT held`, job.ID)
		first := query[domain.RunID](t, s, `SELECT id FROM runs_live WHERE job_id = $1 ORDER BY id LIMIT 1`, job.ID)
		due, err := s.ReleaseOrphans(t.Context(), 10)
		if err != nil || len(due) != 1 || due[0].RunID != first {
			t.Fatalf("%s: released %+v, %v; want %s", scope, due, err, first)
		}
		if got := drain(t, s, admit(t, s, due)); len(got) != 2 {
			t.Errorf("%s: %d of 2 ran after it", scope, len(got))
		}
	}
}

// The process that held a run estimates Postgres's clock and may be a little ahead of it. The run must not be due
// earlier because of that.
func TestReleaseIsNotBeforeDue(t *testing.T) {
	s, _ := open(t)
	job := create(t, s, "a")
	trigger(t, s, job.ID, 3)
	out := admit(t, s, claim(t, s))
	if len(out.Bound) != 1 || len(out.Held) != 2 {
		t.Fatalf("%+v", out)
	}
	exec(t, s, `UPDATE runs_live SET due_at = due_at + interval '1 hour' WHERE id = (SELECT min(id::text)::uuid FROM runs_live WHERE held)`)
	due := query[time.Time](t, s, `SELECT max(due_at) FROM runs_live`)
	released := settle(t, s, []engine.Disposition{engine.Settled}, result(s, out.Bound[0], domain.OutcomeSucceeded)).Released
	if len(released) != 1 || !released[0].DueAt.Equal(due) {
		t.Errorf("released %+v, was due %v", released, due)
	}
	exec(t, s, `DELETE FROM runs_live WHERE id = $1`, released[0].RunID)
	if next, err := s.ReleaseOrphans(t.Context(), 10); err != nil || len(next) != 1 || !next[0].DueAt.Before(due) {
		t.Errorf("released %+v, %v, which was due before", next, err)
	}
}

// An entry of runs_waiting whose run no longer exists would stay in front of the others permanently.
func TestStaleWaitingEntries(t *testing.T) {
	s, _ := open(t)
	job := create(t, s, "a", parallel)
	busy := start(t, s, job.ID)
	exec(t, s, `INSERT INTO runs_waiting (run_id, job_id, group_name, handler, due_at, deadline_at)
		SELECT gen_random_uuid(), 1, 'g', 'echo', now() - interval '1 h', now() + interval '1 h' FROM generate_series(1, 5)`)
	exec(t, s, `INSERT INTO runs_waiting (run_id, job_id, group_name, handler, due_at, deadline_at)
		VALUES ($1, 1, 'g', 'echo', now() - interval '1 h', now() + interval '1 h')`, busy.ID)
	trigger(t, s, job.ID, 1)
	in := admissions(t, s, claim(t, s))
	in[0].Binding = engine.Binding{Waiting: "no room"}
	if _, err := s.Admit(t.Context(), in); err != nil {
		t.Fatal(err)
	}
	assigned := 0
	for range 3 {
		bound, _, err := s.AssignWaiting(t.Context(), store.WaitingKey{Group: "g", Target: "echo"}, 4, func(w []store.Waiting) []engine.Binding {
			to := make([]engine.Binding, len(w))
			for i := range to {
				to[i] = engine.Binding{Instance: "i2", BootID: "b2"}
			}
			return to
		})
		if err != nil {
			t.Fatal(err)
		}
		assigned += len(bound)
	}
	if keys, err := s.WaitingKeys(t.Context()); err != nil || assigned != 1 || len(keys) != 0 {
		t.Errorf("%d assigned, keys %v, %v", assigned, keys, err)
	}
	if n := query[int64](t, s, `SELECT count(*) FROM runs_live WHERE instance = 'i1'`); n != 1 {
		t.Error("the run that is bound already was moved")
	}
}

// A kill at the same time as a refusal ends the run at once or must be retried, because no instance would confirm it.
func TestKillOfARefusedRun(t *testing.T) {
	s, _ := open(t)
	job := create(t, s, "a")
	run := start(t, s, job.ID)
	if _, err := s.RequestKill(t.Context(), run.ID, domain.ReasonKilled, "test"); err != nil {
		t.Fatal(err)
	}
	waiting, killed, err := s.Unbind(t.Context(), []store.Refusal{{RunID: run.ID, Attempt: 1, Bind: run.Bind, Why: "full"}})
	if err != nil || len(waiting) != 0 || len(killed) != 1 {
		t.Fatalf("%+v, %+v, %v", waiting, killed, err)
	}
	kill, err := s.RequestKill(t.Context(), run.ID, domain.ReasonKilled, "test")
	if err != nil || len(kill.Result.Changes) != 1 || kill.Result.Changes[0].State != domain.Cancelled {
		t.Fatalf("%+v, %v", kill, err)
	}
	start(t, s, job.ID) // the slot is free
}
