package store_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/belfryhq/belfry/internal/domain"
	"github.com/belfryhq/belfry/internal/engine"
	"github.com/belfryhq/belfry/internal/explain"
	"github.com/belfryhq/belfry/internal/pgtest"
	"github.com/belfryhq/belfry/internal/store"
)

func instanceScope(sp *domain.JobSpec) { sp.BlockScope = domain.ScopeInstance }

// drain settles the bound runs and admits the runs that they release, until none is left. It returns the order of starts.
func drain(t testing.TB, s *store.Store, out store.Admitted) []domain.RunID {
	t.Helper()
	var order []domain.RunID
	for len(out.Bound) > 0 {
		var released []engine.Due
		for _, r := range out.Bound {
			order = append(order, r.ID)
			res := settle(t, s, settled, result(s, r, domain.OutcomeSucceeded))
			released = append(released, res.Released...)
		}
		out = admit(t, s, released)
	}
	return order
}

// In both scopes, the end of each run releases the next held run, in order and without a reconciler.
func TestHeldRunsFollowInOrder(t *testing.T) {
	for _, scope := range []domain.BlockScope{domain.ScopeCluster, domain.ScopeInstance} {
		t.Run(string(scope), func(t *testing.T) {
			s, _ := open(t)
			job := create(t, s, "a", func(sp *domain.JobSpec) { sp.BlockScope = scope })
			ids := trigger(t, s, job.ID, 20)
			slices.SortFunc(ids, func(a, b domain.RunID) int { return slices.Compare(a[:], b[:]) })
			out := admit(t, s, claim(t, s))
			if len(out.Bound) != 1 || len(out.Held) != 19 {
				t.Fatalf("%d bound, %d held", len(out.Bound), len(out.Held))
			}
			if got := drain(t, s, out); !slices.Equal(got, ids) {
				t.Errorf("%d of %d ran, in the order %v; want %v", len(got), len(ids), got, ids)
			}
		})
	}
}

// The scheduler of the first fires died. Later fires do not overtake them.
func TestStrandedFiresComeFirst(t *testing.T) {
	for _, route := range []domain.Route{domain.RouteAny, domain.RouteBroadcast} {
		t.Run(string(route), func(t *testing.T) {
			s, _ := open(t)
			job := create(t, s, "a", func(sp *domain.JobSpec) { sp.Route = route })
			trigger(t, s, job.ID, 3)
			runs := claim(t, s)
			for i, r := range runs {
				runs[i].DueAt = r.DueAt.Add(time.Duration(i-2) * 100 * time.Millisecond)
				exec(t, s, `UPDATE runs_live SET due_at = $2 WHERE id = $1`, r.RunID, runs[i].DueAt)
			}
			fire := func(r engine.Due) store.Admitted {
				if route != domain.RouteBroadcast {
					return admit(t, s, []engine.Due{r})
				}
				def, err := s.Definition(t.Context(), job.ID, r.JobVersion)
				if err != nil {
					t.Fatal(err)
				}
				out, err := s.ExpandBroadcast(t.Context(), r, def, []store.ShardBinding{{Binding: engine.Binding{Instance: "i1", BootID: "b"}}})
				if err != nil {
					t.Fatal(err)
				}
				return out
			}
			if out := fire(runs[2]); len(out.Held) != 1 {
				t.Fatalf("the last run overtook the others: %+v", out)
			}
			first := fire(runs[0])
			if len(first.Bound) != 1 {
				t.Fatalf("the first one: %+v", first)
			}
			// When the first run ends, the second is still stranded, and the third is held.
			if res := settle(t, s, settled, result(s, first.Bound[0], domain.OutcomeSucceeded)); len(res.Released) != 0 {
				t.Fatalf("the third one was released before the second: %+v", res.Released)
			}
			second := fire(runs[1])
			if len(second.Bound) != 1 {
				t.Fatalf("the second one: %+v", second)
			}
			if res := settle(t, s, settled, result(s, second.Bound[0], domain.OutcomeSucceeded)); len(res.Released) != 1 || res.Released[0].RunID != runs[2].RunID {
				t.Fatalf("after the second run: %+v", res)
			}
		})
	}
}

