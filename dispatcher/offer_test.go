package dispatcher

import (
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/belfryhq/belfry/dispatcher/offer"
	"github.com/belfryhq/belfry/dispatcher/peer"
	"github.com/belfryhq/belfry/executor/wire"
	"github.com/belfryhq/belfry/internal/domain"
	"github.com/belfryhq/belfry/internal/engine"
)

func TestAcceptedAndSucceeded(t *testing.T) {
	w := newWorld(t, option{})
	changes := make(chan wire.RunChanges, 100)
	sub, err := w.admin.Subscribe(wire.RunSubject("g"), func(m *nats.Msg) {
		var c wire.RunChanges
		if wire.Decode(m.Data, &c) == nil {
			changes <- c
		}
	})
	if err == nil {
		err = w.admin.Flush()
	}
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = sub.Unsubscribe() }()
	a := w.join("a")
	id := w.trigger(w.job("j", func(s *domain.JobSpec) { s.Param, s.Timeout = "p", domain.Duration(90*time.Second) }))
	o := a.got(id, 1)
	if o.Bind != 1 || o.Handler != "echo" || o.JobName != "j" || o.Group != "g" || o.Param != "p" || o.Cause != "manual" || o.TimeoutMS != 90_000 ||
		o.Shard != (wire.Shard{Total: 1}) || o.DueAt.IsZero() || o.FireTime.IsZero() || o.BoundAt.IsZero() || o.Now.Before(o.DueAt.Time) {
		t.Errorf("offer %+v", o)
	}
	if r := w.becomes(id, "running"); r.Instance != "a" || r.Boot != "boot-a" { // it runs for over a second
		t.Errorf("run %+v", r)
	}
	a.report(o, wire.Succeeded, func(r *wire.Result) { r.Output = "out" })
	if r := w.becomes(id, "succeeded"); r.Output != "out" || r.Attempt != 1 {
		t.Errorf("run %+v", r)
	}
	a.gotSettled(id, 1)
	var states []string
	for len(states) < 3 {
		select {
		case c := <-changes:
			for _, r := range c.Runs {
				if r.RunID == id.String() && r.JobName == "j" {
					states = append(states, r.State)
				}
			}
		case <-time.After(patience):
			t.Fatalf("notified of %v", states)
		}
	}
	if !slices.Equal(states, []string{"queued", "running", "succeeded"}) {
		t.Errorf("notified of %v", states)
	}
}

// After a refusal, the run goes to another instance, as the same attempt. After a temporary refusal, the same instance may
// get the offer again earlier.
func TestRefused(t *testing.T) {
	for _, reason := range []string{wire.RefusedFull, wire.RefusedDraining, wire.RefusedStale, wire.RefusedLease, wire.RefusedNoHandler, "mood"} {
		t.Run(reason, func(t *testing.T) {
			w := newWorld(t, option{})
			a, b := w.join("a", func(p *puppet) { p.refuse = reason }), w.join("b", auto)
			id := w.trigger(w.job("j", func(s *domain.JobSpec) { s.Route = domain.RouteFirst }))
			if r := w.becomes(id, "succeeded"); r.Instance != "b" || r.Attempt != 1 {
				t.Errorf("run %+v", r)
			}
			passes := reason == wire.RefusedFull || reason == wire.RefusedLease || reason == wire.RefusedStale
			first, second := a.offersOf(id), b.offersOf(id)
			if len(first) < 1 || len(first) > 1 && !passes || len(second) != 1 || first[0].Bind != 1 || second[0].Bind != len(first)+1 {
				t.Errorf("offered to a: %+v, to b: %+v", first, second)
			}
		})
	}
}

// An instance that refused gets an offer again when it has room, even if another live instance is full.
func TestRefusedFullComesBack(t *testing.T) {
	w := newWorld(t, option{})
	a, _ := w.join("a", capacity(1)), w.join("b", capacity(0))
	a.set(func() { a.taken = 0; a.refuse = wire.RefusedFull })
	id := w.trigger(w.job("j"))
	a.got(id, 1)
	w.eventually("it waits", func() bool { return w.run(id).Instance == "" })
	a.set(func() { a.refuse = ""; a.auto = true })
	if r := w.becomes(id, "succeeded"); r.Instance != "a" {
		t.Errorf("run %+v", r)
	}
}

