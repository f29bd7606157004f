package store_test

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"golang.org/x/sync/errgroup"

	"github.com/belfryhq/belfry/internal/domain"
	"github.com/belfryhq/belfry/internal/engine"
	"github.com/belfryhq/belfry/internal/explain"
	"github.com/belfryhq/belfry/internal/pgtest"
	"github.com/belfryhq/belfry/internal/store"
)

func TestDispositions(t *testing.T) {
	s, ups := open(t)
	job := create(t, s, "a", parallel, func(sp *domain.JobSpec) { sp.Retries = 1 })
	run := start(t, s, job.ID)
	ok := result(s, run, domain.OutcomeSucceeded)
	with := func(e engine.Ended, change func(*engine.Ended)) engine.Ended {
		change(&e)
		return e
	}
	one := func(name string, want engine.Disposition, e engine.Ended) {
		t.Helper()
		res, err := s.Settle(t.Context(), []engine.Ended{e})
		if err != nil || res.Dispositions[0] != want {
			t.Fatalf("%s: %v, %v; want %s", name, res.Dispositions, err, want)
		}
	}
	one("unknown run", engine.UnknownRun, with(ok, func(e *engine.Ended) { e.RunID = domain.NewRunID(time.Unix(0, 0)) }))
	one("another group", engine.WrongGroup, with(ok, func(e *engine.Ended) { e.Group = "h" }))
	one("another boot", engine.Late, with(ok, func(e *engine.Ended) { e.BootID = "b0" }))
	one("another instance", engine.Late, with(ok, func(e *engine.Ended) { e.Instance = "i2" }))
	one("a later attempt", engine.Late, with(ok, func(e *engine.Ended) { e.Attempt = 2 }))
	one("unstarted in an earlier round", engine.Repeat, with(ok, func(e *engine.Ended) { e.Outcome, e.Bind = domain.OutcomeUnstarted, 99 }))
	one("a finding about another boot", engine.Raced, with(ok, func(e *engine.Ended) { e.BootID, e.Group = "b0", "" }))
	if n := query[int64](t, s, `SELECT count(*) FROM runs_live WHERE state = 'queued'`); n != 1 {
		t.Fatal("one of these changed the run")
	}
	lost := with(ok, func(e *engine.Ended) { e.Outcome, e.Reason, e.Group = domain.OutcomeFailed, domain.ReasonLost, "" })
	one("lost", engine.Settled, lost)
	one("lost, found again", engine.Raced, lost)
	one("its own late result", engine.Late, ok)
	one("its own late result, again", engine.Late, ok)
	if n := query[int64](t, s, `SELECT count(*) FROM late_results WHERE run_id = $1 AND attempt = 1`, run.ID); n != 1 {
		t.Errorf("%d late results of the attempt", n)
	}
	if avoid := query[string](t, s, `SELECT avoid FROM runs_live`); avoid != "i1" {
		t.Errorf("the retry avoids %q", avoid)
	}
	// Killed while it waits for its second attempt.
	kill, err := s.RequestKill(t.Context(), run.ID, domain.ReasonKilled, "test")
	if err != nil || len(kill.Bound) != 0 || kill.Result.Changes[0].State != domain.Cancelled {
		t.Fatalf("kill: %+v, %v", kill, err)
	}
	one("late after the end", engine.Late, ok)
	one("another group after the end", engine.WrongGroup, with(ok, func(e *engine.Ended) { e.Group = "h" }))
	if _, err := s.RequestKill(t.Context(), run.ID, domain.ReasonKilled, "test"); domain.CodeOf(err) != domain.Conflict {
		t.Errorf("a kill after the end: %v", err)
	}
	if _, err := s.RequestKill(t.Context(), domain.NewRunID(s.Now()), domain.ReasonKilled, "test"); domain.CodeOf(err) != domain.NotFound {
		t.Errorf("a kill of an unknown run: %v", err)
	}
	if len(ups.ups) != 1 {
		t.Errorf("follow-ups %+v", ups.ups)
	}
}

