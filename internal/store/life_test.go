package store_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/belfryhq/belfry/internal/domain"
	"github.com/belfryhq/belfry/internal/engine"
	"github.com/belfryhq/belfry/internal/explain"
	"github.com/belfryhq/belfry/internal/store"
)

// admissions binds every due run to one instance.
func admissions(t testing.TB, s *store.Store, runs []engine.Due) []store.Admission {
	t.Helper()
	defs, err := s.Definitions(t.Context(), runs)
	if err != nil {
		t.Fatal(err)
	}
	in := make([]store.Admission, len(runs))
	for i, r := range runs {
		in[i] = store.Admission{Due: r, Def: defs.Of(r.JobID, r.JobVersion), Binding: engine.Binding{Instance: "i1", BootID: "b1", Route: "test"}}
	}
	return in
}

func TestLifeOfARun(t *testing.T) {
	s, ups := open(t)
	job, err := s.CreateJob(t.Context(), spec("a", func(sp *domain.JobSpec) {
		sp.Schedule = domain.Schedule{Kind: domain.ScheduleFixedRate, Every: domain.Duration(time.Second)}
		sp.Retries = 1
	}), "test")
	if err != nil {
		t.Fatal(err)
	}
	if job.NextFireTime == nil {
		t.Fatal("no next fire time")
	}
	planned, err := s.PlanDue(t.Context(), 100, false)
	if err != nil {
		t.Fatal(err)
	}
	if len(planned.Runs) < 4 {
		t.Fatalf("planned %d runs in a horizon of 5 s", len(planned.Runs))
	}
	out, err := s.Admit(t.Context(), admissions(t, s, planned.Runs))
	if err != nil {
		t.Fatal(err)
	}
	if len(out.Bound) != 1 || len(out.Later)+len(out.Held) != len(planned.Runs)-1 {
		t.Fatalf("a serial job's runs: %d bound, %d later, %d held", len(out.Bound), len(out.Later), len(out.Held))
	}
	run := out.Bound[0]
	end := engine.Ended{RunID: run.ID, Attempt: 1, Instance: "i1", BootID: "b1", Group: "g", Outcome: domain.OutcomeFailed,
		Reason: domain.ReasonHandlerError, Message: "boom\x00", StartedAt: s.Now(), FinishedAt: s.Now(), LastLine: 3}
	res, err := s.Settle(t.Context(), []engine.Ended{end, end})
	if err != nil {
		t.Fatal(err)
	}
	if res.Dispositions[0] != engine.Settled || res.Dispositions[1] != engine.Repeat || len(ups.ups) != 1 || !ups.ups[0].Retry {
		t.Fatalf("first failure: %+v, follow-ups %+v", res, ups.ups)
	}
	if n, err := s.Replan(t.Context(), []domain.RunID{run.ID}, []int{1}); err != nil || n != 1 {
		t.Fatalf("replan: %d, %v", n, err)
	}
	near, _, err := s.ClaimNear(t.Context(), 100)
	if err != nil || len(near) != 1 || near[0].Attempt != 2 {
		t.Fatalf("claim: %+v, %v", near, err)
	}
	out, err = s.Admit(t.Context(), admissions(t, s, near))
	if err != nil || len(out.Bound) != 1 {
		t.Fatalf("second attempt: %+v, %v", out, err)
	}
	end.Attempt, end.Outcome, end.Reason = 2, domain.OutcomeSucceeded, ""
	res, err = s.Settle(t.Context(), []engine.Ended{end})
	if err != nil || res.Dispositions[0] != engine.Settled || res.Changes[0].State != domain.Succeeded {
		t.Fatalf("success: %+v, %v", res, err)
	}
	if res, err = s.Settle(t.Context(), []engine.Ended{end}); err != nil || res.Dispositions[0] != engine.Repeat {
		t.Fatalf("repeat: %+v, %v", res, err)
	}
}

