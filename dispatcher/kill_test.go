package dispatcher

import (
	"slices"
	"testing"
	"time"

	"github.com/belfryhq/belfry/dispatcher/peer"
	"github.com/belfryhq/belfry/executor/wire"
	"github.com/belfryhq/belfry/internal/domain"
	"github.com/belfryhq/belfry/internal/engine"
	"github.com/belfryhq/belfry/internal/explain"
)

func (w *world) kill(id domain.RunID) {
	w.t.Helper()
	w.eventually("the kill request is accepted", func() bool {
		err := w.Kill(w.t.Context(), id, "test")
		if err != nil && domain.CodeOf(err) != domain.Unavailable {
			w.t.Fatal(err)
		}
		return err == nil
	})
}

func TestKillWithoutInstance(t *testing.T) {
	serial := func(s *domain.JobSpec) { s.Block = domain.BlockSerial }
	t.Run("pending", func(t *testing.T) {
		w := newWorld(t, option{still: true})
		id := w.trigger(w.job("j"))
		w.kill(id)
		w.becomes(id, "cancelled/killed")
		if err := w.Kill(t.Context(), id, "test"); domain.CodeOf(err) != domain.Conflict {
			t.Errorf("a second kill: %v", err)
		}
		if err := w.Kill(t.Context(), domain.NewRunID(time.Now()), "test"); domain.CodeOf(err) != domain.NotFound {
			t.Errorf("an unknown run: %v", err)
		}
	})
	t.Run("held", func(t *testing.T) {
		w := newWorld(t, option{})
		a := w.join("a")
		job := w.job("j", serial)
		owner := w.trigger(job)
		o := a.got(owner, 1)
		held, next := w.trigger(job), w.trigger(job)
		w.eventually("both are held", func() bool { return w.count(`SELECT count(*) FROM runs_live WHERE held`) == 2 })
		w.kill(held)
		w.becomes(held, "cancelled/killed")
		a.report(o, wire.Succeeded)
		a.got(next, 1) // the killed run is skipped
	})
	t.Run("waiting", func(t *testing.T) {
		w := newWorld(t, option{})
		job := w.job("j", serial)
		id := w.trigger(job)
		w.becomes(id, "queued")
		w.kill(id)
		w.becomes(id, "cancelled/killed")
		a := w.join("a")
		next := w.trigger(job)
		a.got(next, 1) // the killed run's slot was freed
		if len(a.offersOf(id)) != 0 {
			t.Error("a killed run was offered")
		}
	})
	t.Run("retrying", func(t *testing.T) {
		w := newWorld(t, option{})
		a := w.join("a")
		job := w.job("j", serial, func(s *domain.JobSpec) {
			s.Retries, s.RetryBackoff.Initial = 3, domain.Duration(time.Hour)
			s.RetryBackoff.Max = domain.Duration(time.Hour)
		})
		id := w.trigger(job)
		a.report(a.got(id, 1), wire.Failed)
		w.becomes(id, "retrying/handler_error")
		w.kill(id)
		w.becomes(id, "cancelled/killed")
		a.got(w.trigger(job), 1)
	})
}

func TestKillRunning(t *testing.T) {
	w := newWorld(t, option{})
	a := w.join("a")
	for name, end := range map[string]struct{ outcome, want string }{
		"it returns cancelled": {wire.Cancelled, "cancelled/killed"},
		"it fails":             {wire.Failed, "cancelled/killed"},
		"it had succeeded":     {wire.Succeeded, "succeeded"},
		"it never started":     {wire.Unstarted, "cancelled/killed"},
	} {
		id := w.trigger(w.job(name, func(s *domain.JobSpec) { s.Retries = 5 }))
		o := a.got(id, 1)
		w.kill(id)
		w.eventually("the instance receives the kill", func() bool {
			a.mu.Lock()
			defer a.mu.Unlock()
			return len(a.kills) > 0 && a.kills[len(a.kills)-1].RunID == id.String()
		})
		if r := w.run(id); r.State != "queued" && r.State != "running" {
			t.Errorf("%s: the end is not confirmed, but %+v", name, r)
		}
		a.report(o, end.outcome)
		r := w.becomes(id, end.want)
		if r.Attempt != 1 || slices.Contains(r.codes(), explain.KilledBy) != (r.Reason == "killed") {
			t.Errorf("%s: %+v", name, r)
		}
	}
}