// A failure is settled, and then a kill ends the run before its retry. If the failure is reported again, it is a repeat.
func TestRepeatOfAnAttemptBeforeAKill(t *testing.T) {
	s, _ := open(t)
	job := create(t, s, "a", func(sp *domain.JobSpec) { sp.Retries = 1 })
	failed := result(s, start(t, s, job.ID), domain.OutcomeFailed)
	settle(t, s, settled, failed)
	if _, err := s.RequestKill(t.Context(), failed.RunID, domain.ReasonKilled, "test"); err != nil {
		t.Fatal(err)
	}
	settle(t, s, []engine.Disposition{engine.Repeat}, failed)
}

func TestKillOfABoundRun(t *testing.T) {
	for outcome, want := range map[domain.Outcome]domain.State{
		domain.OutcomeSucceeded: domain.Succeeded,
		domain.OutcomeFailed:    domain.Cancelled,
		domain.OutcomeCancelled: domain.Cancelled,
		domain.OutcomeUnstarted: domain.Cancelled,
	} {
		s, ups := open(t)
		job := create(t, s, "a", func(sp *domain.JobSpec) { sp.Retries = 3 })
		run := start(t, s, job.ID)
		kill, err := s.RequestKill(t.Context(), run.ID, domain.ReasonKilled, "test")
		if err != nil || len(kill.Bound) != 1 || !kill.Bound[0].KillRequested {
			t.Fatalf("%s: %+v, %v", outcome, kill, err)
		}
		res := settle(t, s, settled, result(s, run, outcome))
		if len(ups.ups) != 0 || res.Changes[0].State != want || want == domain.Cancelled && res.Changes[0].Reason != domain.ReasonKilled {
			t.Errorf("%s: %+v, follow-ups %v", outcome, res.Changes, ups.ups)
		}
	}
}

// A run that is handed back after its start deadline, because Belfry was down, still gets its full time to find an
// instance. A run that is accepted and handed back repeatedly does not get it again every time.
func TestStartDeadlineOfWhatIsHandedBack(t *testing.T) {
	for bind, ends := range map[int]bool{1: false, domain.FairRounds: true} {
		s, _ := open(t)
		run := start(t, s, create(t, s, "a").ID)
		run.Bind = bind
		exec(t, s, `UPDATE runs_live SET bind = $1, due_at = due_at - interval '1 hour'`, bind)
		settle(t, s, settled, result(s, run, domain.OutcomeUnstarted))
		past, err := s.PastDeadline(t.Context(), 10)
		if err != nil || (len(past) == 1) != ends {
			t.Errorf("after %d rounds, past its deadline are %+v, %v", bind, past, err)
		}
	}
}

func TestUnstartedIsRoutedAgain(t *testing.T) {
	s, _ := open(t)
	job := create(t, s, "a")
	run := start(t, s, job.ID)
	res := settle(t, s, settled, result(s, run, domain.OutcomeUnstarted))
	if !res.Waiting {
		t.Fatalf("%+v", res)
	}
	bound, _, err := s.AssignWaiting(t.Context(), store.WaitingKey{Group: "g", Target: "echo"}, 10, func(w []store.Waiting) []engine.Binding {
		return []engine.Binding{{Instance: "i2", BootID: "b2"}}
	})
	if err != nil || len(bound) != 1 || bound[0].Attempt != 1 || bound[0].Bind != 2 || bound[0].Avoid != "i1" {
		t.Fatalf("%+v, %v", bound, err)
	}
	settle(t, s, []engine.Disposition{engine.Repeat}, result(s, run, domain.OutcomeUnstarted))
	settle(t, s, settled, result(s, bound[0], domain.OutcomeSucceeded))
}

