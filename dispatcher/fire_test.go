package dispatcher

import (
	"slices"
	"testing"
	"time"

	"github.com/belfryhq/belfry/executor/wire"
	"github.com/belfryhq/belfry/internal/domain"
	"github.com/belfryhq/belfry/internal/engine"
	"github.com/belfryhq/belfry/internal/pgtest"
)

// A manual trigger can name the instance. If that instance is not alive, the run waits for it and does not go to another.
func TestPinned(t *testing.T) {
	w := newWorld(t, option{})
	a, b := w.join("a", auto), w.join("b", auto)
	job := w.job("j", func(s *domain.JobSpec) { s.Route = domain.RouteFirst })
	trigger := func(instance string) domain.RunID {
		ids, err := w.pg.Trigger(t.Context(), job, domain.Trigger{Cause: domain.CauseAPI, Instance: instance})
		if err != nil {
			t.Fatal(err)
		}
		return ids[0]
	}
	if r := w.becomes(trigger("b"), "succeeded"); r.Instance != "b" {
		t.Errorf("run %+v", r)
	}
	id := trigger("c")
	if r := w.becomes(id, "queued"); r.Instance != "" {
		t.Errorf("run %+v", r)
	}
	c := w.join("c", auto)
	if r := w.becomes(id, "succeeded"); r.Instance != "c" {
		t.Errorf("run %+v", r)
	}
	startedOnce(t, a, b, c)
}

// All dispatchers share the counter of round_robin.
func TestRoundRobinIsShared(t *testing.T) {
	w := newWorld(t, option{})
	names := []string{"a", "b", "c"}
	var puppets []*puppet
	for _, n := range names {
		puppets = append(puppets, w.join(n, auto))
	}
	job := w.job("j", func(s *domain.JobSpec) { s.Route = domain.RouteRoundRobin })
	var got []string
	for i := range 9 {
		if i == 4 {
			w.restart()
			w.eventually("the new one knows all", func() bool { return len(w.Instances("g")) == 3 })
		}
		got = append(got, w.becomes(w.trigger(job), "succeeded").Instance)
	}
	if want := slices.Repeat(names, 3); !slices.Equal(got, want) {
		t.Errorf("went to %v, want %v", got, want)
	}
	startedOnce(t, puppets...)
}

// A child's offer carries its parent's output. If the parent was a broadcast, the output is an array by shard.
func TestParentOutput(t *testing.T) {
	w := newWorld(t, option{})
	a := w.join("a")
	child := w.job("child")
	childOf := func(parent domain.RunID) wire.Offer {
		t.Helper()
		tx := pgtest.Begin(t, w.pg.Pool())
		now := time.Now()
		if _, err := w.pg.PlanChildTx(t.Context(), tx, parent, child, now); err != nil {
			t.Fatal(err)
		}
		if err := tx.Commit(t.Context()); err != nil {
			t.Fatal(err)
		}
		return a.got(domain.ChildRunID(parent, child, now), 1)
	}
	single := w.trigger(w.job("single"))
	a.report(a.got(single, 1), wire.Succeeded, func(r *wire.Result) { r.Output = `"quoted"` })
	w.becomes(single, "succeeded")
	if o := childOf(single); o.Parent == nil || *o.Parent != (wire.Parent{RunID: single.String(), Output: `"quoted"`}) || o.Cause != "child" {
		t.Errorf("offer %+v, parent %+v", o, o.Parent)
	}
	many := w.trigger(w.job("many", broadcast(3)))
	for i, shard := range w.shards(many, 3) {
		a.report(a.got(shard, 1), wire.Succeeded, func(r *wire.Result) { r.Output = string(rune('x' + i)) })
		w.becomes(shard, "succeeded")
	}
	if o := childOf(many); o.Parent == nil || o.Parent.Output != `["x", "y", "z"]` {
		t.Errorf("parent %+v", o.Parent)
	}
}

