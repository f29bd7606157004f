package dispatcher

import (
	"context"
	"fmt"
	"slices"
	"testing"

	"github.com/belfryhq/belfry/executor/wire"
	"github.com/belfryhq/belfry/internal/domain"
	"github.com/belfryhq/belfry/internal/engine"
)

// In these tests, Postgres refuses one run of a batch. The other runs must not stop.

// mixed returns five runs of group g, and in their middle one of group bad, which Postgres refuses in a table if the condition is true.
func (w *world) mixed(bad, table, condition string) (good []domain.RunID, refused domain.RunID) {
	w.t.Helper()
	fine, poison := w.job("fine"), w.job("poison", func(s *domain.JobSpec) { s.Group = bad })
	w.exec(fmt.Sprintf(`ALTER TABLE %s ADD CONSTRAINT poison CHECK (NOT (job_id = %d AND (%s)))`, table, poison, condition))
	for i := range 6 {
		if i == 3 {
			refused = w.trigger(poison)
		} else {
			good = append(good, w.trigger(fine))
		}
	}
	return good, refused
}

// counts waits until a refused run is counted. The good runs of its batch may be further by then.
func (w *world) counts(what string) {
	w.eventually("a run that Postgres refused to "+what+" is counted", func() bool { return w.metric("belfry_refused_runs_total", what) > 0 })
}

func TestRefusedToFire(t *testing.T) {
	w := newWorld(t, option{still: true})
	a := w.join("a", auto)
	good, refused := w.mixed("h", "runs_live", "state = 'queued'")
	var batch []engine.Due
	w.eventually("all runs are claimed", func() bool {
		runs, _, err := w.pg.ClaimNear(context.Background(), 1000)
		if err != nil && !domain.Transient(err) {
			t.Fatal(err)
		}
		batch = append(batch, runs...)
		return len(batch) >= 6
	})
	w.eventually("the batch is fired", func() bool {
		_, err := w.Fire(context.Background(), batch)
		if err != nil && !domain.Transient(err) { // on a busy machine, Postgres may end a transaction that stalls
			t.Fatal(err)
		}
		return err == nil
	})
	for _, id := range good {
		w.becomes(id, "succeeded")
	}
	w.counts("fire")
	if r := w.run(refused); r.State != "pending" {
		t.Errorf("the refused run: %+v", r)
	}
	startedOnce(t, a)
}

func TestRefusedToBind(t *testing.T) {
	w := newWorld(t, option{})
	good, refused := w.mixed("g", "runs_live", "instance IS NOT NULL") // the runs that wait for the instances of one group are bound together
	for _, id := range append(good, refused) {
		w.becomes(id, "queued")
	}
	a := w.join("a", auto, capacity(7)) // a refused try must not use up the slots
	for _, id := range good {
		w.becomes(id, "succeeded")
	}
	w.counts("bind")
	if r := w.run(refused); r.State != "queued" || r.Instance != "" {
		t.Errorf("the refused run: %+v", r)
	}
	startedOnce(t, a)
}

func TestRefusedToSettleWhatWasFound(t *testing.T) {
	w := newWorld(t, option{})
	good, refused := w.mixed("h", "runs_history", "true")
	for _, id := range append(good, refused) {
		w.becomes(id, "queued")
	}
	w.exec(`UPDATE runs_waiting SET deadline_at = now()`) // in one statement, so that one pass finds all of them
	for _, id := range good {
		w.becomes(id, "failed/no_executor")
	}
	w.counts("settle")
	if r := w.run(refused); r.State != "queued" {
		t.Errorf("the refused run: %+v", r)
	}
}

func TestRefusedToStart(t *testing.T) {
	w := newWorld(t, option{quiet: true})
	instances := map[string]*puppet{"g": w.join("a"), "h": w.join("b", func(p *puppet) { p.group = "h" })}
	good, refused := w.mixed("h", "runs_live", "state = 'running'")
	var started []engine.Started
	start := func(id domain.RunID, p *puppet) {
		o := p.got(id, 1)
		started = append(started, engine.Started{RunID: id, Attempt: 1, Instance: p.name, BootID: p.boot, Bind: o.Bind, StartedAt: w.pg.Now()})
	}
	start(refused, instances["h"])
	for _, id := range good {
		start(id, instances["g"])
	}
	w.eventually("the good runs are recorded as running", func() bool {
		w.recorder.Started(context.Background(), started)
		return !slices.ContainsFunc(good, func(id domain.RunID) bool { return w.run(id).State != "running" })
	})
	w.counts("start")
	if r := w.run(refused); r.State != "queued" {
		t.Errorf("the refused run: %+v", r)
	}
}

// An error of Postgres about data, other than those that it names a constraint for, also means that the value is refused. The message is
// a dead letter at its first delivery.
func TestRefusedResult(t *testing.T) {
	w := newWorld(t, option{})
	w.exec(`ALTER TABLE runs_history ADD CONSTRAINT poison CHECK (output <> 'poison' OR 1 / (length(output) - 6) = 0)`)
	a := w.join("a")
	ids, offers := w.offered(a, 3)
	a.set(func() {
		a.deaf = true
		a.send(offers, wire.Succeeded, func(r *wire.Result) {
			if r.Output = "fine"; r.RunID == ids[1].String() {
				r.Output = "poison"
			}
		})
	})
	for i, id := range ids {
		if r := w.becomes(id, "succeeded"); (r.Output == "fine") == (i == 1) {
			t.Errorf("run %d: %+v", i, r)
		}
	}
	w.eventually("the refused result is a dead letter", func() bool { return len(w.letters("result")) == 1 })
	if n := w.metric("belfry_results_total", string(engine.Repeat)); n != 0 {
		t.Errorf("%v results were delivered again", n)
	}
}