// If the roster shows an instance that no longer subscribes, the run is routed again at once.
func TestNoResponders(t *testing.T) {
	w := newWorld(t, option{})
	a, b := w.join("a"), w.join("b", auto)
	a.leave() // its lease is still valid
	id := w.trigger(w.job("j", func(s *domain.JobSpec) { s.Route = domain.RouteFirst }))
	if r := w.becomes(id, "succeeded"); r.Instance != "b" || r.Attempt != 1 {
		t.Errorf("run %+v", r)
	}
	if n := len(b.offersOf(id)); n != 1 {
		t.Errorf("offered %d times", n)
	}
}

// A repeated offer finds no subscriber. The instance may have the run since the first offer and be unreachable for a
// moment. Only a run that was never offered before may go elsewhere.
func TestNoRespondersToAReoffer(t *testing.T) {
	w := newWorld(t, option{quiet: true, still: true})
	a := w.join("a")
	id := w.trigger(w.job("j"))
	r := w.bind(id, a)
	a.leave()
	w.eventually("the server knows it", func() bool {
		_, err := w.nc.Request(wire.TriggerSubject("g", "a"), nil, time.Second)
		return errors.Is(err, nats.ErrNoResponders)
	})
	beats := offer.Beats{peer.BootOf(&r): 1}
	w.sender.Send(t.Context(), []engine.LiveRun{r}, beats, false)
	w.sender.Wait()
	if r := w.run(id); r.State != "queued" || r.Boot != "boot-a" || r.Bind != 1 {
		t.Errorf("after the second offer: %+v", r)
	}
	w.sender.Send(t.Context(), []engine.LiveRun{r}, beats, true)
	w.sender.Wait()
	if r := w.run(id); r.State != "queued" || r.Instance != "" {
		t.Errorf("after a first one: %+v", r)
	}
}

// Another boot answers an offer and has the lease. The run stays bound to the first boot, which may be alive and have
// the offer as well. When the first boot was silent for long enough, the attempt is lost, and the job's policy decides.
func TestAnotherBootAnswers(t *testing.T) {
	w := newWorld(t, option{still: true})
	a := w.join("a")
	id := w.trigger(w.job("j", func(s *domain.JobSpec) { s.Retries = 1 }))
	r := w.bind(id, a)
	a.set(func() { a.boot = "newer" })
	w.eventually("the newer boot has the lease", func() bool { boot, _ := w.roster.Boot("g", "a"); return boot == "newer" })
	w.sender.Answered(t.Context(), peer.BootOf(&r), []engine.LiveRun{r}, &wire.Answer{V: wire.Version, Instance: "a", BootID: "newer"})
	if r := w.run(id); r.State != "queued" || r.Boot != "boot-a" || r.Bind != 1 {
		t.Errorf("when the other boot has answered: run %+v", r)
	}
	w.becomes(id, "retrying/lost")
	if n := len(a.offersOf(id)); n != 0 {
		t.Errorf("offered to the newer boot %d times", n)
	}
}

// Two instances with one name are alive, and the one without the lease answers first. The run stays bound to the boot
// with the lease, because that boot may have accepted it.
func TestTwoOfOneName(t *testing.T) {
	w := newWorld(t, option{quiet: true, still: true})
	a := w.join("a")
	id := w.trigger(w.job("j"))
	r := w.bind(id, a)
	w.sender.Answered(t.Context(), peer.BootOf(&r), []engine.LiveRun{r}, &wire.Answer{V: wire.Version, Instance: "a", BootID: "twin"})
	if r := w.run(id); r.State != "queued" || r.Boot != "boot-a" || r.Bind != 1 {
		t.Errorf("run %+v", r)
	}
}

// The instance has the run, but its answer is lost. The dispatcher asks the instance, and the run stays there.
func TestAnswerLostInstanceKnows(t *testing.T) {
	w := newWorld(t, option{})
	a, b := w.join("a"), w.join("b")
	a.set(func() { a.mute = true })
	id := w.trigger(w.job("j", func(s *domain.JobSpec) { s.Route = domain.RouteFirst }))
	o := a.got(id, 1)
	a.set(func() { a.known[attempt{id.String(), 1}] = wire.StatusRunning })
	if r := w.becomes(id, "running"); r.Instance != "a" || r.Bind != 1 {
		t.Errorf("run %+v", r)
	}
	a.report(o, wire.Succeeded)
	w.becomes(id, "succeeded")
	if len(a.offersOf(id)) != 1 || len(b.offersOf(id)) != 0 {
		t.Errorf("offered %d times, and %d times to another", len(a.offersOf(id)), len(b.offersOf(id)))
	}
}

