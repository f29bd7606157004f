package dispatcher

import (
	"slices"
	"testing"
	"time"

	"github.com/belfryhq/belfry/executor/wire"
	"github.com/belfryhq/belfry/internal/domain"
	"github.com/belfryhq/belfry/internal/explain"
)

// Each case breaks one step. The reconciler of the same name in the table of doc.go must repair it and count the repair under
// its own kind. Nothing else repairs it, so without the reconciler the test times out.
func TestReconcilers(t *testing.T) {
	serial := func(s *domain.JobSpec) { s.Block = domain.BlockSerial }
	once := func(s *domain.JobSpec) { s.Retries = 1 }
	for kind, breakAndMend := range map[string]func(*testing.T, *world){
		"unanswered_offer": func(_ *testing.T, w *world) { // the offer or its answer is lost
			a := w.join("a")
			a.set(func() { a.mute = true })
			id := w.trigger(w.job("j"))
			a.got(id, 1)
			a.set(func() { a.mute = false })
			w.becomes(id, "running")
			a.report(a.offersOf(id)[1], wire.Succeeded)
			w.becomes(id, "succeeded")
		},
		"unknown_to_instance": func(_ *testing.T, w *world) { // the result and the instance's memory of the run are lost
			a := w.join("a")
			id := w.trigger(w.job("j"))
			a.got(id, 1)
			w.becomes(id, "running")
			a.set(func() { delete(a.known, attempt{id.String(), 1}) })
			w.becomes(id, "failed/lost")
		},
		"dead_instance": func(_ *testing.T, w *world) { // there will never be a result
			a := w.join("a")
			id := w.trigger(w.job("j"))
			a.got(id, 1)
			a.die()
			w.becomes(id, "failed/lost")
		},
		"start_deadline": func(_ *testing.T, w *world) { // no instance joins
			id := w.trigger(w.job("j", func(s *domain.JobSpec) { s.StartDeadline = domain.Duration(time.Second) }))
			w.becomes(id, "failed/no_executor")
		},
		"shard_of_gone_instance": func(_ *testing.T, w *world) { // the only instance that may take it is gone
			w.join("a", auto)
			b := w.join("b")
			b.set(func() { b.refuse = wire.RefusedFull })
			id := w.trigger(w.job("j", broadcast(0)))
			shard := domain.ShardRunID(id, 1)
			w.eventually("its shard waits", func() bool {
				return w.count(`SELECT count(*) FROM runs_waiting WHERE run_id = $1 AND pin = 'b'`, shard) == 1
			})
			b.die()
			if r := w.becomes(shard, "failed/no_executor"); !slices.Equal(r.codes(), []explain.Code{explain.ShardInstanceGone}) {
				w.t.Errorf("run %+v", r)
			}
		},
		"timeout": func(_ *testing.T, w *world) { // the instance does not end the run in time
			a := w.join("a")
			id := w.trigger(w.job("j", func(s *domain.JobSpec) { s.Timeout = domain.Duration(time.Minute) }))
			a.got(id, 1)
			w.exec(`UPDATE runs_live SET give_up_at = now() - interval '1 s' WHERE id = $1`, id)
			w.becomes(id, "failed/timeout")
		},
		"kill": func(_ *testing.T, w *world) { // the kill message is lost
			a := w.join("a")
			id := w.trigger(w.job("j"))
			a.got(id, 1)
			a.set(func() { a.deaf = true })
			w.kill(id)
			a.set(func() { a.deaf = false; a.known[attempt{id.String(), 1}] = wire.StatusBarred })
			w.becomes(id, "cancelled/killed")
		},
		"retry_not_replanned": func(_ *testing.T, w *world) { // no River job is worked in this test
			a := w.join("a")
			id := w.trigger(w.job("j", once))
			a.report(a.got(id, 1), wire.Failed)
			a.report(a.got(id, 2), wire.Succeeded)
			w.becomes(id, "succeeded")
		},
		"held_by_nobody": func(_ *testing.T, w *world) { // the run that should release the held one never ends
			a := w.join("a")
			job := w.job("j", serial)
			owner := w.trigger(job)
			a.got(owner, 1)
			held := w.trigger(job)
			w.eventually("the second is held", func() bool { return w.count(`SELECT count(*) FROM runs_live WHERE held AND id = $1`, held) == 1 })
			w.exec(`DELETE FROM runs_live WHERE id = $1`, owner)
			a.report(a.got(held, 1), wire.Succeeded)
			w.becomes(held, "succeeded")
		},
		"fixed_delay_stopped": func(t *testing.T, w *world) { // the run that should set the next fire time never ends
			job := w.job("j", func(s *domain.JobSpec) {
				s.Schedule = domain.Schedule{Kind: domain.ScheduleFixedDelay, Delay: domain.Duration(time.Hour)}
			})
			w.exec(`UPDATE job_due SET next_fire_time = NULL, next_due_at = NULL WHERE job_id = $1`, job)
			w.eventually("it has a next fire", func() bool {
				return w.count(`SELECT count(*) FROM job_due WHERE job_id = $1 AND next_due_at IS NOT NULL`, job) == 1
			})
		},
		"stray": func(_ *testing.T, w *world) { // the run waits, and the assigner cannot see it
			id := w.trigger(w.job("j"))
			w.becomes(id, "queued")
			w.exec(`DELETE FROM runs_waiting WHERE run_id = $1`, id)
			w.join("a", auto)
			w.becomes(id, "succeeded")
		},
	} {
		t.Run(kind, func(t *testing.T) {
			w := newWorld(t, option{})
			breakAndMend(t, w)
			w.eventually("it is counted as "+kind, func() bool { return w.reconciled()[kind] > 0 })
			for other, n := range w.reconciled() {
				if other != kind && n > 0 {
					t.Errorf("%v findings of kind %s besides", n, other)
				}
			}
		})
	}
}