// A slot that was kept for a stranded run becomes free if the misfire policy or an edit drops the run.
func TestDroppedStrandedRunFreesItsPlace(t *testing.T) {
	s, _ := open(t)
	job := create(t, s, "a")
	trigger(t, s, job.ID, 2)
	runs := claim(t, s)
	exec(t, s, `UPDATE runs_live SET due_at = due_at - interval '1 s' WHERE id = $1`, runs[0].RunID)
	if out := admit(t, s, runs[1:]); len(out.Held) != 1 {
		t.Fatalf("%+v", out)
	}
	exec(t, s, `DELETE FROM runs_live WHERE id = $1`, runs[0].RunID)
	due, err := s.ReleaseOrphans(t.Context(), 10)
	if err != nil || len(due) != 1 {
		t.Fatalf("released %+v, %v", due, err)
	}
	if out := admit(t, s, due); len(out.Bound) != 1 {
		t.Errorf("then: %+v", out)
	}
}

func TestRetryKeepsTheSlot(t *testing.T) {
	s, _ := open(t)
	job := create(t, s, "a", func(sp *domain.JobSpec) { sp.Retries = 1 })
	run := start(t, s, job.ID)
	trigger(t, s, job.ID, 1)
	if out := admit(t, s, claim(t, s)); len(out.Held) != 1 {
		t.Fatalf("the second run: %+v", out)
	}
	if res := settle(t, s, settled, result(s, run, domain.OutcomeFailed)); len(res.Released) != 0 {
		t.Fatalf("a retry released %+v", res.Released)
	}
	exec(t, s, `UPDATE runs_live SET due_at = date_trunc('ms', now()) WHERE id = $1`, run.ID)
	if n, err := s.ReplanOverdue(t.Context(), 10); err != nil || n != 1 {
		t.Fatalf("replan: %d, %v", n, err)
	}
	out := admit(t, s, claim(t, s))
	if len(out.Bound) != 1 || out.Bound[0].ID != run.ID || out.Bound[0].Attempt != 2 {
		t.Fatalf("the retry: %+v", out)
	}
	if res := settle(t, s, settled, result(s, out.Bound[0], domain.OutcomeFailed)); len(res.Released) != 1 {
		t.Errorf("after the last attempt: %+v", res)
	}
}

func TestQueueFullAndDiscardLater(t *testing.T) {
	s, _ := open(t)
	job := create(t, s, "a")
	trigger(t, s, job.ID, 1)
	out := admit(t, s, claim(t, s))
	exec(t, s, `INSERT INTO runs_live (id, job_id, job_version, group_name, cause, due_at, fire_time, rung_at)
		SELECT gen_random_uuid(), job_id, job_version, group_name, cause, date_trunc('ms', now()), now(), NULL
		  FROM runs_live, generate_series(1, 1010)`)
	exec(t, s, `SELECT make_day(d::date) FROM generate_series(now() - interval '1 d', now() + interval '1 d', '1 d') d`)
	exec(t, s, `UPDATE runs_live SET id = overlay(id::text placing substr($1::uuid::text, 1, 9) from 1)::uuid WHERE state = 'pending'`, out.Bound[0].ID)
	full := admit(t, s, claim(t, s))
	if len(full.Held) != domain.MaxHeldRuns || len(full.Ended) != 10 {
		t.Fatalf("%d held, %d ended", len(full.Held), len(full.Ended))
	}
	for _, c := range full.Ended {
		if c.State != domain.Failed || c.Reason != domain.ReasonQueueFull {
			t.Fatalf("ended as %s/%s", c.State, c.Reason)
		}
		if notes := query[explain.Notes](t, s, `SELECT message_notes FROM runs_history WHERE id = $1`, c.RunID); notes != explain.Join(explain.Of(explain.TooManyHeld, 1000)) {
			t.Fatalf("its message has the notes %q", notes)
		}
	}

	later := create(t, s, "b", func(sp *domain.JobSpec) { sp.Block = domain.BlockDiscardLater })
	run := start(t, s, later.ID)
	trigger(t, s, later.ID, 2)
	out = admit(t, s, claim(t, s))
	if len(out.Ended) != 2 || out.Ended[0].State != domain.Skipped || out.Ended[0].Reason != domain.ReasonDiscarded {
		t.Fatalf("discard_later: %+v", out)
	}
	settle(t, s, settled, result(s, run, domain.OutcomeSucceeded))
	start(t, s, later.ID)
}