func TestHeldRunIsReleasedInOrder(t *testing.T) {
	s, _ := open(t)
	job, err := s.CreateJob(t.Context(), spec("a"), "test")
	if err != nil {
		t.Fatal(err)
	}
	for range 3 {
		if _, err := s.Trigger(t.Context(), job.ID, domain.Trigger{Cause: domain.CauseManual}); err != nil {
			t.Fatal(err)
		}
	}
	near, _, err := s.ClaimNear(t.Context(), 100)
	if err != nil || len(near) != 3 {
		t.Fatalf("claim: %+v, %v", near, err)
	}
	out, err := s.Admit(t.Context(), admissions(t, s, near))
	if err != nil || len(out.Bound) != 1 || len(out.Held) != 2 {
		t.Fatalf("admit: %+v, %v", out, err)
	}
	for i := range 3 {
		res, err := s.Settle(t.Context(), []engine.Ended{{
			RunID: out.Bound[0].ID, Attempt: 1, Instance: "i1", BootID: "b1", Group: "g", Outcome: domain.OutcomeSucceeded,
			StartedAt: s.Now(), FinishedAt: s.Now(),
		}})
		if err != nil {
			t.Fatal(err)
		}
		if i == 2 {
			if len(res.Released) != 0 {
				t.Fatalf("released %+v after the last", res.Released)
			}
			break
		}
		if len(res.Released) != 1 {
			t.Fatalf("released %+v", res.Released)
		}
		if out, err = s.Admit(t.Context(), admissions(t, s, res.Released)); err != nil || len(out.Bound) != 1 {
			t.Fatalf("admit the released: %+v, %v", out, err)
		}
	}
}

// A ring may hold a run twice and route it to two instances. It is offered to the instance that it is bound to.
func TestAdmitTheSameRunTwice(t *testing.T) {
	for _, block := range []domain.Block{domain.BlockParallel, domain.BlockSerial} {
		s, _ := open(t)
		job := create(t, s, "a", func(sp *domain.JobSpec) { sp.Block = block })
		trigger(t, s, job.ID, 20)
		in := admissions(t, s, claim(t, s))
		twice := slices.Clone(in)
		for i := range twice {
			twice[i].Binding = engine.Binding{Instance: "i2", BootID: "b2", Route: "test"}
		}
		for _, batch := range [][]store.Admission{slices.Concat(in[:10], twice[:10]), slices.Concat(twice[10:], in[10:])} {
			out, err := s.Admit(t.Context(), batch)
			if err != nil {
				t.Fatal(err)
			}
			if block == domain.BlockParallel && len(out.Bound) != 10 {
				t.Fatalf("%d runs bound", len(out.Bound))
			}
			for _, r := range out.Bound {
				if at := query[string](t, s, `SELECT instance || ' ' || boot_id FROM runs_live WHERE id = $1`, r.ID); at != r.Instance+" "+r.BootID {
					t.Errorf("%s: bound to %s, and offered to %s", block, at, r.Instance)
				}
			}
		}
	}
}

// Lateness is that of the first attempt. If its start is unknown because it was lost, it is that of the next attempt.
func TestLatenessOfALostAttempt(t *testing.T) {
	s, _ := open(t)
	job := create(t, s, "a", func(sp *domain.JobSpec) { sp.Retries = 1 })
	run := start(t, s, job.ID)
	lost := engine.Ended{
		RunID: run.ID, Attempt: 1, Bind: run.Bind, Instance: run.Instance, BootID: run.BootID, Outcome: domain.OutcomeFailed,
		Reason: domain.ReasonLost, FinishedAt: s.Now(),
	}
	settle(t, s, settled, lost)
	exec(t, s, `UPDATE runs_live SET due_at = date_trunc('ms', now())`)
	if n, err := s.ReplanOverdue(t.Context(), 10); err != nil || n != 1 {
		t.Fatalf("replan: %d, %v", n, err)
	}
	out := admit(t, s, claim(t, s))
	if len(out.Bound) != 1 {
		t.Fatalf("the retry: %+v", out)
	}
	settle(t, s, settled, result(s, out.Bound[0], domain.OutcomeSucceeded))
	if n := query[int64](t, s, `SELECT count(*) FROM runs_history WHERE lateness_ms IS NOT NULL`); n != 1 {
		t.Error("the run was never late nor in time")
	}
}