// reconciled returns the metric's counts by kind.
func (w *world) reconciled() map[string]float64 {
	w.t.Helper()
	families, err := w.reg.Gather()
	if err != nil {
		w.t.Fatal(err)
	}
	out := make(map[string]float64)
	for _, f := range families {
		if f.GetName() != "belfry_reconciled_total" {
			continue
		}
		for _, m := range f.GetMetric() {
			out[m.GetLabel()[0].GetValue()] = m.GetCounter().GetValue()
		}
	}
	return out
}

// A shard that may run on only one instance waits while that instance has its lease, even if the roster does not show
// the instance for a moment.
func TestPinnedShardSurvivesABlink(t *testing.T) {
	w := newWorld(t, option{})
	w.join("a", auto)
	b := w.join("b", capacity(1), func(p *puppet) { p.heartbeat = false })
	shown := func() bool { boot, alive := w.roster.Boot("g", "b"); return alive && boot == b.boot }
	b.beat()
	w.eventually("b joins", shown)
	busy, err := w.pg.Trigger(t.Context(), w.job("busy"), domain.Trigger{Cause: domain.CauseManual, Instance: "b"})
	if err != nil {
		t.Fatal(err)
	}
	o := b.got(busy[0], 1)
	id := w.trigger(w.job("j", broadcast(0)))
	w.becomes(id, "succeeded") // its first shard, on a
	shard := domain.ShardRunID(id, 1)
	if r := w.becomes(shard, "queued"); r.Instance != "" {
		t.Fatalf("run %+v", r)
	}
	b.beat() // its lease is renewed
	w.holds(2500*time.Millisecond, "its shard waits", func() bool {
		w.roster.Drop("g", "b", b.boot)
		return w.run(shard).State == "queued"
	})
	b.beat()
	w.eventually("b is back", shown)
	b.report(o, wire.Succeeded)
	b.report(b.got(shard, 1), wire.Succeeded)
	w.becomes(shard, "succeeded")
}