// Before it is due, a run only takes a free slot. If the slot is taken, the run is tried again at its due instant.
func TestAheadOfDue(t *testing.T) {
	s, _ := open(t)
	job := create(t, s, "a")
	run := start(t, s, job.ID)
	trigger(t, s, job.ID, 1)
	exec(t, s, `UPDATE runs_live SET due_at = due_at + interval '3 s' WHERE state = 'pending'`)
	near := claim(t, s)
	out := admit(t, s, near)
	if len(out.Later) != 1 || !out.Later[0].AtDue || len(out.Held) != 0 {
		t.Fatalf("before due, with the slot taken: %+v", out)
	}
	settle(t, s, settled, result(s, run, domain.OutcomeSucceeded))
	if out = admit(t, s, near); len(out.Bound) != 1 {
		t.Fatalf("before due, with the slot free: %+v", out)
	}
}

// bells checks, without the store, that no two runs of a job are bound at once.
type bells struct {
	mu     sync.Mutex
	inHand map[string]domain.RunID // by job and, in scope instance, instance
	bad    []string
}

func (b *bells) took(key string, id domain.RunID) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if other, taken := b.inHand[key]; taken && other != id {
		b.bad = append(b.bad, fmt.Sprintf("%s: %s beside %s", key, id, other))
	}
	b.inHand[key] = id
}

func (b *bells) gave(key string, id domain.RunID) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.inHand[key] == id {
		delete(b.inHand, key)
	}
}

// In TestSlotsUnderFire, many goroutines on two stores trigger, admit, settle, fail, hand back and kill runs. The jobs have both
// scopes and run one at a time; half of them have the policy cover_early. No two runs of a job are bound at once, and in
// the end all runs have ended and all slots are free.
func TestSlotsUnderFire(t *testing.T) {
	url := pgtest.Database(t, store.Migrate)
	a, _ := openAt(t, url)
	b, _ := openAt(t, url)
	exec(t, a, `INSERT INTO groups (name, token_sha256) VALUES ('g', 'x')`)
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	var jobs []domain.JobID
	scope := make(map[domain.JobID]domain.BlockScope)
	covers := make(map[domain.JobID]bool)
	for i := range 6 {
		job := create(t, a, string(rune('a'+i)), func(sp *domain.JobSpec) {
			sp.Retries = 1
			sp.RetryBackoff.Initial = domain.Duration(time.Millisecond)
			if i%2 == 1 {
				sp.BlockScope = domain.ScopeInstance
			}
			if i >= 3 {
				sp.Block = domain.BlockCoverEarly
			}
		})
		covers[job.ID] = job.Block == domain.BlockCoverEarly
		jobs, scope[job.ID] = append(jobs, job.ID), job.BlockScope
	}
	const total = 400
	check := &bells{inHand: make(map[string]domain.RunID)}
	work := make(chan engine.LiveRun, total*4)
	fire := make(chan []engine.Due, total*4)
	var g errgroup.Group
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	f := &fray{t: t, ctx: ctx, check: check, scope: scope, covers: covers, work: work, fire: fire}
	for i, s := range []*store.Store{a, b, a, b} {
		rng := rand.New(rand.NewPCG(seed, uint64(i)))
		g.Go(func() error { return f.triggerRuns(s, rng, jobs, total/4) })
	}
	if err := g.Wait(); err != nil {
		t.Fatal(err)
	}
	for i, s := range []*store.Store{a, b, a, b, a, b} {
		rng := rand.New(rand.NewPCG(seed, uint64(100+i)))
		switch {
		case i < 2:
			g.Go(func() error { return f.ring(s, rng) })
		default:
			g.Go(func() error { return f.settleRuns(s, rng) })
		}
	}
	if err := g.Wait(); err != nil {
		t.Fatal(err)
	}
	if len(check.bad) > 0 {
		t.Errorf("two runs were bound at once, %d times: %s", len(check.bad), check.bad[0])
	}
	if ctx.Err() != nil {
		t.Fatalf("runs are left: %v", column[string](t, a, `SELECT job_id || ' ' || state || ' held ' || held || ' by ' || COALESCE(held_by::text, '')
			|| ' on ' || COALESCE(instance, '') FROM runs_live LIMIT 10`))
	}
	if n := query[int64](t, a, `SELECT count(*) FROM runs_history`); n != total {
		t.Errorf("%d of %d runs in the history", n, total)
	}
	if n := query[int64](t, a, `SELECT count(*) FROM block_slots s WHERE owner IS NOT NULL`); n != 0 {
		t.Errorf("%d slots have an owner in the end", n)
	}
}

// fray is the state that the goroutines of TestSlotsUnderFire share.
type fray struct {
	t      *testing.T
	ctx    context.Context
	check  *bells
	scope  map[domain.JobID]domain.BlockScope
	covers map[domain.JobID]bool
	work   chan engine.LiveRun // bound
	fire   chan []engine.Due   // released
}