func TestPoisonText(t *testing.T) {
	s, _ := open(t)
	job := create(t, s, "a", parallel)
	run := start(t, s, job.ID)
	e := result(s, run, domain.OutcomeFailed)
	e.Message = "\x00\xff" + strings.Repeat("ä", 1<<19)
	e.Output = strings.Repeat("\xf0\x9f\x94\x94", 1<<18)
	e.Reason = domain.Reason("\x00" + strings.Repeat("\xc3", 1<<20))
	e.StartedAt, e.FinishedAt = time.Date(9999, 1, 1, 0, 0, 0, 0, time.UTC), time.Time{}
	late := e
	late.BootID = "b0"
	late.Instance = "i\x00\xff"
	settle(t, s, []engine.Disposition{engine.Late, engine.Settled}, late, e)
	message := query[string](t, s, `SELECT message FROM runs_history`)
	output := query[string](t, s, `SELECT output FROM runs_history`)
	if len(message) > domain.MaxMessageBytes || len(output) > domain.MaxOutputBytes || !utf8.ValidString(message) || !utf8.ValidString(output) ||
		!strings.HasSuffix(message, "cut") || len(message) < domain.MaxMessageBytes-16 {
		t.Errorf("message of %d bytes, output of %d", len(message), len(output))
	}
	if n := query[int64](t, s, `SELECT length(reason) FROM runs_history`); n > 64 {
		t.Errorf("a reason of %d characters", n)
	}
	if !query[bool](t, s, `SELECT finished_at BETWEEN created_at AND now() AND started_at BETWEEN created_at AND now() FROM runs_history`) {
		t.Error("the instance's clock set the end of the run")
	}
}

func TestBatchOfAThousand(t *testing.T) {
	s, ups := open(t)
	child := create(t, s, "child")
	job := create(t, s, "a", parallel, func(sp *domain.JobSpec) {
		sp.Retries = 1
		sp.Children = []domain.Child{{JobID: child.ID, On: domain.OnSuccess}}
	})
	exec(t, s, `INSERT INTO runs_live (id, job_id, job_version, group_name, cause, due_at)
		SELECT overlay(gen_random_uuid()::text placing substr(first_run_id(now())::text, 1, 14) from 1)::uuid, $1, 1, 'g', 'manual', now()
		  FROM generate_series(1, 1000)`, job.ID)
	out := admit(t, s, claim(t, s))
	if len(out.Bound) != 1000 {
		t.Fatalf("%d bound", len(out.Bound))
	}
	var batch []engine.Ended
	var want []engine.Disposition
	for i, r := range out.Bound {
		batch = append(batch, result(s, r, []domain.Outcome{domain.OutcomeSucceeded, domain.OutcomeFailed}[i%2]))
		want = append(want, engine.Settled)
	}
	begin := time.Now()
	settle(t, s, want, batch...)
	t.Logf("settled 1,000 in %s", time.Since(begin))
	if len(ups.ups) != 1000 {
		t.Errorf("%d follow-ups", len(ups.ups))
	}
	for i := range want {
		want[i] = engine.Repeat
	}
	settle(t, s, want, batch...)
	if len(ups.ups) != 1000 {
		t.Errorf("%d follow-ups after the repeat", len(ups.ups))
	}
}

func TestMissingDay(t *testing.T) {
	s, _ := open(t)
	job := create(t, s, "a", parallel)
	run := start(t, s, job.ID)
	old := domain.NewRunID(time.Date(2021, 5, 6, 7, 8, 9, 0, time.UTC))
	exec(t, s, `UPDATE runs_live SET id = $2 WHERE id = $1`, run.ID, old)
	run.ID = old
	unknown := result(s, run, domain.OutcomeSucceeded)
	unknown.RunID = domain.NewRunID(time.Date(1999, 5, 6, 7, 8, 9, 0, time.UTC))
	settle(t, s, []engine.Disposition{engine.UnknownRun, engine.Settled}, unknown, result(s, run, domain.OutcomeSucceeded))
	if n := query[int64](t, s, `SELECT count(*) FROM pg_class WHERE relname = 'runs_history_20210506'`); n != 1 {
		t.Error("the day of the run was not made")
	}
	if n := query[int64](t, s, `SELECT count(*) FROM pg_class WHERE relname = 'runs_history_19990506'`); n != 0 {
		t.Error("an invented run id made a day")
	}
	if err := s.StoreLogs(t.Context(), []store.LogChunk{{RunID: unknown.RunID, Attempt: 1, First: 1, Last: 1}}); err == nil {
		t.Error("the log of an unknown run of a day without tables was stored")
	}
}

