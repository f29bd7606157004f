package executor

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"

	"github.com/belfryhq/belfry/executor/wire"
)

// attempt is an accepted attempt, from the time it takes its slot until its handler has returned. One object holds
// everything that the handler needs, because there may be thousands of attempts per second.
type attempt struct {
	engine  *engine
	key     attemptKey
	entry   *entry   // in the ledger; guarded by the engine's mutex
	run     runState // the handler's Run points to it
	script  *wire.Script
	fence   fence
	startAt time.Duration // on the monotonic clock
	handler *registered
	stop    chan struct{} // only for a script whose code has not arrived: closed if the attempt is stopped first
	begun
	lines  atomic.Pointer[attemptLog] // created with the first line, because most attempts write none
	result *pending                   // set when the attempt begins

	// Guarded by the engine's mutex.
	filed   bool                    // the starter has or had the attempt
	stopped bool                    // the attempt must not start any more: killed, drained or too late
	killed  string                  // the reason of a kill
	cancel  context.CancelCauseFunc // cancels the handler's context; nil until the attempt starts
}

// begun records how an attempt is started when it is due, or why it is not started. It is written under the engine's
// mutex. Afterwards it belongs to the goroutine that performs or reports the attempt.
type begun struct {
	ctx    context.Context
	at     time.Time // when the attempt began, on the database's clock
	called time.Time // the same instant on the monotonic clock, used to advance at
	why    string    // why the attempt may not start; "" if it may
}

func (x *engine) newAttempt(o *wire.Offer, e *entry) *attempt {
	a := &attempt{engine: x, key: attemptKey{o.RunID, o.Attempt}, entry: e, script: o.Script}
	a.run.init(runInfo(o), a)
	if o.Script == nil {
		a.handler = x.handlers[o.Handler]
	} else {
		a.stop = make(chan struct{})
	}
	return a
}

// now returns the time on the database's clock. It dates the handler's log lines and the end of the attempt.
func (a *attempt) now() time.Time { return a.at.Add(time.Since(a.called)) }

// take passes a line of the run's log to the shipper. Only one goroutine at a time calls it.
func (a *attempt) take(l Line) {
	lines := a.lines.Load()
	if lines == nil {
		lines = &attemptLog{key: a.key, ship: a.engine.logs}
		a.lines.Store(lines)
	}
	a.engine.logs.add(lines, wire.LogLine{N: l.N, At: wire.Time{Time: l.At}, Level: l.Level, Text: l.Text})
	a.engine.log.Debug("run log", "run_id", a.key.run, "attempt", a.key.attempt, "n", l.N, "level", l.Level, "text", l.Text)
}

// hold implements journal.
func (a *attempt) hold() {
	if lines := a.lines.Load(); lines != nil {
		lines.hold()
	}
}

// registered is a handler with the state of its optional methods.
type registered struct {
	handler Handler
	ready   atomic.Bool // Init is not needed or has succeeded

	mu sync.Mutex // held while Init runs
}

func newRegistered(h Handler) *registered {
	r := &registered{handler: h}
	_, needsInit := h.(Initializer)
	r.ready.Store(!needsInit)
	return r
}

// init makes the handler ready. Concurrent runs wait until one of them has called Init.
func (h *registered) init(ctx context.Context) error {
	if h.ready.Load() {
		return nil
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.ready.Load() {
		return nil
	}
	if err := h.handler.(Initializer).Init(ctx); err != nil {
		return fmt.Errorf("make the handler ready: %w", err)
	}
	h.ready.Store(true)
	return nil
}

// close closes a handler that implements io.Closer and is ready.
func (h *registered) close() error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if c, ok := h.handler.(io.Closer); ok && h.ready.Load() {
		return c.Close()
	}
	return nil
}

// newResult returns the result of an attempt that ended when it began. The outcome is still empty.
func (x *engine) newResult(a *attempt) *pending {
	return &pending{entry: a.entry, result: wire.Result{
		Instance: x.instance, BootID: x.boot, RunID: a.key.run, Attempt: a.key.attempt, FinishedAt: wire.Time{Time: a.at},
	}}
}