// The run is bound and its instance is silent. The instance bars the attempt, so that it never starts.
func TestKillSilent(t *testing.T) {
	w := newWorld(t, option{still: true})
	a := w.join("a")
	id := w.trigger(w.job("j"))
	w.bind(id, a)
	w.kill(id)
	w.becomes(id, "cancelled/killed")
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.known[attempt{id.String(), 1}] != wire.StatusBarred || len(a.offers) != 0 {
		t.Errorf("known as %v, %d offers", a.known, len(a.offers))
	}
}

// The instance does not receive the first kill. The dispatcher repeats it until the end is confirmed.
func TestKillIsRepeated(t *testing.T) {
	w := newWorld(t, option{})
	a := w.join("a")
	id := w.trigger(w.job("j"))
	o := a.got(id, 1)
	a.set(func() { a.deaf = true })
	w.kill(id)
	w.eventually("the kill is sent three times", func() bool {
		a.mu.Lock()
		defer a.mu.Unlock()
		return len(a.kills) >= 3
	})
	a.set(func() { a.deaf = false; a.known[attempt{o.RunID, 1}] = wire.StatusBarred })
	w.becomes(id, "cancelled/killed")
}

// A run whose handler ignores the kill is shown as running, even if the kill came before the run was recorded as
// running.
func TestKillIgnored(t *testing.T) {
	w := newWorld(t, option{})
	a := w.join("a")
	id := w.trigger(w.job("j"))
	o := a.got(id, 1)
	w.kill(id)
	w.becomes(id, "running")
	a.report(o, wire.Cancelled)
	w.becomes(id, "cancelled/killed")
}

// The instance of a run with a kill request dies. The run is cancelled, not lost, and not retried.
func TestKillThenDeath(t *testing.T) {
	w := newWorld(t, option{})
	a := w.join("a")
	id := w.trigger(w.job("j", func(s *domain.JobSpec) { s.Retries = 3 }))
	a.got(id, 1)
	w.kill(id)
	a.die()
	w.becomes(id, "cancelled/killed")
}

// The offer of a run with a kill request is refused. No instance will start the run, and its instance remains usable.
func TestKillThenRefused(t *testing.T) {
	w := newWorld(t, option{quiet: true, still: true})
	a := w.join("a")
	id := w.trigger(w.job("j"))
	r := w.bind(id, a)
	a.set(func() { a.deaf = true })
	w.kill(id)
	w.sender.Answered(t.Context(), peer.BootOf(&r), []engine.LiveRun{r}, &wire.Answer{
		V: 1, Instance: "a", BootID: "boot-a", Verdicts: []wire.Verdict{{RunID: id.String(), Attempt: 1, Verdict: wire.Refused, Reason: wire.RefusedStale}},
		Load: wire.Load{Capacity: 100},
	})
	if n := len(w.roster.Candidates("g", "echo")); n != 1 {
		t.Errorf("%d candidates", n)
	}
	w.becomes(id, "cancelled/killed")
}

func TestDrain(t *testing.T) {
	w := newWorld(t, option{})
	a := w.join("a")
	for _, name := range []string{"nobody", "a b", "*"} {
		if err := w.Drain(t.Context(), "g", name); domain.CodeOf(err) != domain.NotFound {
			t.Errorf("drain of %q: %v", name, err)
		}
	}
	if err := w.Drain(t.Context(), "g", "a"); err != nil {
		t.Fatal(err)
	}
	a.mu.Lock()
	if !a.drained {
		t.Error("the instance did not receive the request")
	}
	a.mu.Unlock()
	w.eventually("it is not a candidate", func() bool { return len(w.roster.Candidates("g", "echo")) == 0 })
	if n := len(w.Instances("g")); n != 1 {
		t.Errorf("%d instances are listed", n)
	}
	if err := w.Drain(t.Context(), "g", "nobody"); domain.CodeOf(err) != domain.NotFound {
		t.Errorf("drain of an unknown instance: %v", err)
	}
}