// The instance never received the offer. The dispatcher offers the run again, to the same boot, with a higher bind.
func TestAnswerLostInstanceDoesNotKnow(t *testing.T) {
	w := newWorld(t, option{})
	a, b := w.join("a"), w.join("b")
	a.set(func() { a.mute = true })
	id := w.trigger(w.job("j", func(s *domain.JobSpec) { s.Route = domain.RouteFirst }))
	a.got(id, 1)
	a.set(func() { a.mute, a.auto = false, true })
	if r := w.becomes(id, "succeeded"); r.Instance != "a" || r.Attempt != 1 {
		t.Errorf("run %+v", r)
	}
	var binds []int
	for _, o := range a.offersOf(id) {
		binds = append(binds, o.Bind)
	}
	if !slices.Equal(binds, []int{1, 2}) || len(b.offersOf(id)) != 0 {
		t.Errorf("rounds %v, and %d offers to another", binds, len(b.offersOf(id)))
	}
	startedOnce(t, a, b)
}

// An instance's report about an earlier bind is no evidence about the current one, whose offer may still be in flight. Such a
// report alone must not send the run to another instance.
func TestOldRefusalFreesNothing(t *testing.T) {
	w := newWorld(t, option{})
	a, b := w.join("a"), w.join("b", auto)
	a.set(func() { a.mute = true })
	id := w.trigger(w.job("j", func(s *domain.JobSpec) { s.Route = domain.RouteFirst }))
	a.got(id, 1)
	a.set(func() { // it refused an earlier bind and receives the current offer late
		a.known[attempt{id.String(), 1}] = wire.StatusRefused
		a.mute, a.auto = false, true
	})
	w.becomes(id, "succeeded")
	if n := len(b.offersOf(id)); n != 0 {
		t.Errorf("offered to another %d times", n)
	}
	if offers := a.offersOf(id); len(offers) != 2 || offers[1].Bind != 2 {
		t.Errorf("offers %+v", offers)
	}
}

// A dispatcher died between bind and offer. The run is bound without an offer, and another dispatcher offers it.
func TestBoundButNeverOffered(t *testing.T) {
	w := newWorld(t, option{still: true})
	a := w.join("a", auto)
	id := w.trigger(w.job("j"))
	w.bind(id, a)
	if r := w.becomes(id, "succeeded"); r.Attempt != 1 {
		t.Errorf("run %+v", r)
	}
	if offers := a.offersOf(id); len(offers) != 1 || offers[0].Bind != 2 {
		t.Errorf("offers %+v", offers)
	}
}

// bind binds a run in Postgres and sends no offer.
func (w *world) bind(id domain.RunID, p *puppet) engine.LiveRun {
	w.t.Helper()
	runs, _, err := w.pg.ClaimNear(w.t.Context(), 1000)
	if err != nil {
		w.t.Fatal(err)
	}
	at := slices.IndexFunc(runs, func(d engine.Due) bool { return d.RunID == id })
	if at < 0 {
		w.t.Fatalf("run %s is not planned", id)
	}
	defs, err := w.pg.Definitions(w.t.Context(), runs[at:at+1])
	if err != nil {
		w.t.Fatal(err)
	}
	out, err := w.pg.Admit(w.t.Context(), []engine.Admission{{
		Due: runs[at], Def: defs.Of(runs[at].JobID, runs[at].JobVersion), Binding: engine.Binding{Instance: p.name, BootID: p.boot, Route: "test"},
	}})
	if err != nil || len(out.Bound) != 1 {
		w.t.Fatalf("bind: %+v, %v", out, err)
	}
	return out.Bound[0]
}

