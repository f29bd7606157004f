package dispatcher

import (
	"context"
	"slices"
	"strings"
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

func TestFailedIsRetriedThenFinal(t *testing.T) {
	w := newWorld(t, option{})
	a := w.join("a")
	id := w.trigger(w.job("j", func(s *domain.JobSpec) { s.Retries = 1 }))
	a.report(a.got(id, 1), wire.Failed)
	a.report(a.got(id, 2), wire.Failed, func(r *wire.Result) { r.Message = "again" })
	if r := w.becomes(id, "failed/handler_error"); r.Attempt != 2 || r.Message != "again" {
		t.Errorf("run %+v", r)
	}
	if n := w.count(`SELECT count(*) FROM run_attempts WHERE run_id = $1`, id); n != 1 {
		t.Errorf("%d earlier attempts are kept", n)
	}
	startedOnce(t, a)
}

func TestPermanentAndRetryAfter(t *testing.T) {
	w := newWorld(t, option{})
	a := w.join("a")
	job := w.job("j", func(s *domain.JobSpec) {
		s.Retries = 5
		s.RetryBackoff = domain.RetryBackoff{Initial: domain.Duration(time.Hour), Factor: 2, Max: domain.Duration(time.Hour)}
	})
	id := w.trigger(job)
	a.report(a.got(id, 1), wire.Failed, func(r *wire.Result) { r.RetryAfterMS = 1 })
	a.report(a.got(id, 2), wire.Failed, func(r *wire.Result) { r.Permanent = true })
	if r := w.becomes(id, "failed"); r.Attempt != 2 {
		t.Errorf("run %+v", r)
	}
}

func TestResultRepeated(t *testing.T) {
	w := newWorld(t, option{})
	a := w.join("a")
	id := w.trigger(w.job("j"))
	o := a.got(id, 1)
	a.report(o, wire.Succeeded)
	w.becomes(id, "succeeded")
	a.gotSettled(id, 1)
	a.report(o, wire.Succeeded)
	w.eventually("each repeated result is notified as settled", func() bool {
		a.mu.Lock()
		defer a.mu.Unlock()
		return a.settled[attempt{id.String(), 1}] >= 2
	})
	if r := w.run(id); r.State != "succeeded" {
		t.Errorf("run %+v", r)
	}
	if n := w.count(`SELECT count(*) FROM late_results`); n != 0 {
		t.Errorf("%d late results", n)
	}
}

// A message that cannot be processed is set aside once, with its reason, and is not delivered again.
func TestDeadLetters(t *testing.T) {
	w := newWorld(t, option{})
	a := w.join("a")
	good := func(edit ...func(*wire.Result)) []byte {
		now := wire.Time{Time: time.Now()}
		r := wire.Result{
			Instance: "a", BootID: "boot-a", RunID: domain.NewRunID(time.Now()).String(), Attempt: 1, Outcome: wire.Succeeded, FinishedAt: now,
		}
		for _, e := range edit {
			e(&r)
		}
		return wire.Encode(wire.Results{V: wire.Version, Results: []wire.Result{r}})
	}
	for _, tt := range []struct {
		name string
		data []byte
		why  string
	}{
		{"garbage", []byte("garbage"), "decode"},
		{"nothing", nil, "decode"},
		{"large garbage", []byte(strings.Repeat("x", 900<<10)), "decode"},
		{"unknown version", wire.Encode(wire.Results{V: 7}), "version 7"},
		{"no version", []byte(`{"results":[]}`), "version 0"},
		{"unknown run", good(), "unknown_run"},
		{"no run id", good(func(r *wire.Result) { r.RunID = "x" }), "run_id"},
		{"unknown outcome", good(func(r *wire.Result) { r.Outcome = "maybe" }), "is not known"},
		{"not an executor's outcome", good(func(r *wire.Result) { r.Outcome = "skipped" }), "an executor cannot report"},
		{"no instance", good(func(r *wire.Result) { r.Instance = "" }), "out of range"},
		{"an instance that is a wildcard", good(func(r *wire.Result) { r.Instance = ">" }), "out of range"},
		{"no boot", good(func(r *wire.Result) { r.BootID = "" }), "out of range"},
		{"attempt 0", good(func(r *wire.Result) { r.Attempt = 0 }), "out of range"},
		{"an attempt beyond all bounds", good(func(r *wire.Result) { r.Attempt = 1<<32 + 1 }), "out of range"},
		{"no end", good(func(r *wire.Result) { r.FinishedAt = wire.Time{} }), "finished_at"},
		{"too many", wire.Encode(wire.Results{V: 1, Results: make([]wire.Result, wire.MaxResults*10+1)}), "at most"},
	} {
		before := len(w.letters("result"))
		w.publish(wire.ResultSubject("g"), tt.data)
		w.eventually(tt.name+" is set aside", func() bool { return len(w.letters("result")) > before })
		letters := w.letters("result")
		if len(letters) != before+1 || !strings.Contains(letters[before], tt.why) || !strings.Contains(letters[before], "belfry.v1.result.g") {
			t.Errorf("%s: %d letters: %.300s", tt.name, len(letters)-before, letters[len(letters)-1])
		}
	}
	w.eventually("all are acknowledged", func() bool { return w.unsettled() == 0 })
	// An executor of another group reports the end of this group's run.
	id := w.trigger(w.job("j"))
	o := a.got(id, 1)
	before := len(w.letters("result"))
	w.publish(wire.ResultSubject("h"), good(func(r *wire.Result) { r.RunID = id.String() }))
	w.eventually("it is set aside", func() bool { return len(w.letters("result")) == before+1 })
	if l := w.letters("result")[before]; !strings.Contains(l, "wrong_group") {
		t.Errorf("letter %s", l)
	}
	a.report(o, wire.Succeeded)
	w.becomes(id, "succeeded")
}

// An invalid heartbeat is set aside once, whichever dispatcher reads it.
func TestMalformedHeartbeatIsSetAside(t *testing.T) {
	w := newWorld(t, option{})
	w.join("a")
	w.publish(wire.InstanceSubject("g.odd"), []byte(`{"v":7}`))
	w.eventually("it is set aside", func() bool { return len(w.letters("heartbeat")) > 0 })
	w.publish(wire.InstanceSubject("g.odd"), []byte(`{"v":8}`))
	w.publish(wire.InstanceSubject("g.other"), []byte(`garbage`))
	w.eventually("so is another's", func() bool { return len(w.letters("heartbeat")) > 1 })
	letters := w.letters("heartbeat")
	if len(letters) != 2 || !strings.Contains(letters[0], "version 7") || !strings.Contains(letters[1], "$KV.belfry_instances.g.other") {
		t.Errorf("letters %s", letters)
	}
}

// A malformed result does not block the other results in its message.
func TestOneBadResultOfMany(t *testing.T) {
	w := newWorld(t, option{})
	a := w.join("a")
	ids, offers := w.offered(a, 3)
	a.set(func() {
		a.deaf = true // otherwise the dispatcher could get the result by asking the instance
		a.send(offers, wire.Succeeded, func(r *wire.Result) {
			if r.RunID == ids[1].String() {
				r.FinishedAt = wire.Time{}
			}
		})
	})
	w.becomes(ids[0], "succeeded")
	w.becomes(ids[2], "succeeded")
	w.eventually("the bad one is set aside", func() bool { return len(w.letters("result")) == 1 })
	a.report(offers[1], wire.Succeeded)
	w.becomes(ids[1], "succeeded")
}

// fussy is a store whose calls the test can make fail.
type fussy struct {
	*store.Store
	mu     sync.Mutex
	settle func(ctx context.Context, ended []engine.Ended) error // called before the real Settle
	after  func() error                                          // replaces the success of settle
	listed func()                                                // called before the runs of a boot are listed
	bind   func()                                                // called before an attempt is bound or bound again
}

func (f *fussy) wrap(s *stores) {
	f.Store = s.pg
	s.Fire, s.Settle, s.Verdict = f, f, f
}

func (f *fussy) Admit(ctx context.Context, in []engine.Admission) (engine.Admitted, error) {
	f.binds()
	return f.Store.Admit(ctx, in)
}

func (f *fussy) RaiseBinds(ctx context.Context, runs []engine.LiveRun) ([]engine.LiveRun, error) {
	f.binds()
	return f.Store.RaiseBinds(ctx, runs)
}

func (f *fussy) binds() {
	f.mu.Lock()
	bind := f.bind
	f.mu.Unlock()
	if bind != nil {
		bind()
	}
}

func (f *fussy) RunsOf(ctx context.Context, b engine.BoundBoot, after domain.RunID, limit int) ([]engine.LiveRun, error) {
	f.mu.Lock()
	listed := f.listed
	f.mu.Unlock()
	if listed != nil {
		listed()
	}
	return f.Store.RunsOf(ctx, b, after, limit)
}

func (f *fussy) Settle(ctx context.Context, ended []engine.Ended) (engine.SettleResult, error) {
	f.mu.Lock()
	before, after := f.settle, f.after
	f.mu.Unlock()
	if before != nil {
		if err := before(ctx, ended); err != nil {
			return engine.SettleResult{}, err
		}
	}
	out, err := f.Store.Settle(ctx, ended)
	if err == nil && after != nil {
		if err := after(); err != nil {
			return engine.SettleResult{}, err
		}
	}
	return out, err
}

// A result that Postgres rejects is found by halving the batch. The other results are settled, and the run of the rejected result
// ends without it.
func TestPoisonIsBisected(t *testing.T) {
	f := &fussy{settle: func(_ context.Context, ended []engine.Ended) error {
		for _, e := range ended {
			if strings.Contains(e.Output, "poison") {
				return domain.NewError(domain.Invalid, "a value is not allowed")
			}
		}
		return nil
	}}
	w := newWorld(t, option{wrap: f.wrap})
	a := w.join("a")
	ids, offers := w.offered(a, 9)
	a.set(func() {
		a.send(offers, wire.Succeeded, func(r *wire.Result) {
			if r.Output = "fine"; r.RunID == ids[4].String() {
				r.Output = "poison"
			}
		})
	})
	for i, id := range ids {
		want := "fine"
		if i == 4 {
			want = ""
		}
		if r := w.becomes(id, "succeeded"); r.Output != want || slices.Equal(r.codes(), []explain.Code{explain.ResultRefused}) != (i == 4) {
			t.Errorf("run %d: %+v", i, r)
		}
		a.gotSettled(id, 1)
	}
	if letters := w.letters("result"); len(letters) != 1 || !strings.Contains(letters[0], ids[4].String()) {
		t.Errorf("letters %v", letters)
	}
}

// No transient error, of any kind, loses a result.
func TestPassingErrorsLoseNothing(t *testing.T) {
	for _, code := range []domain.Code{domain.Unavailable, domain.Internal, domain.Conflict} {
		t.Run(string(code), func(t *testing.T) {
			var failed atomic.Int32
			f := &fussy{}
			w := newWorld(t, option{wrap: f.wrap})
			a := w.join("a")
			id := w.trigger(w.job("j"))
			o := a.got(id, 1)
			f.mu.Lock()
			f.settle = func(context.Context, []engine.Ended) error {
				if failed.Add(1) <= 4 {
					return domain.NewError(code, "not now")
				}
				return nil
			}
			f.mu.Unlock()
			a.report(o, wire.Succeeded, func(r *wire.Result) { r.Output = "precious" })
			w.eventually("settling has failed", func() bool { return failed.Load() > 0 })
			if code == domain.Unavailable {
				if n := w.unsettled(); n != 1 && failed.Load() <= 4 {
					t.Errorf("%d messages are unacknowledged before the commit", n)
				}
			}
			if r := w.becomes(id, "succeeded"); r.Output != "precious" {
				t.Errorf("run %+v", r)
			}
			a.gotSettled(id, 1)
			w.eventually("it is acknowledged", func() bool { return w.unsettled() == 0 })
			if l := w.letters("result"); len(l) != 0 {
				t.Errorf("letters %v", l)
			}
		})
	}
}

// The commit succeeded, but its confirmation was lost. Settling again changes nothing, and the executor is notified.
func TestCommitOfUnknownOutcome(t *testing.T) {
	var once sync.Once
	f := &fussy{}
	w := newWorld(t, option{wrap: f.wrap})
	a := w.join("a")
	child := w.job("child")
	id := w.trigger(w.job("j", func(s *domain.JobSpec) { s.Children = []domain.Child{{JobID: child, On: domain.OnSuccess}} }))
	o := a.got(id, 1)
	f.mu.Lock()
	f.after = func() (err error) {
		once.Do(func() { err = domain.NewError(domain.Unavailable, "the connection broke") })
		return err
	}
	f.mu.Unlock()
	a.report(o, wire.Succeeded)
	a.gotSettled(id, 1)
	w.becomes(id, "succeeded")
	if got := w.ups.children(); len(got) != 1 {
		t.Errorf("children %v", got)
	}
}

// A dispatcher that stops settles the results that it has fetched, and leaves the rest to the next one.
func TestEndLosesNoResult(t *testing.T) {
	w := newWorld(t, option{})
	a := w.join("a", auto, capacity(1000))
	job := w.job("j")
	var ids []domain.RunID
	for range 300 {
		ids = append(ids, w.trigger(job))
	}
	w.eventually("some have ended", func() bool { return w.count(`SELECT count(*) FROM runs_history`) > 20 })
	w.restart()
	for _, id := range ids {
		if r := w.becomes(id, "succeeded"); r.Attempt != 1 {
			t.Errorf("run %+v", r)
		}
	}
	startedOnce(t, a)
}
