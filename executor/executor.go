package executor

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/belfryhq/belfry/executor/wire"
)

const (
	// cancelGrace is the time that handlers have to return after a drain has cancelled their contexts.
	cancelGrace = 10 * time.Second
	// flushTimeout bounds the final sending of results and logs while NATS does not take them.
	flushTimeout = 5 * time.Second
	// goodbyeTimeout bounds the removal of the heartbeat at shutdown.
	goodbyeTimeout = 2 * time.Second
)

// Executor is one instance of an executor group. Create it with New.
type Executor struct {
	config   Config
	handlers map[string]*registered
	runners  map[string]ScriptRunner // by language
	now      func() instant
	started  atomic.Bool
	ready    chan struct{}
	instance atomic.Pointer[string]
	engine   atomic.Pointer[engine] // of the current boot; nil before Run
}

// New checks the configuration. The error names every fault. New connects to nothing and writes nothing; Run does.
func New(c Config) (*Executor, error) {
	c, err := c.withDefaults()
	if err != nil {
		return nil, err
	}
	e := &Executor{
		config: c, handlers: make(map[string]*registered), runners: make(map[string]ScriptRunner), now: systemClock(c.Clock),
		ready: make(chan struct{}),
	}
	e.instance.Store(&c.Instance)
	return e, nil
}

// HandleFunc registers a function as a handler. It panics under the same conditions as Handle.
func (e *Executor) HandleFunc(name string, f func(ctx context.Context, run Run) error) {
	if f == nil {
		panic("executor: handler " + name + " is nil")
	}
	e.Handle(name, HandlerFunc(f))
}

// Handle registers a handler under a name. It panics if the name is empty, longer than 128 bytes or already registered,
// if h is nil, or if Run was called. These are programming errors.
func (e *Executor) Handle(name string, h Handler) {
	switch {
	case e.started.Load():
		panic("executor: handler " + name + " is registered after Run was called")
	case name == "" || len(name) > 128:
		panic(fmt.Sprintf("executor: %q cannot name a handler: a name has 1 to 128 bytes", name))
	case h == nil:
		panic("executor: handler " + name + " is nil")
	case e.handlers[name] != nil:
		panic("executor: handler " + name + " is already registered")
	}
	e.handlers[name] = newRegistered(h)
}

// Instance returns the name of this instance. Without Config.Instance, it is empty until Run has chosen a name.
func (e *Executor) Instance() string { return *e.instance.Load() }

// Ready returns a channel that is closed when the instance can take its first run: it is connected, and its first
// heartbeat is confirmed.
func (e *Executor) Ready() <-chan struct{} { return e.ready }

// Status is the state of an instance, for health checks and metrics.
type Status struct {
	Leased bool // the last confirmed heartbeat is recent enough to start runs
	// Unleased is why there is no lease, as far as the instance knows, such as "token refused". It is empty if Leased is true, and before Run.
	Unleased  string
	Draining  bool
	Capacity  int // slots
	Running   int // slots in use: accepted, running, or ended but not in the spool yet
	Unsettled int // results that are not settled yet
	// Unfit is why the instance takes no runs for now, in a word such as out_of_files or spool_full, and UnfitMessage
	// gives details. Both are empty if the instance takes runs. It returns to service by itself.
	Unfit        string
	UnfitMessage string
}

// Status returns the current state of the instance. Before Run is called and after it has returned, Leased is false.
func (e *Executor) Status() Status {
	x := e.engine.Load()
	if x == nil {
		return Status{Capacity: e.config.Capacity}
	}
	x.mu.Lock()
	now := x.now()
	load, over := x.ledger.load(now), x.lease.over(now)
	x.mu.Unlock()
	x.reports.mu.Lock()
	defer x.reports.mu.Unlock()
	s := Status{
		Leased: !over, Draining: load.Draining, Capacity: load.Capacity, Running: load.Running, Unsettled: len(x.reports.pending),
	}
	if over {
		s.Unleased = x.unleased.reason()
	}
	if u := x.unfit(); u != nil {
		s.Unfit, s.UnfitMessage = u.Reason, u.Message
	}
	return s
}

// Run connects, takes runs and reports their results until ctx is cancelled. Then it drains and returns nil. If NATS
// cannot be reached, Run keeps trying.
// Run returns an error in these cases:
//   - Run was called before.
//   - It cannot open the spool, for example because another process uses the same instance name.
//   - Results are neither settled nor on disk.
//   - A handler did not return within 10 s after its context was cancelled. That handler still runs, and Belfry
//     declares its run lost after the lease has expired.
func (e *Executor) Run(ctx context.Context) error {
	if e.started.Swap(true) {
		return errors.New("Run was called before")
	}
	name, spool, left, err := findSpool(e.config.SpoolDir, e.config.Group, e.config.Instance, e.config.Logger)
	if err != nil {
		return spoolError(err)
	}
	e.instance.Store(&name)
	b := e.newBoot(name, spool, left)
	if len(e.runners) > 0 {
		if b.scripts, err = openScripts(filepath.Join(spool.dir, "scripts"), b.log); err != nil {
			return errors.Join(err, spool.close())
		}
	}
	err = b.run(ctx)
	return errors.Join(err, spool.close(), e.closeHandlers(err))
}

// spoolError adds to an error of the spool which setting can fix it.
func spoolError(err error) error {
	if errors.Is(err, errSpoolLocked) {
		return fmt.Errorf("%w: give each process a name of its own (Config.Instance; belfry executor: --instance)", err)
	}
	return fmt.Errorf("%w: the result spool needs a directory (Config.SpoolDir; belfry executor: --spool-dir)", err)
}