// If few instances differ, a statement gets each instance once and an index for each run. If many differ, it gets the
// instance of each run.
func TestBatchOfManyInstances(t *testing.T) {
	t.Run("few", func(t *testing.T) { batchOf(t, 4, 5) })
	t.Run("many", func(t *testing.T) { batchOf(t, 40, 40) })
	t.Run("few, by many routes", func(t *testing.T) { batchOf(t, 4, 40) })
}

func batchOf(t *testing.T, instances, routes int) {
	s, _ := open(t)
	job := create(t, s, "a", func(sp *domain.JobSpec) { sp.Block = domain.BlockParallel })
	trigger(t, s, job.ID, 80)
	in := admissions(t, s, claim(t, s))
	want := make(map[domain.RunID]string)
	for i := range in {
		a := &in[i]
		a.Binding = engine.Binding{Instance: fmt.Sprint("i", i%instances), BootID: fmt.Sprint("b", i%3), Route: explain.Of(explain.First, i%routes+1)}
		want[a.RunID] = fmt.Sprintf("i%d b%d 1 true %s %s", i%instances, i%3, a.Route.English(), a.Route)
		if i%4 == 0 {
			a.Binding = engine.Binding{Waiting: explain.Of(explain.BehindOthers), Route: explain.Of(explain.First, i%routes+1)}
			want[a.RunID] = fmt.Sprintf("- - 0 false %s %s %s %s", a.Route.English(), a.Route, a.Waiting.English(), a.Waiting)
		}
	}
	out, err := s.Admit(t.Context(), in)
	if err != nil || len(out.Bound) != 60 || len(out.Waiting) != 20 {
		t.Fatalf("%d bound, %d waiting, %v", len(out.Bound), len(out.Waiting), err)
	}
	for id, want := range want {
		got := query[string](t, s, `SELECT concat_ws(' ', COALESCE(instance, '-'), COALESCE(boot_id, '-'), bind,
			(bound_at IS NOT NULL AND dispatched_at IS NOT NULL)::text, route, route_note, waiting, waiting_note) FROM runs_live WHERE id = $1`, id)
		if got != want {
			t.Errorf("run %s: %s, want %s", id, got, want)
		}
	}
	ended := make([]engine.Ended, len(out.Bound))
	foreign := make(map[domain.RunID]bool)
	for i, r := range out.Bound {
		ended[i] = result(s, r, domain.OutcomeSucceeded)
		other := &out.Bound[(i+1)%len(out.Bound)]
		switch e := &ended[i]; i % 6 {
		case 0:
			e.Instance, foreign[r.ID] = other.Instance+"x", true
		case 1:
			e.BootID, foreign[r.ID] = other.BootID+"x", true
		case 2:
			e.Group, foreign[r.ID] = "other", true
		}
	}
	if _, err := s.Settle(t.Context(), ended); err != nil {
		t.Fatal(err)
	}
	for i, r := range out.Bound {
		got := query[string](t, s, `SELECT COALESCE((SELECT concat_ws(' ', instance, boot_id, '1 true', route, route_note, waited_note, waited_ms) FROM runs_history WHERE id = $1), 'live')`, r.ID)
		ends := want[r.ID] // both forms of the route are in the history too
		if foreign[r.ID] {
			ends = "live"
		}
		if got != ends {
			t.Errorf("result %d of run %s: %s, want %s", i, r.ID, got, ends)
		}
	}
}