func TestDeletedJob(t *testing.T) {
	s, ups := open(t)
	job := create(t, s, "a", func(sp *domain.JobSpec) { sp.Retries = 5 })
	running := start(t, s, job.ID)
	trigger(t, s, job.ID, 2)
	admit(t, s, claim(t, s)) // held
	trigger(t, s, job.ID, 1) // pending
	other := create(t, s, "b", parallel)
	trigger(t, s, other.ID, 1)
	near := claim(t, s)
	in := admissions(t, s, near[len(near)-1:])
	in[0].Instance, in[0].BootID, in[0].Waiting = "", "", explain.Of(explain.NoRoom)
	if _, err := s.Admit(t.Context(), in); err != nil {
		t.Fatal(err)
	}
	for _, id := range []domain.JobID{job.ID, other.ID} {
		if _, err := s.DeleteJob(t.Context(), id, 0, "test"); err != nil {
			t.Fatal(err)
		}
	}
	if n := query[int64](t, s, `SELECT count(*) FROM runs_history WHERE state = 'cancelled' AND reason = 'job_deleted'`); n != 4 {
		t.Errorf("%d runs ended as cancelled/job_deleted, want 4: two held, one pending, one waiting", n)
	}
	if n := query[int64](t, s, `SELECT count(*) FROM runs_live`) + query[int64](t, s, `SELECT count(*) FROM runs_waiting`); n != 1 {
		t.Errorf("%d rows of unfinished runs, want only the running one", n)
	}
	res := settle(t, s, settled, result(s, running, domain.OutcomeFailed))
	if res.Changes[0].State != domain.Failed || len(ups.ups) != 0 {
		t.Errorf("the running one: %+v, follow-ups %v", res.Changes, ups.ups)
	}
	if change := query[string](t, s, `SELECT change FROM job_versions WHERE job_id = $1 ORDER BY version DESC LIMIT 1`, job.ID); change != "deleted" {
		t.Errorf("the last version says %s", change)
	}
}

