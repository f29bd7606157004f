package dispatcher

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/belfryhq/belfry/executor/wire"
	"github.com/belfryhq/belfry/internal/domain"
	"github.com/belfryhq/belfry/internal/engine"
	"github.com/belfryhq/belfry/internal/explain"
	"github.com/belfryhq/belfry/internal/store"
)

// An instance dies while it runs an attempt. The attempt is lost, and the job's policy retries it on another instance.
func TestDeadInstance(t *testing.T) {
	w := newWorld(t, option{})
	a, b := w.join("a"), w.join("b")
	first := func(s *domain.JobSpec) { s.Route = domain.RouteFirst }
	once := w.trigger(w.job("once", first))
	twice := w.trigger(w.job("twice", first, func(s *domain.JobSpec) { s.Retries = 1 }))
	a.got(once, 1)
	a.got(twice, 1)
	w.becomes(twice, "running")
	a.die()
	w.becomes(once, "failed/lost")
	b.report(b.got(twice, 2), wire.Succeeded)
	if r := w.becomes(twice, "succeeded"); r.Instance != "b" || r.Attempt != 2 {
		t.Errorf("run %+v", r)
	}
	startedOnce(t, a, b)
}

// A frozen instance continues while the verdict is in progress, and gets a new run at once. The verdict does not apply to
// the new run.
func TestWakesWhileItIsJudged(t *testing.T) {
	for _, when := range []string{"its runs are listed", "its runs are ended"} {
		t.Run(when, func(t *testing.T) {
			f := &fussy{}
			w := newWorld(t, option{wrap: f.wrap})
			a := w.join("a")
			job := w.job("j")
			frozen := w.trigger(job)
			a.got(frozen, 1)
			w.becomes(frozen, "running")
			judged, woken := make(chan struct{}), make(chan struct{})
			pauseOnce := sync.OnceFunc(func() {
				close(judged)
				<-woken
			})
			wake := sync.OnceFunc(func() { close(woken) })
			t.Cleanup(wake)
			a.die()
			f.mu.Lock()
			if when == "its runs are listed" {
				f.listed = pauseOnce
			} else {
				f.settle = func(_ context.Context, ended []engine.Ended) error {
					if ended[0].Reason == domain.ReasonLost {
						pauseOnce()
					}
					return nil
				}
			}
			f.mu.Unlock()
			select {
			case <-judged:
			case <-time.After(patience):
				t.Fatal("it is not judged")
			}
			again := w.join("a") // the same boot
			fresh := w.trigger(job)
			o := again.got(fresh, 1)
			w.becomes(fresh, "running")
			wake()
			w.becomes(frozen, "failed/lost") // lost by the verdict, or because the puppet does not know the run
			w.holds(time.Second, "the new run goes on", func() bool { return w.run(fresh).State == "running" })
			again.report(o, wire.Succeeded)
			w.becomes(fresh, "succeeded")
		})
	}
}

// A retry never goes to the instance that just lost the run if another one qualifies, even if that one is full.
func TestRetryAvoidsWhoLostIt(t *testing.T) {
	both := make(chan struct{}) // closed when both instances that the retry may use have joined
	f := &fussy{settle: func(ctx context.Context, ended []engine.Ended) error {
		if ended[0].Reason == domain.ReasonLost {
			select {
			case <-both:
			case <-ctx.Done():
			}
		}
		return nil
	}}
	w := newWorld(t, option{wrap: f.wrap})
	a := w.join("a")
	id := w.trigger(w.job("j", func(s *domain.JobSpec) { s.Route, s.Retries = domain.RouteFirst, 1 }))
	a.got(id, 1)
	a.die()
	again := w.join("a", func(p *puppet) { p.boot = "newer" })
	b := w.join("b")
	close(both)
	b.got(id, 2)
	if n := len(again.offersOf(id)); n != 0 {
		t.Errorf("offered %d times to the instance that lost it", n)
	}
}