// perform runs the handler and hands its result to the reporter. The slot is freed when the result is in the spool.
// perform has its own goroutine. A handler may end it with runtime.Goexit, so everything after the handler is deferred.
// Up to the call of the handler, the goroutine fits into its first stack, which saves a third of an attempt's CPU time:
// see BenchmarkEngine.
func (x *engine) perform(a *attempt) {
	a.result = x.newResult(a)
	defer x.finish(a)
	defer a.cancel(nil)
	res := &a.result.result
	a.called = time.Now()
	res.StartedAt = wire.Time{Time: a.at}
	x.handle(a, res)
}

// overslept checks the fence directly before the handler is called. If it is too late, overslept reverts the start of
// the attempt. The process may have been frozen while this goroutine waited to run, and Belfry may have given the run
// to another instance.
func (x *engine) overslept(a *attempt, now instant) (why string) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if why = x.tooLate(a, now); why != "" {
		x.ledger.takeBack(a.entry)
	}
	return why
}

// handle runs the handler and fills in the result.
func (x *engine) handle(a *attempt, res *wire.Result) {
	ctx := a.ctx
	timeout := a.run.info.Timeout
	if timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeoutCause(ctx, timeout, ErrTimeout)
		defer cancel()
	}
	run := Run{&a.run}
	var end ending
	defer func() {
		res.FinishedAt = wire.Time{Time: a.now()}
		res.LastLine = run.end()
		res.Output = run.output()
		if lines := a.lines.Load(); lines != nil {
			x.logs.end(lines)
		}
		cause, killed := context.Cause(ctx), ""
		if cause != nil { // a nil cause rules out a kill, because a kill cancels the context
			x.mu.Lock()
			killed = a.killed
			x.mu.Unlock()
		}
		end.describe(cause, killed, timeout, res)
	}()
	x.invoke(ctx, a, run, &end)
}

// ending describes how a call of a handler ended.
type ending struct {
	err      error
	panicked bool
	text     string // the text of err, or the panic with its stack
	late     string // why the handler was not called; the other fields are empty then
}

// invoke makes the handler ready, checks the fence once more and calls the handler. It stores the ending in end, even
// if the handler ends this goroutine.
func (x *engine) invoke(ctx context.Context, a *attempt, run Run, end *ending) {
	returned := false
	defer func() {
		if p := recover(); p != nil {
			*end = ending{panicked: true, text: fmt.Sprintf("panic: %v\n\n%s", p, debug.Stack())}
		} else if !returned {
			*end = ending{panicked: true, text: "the handler called runtime.Goexit"}
		}
	}()
	err := a.handler.init(x.work)
	if err == nil {
		x.at("start")
		if now := x.now(); a.fence.beat == 0 || expired(a.fence.sent, now) { // rarely true, so the usual path takes no mutex
			end.late = x.overslept(a, now)
		}
		if end.late == "" {
			err = x.call(ctx, a.handler.handler, run)
		}
	}
	if err != nil {
		*end = ending{err: err, text: err.Error()}
	}
	returned = true
}

// call calls the handler.
func (x *engine) call(ctx context.Context, h Handler, run Run) error {
	if x.around == nil {
		return h.Handle(ctx, run)
	}
	return x.around(ctx, run, func(ctx context.Context) error { return h.Handle(ctx, run) })
}

