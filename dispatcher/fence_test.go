package dispatcher

import (
	"slices"
	"testing"
	"time"

	"github.com/belfryhq/belfry/executor/wire"
	"github.com/belfryhq/belfry/internal/domain"
	"github.com/belfryhq/belfry/internal/explain"
)

// Offers rely on a heartbeat that was known before the transaction that bound them. That holds if newer heartbeats
// arrive while the transaction waits, and if the attempt's bind is raised.
func TestOffersRelyOnABeatBeforeTheBinding(t *testing.T) {
	f := &fussy{}
	w := newWorld(t, option{wrap: f.wrap})
	a := w.join("a")
	newest := func() (n int64) { a.set(func() { n = int64(len(a.beats)) }); return n }
	var before []int64 // the newest of all heartbeats when each binding began
	f.mu.Lock()
	f.bind = func() {
		n := newest()
		w.eventually("two more heartbeats are known", func() bool {
			beat, ok := w.roster.Beat("g", "a", "boot-a")
			return ok && beat >= n+2
		})
		before = append(before, n)
	}
	f.mu.Unlock()
	a.set(func() { a.mute = true })
	id := w.trigger(w.job("j"))
	w.eventually("it is offered twice", func() bool { return len(a.offersOf(id)) >= 2 })
	w.stop()
	a.mu.Lock()
	defer a.mu.Unlock()
	for i, beat := range a.relied[attempt{id.String(), 1}] {
		if beat < 1 || beat > before[i] {
			t.Errorf("offer %d relies on heartbeat %d; when it was bound %d were sent", i+1, beat, before[i])
		}
	}
}

// Offers to an instance whose heartbeats have no beat number do not name a beat.
func TestOlderExecutor(t *testing.T) {
	w := newWorld(t, option{})
	w.join("a", auto, func(p *puppet) { p.older = true })
	w.becomes(w.trigger(w.job("j")), "succeeded")
}

// An instance gets no runs if its last heartbeat is too old to rely on, even if its lease is still valid.
func TestOldBeatBindsNothing(t *testing.T) {
	w := newWorld(t, option{})
	a := w.join("a", func(p *puppet) { p.heartbeat = false })
	a.beat()
	w.eventually("it is known", func() bool { _, ok := w.roster.Beat("g", "a", "boot-a"); return ok })
	w.eventually("its heartbeat is old", func() bool { _, ok := w.roster.Beat("g", "a", "boot-a"); return !ok })
	id := w.trigger(w.job("j"))
	w.becomes(id, "queued")
	if r := w.run(id); r.Instance != "" {
		t.Errorf("run %+v", r)
	}
	a.set(func() { a.auto = true })
	a.beat()
	w.becomes(id, "succeeded")
}

// No attempt is declared lost until its boot has sent no heartbeat for 10 s, even if the bucket suggests that it is dead. In
// this test, the key is deleted, or belongs to another process, directly after the last heartbeat.
func TestNoVerdictBeforeSilence(t *testing.T) {
	for _, after := range []string{"its key was purged", "another process took its name"} {
		t.Run(after, func(t *testing.T) {
			w := newWorld(t, option{})
			a := w.join("a")
			id := w.trigger(w.job("j"))
			a.got(id, 1)
			w.becomes(id, "running")
			a.leave()
			a.nc = w.connect()
			a.beat()
			if err := a.nc.Flush(); err != nil {
				t.Fatal(err)
			}
			last := a.beats[len(a.beats)-1]
			if after == "its key was purged" {
				a.die()
			} else {
				w.join("a", func(p *puppet) { p.boot = "newer" })
			}
			w.becomes(id, "failed/lost")
			if passed := time.Since(last); passed < wire.LeaseTTL {
				t.Errorf("lost %v after its last heartbeat", passed)
			}
		})
	}
}

// An instance answers that it has already run the attempt, because the database lost the attempt's end. The run ends
// with that outcome and does not run again.
func TestEndedBefore(t *testing.T) {
	for _, tt := range []struct{ outcome, state string }{
		{wire.Succeeded, "succeeded"}, {wire.Failed, "failed/handler_error"}, {wire.Cancelled, "cancelled/killed"},
	} {
		t.Run(tt.outcome, func(t *testing.T) {
			w := newWorld(t, option{})
			w.join("a", func(p *puppet) { p.ended = tt.outcome })
			id := w.trigger(w.job("j"))
			if r := w.becomes(id, tt.state); r.Attempt != 1 || !slices.Equal(r.codes(), []explain.Code{explain.OutputLost}) {
				t.Errorf("run %+v", r)
			}
		})
	}
	t.Run("with its result", func(t *testing.T) {
		w := newWorld(t, option{})
		a := w.join("a")
		now := wire.Time{Time: time.Now()}
		a.set(func() {
			a.ended = wire.Succeeded
			a.status = func(r wire.Ref) (wire.Status, bool) {
				return wire.Status{RunID: r.RunID, Attempt: r.Attempt, Status: wire.StatusDone, Outcome: wire.Succeeded, Result: &wire.Result{
					Instance: "a", BootID: "boot-a", RunID: r.RunID, Attempt: r.Attempt, Outcome: wire.Succeeded, Output: "kept",
					StartedAt: now, FinishedAt: now,
				}}, true
			}
		})
		if r := w.becomes(w.trigger(w.job("j")), "succeeded"); r.Output != "kept" {
			t.Errorf("run %+v", r)
		}
	})
	t.Run("while it is said to run", func(t *testing.T) {
		w := newWorld(t, option{})
		a := w.join("a")
		id := w.trigger(w.job("j", func(s *domain.JobSpec) { s.Retries = 1 }))
		a.got(id, 1)
		w.becomes(id, "running")
		a.set(func() {
			a.status = func(r wire.Ref) (wire.Status, bool) {
				return wire.Status{RunID: r.RunID, Attempt: r.Attempt, Status: wire.StatusDone, Outcome: wire.Succeeded}, true
			}
		})
		if r := w.becomes(id, "succeeded"); r.Attempt != 1 {
			t.Errorf("run %+v", r)
		}
	})
}