// Another boot of the instance is alive. The results of the old boot that are in its spool are settled, and the other runs
// of the old boot are lost.
func TestRestartedInstance(t *testing.T) {
	w := newWorld(t, option{})
	a := w.join("a")
	job := w.job("j")
	kept, lost := w.trigger(job), w.trigger(job)
	o := a.got(kept, 1)
	a.got(lost, 1)
	a.leave()
	now := wire.Time{Time: time.Now()}
	w.join("a", func(p *puppet) {
		p.boot = "newer"
		p.known[attempt{kept.String(), 1}] = wire.StatusDone
		p.results[attempt{kept.String(), 1}] = wire.Result{
			Instance: "a", BootID: "boot-a", RunID: o.RunID, Attempt: 1, Outcome: wire.Succeeded, Output: "from the spool", StartedAt: now, FinishedAt: now,
		}
	})
	if r := w.becomes(kept, "succeeded"); r.Output != "from the spool" || r.Boot != "boot-a" {
		t.Errorf("run %+v", r)
	}
	w.becomes(lost, "failed/lost")
}

// The instance is alive, but does not know a run that the database has as running on it.
func TestRunningButUnknown(t *testing.T) {
	w := newWorld(t, option{})
	a := w.join("a")
	for _, status := range []string{wire.StatusUnknown, wire.StatusRefused, wire.StatusBarred, wire.StatusDone} {
		id := w.trigger(w.job(status))
		a.got(id, 1)
		w.becomes(id, "running")
		a.set(func() { a.known[attempt{id.String(), 1}] = status })
		w.becomes(id, "failed/lost")
	}
}