func TestFixedDelayGoesOnOnce(t *testing.T) {
	s, _ := open(t)
	job := create(t, s, "a", func(sp *domain.JobSpec) {
		sp.Schedule = domain.Schedule{Kind: domain.ScheduleFixedDelay, Delay: domain.Duration(time.Hour)}
		sp.Retries = 1
	})
	fire := func() engine.LiveRun {
		t.Helper()
		exec(t, s, `UPDATE job_due SET next_fire_time = now(), next_due_at = now()`)
		planned, err := s.PlanDue(t.Context(), 10, false)
		if err != nil || len(planned.Runs) != 1 {
			t.Fatalf("%+v, %v", planned, err)
		}
		if n, err := s.GoOnChains(t.Context(), 10); err != nil || n != 0 {
			t.Fatalf("the reconciler continued the chain although a run is live: %d, %v", n, err)
		}
		return admit(t, s, planned.Runs).Bound[0]
	}
	next := func() *time.Time { return query[*time.Time](t, s, `SELECT next_fire_time FROM job_due`) }
	run := fire()
	settle(t, s, settled, result(s, run, domain.OutcomeFailed))
	if next() != nil {
		t.Fatal("a retry set the next fire")
	}
	exec(t, s, `UPDATE runs_live SET due_at = date_trunc('ms', now())`)
	if _, err := s.ReplanOverdue(t.Context(), 10); err != nil {
		t.Fatal(err)
	}
	run = admit(t, s, claim(t, s)).Bound[0]
	settle(t, s, settled, result(s, run, domain.OutcomeSucceeded))
	first := next()
	if first == nil || time.Until(*first) < 59*time.Minute {
		t.Fatalf("next fire %v", first)
	}
	settle(t, s, []engine.Disposition{engine.Repeat}, result(s, run, domain.OutcomeSucceeded))
	manual := start(t, s, job.ID)
	settle(t, s, settled, result(s, manual, domain.OutcomeSucceeded))
	if again := next(); !again.Equal(*first) {
		t.Errorf("a repeat or a manual run moved the next fire from %s to %s", first, again)
	}
	if err := edit(t, s, "new"); err != nil {
		t.Fatal(err)
	}
	if again := next(); again == nil || time.Until(*again) < 59*time.Minute {
		t.Errorf("an edit cut the pause short: %v", again)
	}
	exec(t, s, `UPDATE job_due SET next_fire_time = NULL, next_due_at = NULL`)
	if n, err := s.GoOnChains(t.Context(), 10); err != nil || n != 1 || next() == nil {
		t.Errorf("the lost chain: %d, %v", n, err)
	}
	exec(t, s, `UPDATE job_due SET next_fire_time = NULL, next_due_at = NULL`)
	if _, _, err := s.EditJob(t.Context(), job.ID, 0, "test", func(sp *domain.JobSpec) error {
		end := domain.At(s.Now().Add(time.Minute))
		sp.Schedule.EndAt = &end
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	for want := range 2 { // the first call ends the chain, the second finds nothing
		n, err := s.GoOnChains(t.Context(), 10)
		if err != nil || n != 1-want || next() != nil {
			t.Errorf("the chain past its end: %d, %v, next %v", n, err, next())
		}
	}
}

func TestChildren(t *testing.T) {
	for outcome, want := range map[domain.Outcome][]domain.ChildOn{
		domain.OutcomeSucceeded: {domain.OnSuccess, domain.OnAlways},
		domain.OutcomeFailed:    {domain.OnFailure, domain.OnAlways},
		domain.OutcomeCancelled: {domain.OnAlways},
	} {
		s, ups := open(t)
		on := make(map[domain.JobID]domain.ChildOn)
		var children []domain.Child
		for _, o := range []domain.ChildOn{domain.OnSuccess, domain.OnFailure, domain.OnAlways} {
			id := create(t, s, string(o)).ID
			on[id] = o
			children = append(children, domain.Child{JobID: id, On: o})
		}
		job := create(t, s, "parent", func(sp *domain.JobSpec) { sp.Children = children })
		run := start(t, s, job.ID)
		settle(t, s, settled, result(s, run, outcome))
		var got []domain.ChildOn
		for _, up := range ups.ups {
			got = append(got, on[up.ChildJob])
			for range 2 { // the River job is processed twice
				tx := pgtest.Begin(t, s.Pool())
				if _, err := s.PlanChildTx(t.Context(), tx, up.RunID, up.ChildJob, up.EndedAt); err != nil {
					t.Fatal(err)
				}
				if err := tx.Commit(t.Context()); err != nil {
					t.Fatal(err)
				}
			}
		}
		if !slices.Equal(got, want) {
			t.Errorf("%s: children on %v, want %v", outcome, got, want)
		}
		if n := query[int64](t, s, `SELECT count(*) FROM runs_live WHERE cause = 'child' AND parent_run_id = $1`, run.ID); int(n) != len(want) {
			t.Errorf("%s: %d child runs", outcome, n)
		}
	}
}

func TestCyclesOfChildren(t *testing.T) {
	s, _ := open(t)
	a := create(t, s, "a")
	b := create(t, s, "b", func(sp *domain.JobSpec) { sp.Children = []domain.Child{{JobID: a.ID}} })
	c := create(t, s, "c", func(sp *domain.JobSpec) { sp.Children = []domain.Child{{JobID: b.ID}} })
	closes := func(child domain.JobID) error {
		_, _, err := s.EditJob(t.Context(), a.ID, 0, "test", func(sp *domain.JobSpec) error {
			sp.Children = []domain.Child{{JobID: child}}
			return nil
		})
		return err
	}
	for child, want := range map[domain.JobID]string{
		c.ID: "closes a cycle: 1 → 3 → 2 → 1", b.ID: "closes a cycle: 1 → 2 → 1", a.ID: "closes a cycle: 1 → 1", 99: "there is no job 99",
	} {
		err := closes(child)
		if domain.CodeOf(err) != domain.Invalid || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), "children[0].job_id") {
			t.Errorf("child %d: %v; want %q", child, err, want)
		}
	}
	_, _, err := s.EditJob(t.Context(), a.ID, 0, "test", func(sp *domain.JobSpec) error {
		sp.Name, sp.Group, sp.Children = "", "nowhere", []domain.Child{{JobID: c.ID}, {JobID: 99}}
		return nil
	})
	for _, want := range []string{"name", "group", "closes a cycle: 1 → 3 → 2 → 1", "there is no job 99"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("the error lacks the fault %q: %v", want, err)
		}
	}
	if v := query[int](t, s, `SELECT version FROM jobs WHERE id = $1`, a.ID); v != 1 {
		t.Errorf("a refused edit made version %d", v)
	}
	if _, err := s.DeleteJob(t.Context(), a.ID, 0, "test"); domain.CodeOf(err) != domain.Conflict {
		t.Errorf("deleting a child: %v", err)
	}
}