// closeHandlers closes every handler that implements io.Closer, unless a handler may still be running.
func (e *Executor) closeHandlers(err error) error {
	var stuck *stuckError
	if errors.As(err, &stuck) {
		return nil
	}
	errs := e.closeRunners()
	for _, name := range e.names() {
		if err := e.handlers[name].close(); err != nil {
			errs = append(errs, fmt.Errorf("close handler %s: %w", name, err))
		}
	}
	return errors.Join(errs...)
}

func (e *Executor) names() []string {
	names := make([]string, 0, len(e.handlers))
	for name := range e.handlers {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

// boot is one call of Run: an engine and its connection.
type boot struct {
	*engine
	link   *link
	drain  time.Duration
	settle time.Duration
}

func (e *Executor) newBoot(name string, s *spool, left []*pending) *boot {
	log := e.config.Logger.With("group", e.config.Group, "instance", name)
	s.log = log
	x := &engine{
		group: e.config.Group, instance: name, boot: randomHex(16), log: log, handlers: e.handlers, runners: e.runners, now: e.now, trace: e.config.Trace, around: e.config.Around,
		reports: newReporter(s, left, e.config.SpoolBytes, log), logs: newLogShipper(log),
		drained: make(chan struct{}), ledger: newLedger(e.config.Capacity), attempts: make(map[attemptKey]*attempt), starter: newStarter(),
	}
	e.engine.Store(x)
	x.work, x.stopWork = context.WithCancelCause(context.Background())
	for _, p := range left {
		x.ledger.restore(attemptKey{p.result.RunID, p.result.Attempt}, p.result.Outcome == wire.Unstarted)
	}
	if len(left) > 0 {
		log.Info("results of an earlier process are in the spool", "results", len(left))
	}
	l := newLink(e.config, x, e.names(), e.languages(), e.ready)
	x.reports.ready, x.reports.publish, x.reports.written = l.ready, l.publishResults, x.spooled
	x.logs.ready, x.logs.publish = l.ready, l.publishLogs
	return &boot{engine: x, link: l, drain: max(e.config.DrainTimeout, 0), settle: max(e.config.SettleTimeout, 0)}
}

// run shuts down in this order: take no more attempts; let handlers finish; send their results and logs; wait until the
// results are settled; remove the heartbeat; refuse the last offers; disconnect. Heartbeats, answers and repeated results continue during the
// wait, so that nothing is declared lost.
func (b *boot) run(ctx context.Context) error {
	// The helpers outlive ctx because draining needs them.
	helpers, stopHelpers := context.WithCancel(context.WithoutCancel(ctx))
	var wg sync.WaitGroup
	wg.Go(func() { b.reports.run(helpers) })
	wg.Go(func() { b.logs.run(helpers) })
	wg.Go(func() { b.drainer(helpers) })

	beats, stopBeats := context.WithCancel(helpers)
	serving, stopServing := context.WithCancel(helpers)
	var beating, answering sync.WaitGroup
	if b.link.connect(ctx) {
		beating.Go(func() { b.link.beat(beats) })
		answering.Go(func() { b.link.serve(serving) })
		<-ctx.Done()
	}
	err := b.shutdown(helpers)
	stopBeats()
	beating.Wait()
	if err == nil {
		left, _ := b.reports.left()
		b.link.goodbye(helpers, left == 0)
	}
	stopServing()
	answering.Wait()
	b.link.lastAnswers()
	b.stop(ErrDrained)
	stopHelpers()
	b.link.close()
	wg.Wait()
	if n, _ := b.reports.left(); n > 0 && b.reports.spool.broken {
		err = errors.Join(err, fmt.Errorf("%d results are neither settled nor on disk", n))
	}
	return err
}

// drainer cancels the running handlers when a drain has lasted for b.drain. It covers drains that the caller or the
// server requested.
func (b *boot) drainer(ctx context.Context) {
	select {
	case <-b.drained:
	case <-ctx.Done():
		return
	}
	b.link.beatNow()
	timer := time.NewTimer(b.drain)
	defer timer.Stop()
	select {
	case <-timer.C:
		b.stop(ErrDrained)
	case <-ctx.Done():
	}
}

// shutdown drains the engine, sends the remaining results and logs, and waits until the results are settled.
func (b *boot) shutdown(ctx context.Context) error {
	b.engine.drain()
	ended := make(chan struct{})
	go func() { b.running.Wait(); close(ended) }()
	patience := time.NewTimer(b.drain + cancelGrace)
	defer patience.Stop()
	var err error
	select {
	case <-ended:
	case <-patience.C:
		if keys := b.unfinished(); len(keys) > 0 {
			err = &stuckError{keys}
			b.log.Error("handlers have not returned after their contexts were cancelled, the process ends without their results", "runs", len(keys), "err", err)
		}
	}
	if connected, _ := b.link.ready(); connected {
		begin := time.Now()
		flush, cancel := context.WithTimeout(ctx, flushTimeout)
		defer cancel()
		b.logs.awaitSent(flush)
		b.reports.awaitSettled(ctx, begin, b.settle)
	}
	if n, _ := b.reports.left(); n > 0 {
		b.log.Warn("not all results are settled, they stay in the spool for the next start", "results", n, "dir", b.reports.spool.dir)
	}
	return err
}

// stuckError names the attempts whose handlers have not returned.
type stuckError struct{ keys []attemptKey }

func (e *stuckError) Error() string {
	var names []string
	for _, k := range e.keys[:min(len(e.keys), 10)] {
		names = append(names, fmt.Sprintf("%s (attempt %d)", k.run, k.attempt))
	}
	return fmt.Sprintf("the handlers of %d runs still run although their contexts were cancelled: %s",
		len(e.keys), strings.Join(names, ", "))
}