func (f *fray) key(r engine.LiveRun) string {
	if f.scope[r.JobID] == domain.ScopeInstance {
		return fmt.Sprint(r.JobID, r.Instance)
	}
	return fmt.Sprint(r.JobID)
}

func (f *fray) triggerRuns(s *store.Store, rng *rand.Rand, jobs []domain.JobID, n int) error {
	for range n {
		if _, err := s.Trigger(f.ctx, jobs[rng.IntN(len(jobs))], domain.Trigger{Cause: domain.CauseManual}); err != nil {
			return err
		}
	}
	return nil
}

// transient reports whether err is nil or an error that a caller handles by retrying.
func transient(err error) bool {
	c := domain.CodeOf(err)
	return err == nil || c == domain.Unavailable || c == domain.Conflict || c == domain.NotFound
}

// left reports whether unfinished runs are left.
func (f *fray) left(s *store.Store) bool {
	var n int
	err := s.Pool().QueryRow(f.ctx, `SELECT count(*) FROM runs_live`).Scan(&n)
	return err == nil && n > 0 && f.ctx.Err() == nil
}

// ring acts as a scheduler and as the reconcilers.
func (f *fray) ring(s *store.Store, rng *rand.Rand) error {
	for f.left(s) {
		var due []engine.Due
		select {
		case due = <-f.fire:
		default:
			near, _, err := s.ClaimNear(f.ctx, 20)
			if !transient(err) {
				return err
			}
			orphans, err := s.ReleaseOrphans(f.ctx, 10)
			if !transient(err) {
				return err
			}
			if _, err := s.ReplanOverdue(f.ctx, 10); !transient(err) {
				return err
			}
			due = append(near, orphans...)
		}
		if err := f.admit(s, rng, due); err != nil {
			return err
		}
		keys, err := s.WaitingKeys(f.ctx)
		if !transient(err) {
			return err
		}
		for _, k := range keys {
			bound, others, err := s.AssignWaiting(f.ctx, k, 5, func(w []store.Waiting) []engine.Binding {
				to := make([]engine.Binding, len(w))
				for i := range to {
					to[i] = engine.Binding{Instance: fmt.Sprintf("i%d", rng.IntN(2)), BootID: "b1"}
				}
				return to
			})
			if !transient(err) {
				return err
			}
			f.bound(bound)
			f.covered(others.Kills, others.Released)
		}
	}
	return nil
}

// covered ends the killed runs, whether or not they were ever offered, and fires the released runs.
func (f *fray) covered(kills []engine.LiveRun, released []engine.Due) {
	for _, r := range kills {
		f.work <- r
	}
	if len(released) > 0 {
		f.fire <- released
	}
}

func (f *fray) bound(runs []engine.LiveRun) {
	for _, r := range runs {
		f.check.took(f.key(r), r.ID)
		f.work <- r
	}
}

func (f *fray) admit(s *store.Store, rng *rand.Rand, due []engine.Due) error {
	if len(due) == 0 {
		return nil
	}
	defs, err := s.Definitions(f.ctx, due)
	if err != nil {
		return err
	}
	var in []store.Admission
	for _, d := range due {
		a := store.Admission{Due: d, Def: defs.Of(d.JobID, d.JobVersion)}
		if rng.IntN(5) > 0 {
			a.Binding = engine.Binding{Instance: fmt.Sprintf("i%d", rng.IntN(2)), BootID: "b1", Route: "test"}
		} else {
			a.Waiting = explain.Of(explain.NoRoom)
		}
		in = append(in, a)
	}
	out, err := s.Admit(f.ctx, in)
	f.bound(out.Bound)
	f.covered(out.Kills, out.Released)
	if err != nil && transient(err) {
		f.fire <- due // a scheduler retries too
		return nil
	}
	if len(out.Later) > 0 {
		f.fire <- out.Later
	}
	return err
}