// Answers about an earlier bind change nothing.
func TestLateAnswers(t *testing.T) {
	w := newWorld(t, option{quiet: true, still: true})
	a := w.join("a")
	id := w.trigger(w.job("j"))
	old := w.bind(id, a)
	raised, err := w.pg.RaiseBinds(t.Context(), []engine.LiveRun{old})
	if err != nil || len(raised) != 1 {
		t.Fatal(raised, err)
	}
	b := peer.BootOf(&old)
	refusal := wire.Answer{V: wire.Version, Instance: "a", BootID: "boot-a", Verdicts: []wire.Verdict{{
		RunID: id.String(), Attempt: 1, Verdict: wire.Refused, Reason: wire.RefusedFull,
	}}}
	w.sender.Answered(t.Context(), b, []engine.LiveRun{old}, &refusal)
	other := refusal
	other.BootID = "newer"
	w.sender.Answered(t.Context(), b, []engine.LiveRun{old}, &other)
	unsaid := refusal
	unsaid.Verdicts = []wire.Verdict{{RunID: id.String(), Attempt: 2, Verdict: wire.Refused}, {RunID: "?", Attempt: 1, Verdict: wire.Refused}}
	w.sender.Answered(t.Context(), b, raised, &unsaid)
	// After a repeated offer, another boot's answer frees nothing, because the old boot may have received an earlier
	// offer.
	w.sender.Answered(t.Context(), b, raised, &other)
	if r := w.run(id); r.State != "queued" || r.Instance != "a" || r.Boot != "boot-a" || r.Bind != 2 {
		t.Errorf("run %+v", r)
	}
	// An answer to the current bind frees the run.
	w.sender.Answered(t.Context(), b, raised, &refusal)
	if r := w.run(id); r.Instance != "" || r.Waiting != "a refused: full" {
		t.Errorf("run %+v", r)
	}
}

// The dispatcher ignores an unreadable answer, and an answer of another instance. It asks the instance later.
func TestUnreadableAnswer(t *testing.T) {
	w := newWorld(t, option{})
	a := w.join("a", func(p *puppet) { p.mute = true })
	sub, err := a.nc.Subscribe(wire.TriggerSubject("g", "a"), func(m *nats.Msg) { _ = m.Respond([]byte("garbage")) })
	if err != nil {
		t.Fatal(err)
	}
	id := w.trigger(w.job("j"))
	a.got(id, 1)
	if err := sub.Unsubscribe(); err != nil {
		t.Fatal(err)
	}
	a.set(func() { a.mute, a.auto = false, true })
	if r := w.becomes(id, "succeeded"); r.Attempt != 1 {
		t.Errorf("run %+v", r)
	}
	startedOnce(t, a)
}

// An instance accepted a run and could not start it. The same attempt is routed to another instance.
func TestUnstarted(t *testing.T) {
	w := newWorld(t, option{})
	a, b := w.join("a"), w.join("b", auto)
	id := w.trigger(w.job("j", func(s *domain.JobSpec) { s.Route = domain.RouteFirst }))
	a.report(a.got(id, 1), wire.Unstarted)
	if r := w.becomes(id, "succeeded"); r.Instance != "b" || r.Attempt != 1 {
		t.Errorf("run %+v", r)
	}
	a.gotSettled(id, 1)
	if n := len(b.offersOf(id)); n != 1 {
		t.Errorf("offered %d times to b", n)
	}
}

// An attempt was handed back, settled, and bound to the same boot again. Then its dispatcher died. The instance reports the
// attempt as done, without a result, but that report refers to the previous bind. The attempt is offered again, not lost.
func TestBoundAgainAfterUnstarted(t *testing.T) {
	w := newWorld(t, option{still: true})
	a := w.join("a")
	id := w.trigger(w.job("j"))
	w.bind(id, a)
	k := attempt{id.String(), 1}
	offeredAnew := make(chan struct{}, 10)
	a.set(func() {
		a.auto = true
		a.status = func(r wire.Ref) (wire.Status, bool) {
			return wire.Status{RunID: r.RunID, Attempt: r.Attempt, Status: wire.StatusDone}, a.started[k] == 0
		}
		a.onOffer = func(wire.Offer) { offeredAnew <- struct{}{} }
	})
	if r := w.becomes(id, "succeeded"); r.Attempt != 1 || len(offeredAnew) != 1 {
		t.Errorf("run %+v after %d offers", r, len(offeredAnew))
	}
}