// describe writes the ending into a result. cause is why the context was cancelled, or nil. A timeout decides the
// outcome whatever the handler returned. A kill decides it only if the handler did not succeed.
func (e ending) describe(cause error, killed string, timeout time.Duration, res *wire.Result) {
	if e.late != "" {
		res.Outcome, res.Message, res.StartedAt = wire.Unstarted, e.late, wire.Time{}
		return
	}
	text := clean(e.text)
	res.Message = clip(text, MaxMessage)
	if isContextError(e.err) {
		text = "" // it adds nothing to the outcome
	}
	timedOut := errors.Is(cause, ErrTimeout) || killed == reasonTimeout
	switch {
	case e.panicked:
		res.Outcome, res.Reason = wire.Failed, reasonPanic
	case timedOut:
		res.Outcome, res.Reason = wire.Failed, reasonTimeout
		if e.err == nil {
			res.Message = fmt.Sprintf("the timeout of %v had passed when the handler returned without an error", timeout)
		} else {
			res.Message = clip(joinText(fmt.Sprintf("timeout after %v", timeout), text), MaxMessage)
		}
	case e.err == nil:
		res.Outcome = wire.Succeeded
	case killed != "":
		res.Outcome, res.Reason = wire.Cancelled, killed
	default:
		res.Outcome, res.Reason = wire.Failed, ReasonOf(e.err)
		if errors.Is(cause, ErrDrained) {
			res.Reason = reasonDrained
			res.Message = clip(joinText("cancelled because its executor shut down", text), MaxMessage)
		}
	}
	if res.Outcome == wire.Failed && e.err != nil {
		res.Permanent = IsPermanent(e.err)
		if d, ok := RetryDelay(e.err); ok {
			res.RetryAfterMS = d.Milliseconds()
		}
	}
}

// isContextError reports whether err says only that the handler's context was done.
func isContextError(err error) bool {
	for _, done := range []error{ErrTimeout, ErrKilled, ErrDrained, context.Canceled, context.DeadlineExceeded} {
		if errors.Is(err, done) && err.Error() == done.Error() {
			return true
		}
	}
	return false
}

func joinText(what, more string) string {
	if more == "" {
		return what
	}
	return what + ": " + more
}

// The reasons of a result.
const (
	reasonHandler = "handler_error"
	reasonPanic   = "handler_panic"
	reasonTimeout = "timeout"
	reasonDrained = "drained"
	reasonKilled  = "killed"
	reasonCovered = "covered"
)

// finish marks an attempt as ended and hands its result over. The first goroutine also hands over the attempts that end
// while it waits for the engine's mutex. Otherwise hundreds of attempts that end at once would queue for the mutex and
// be woken one by one.
func (x *engine) finish(a *attempt) {
	x.ended.mu.Lock()
	x.ended.attempts = append(x.ended.attempts, a)
	first := len(x.ended.attempts) == 1
	x.ended.mu.Unlock()
	if first {
		x.handOver()
	}
}

// handOver hands over all attempts that have ended.
func (x *engine) handOver() {
	x.mu.Lock()
	ended := x.ended.take()
	results := make([]*pending, len(ended))
	for i, a := range ended {
		res := &a.result.result
		if a.killed != "" && res.Outcome == wire.Unstarted {
			res.Reason = a.killed
		}
		res.Bind = x.ledger.finish(a.entry, res.Outcome)
		delete(x.attempts, a.key)
		results[i] = a.result
	}
	x.reports.add(results...) // before the mutex is released, so that a status request never misses them
	x.mu.Unlock()
	debug := x.log.Enabled(context.Background(), slog.LevelDebug)
	for _, a := range ended {
		if debug {
			x.log.Debug("attempt ended", "run_id", a.key.run, "attempt", a.key.attempt, "job_id", a.run.info.JobID,
				"outcome", a.result.result.Outcome, "reason", a.result.result.Reason)
		}
		x.running.Done()
	}
}

// endings holds the attempts that have ended and are not handed over yet.
type endings struct {
	mu       sync.Mutex // held briefly; taken after the engine's mutex
	attempts []*attempt
}

func (e *endings) take() []*attempt {
	e.mu.Lock()
	defer e.mu.Unlock()
	attempts := e.attempts
	e.attempts = nil
	return attempts
}

func runInfo(o *wire.Offer) RunInfo {
	info := RunInfo{
		ID: o.RunID, JobID: o.JobID, JobName: o.JobName, Group: o.Group, Handler: o.Handler, Param: o.Param,
		Cause: o.Cause, FireTime: o.FireTime.Time, DueAt: o.DueAt.Time, Attempt: o.Attempt,
		ShardIndex: o.Shard.Index, ShardTotal: max(o.Shard.Total, 1),
		Timeout: time.Duration(o.TimeoutMS) * time.Millisecond, Labels: o.Labels,
	}
	if o.Parent != nil {
		info.ParentRunID, info.ParentOutput = o.Parent.RunID, o.Parent.Output
	}
	return info
}