// The last result of a dead instance is in the stream when the verdict is due. The result is settled before the verdict.
func TestResultBeforeDeath(t *testing.T) {
	f := &fussy{}
	w := newWorld(t, option{wrap: f.wrap})
	a := w.join("a")
	id := w.trigger(w.job("j"))
	o := a.got(id, 1)
	hold := make(chan struct{})
	f.mu.Lock()
	f.settle = func(ctx context.Context, ended []engine.Ended) error {
		if ended[0].Group == "" {
			return nil // the verdict itself
		}
		select {
		case <-hold:
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	f.mu.Unlock()
	a.report(o, wire.Succeeded)
	w.eventually("the result is in the stream", func() bool { return w.unsettled() == 1 })
	a.die()
	w.holds(3*time.Second, "no verdict", func() bool { return w.run(id).State != "failed" })
	close(hold)
	w.becomes(id, "succeeded")
	if n := w.count(`SELECT count(*) FROM late_results`); n != 0 {
		t.Errorf("%d late results", n)
	}
}

// The result of an attempt that was declared lost is stored with the attempt and changes no state.
func TestResultAfterLost(t *testing.T) {
	w := newWorld(t, option{})
	a := w.join("a")
	id := w.trigger(w.job("j"))
	o := a.got(id, 1)
	a.die()
	w.becomes(id, "failed/lost")
	now := wire.Time{Time: time.Now()}
	w.publish(wire.ResultSubject("g"), wire.Encode(wire.Results{V: 1, Results: []wire.Result{{
		Instance: "a", BootID: "boot-a", RunID: o.RunID, Attempt: 1, Outcome: wire.Succeeded, StartedAt: now, FinishedAt: now,
	}}}))
	w.eventually("it is kept", func() bool { return w.count(`SELECT count(*) FROM late_results WHERE run_id = $1`, id) == 1 })
	if r := w.run(id); r.State != "failed" || r.Reason != "lost" {
		t.Errorf("run %+v", r)
	}
}

// There is no verdict while the instance has its lease or answers.
func TestNoVerdict(t *testing.T) {
	w := newWorld(t, option{})
	leased, answering := w.join("leased"), w.join("answering")
	for _, p := range []*puppet{leased, answering} {
		id, err := w.pg.Trigger(t.Context(), w.job(p.name), domain.Trigger{Cause: domain.CauseManual, Instance: p.name})
		if err != nil {
			t.Fatal(err)
		}
		p.got(id[0], 1)
		w.becomes(id[0], "running")
		defer func() {
			if r := w.run(id[0]); r.State != "running" {
				t.Errorf("%s: run %+v", p.name, r)
			}
		}()
	}
	leased.nc.Close() // the instance does not answer, but the bucket holds its lease
	w.roster.Drop("g", "leased", "boot-leased")
	kv, err := w.js.KeyValue(t.Context(), wire.BucketInstances)
	if err != nil {
		t.Fatal(err)
	}
	for range 30 { // the instance has no lease, but it answers
		if err := kv.Delete(t.Context(), "g.answering"); err != nil {
			t.Fatal(err)
		}
		w.holds(100*time.Millisecond, "leased", func() bool { return true })
	}
}

// Another client keeps writing values that are not heartbeats to the keys of instances. That neither makes the attempts of live instances
// lost, nor postpones the verdicts about dead ones for longer than 15 s.
func TestVerdictsDuringAttack(t *testing.T) {
	w := newWorld(t, option{})
	// The bucket refuses the heartbeats of all instances. One instance only answers pings, one is dead, and one only sends heartbeats, as an
	// executor does that believes that its name is taken.
	var ids []domain.RunID
	var all []*puppet
	for _, name := range []string{"answering", "dead", "beating"} {
		all = append(all, w.join(name, func(p *puppet) { p.handlers = []string{name} }))
	}
	for _, p := range all {
		id := w.trigger(w.job(p.name, func(s *domain.JobSpec) { s.Handler = p.name }))
		p.got(id, 1)
		w.becomes(id, "running")
		ids = append(ids, id)
	}
	all[0].hush()
	all[1].leave()
	all[2].set(func() { all[2].deaf, all[2].refused = true, true })
	begun := time.Now()
	w.eventually("the attempt of the dead instance is lost", func() bool {
		for _, p := range all {
			w.publish("$KV."+wire.BucketInstances+".g."+p.name, []byte(`{"stream":"BELFRY_RESULTS","seq":1}`))
		}
		if w.roster.Silent("g", "dead", "boot-dead", 0, time.Now()) {
			t.Error("the heartbeats that were refused count as silence")
		}
		return w.run(ids[1]).State == "failed"
	})
	if took := time.Since(begun); took < wire.LeaseTTL {
		t.Errorf("lost after %s, when its instance could still start it", took)
	}
	for _, id := range []domain.RunID{ids[0], ids[2]} {
		if r := w.run(id); r.State != "running" {
			t.Errorf("the run of a live instance is %+v", r)
		}
	}
}

func TestStartDeadline(t *testing.T) {
	w := newWorld(t, option{})
	w.join("other", func(p *puppet) { p.handlers = []string{"other"} })
	second := func(s *domain.JobSpec) { s.StartDeadline = domain.Duration(time.Second) }
	short, long := w.trigger(w.job("short", second)), w.trigger(w.job("long"))
	if r := w.becomes(short, "failed/no_executor"); r.Attempt != 1 || r.Message != "no instance of group g that offers echo took it within 1s" ||
		!slices.Equal(r.codes(), []explain.Code{explain.NotTaken}) {
		t.Errorf("run %+v", r)
	}
	if r := w.run(long); r.State != "queued" || r.Waiting == "" {
		t.Errorf("run %+v", r)
	}
	w.join("a", auto)
	w.becomes(long, "succeeded")
}

// After an outage of NATS, start deadlines are enforced only after executors have had time to reconnect.
func TestStartDeadlinePauses(t *testing.T) {
	w := newWorld(t, option{after: time.Hour})
	id := w.trigger(w.job("j", func(s *domain.JobSpec) { s.StartDeadline = domain.Duration(time.Second) }))
	w.becomes(id, "queued")
	w.holds(3*time.Second, "it waits", func() bool { return w.run(id).State == "queued" })
}

// If an instance never reports, its run ends after the timeout and a grace period, and the instance receives a kill
// request.
func TestTimeoutGrace(t *testing.T) {
	w := newWorld(t, option{})
	a := w.join("a")
	limited := func(s *domain.JobSpec) { s.Timeout = domain.Duration(time.Minute) }
	id := w.trigger(w.job("j", limited))
	a.got(id, 1)
	w.exec(`UPDATE runs_live SET give_up_at = now() - interval '1 s' WHERE id = $1`, id)
	if r := w.becomes(id, "failed/timeout"); !slices.Equal(r.codes(), []explain.Code{explain.NoReport}) {
		t.Errorf("run %+v", r)
	}
	w.eventually("the instance receives the kill", func() bool {
		a.mu.Lock()
		defer a.mu.Unlock()
		return len(a.kills) == 1 && a.kills[0].RunID == id.String()
	})
	// If the attempt is done but its result has not arrived, the dispatcher fetches the result from the instance.
	id = w.trigger(w.job("k", limited))
	o := a.got(id, 1)
	now := wire.Time{Time: time.Now()}
	a.set(func() {
		k := attempt{id.String(), 1}
		a.known[k] = wire.StatusDone
		a.results[k] = wire.Result{Instance: "a", BootID: "boot-a", RunID: o.RunID, Attempt: 1, Outcome: wire.Succeeded, FinishedAt: now}
	})
	w.exec(`UPDATE runs_live SET give_up_at = now() - interval '1 s' WHERE id = $1`, id)
	w.becomes(id, "succeeded")
}

// While NATS is unavailable, instances cannot report, and earlier reports may still be in the stream.
func TestNoTimeoutWithoutHearing(t *testing.T) {
	w := newWorld(t, option{after: time.Hour})
	a := w.join("a")
	a.set(func() { a.deaf = true })
	id := w.trigger(w.job("j", func(s *domain.JobSpec) { s.Timeout = domain.Duration(time.Minute) }))
	o := a.got(id, 1)
	w.exec(`UPDATE runs_live SET give_up_at = now() - interval '1 s' WHERE id = $1`, id)
	w.holds(2500*time.Millisecond, "it is not given up", func() bool { s := w.run(id).State; return s == "queued" || s == "running" })
	a.report(o, wire.Succeeded)
	w.becomes(id, "succeeded")
}

// stuck is a store in which queries about group h do not return.
type stuck struct {
	*store.Store
	ended   <-chan struct{}
	waiting atomic.Int32 // queries that wait
}

func (s *stuck) wait(ctx context.Context, group string) {
	if group == "h" {
		s.waiting.Add(1)
		select {
		case <-s.ended:
		case <-ctx.Done():
		}
	}
}

// RunsOf implements verdict.Store.
func (s *stuck) RunsOf(ctx context.Context, b engine.BoundBoot, after domain.RunID, limit int) ([]engine.LiveRun, error) {
	s.wait(ctx, b.Group)
	return s.Store.RunsOf(ctx, b, after, limit)
}

// PastGiveUp implements reconcile.Store.
func (s *stuck) PastGiveUp(ctx context.Context, group string, limit int) ([]engine.LiveRun, error) {
	s.wait(ctx, group)
	return s.Store.PastGiveUp(ctx, group, limit)
}

// The work for one group hangs: the verdict about a dead instance, the questions about running attempts, and the end of overdue runs.
// This delays no other group.
func TestGroupDelaysNoVerdictOfAnother(t *testing.T) {
	hanging := &stuck{ended: t.Context().Done()}
	w := newWorld(t, option{wrap: func(s *stores) {
		hanging.Store = s.pg
		s.Verdict, s.Reconcile = hanging, hanging
	}})
	running := func(group, instance string) (*puppet, domain.RunID) {
		t.Helper()
		p := w.join(instance, func(p *puppet) { p.group, p.handlers = group, []string{instance} })
		id := w.trigger(w.job(instance, func(s *domain.JobSpec) { s.Group, s.Handler = group, instance }))
		p.got(id, 1)
		w.becomes(id, "running")
		return p, id
	}
	overdue := func(id domain.RunID) {
		t.Helper()
		w.exec(`UPDATE runs_live SET give_up_at = now() - interval '1 s' WHERE id = $1`, id)
	}
	dead, _ := running("h", "dead")
	_, late := running("h", "late")
	dead.die()
	overdue(late)
	w.eventually("all work for group h hangs", func() bool { return hanging.waiting.Load() >= 3 })

	a, lost := running("g", "a")
	b, unknown := running("g", "b")
	_, timedOut := running("g", "c")
	a.die()
	b.set(func() { delete(b.known, attempt{unknown.String(), 1}) })
	overdue(timedOut)
	w.becomes(lost, "failed/lost")
	w.becomes(unknown, "failed/lost")
	w.becomes(timedOut, "failed/timeout")
	// Each kind of work asks once about a group: verdicts, also about suspects; running attempts; overdue runs.
	if n := hanging.waiting.Load(); n > 4 {
		t.Errorf("%d queries about group h hang", n)
	}
}