// A ring may hold runs that were edited, killed or fired after they entered it. Firing them again changes nothing.
func TestFireOfOldKnowledge(t *testing.T) {
	w := newWorld(t, option{quiet: true, still: true})
	a := w.join("a")
	job := w.job("j")
	id := w.trigger(job)
	runs, _, err := w.pg.ClaimNear(t.Context(), 10)
	if err != nil || len(runs) != 1 {
		t.Fatal(runs, err)
	}
	old := func(change func(*engine.Due)) engine.Due {
		d := runs[0]
		change(&d)
		return d
	}
	for name, d := range map[string]engine.Due{
		"another attempt": old(func(d *engine.Due) { d.Attempt = 2 }),
		"another due":     old(func(d *engine.Due) { d.DueAt = d.DueAt.Add(time.Second) }),
		"another version": old(func(d *engine.Due) { d.JobVersion = 9 }),
		"another job":     old(func(d *engine.Due) { d.JobID = 999 }),
		"another run":     old(func(d *engine.Due) { d.RunID = domain.NewRunID(time.Now()) }),
	} {
		if later, err := w.Fire(t.Context(), []engine.Due{d}); err != nil || len(later) != 0 {
			t.Errorf("%s: %v, %v", name, later, err)
		}
		if r := w.run(id); r.State != "pending" {
			t.Errorf("%s: run %+v", name, r)
		}
	}
	for range 3 { // only the first one has an effect
		if later, err := w.Fire(t.Context(), runs); err != nil || len(later) != 0 {
			t.Errorf("%v, %v", later, err)
		}
	}
	a.got(id, 1)
	w.sender.Wait()
	if n := len(a.offersOf(id)); n != 1 {
		t.Errorf("offered %d times", n)
	}
}

// If two dispatchers fire the same runs concurrently, each run is offered once.
func TestFiredTwiceAtOnce(t *testing.T) {
	w := newWorld(t, option{still: true})
	a := w.join("a", auto, capacity(1000))
	job := w.job("j")
	for range 200 {
		w.trigger(job)
	}
	runs, _, err := w.pg.ClaimNear(t.Context(), 1000)
	if err != nil || len(runs) != 200 {
		t.Fatal(len(runs), err)
	}
	errs := make(chan error, 4)
	for range cap(errs) {
		go func() {
			_, err := w.Fire(t.Context(), runs)
			errs <- err
		}()
	}
	for range cap(errs) {
		if err := <-errs; err != nil {
			t.Error(err)
		}
	}
	w.eventually("all have run", func() bool { return w.count(`SELECT count(*) FROM runs_history WHERE state = 'succeeded'`) == 200 })
	a.mu.Lock()
	defer a.mu.Unlock()
	if len(a.offers) != 200 {
		t.Errorf("%d offers", len(a.offers))
	}
}

// A transaction that fails at its commit has bound nothing, so the dispatcher must not offer its runs. They are fired
// again and could go to another instance.
func TestNothingUncommittedIsOffered(t *testing.T) {
	for _, block := range []domain.Block{domain.BlockParallel, domain.BlockSerial} {
		t.Run(string(block), func(t *testing.T) {
			w := newWorld(t, option{quiet: true, still: true})
			a := w.join("a")
			id := w.trigger(w.job("j", func(s *domain.JobSpec) { s.Block = block }))
			w.exec(`CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION 'no'; END $$`)
			w.exec(`CREATE CONSTRAINT TRIGGER refuse AFTER UPDATE ON runs_live DEFERRABLE INITIALLY DEFERRED
				FOR EACH ROW WHEN (NEW.state = 'queued') EXECUTE FUNCTION refuse()`)
			runs, _, err := w.pg.ClaimNear(t.Context(), 10)
			if err != nil || len(runs) != 1 {
				t.Fatal(runs, err)
			}
			if _, err := w.Fire(t.Context(), runs); err == nil {
				t.Fatal("the commit did not fail")
			}
			w.sender.Wait()
			if r := w.run(id); r.State != "pending" || len(a.offersOf(id)) != 0 {
				t.Fatalf("run %+v was offered %d times", r, len(a.offersOf(id)))
			}
			w.exec(`DROP TRIGGER refuse ON runs_live`)
			if _, err := w.Fire(t.Context(), runs); err != nil {
				t.Fatal(err)
			}
			a.got(id, 1)
			w.sender.Wait()
			if n := len(a.offersOf(id)); n != 1 {
				t.Errorf("offered %d times", n)
			}
		})
	}
}
