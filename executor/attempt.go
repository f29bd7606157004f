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

// attempt is an accepted attempt, from its slot being taken until its handler has returned. It is one object with all
// that the handler is given, for there may be thousands of them a second.
type attempt struct {
	engine  *engine
	key     attemptKey
	entry   *entry   // the ledger's, guarded by the engine's mutex
	run     runState // which the handler's Run points to
	script  *wire.Script
	fence   fence
	startAt time.Duration // on the monotonic clock
	handler *registered
	stop    chan struct{} // of a script whose code is to come: closed when it is stopped before
	begun
	lines  atomic.Pointer[attemptLog] // made with the first line, for most attempts write none
	result *pending                   // made when it is begun

	// Guarded by the engine's mutex.
	filed   bool                    // the starter has it, or had it
	stopped bool                    // it is not to start any more: a kill, a drain, no lease when it was due
	killed  string                  // reason of a kill
	cancel  context.CancelCauseFunc // of the handler's context, while it runs
}

// begun says how an attempt is started, when its time has come, or why it is not. It is written with the engine's mutex
// held, and then belongs to the goroutine that performs or reports the attempt.
type begun struct {
	ctx    context.Context
	at     time.Time // when it was begun, on the database's clock
	called time.Time // the same on the monotonic clock, by which at goes on from there
	why    string    // it may not start
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

// now is the database's clock, as the handler's lines and the end of the attempt are dated.
func (a *attempt) now() time.Time { return a.at.Add(time.Since(a.called)) }

// take brings a line of the run's log on its way. It is called by one goroutine at a time.
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

// registered is a handler with what its optional methods need.
type registered struct {
	handler Handler
	ready   atomic.Bool // Init is not needed, or has succeeded

	mu sync.Mutex // held while Init runs
}

func newRegistered(h Handler) *registered {
	r := &registered{handler: h}
	_, needsInit := h.(Initializer)
	r.ready.Store(!needsInit)
	return r
}

// init makes the handler ready. Runs that come meanwhile wait for the one that does it.
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

// close closes a handler that can be closed and was made ready.
func (h *registered) close() error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if c, ok := h.handler.(io.Closer); ok && h.ready.Load() {
		return c.Close()
	}
	return nil
}

// newResult is the result of an attempt that ended when it was begun, with an outcome that is not known yet.
func (x *engine) newResult(a *attempt) *pending {
	return &pending{entry: a.entry, result: wire.Result{
		Instance: x.instance, BootID: x.boot, RunID: a.key.run, Attempt: a.key.attempt, FinishedAt: wire.Time{Time: a.at},
	}}
}

// perform runs the handler and hands its result to the reporter. The slot is given back when the result is in the spool.
// It has a goroutine of its own, which a handler may end by runtime.Goexit: what follows the handler is deferred. Up to the
// handler it fits into a goroutine's first stack, which saves a third of an attempt's CPU: BenchmarkEngine shows it.
func (x *engine) perform(a *attempt) {
	a.result = x.newResult(a)
	defer x.finish(a)
	defer a.cancel(nil)
	res := &a.result.result
	a.called = time.Now()
	res.StartedAt = wire.Time{Time: a.at}
	x.handle(a, res)
}

// overslept looks at the fence directly before the handler is called, and takes back that the attempt was started if it is
// too late: the process may have been frozen while this goroutine waited for its turn, and by now the run may have been
// given away.
func (x *engine) overslept(a *attempt, now instant) (why string) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if why = x.tooLate(a, now); why != "" {
		x.ledger.takeBack(a.entry)
	}
	return why
}

// handle runs the handler and fills in what came of it.
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
		if cause != nil { // else it was not killed: a kill cancels the context
			x.mu.Lock()
			killed = a.killed
			x.mu.Unlock()
		}
		end.describe(cause, killed, timeout, res)
	}()
	x.invoke(ctx, a, run, &end)
}

// ending is how a call of a handler ended.
type ending struct {
	err      error
	panicked bool
	text     string // of err, or the panic with its stack
	late     string // why the handler was not called; the rest is empty then
}

// invoke makes the handler ready, looks at the fence once more and calls the handler. It says in end how that ended, also
// where the handler ends this goroutine.
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
		if now := x.now(); a.fence.beat == 0 || expired(a.fence.sent, now) { // hardly ever: so there is no mutex on the way
			end.late = x.overslept(a, now)
		}
		if end.late == "" {
			err = a.handler.handler.Handle(ctx, run)
		}
	}
	if err != nil {
		*end = ending{err: err, text: err.Error()}
	}
	returned = true
}

// describe puts the ending into a result. cause is why the context was cancelled, if it was; a timeout counts
// whatever the handler returned, a kill only where it did not still succeed.
func (e ending) describe(cause error, killed string, timeout time.Duration, res *wire.Result) {
	if e.late != "" {
		res.Outcome, res.Message, res.StartedAt = wire.Unstarted, e.late, wire.Time{}
		return
	}
	text := clean(e.text)
	res.Message = clip(text, MaxMessage)
	if isContextError(e.err) {
		text = "" // it says no more than the outcome does
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

// isContextError reports whether err says that the handler's context was done, and nothing else.
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

// finish marks an attempt as ended and hands its result over. Who comes first does that for all that come while it waits
// for the engine's mutex: else hundreds that end at once would queue for it, and be woken one by one.
func (x *engine) finish(a *attempt) {
	x.ended.mu.Lock()
	x.ended.attempts = append(x.ended.attempts, a)
	first := len(x.ended.attempts) == 1
	x.ended.mu.Unlock()
	if first {
		x.handOver()
	}
}

// handOver takes the attempts that have ended.
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
	x.reports.add(results...) // before the mutex is given back, so that status never misses them
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

// endings is the attempts that have ended and are not handed over yet.
type endings struct {
	mu       sync.Mutex // held for a moment; taken after the engine's
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
		Timeout: time.Duration(o.TimeoutMS) * time.Millisecond,
	}
	if o.Parent != nil {
		info.ParentRunID, info.ParentOutput = o.Parent.RunID, o.Parent.Output
	}
	return info
}