// shardsOf expands a triggered broadcast over n instances.
func shardsOf(t *testing.T, s *store.Store, job domain.Job, n int) []engine.LiveRun {
	t.Helper()
	trigger(t, s, job.ID, 1)
	near := claim(t, s)
	def, err := s.Definition(t.Context(), job.ID, near[0].JobVersion)
	if err != nil {
		t.Fatal(err)
	}
	var to []store.ShardBinding
	for i := range n {
		name := string(rune('a' + i))
		to = append(to, store.ShardBinding{Binding: engine.Binding{Instance: name, BootID: "b"}, Pin: name})
	}
	out, err := s.ExpandBroadcast(t.Context(), near[0], def, to)
	if err != nil || len(out.Bound) != n {
		t.Fatalf("expand: %+v, %v", out, err)
	}
	if again, err := s.ExpandBroadcast(t.Context(), near[0], def, to); err != nil || len(again.Bound)+len(again.Held)+len(again.Ended) != 0 {
		t.Fatalf("expand again: %+v, %v", again, err)
	}
	return out.Bound
}

func TestBroadcastOwnsItsSlot(t *testing.T) {
	s, _ := open(t)
	job := create(t, s, "a", func(sp *domain.JobSpec) { sp.Route = domain.RouteBroadcast })
	shards := shardsOf(t, s, job, 3)
	trigger(t, s, job.ID, 1)
	near := claim(t, s)
	def, err := s.Definition(t.Context(), job.ID, 1)
	if err != nil {
		t.Fatal(err)
	}
	out, err := s.ExpandBroadcast(t.Context(), near[0], def, []store.ShardBinding{{Binding: engine.Binding{Instance: "a", BootID: "b"}}})
	if err != nil || len(out.Held) != 1 {
		t.Fatalf("the next broadcast: %+v, %v", out, err)
	}
	for i, r := range shards {
		res := settle(t, s, settled, result(s, r, domain.OutcomeSucceeded))
		if last := i == len(shards)-1; (len(res.Released) == 1) != last || (res.Joined == 1) != last {
			t.Errorf("after shard %d: %+v", i, res)
		}
	}
	if n := query[int64](t, s, `SELECT count(*) FROM broadcasts`); n != 0 {
		t.Error("the joined broadcast stays")
	}
}

// A ring entry from before an edit must not expand the run with the old version.
func TestStaleEntryOfABroadcast(t *testing.T) {
	s, _ := open(t)
	job := create(t, s, "a", everySecond, func(sp *domain.JobSpec) { sp.Route = domain.RouteBroadcast })
	planned, err := s.PlanDue(t.Context(), 10, false)
	if err != nil {
		t.Fatal(err)
	}
	stale := planned.Runs[len(planned.Runs)-1]
	def, err := s.Definition(t.Context(), job.ID, 1)
	if err != nil {
		t.Fatal(err)
	}
	if err := edit(t, s, "new"); err != nil {
		t.Fatal(err)
	}
	if _, err := s.PlanDue(t.Context(), 10, false); err != nil {
		t.Fatal(err)
	}
	out, err := s.ExpandBroadcast(t.Context(), stale, def, []store.ShardBinding{{Binding: engine.Binding{Instance: "a", BootID: "b"}}})
	if err != nil || len(out.Bound) != 0 {
		t.Errorf("an entry of version 1 expanded a run of version 2: %+v, %v", out, err)
	}
}