// settleRuns acts as the executors and their dispatcher.
func (f *fray) settleRuns(s *store.Store, rng *rand.Rand) error {
	for f.left(s) {
		var r engine.LiveRun
		select {
		case r = <-f.work:
		case <-time.After(20 * time.Millisecond):
			continue
		}
		e := result(s, r, domain.OutcomeSucceeded)
		dice := rng.IntN(6)
		// In scope cluster, a run keeps its slot when it is retried or routed again.
		if again := dice == 0 && r.Attempt == 1 || dice == 1 || dice == 2; !again || f.scope[r.JobID] == domain.ScopeInstance || f.covers[r.JobID] {
			f.check.gave(f.key(r), r.ID)
		}
		switch dice {
		case 0:
			e = result(s, r, domain.OutcomeFailed)
		case 1:
			e = result(s, r, domain.OutcomeUnstarted)
		case 2:
			_, killed, err := s.Unbind(f.ctx, []store.Refusal{{RunID: r.ID, Attempt: r.Attempt, Bind: r.Bind, Why: "full"}})
			if err == nil && len(killed) == 0 {
				continue
			}
			if !transient(err) {
				return err
			}
			e.Instance, e.BootID, e.Group, e.Outcome, e.Reason = "", "", "", domain.OutcomeCancelled, r.KillReason
			if err != nil {
				f.check.took(f.key(r), r.ID)
				f.work <- r
				continue
			}
		case 3:
			if _, err := s.RequestKill(f.ctx, r.ID, domain.ReasonKilled, "test"); !transient(err) {
				return err
			}
		}
		for {
			res, err := s.Settle(f.ctx, []engine.Ended{e})
			if err == nil {
				if len(res.Released) > 0 {
					f.fire <- res.Released
				}
				break
			}
			if !errors.Is(err, context.DeadlineExceeded) && !transient(err) {
				return err
			}
			if f.ctx.Err() != nil {
				return nil
			}
		}
	}
	return nil
}

// The owner changes while runs are held.
func TestHeldByNamesTheOwner(t *testing.T) {
	s, _ := open(t)
	job := create(t, s, "a")
	trigger(t, s, job.ID, 3)
	out := admit(t, s, claim(t, s))
	last := out.Held[1]
	if slices.Compare(out.Held[0][:], last[:]) > 0 {
		last = out.Held[0]
	}
	heldBy := func(want domain.RunID) {
		t.Helper()
		if got := query[domain.RunID](t, s, `SELECT held_by FROM runs WHERE id = $1`, last); got != want {
			t.Errorf("held by %s, want %s", got, want)
		}
	}
	heldBy(out.Bound[0].ID)
	next := settle(t, s, settled, result(s, out.Bound[0], domain.OutcomeSucceeded)).Released[0]
	heldBy(next.RunID)
	run := admit(t, s, []engine.Due{next}).Bound[0]
	settle(t, s, settled, result(s, run, domain.OutcomeSucceeded))
	if n := query[int64](t, s, `SELECT count(*) FROM runs WHERE held_by IS NOT NULL`); n != 0 {
		t.Errorf("%d runs are held", n)
	}
}

// Before a run covers a waiting run, it locks the entry of the waiting run in runs_waiting, and then the run, in the same
// order as AssignWaiting. Otherwise the two could deadlock.
func TestCoverLocksWhatWaitsFirst(t *testing.T) {
	s, _ := open(t)
	job := create(t, s, "j", func(sp *domain.JobSpec) { sp.Block = domain.BlockCoverEarly })
	trigger(t, s, job.ID, 1)
	first := admissions(t, s, claim(t, s))
	first[0].Binding = engine.Binding{Waiting: "no instance"}
	if out, err := s.Admit(t.Context(), first); err != nil || len(out.Waiting) != 1 {
		t.Fatalf("%+v, %v", out, err)
	}
	trigger(t, s, job.ID, 1)
	second := admissions(t, s, claim(t, s))
	tx := pgtest.Begin(t, s.Pool())
	defer tx.Rollback(t.Context()) //nolint:errcheck // it only holds locks
	lock := func(sql string) error {
		_, err := tx.Exec(t.Context(), sql, first[0].RunID)
		return err
	}
	if err := lock(`SELECT 1 FROM runs_waiting WHERE run_id = $1 FOR UPDATE NOWAIT`); err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() {
		out, err := s.Admit(t.Context(), second)
		if err == nil && (len(out.Ended) != 1 || out.Ended[0].Reason != domain.ReasonCovered || len(out.Released) != 1) {
			err = fmt.Errorf("covered as %+v", out)
		}
		done <- err
	}()
	for query[int64](t, s, `SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND datname = current_database()`) == 0 {
		select {
		case err := <-done:
			t.Fatalf("admitted although another transaction holds the lock: %v", err)
		default:
		}
	}
	if err := lock(`SELECT 1 FROM runs_live WHERE id = $1 FOR UPDATE NOWAIT`); err != nil {
		t.Errorf("the transaction waits for the entry in runs_waiting and has locked the run: %v", err)
	}
	if err := tx.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := <-done; err != nil {
		t.Fatal(err)
	}
}
