package memstore_test

import (
	"context"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/belfryhq/belfry/internal/domain"
	"github.com/belfryhq/belfry/internal/engine"
	"github.com/belfryhq/belfry/internal/explain"
	"github.com/belfryhq/belfry/internal/sim/memstore"
)

// Under any order of triggers, fires, assignments, results and kills, a job with a block policy has at most one bound run per
// slot. With cover_early, at most one run is held per slot. With discard_later, none is. At the end, all runs have ended and
// no slot has an owner.
func TestBlockPolicies(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		db := memstore.New()
		m := &blockModel{t: t, s: db.Store(), db: db}
		sp := domain.DefaultJobSpec()
		sp.Group, sp.Name, sp.Handler, sp.Schedule = "g", "j", "echo", domain.Schedule{Kind: domain.ScheduleNone}
		sp.Block = rapid.SampledFrom([]domain.Block{domain.BlockSerial, domain.BlockDiscardLater, domain.BlockCoverEarly}).Draw(t, "block")
		sp.BlockScope = rapid.SampledFrom([]domain.BlockScope{domain.ScopeCluster, domain.ScopeInstance}).Draw(t, "scope")
		sp.RetryBackoff.Initial = domain.Duration(time.Millisecond)
		sp.Retries = rapid.IntRange(0, 1).Draw(t, "retries")
		job, err := m.s.CreateJob(context.Background(), sp, "test")
		m.must(err)
		m.job = job
		trigger := func(*rapid.T) {
			m.pass(3 * time.Millisecond) // run ids of the same millisecond are not ordered
			_, err := m.s.Trigger(context.Background(), job.ID, domain.Trigger{Cause: domain.CauseManual})
			m.must(err)
		}
		t.Repeat(map[string]func(*rapid.T){
			"trigger": trigger,
			"comes": func(t *rapid.T) {
				trigger(t)
				m.fire(t, "i1")
			},
			"time":   func(*rapid.T) { m.pass(3 * time.Millisecond) },
			"fire":   func(t *rapid.T) { m.fire(t, rapid.SampledFrom([]string{"i1", "i2", ""}).Draw(t, "instance")) },
			"assign": func(t *rapid.T) { m.assign(rapid.SampledFrom([]string{"i1", "i2"}).Draw(t, "instance")) },
			"end": func(t *rapid.T) {
				m.end(t, rapid.SampledFrom([]domain.Outcome{domain.OutcomeSucceeded, domain.OutcomeFailed, domain.OutcomeUnstarted}).Draw(t, "outcome"))
			},
			"kill": func(t *rapid.T) {
				if live := m.live(func(memstore.Run) bool { return true }); len(live) > 0 {
					_, err := m.s.RequestKill(context.Background(), rapid.SampledFrom(live).Draw(t, "run").ID, domain.ReasonKilled, "test")
					m.must(err)
				}
			},
			"": func(*rapid.T) { m.check() },
		})
		for range 500 {
			if len(m.live(func(memstore.Run) bool { return true })) == 0 {
				break
			}
			m.pass(time.Minute)
			m.fire(t, "i1")
			m.assign("i1")
			m.end(t, domain.OutcomeSucceeded)
			m.check()
		}
		if left := m.live(func(memstore.Run) bool { return true }); len(left) > 0 || db.OwnedSlots() > 0 {
			t.Fatalf("%d runs are left, %d slots are owned: %+v", len(left), db.OwnedSlots(), left)
		}
	})
}

type blockModel struct {
	t   *rapid.T
	s   *memstore.Store
	db  *memstore.DB
	job domain.Job
}

func (m *blockModel) must(err error) {
	if err != nil {
		m.t.Fatal(err)
	}
}

func (m *blockModel) pass(d time.Duration) {
	m.db.Advance(d)
	m.must(m.s.SyncClock(context.Background()))
}

func (m *blockModel) live(keep func(memstore.Run) bool) []memstore.Run {
	return slices.DeleteFunc(m.db.Runs(), func(r memstore.Run) bool { return r.State.Final() || !keep(r) })
}

// fire fires a random batch of the runs that may be fired, and replans retries.
func (m *blockModel) fire(t *rapid.T, instance string) {
	ctx := context.Background()
	var due []engine.Due
	for _, r := range m.live(func(r memstore.Run) bool { return !r.Held && (r.State == domain.Pending || r.State == domain.Retrying) }) {
		if !r.Replanned {
			_, err := m.s.Replan(ctx, []domain.RunID{r.ID}, []int{r.Attempt})
			m.must(err)
			continue
		}
		due = append(due, r.Due())
	}
	orphans, err := m.s.ReleaseOrphans(ctx, 10)
	m.must(err)
	due = append(due, orphans...)
	if len(due) == 0 {
		return
	}
	due = rapid.Permutation(due).Draw(t, "order")[:rapid.IntRange(1, len(due)).Draw(t, "batch")]
	defs, err := m.s.Definitions(ctx, due)
	m.must(err)
	var in []engine.Admission
	for _, d := range due {
		b := engine.Binding{Instance: instance, BootID: "b1"}
		if instance == "" {
			b = engine.Binding{Waiting: explain.Of(explain.NoRoom)}
		}
		in = append(in, engine.Admission{Due: d, Def: defs.Of(d.JobID, d.JobVersion), Binding: b})
	}
	_, err = m.s.Admit(ctx, in)
	m.must(err)
}

func (m *blockModel) assign(instance string) {
	_, _, err := m.s.AssignWaiting(context.Background(), engine.WaitingKey{Group: "g", Target: "echo"}, 10, func(runs []engine.WaitingRun) []engine.Binding {
		out := make([]engine.Binding, len(runs))
		for i := range out {
			out[i] = engine.Binding{Instance: instance, BootID: "b1"}
		}
		return out
	})
	m.must(err)
}

// end settles a random bound run. A run with a kill request ends cancelled.
func (m *blockModel) end(t *rapid.T, outcome domain.Outcome) {
	inHand := m.live(func(r memstore.Run) bool { return r.Instance != "" })
	if len(inHand) == 0 {
		return
	}
	r := rapid.SampledFrom(inHand).Draw(t, "run")
	if r.KillRequested {
		outcome = domain.OutcomeCancelled
	}
	_, err := m.s.Settle(context.Background(), []engine.Ended{{
		RunID: r.ID, Attempt: r.Attempt, Bind: r.Bind, Instance: r.Instance, BootID: r.BootID, Group: "g", Outcome: outcome,
		Reason: domain.ReasonHandlerError, FinishedAt: m.s.Now(),
	}})
	m.must(err)
}

func (m *blockModel) check() {
	at := func(instance string) string {
		if m.job.BlockScope == domain.ScopeInstance {
			return instance
		}
		return ""
	}
	inHand, held := make(map[string]int), make(map[string]int)
	for _, r := range m.live(func(memstore.Run) bool { return true }) {
		switch {
		case r.Instance != "":
			inHand[at(r.Instance)]++
		case r.Held:
			held[r.HeldOn]++
			if r.HeldBy.IsZero() || r.Waiting == "" {
				m.t.Fatalf("a held run does not say by whom, or why: %+v", r)
			}
		}
	}
	for slot, n := range inHand {
		if n > 1 {
			m.t.Fatalf("%d runs in hand at slot %q", n, slot)
		}
	}
	for slot, n := range held {
		if (m.job.Block == domain.BlockCoverEarly && n > 1) || m.job.Block == domain.BlockDiscardLater {
			m.t.Fatalf("%d runs held at slot %q of a job that is %s", n, slot, m.job.Block)
		}
	}
}