// Two dispatchers settle the last two shards of a broadcast at the same time, a thousand times. The later one joins the
// broadcast, so each child is requested exactly once. In half of the rounds, a lock delays both transactions until both have
// begun, so that they certainly overlap.
func TestLastTwoShards(t *testing.T) {
	url := pgtest.Database(t, store.Migrate)
	a, upsA := openAt(t, url)
	b, upsB := openAt(t, url)
	exec(t, a, `INSERT INTO groups (name, token_sha256) VALUES ('g', 'x')`)
	child, other := create(t, a, "child"), create(t, a, "other")
	broadcast := func(sp *domain.JobSpec) {
		sp.Route = domain.RouteBroadcast
		sp.Children = []domain.Child{{JobID: child.ID, On: domain.OnAlways}, {JobID: other.ID, On: domain.OnSuccess}}
	}
	// The transactions of a serial job first lock its slot. Those of a parallel job first meet at the broadcast.
	jobs := []domain.Job{create(t, a, "serial", broadcast), create(t, a, "parallel", broadcast, parallel)}
	gates, _ := openAt(t, url)
	rounds := 1000
	if testing.Short() {
		rounds = 100
	}
	for i := range rounds {
		shards := shardsOf(t, a, jobs[i/4%2], 2)
		upsA.ups, upsB.ups = nil, nil
		outcome := []domain.Outcome{domain.OutcomeSucceeded, domain.OutcomeFailed}[i%2]
		ended := []engine.Ended{result(a, shards[0], domain.OutcomeSucceeded), result(a, shards[1], outcome)}
		ended[0].Output, ended[1].Output = "x", `"y"`
		open := func() {}
		if i%4 < 2 {
			open = gate(t, gates, *shards[0].BroadcastID)
		}
		var g errgroup.Group
		for j, s := range []*store.Store{a, b} {
			g.Go(func() error {
				_, err := s.Settle(t.Context(), ended[j:j+1])
				return err
			})
		}
		open()
		if err := g.Wait(); err != nil {
			t.Fatal(err)
		}
		ups := slices.Concat(upsA.ups, upsB.ups)
		if want := 2 - i%2; len(ups) != want || ups[0].RunID != *shards[0].BroadcastID {
			t.Fatalf("round %d, %s: follow-ups %+v, want %d", i, outcome, ups, want)
		}
		outputs, err := a.ParentOutputs(t.Context(), []domain.RunID{shards[0].ID})
		if err != nil {
			t.Fatal(err)
		}
		var parts []string
		if err := json.Unmarshal([]byte(outputs[shards[0].ID]), &parts); err != nil || !slices.Equal(parts, []string{"x", `"y"`}) {
			t.Fatalf("the children read %s, %v", outputs[shards[0].ID], err)
		}
	}
}

// gate locks a broadcast. The returned function waits until two transactions wait for the lock, and releases it.
func gate(t *testing.T, s *store.Store, broadcast domain.RunID) (open func()) {
	t.Helper()
	tx := pgtest.Begin(t, s.Pool())
	if _, err := tx.Exec(t.Context(), `SELECT FROM broadcasts WHERE id = $1 FOR UPDATE`, broadcast); err != nil {
		t.Fatal(err)
	}
	return func() {
		t.Helper()
		// The query uses the locking transaction, because Postgres ends a transaction that is idle for a second.
		for waiting := 0; waiting < 2; {
			if err := tx.QueryRow(t.Context(), `SELECT count(*) FROM pg_locks l JOIN pg_stat_activity a USING (pid)
				WHERE NOT l.granted AND a.datname = current_database()`).Scan(&waiting); err != nil {
				t.Fatal(err)
			}
		}
		if err := tx.Commit(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
}
