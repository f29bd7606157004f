package sim

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/belfryhq/belfry/dispatcher"
	"github.com/belfryhq/belfry/dispatcher/intake"
	"github.com/belfryhq/belfry/executor"
	"github.com/belfryhq/belfry/internal/domain"
	"github.com/belfryhq/belfry/internal/lifecycle"
	"github.com/belfryhq/belfry/internal/natsinfra"
	"github.com/belfryhq/belfry/internal/sim/simnats"
	"github.com/belfryhq/belfry/scheduler"
)

const natsURL = "nats://127.0.0.1:4222"

type role string

const (
	schedulerRole  role = "scheduler"
	dispatcherRole role = "dispatcher"
	executorRole   role = "executor"
)

// node is a place in the cluster. One process runs on it after another.
type node struct {
	w     *World
	name  string
	role  role
	group string // only for executors

	mu         sync.Mutex
	current    *process // nil while the node is down
	processes  []*process
	trouble    []span                  // when the node was down, frozen or cut off
	diskLostAt []time.Time             // when the node lost its disk
	trapped    atomic.Pointer[process] // the process that has a trap
}

// span is a period in which a node was down, frozen or cut off.
type span struct {
	from, to time.Time // to is zero until the trouble ends
	what     string    // down, frozen or cut off
}

// process is one process of a node.
type process struct {
	*node
	title  string // the node's name and the number of the process, for example d1#2
	link   *simnats.Link
	store  *faultyStore
	spool  string
	firing atomic.Pointer[dispatcher.Firing] // nil until a scheduler or dispatcher has started

	dead        chan struct{} // closed when the process has crashed or ended
	deadOnce    sync.Once
	diedAt      atomic.Int64 // the time of the crash in Unix nanoseconds, 0 without a crash
	stop        context.CancelFunc
	done        chan struct{} // closed when the goroutines of the process have ended
	frozenUntil atomic.Int64  // in Unix nanoseconds
	wasFrozen   atomic.Bool
	trap        atomic.Pointer[trap]
}

// trap crashes or freezes a process at a point. A point is a place in its code, or a message on its link.
type trap struct {
	point  string
	disk   bool          // the crash destroys the disk
	freeze time.Duration // if positive, the process freezes and does not crash
	also   func()        // if set, called when the process freezes
	skip   atomic.Int64  // how often the process reaches the point before the trap springs
}

// process returns the process that runs on the node, or nil.
func (n *node) process() *process {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.current
}

// start starts a new process on the node, if none runs.
func (n *node) start() {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.current != nil {
		return
	}
	first := len(n.processes) == 0
	p := &process{
		node: n, title: fmt.Sprintf("%s#%d", n.name, len(n.processes)+1), link: n.w.nats.Link(n.name),
		dead: make(chan struct{}), done: make(chan struct{}),
	}
	p.spool = filepath.Join(n.w.dir, p.title)
	p.store = &faultyStore{p: p, Store: n.w.db.Store()}
	if !first {
		n.copySpool(p.spool)
	}
	ctx, cancel := context.WithCancel(context.Background())
	p.stop = cancel
	n.current = p
	n.processes = append(n.processes, p)
	n.endTroubleLocked("down")
	n.w.event(n.name, "starts")
	go func() {
		defer close(p.done)
		if n.role == executorRole {
			p.runExecutor(ctx)
		} else {
			p.runRole(ctx)
		}
	}()
}

// copySpool copies the files that the previous process left on disk.
func (n *node) copySpool(to string) {
	from := filepath.Join(n.w.dir, "disk-"+n.name)
	if err := os.CopyFS(to, os.DirFS(from)); err != nil && !os.IsNotExist(err) {
		n.w.fail("copy the spool of %s: %v", n.name, err)
	}
}

// saveSpool saves the current content of an executor's disk for the next process.
func (p *process) saveSpool() {
	if p.role != executorRole {
		return
	}
	to := filepath.Join(p.w.dir, "disk-"+p.name)
	if err := os.RemoveAll(to); err != nil {
		p.w.fail("clear the disk of %s: %v", p.name, err)
	}
	if err := os.CopyFS(to, os.DirFS(p.spool)); err != nil && !os.IsNotExist(err) {
		p.w.fail("keep the spool of %s: %v", p.name, err)
	}
}

// loseSpool deletes what saveSpool has saved.
func (p *process) loseSpool() {
	if err := os.RemoveAll(filepath.Join(p.w.dir, "disk-"+p.name)); err != nil {
		p.w.fail("lose the disk of %s: %v", p.name, err)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.diskLostAt = append(p.diskLostAt, time.Now())
}

// beginTrouble records that the node is down, frozen or cut off from now on.
func (n *node) beginTrouble(what string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.trouble = append(n.trouble, span{from: time.Now(), what: what})
}

// endTrouble records that the node is no longer down, frozen or cut off.
func (n *node) endTrouble(what string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.endTroubleLocked(what)
}

func (n *node) endTroubleLocked(what string) {
	for i := range n.trouble {
		if s := &n.trouble[i]; s.what == what && s.to.IsZero() {
			s.to = time.Now()
		}
	}
}

// isDead reports whether the process has crashed or ended. A dead process has no effect on the cluster.
func (p *process) isDead() bool {
	select {
	case <-p.dead:
		return true
	default:
		return false
	}
}

// crash ends the process at once, with everything that it holds in memory. The process may call it itself. With disk, its disk is
// lost too.
func (p *process) crash(why string, disk bool) {
	p.deadOnce.Do(func() {
		p.diedAt.Store(time.Now().UnixNano())
		close(p.dead)
		p.w.handlers.crashed(p)
		p.link.Kill()
		p.saveSpool()
		if disk {
			p.loseSpool()
			why += ", with its disk"
		}
		p.beginTrouble("down")
		p.leaveNode()
		p.w.event(p.name, "crashes: "+why)
		p.stop()
	})
}

// leave stops the process in order and waits for its end.
func (p *process) leave() {
	p.beginTrouble("down")
	p.w.event(p.name, "is stopped")
	p.stop()
	<-p.done
	p.deadOnce.Do(func() {
		close(p.dead)
		p.link.Kill()
		p.saveSpool()
		p.leaveNode()
		p.w.event(p.name, "has ended")
	})
}

// leaveNode makes room for the next process.
func (p *process) leaveNode() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.current = nil
}

// freeze stops the process's messages and store calls for a while.
func (p *process) freeze(d time.Duration) {
	p.wasFrozen.Store(true)
	p.frozenUntil.Store(time.Now().Add(d).UnixNano())
	p.beginTrouble("frozen")
	p.link.Freeze(true)
	time.Sleep(d)
	p.link.Freeze(false)
	p.endTrouble("frozen")
}

// awaitThaw waits while the process is frozen.
func (p *process) awaitThaw() {
	for {
		d := time.Until(time.Unix(0, p.frozenUntil.Load()))
		if d <= 0 || p.isDead() {
			return
		}
		time.Sleep(min(d, 50*time.Millisecond)) // in small steps, because heal ends a freeze early
	}
}

// reach springs the trap of the process if it is set for this point.
func (p *process) reach(point string) {
	t := p.trap.Load()
	if t == nil || t.point != point || t.skip.Add(-1) >= 0 {
		return
	}
	if !p.trap.CompareAndSwap(t, nil) {
		return
	}
	if t.freeze == 0 {
		p.crash("at "+point, t.disk)
		return
	}
	p.w.event("nemesis", fmt.Sprintf("freezes %s for %s at %s", p.title, t.freeze, point))
	p.frozenUntil.Store(time.Now().Add(t.freeze).UnixNano()) // set before reach returns, because the caller then waits for the end of the freeze
	p.w.nemesis.steps.Go(func() { p.freeze(t.freeze) })
	if t.also != nil {
		p.w.nemesis.steps.Go(t.also)
	}
}

func (p *process) natsOptions() []nats.Option {
	return []nats.Option{
		nats.SetCustomDialer(p.link), nats.Name(p.title), nats.MaxReconnects(-1), nats.ReconnectBufSize(-1), nats.RetryOnFailedConnect(true),
		nats.ReconnectWait(100 * time.Millisecond), nats.ReconnectJitter(200*time.Millisecond, 200*time.Millisecond),
		nats.PingInterval(2 * time.Second), nats.MaxPingsOutstanding(2), nats.IgnoreAuthErrorAbort(),
	}
}

// runRole runs a scheduler or a dispatcher with the same parts as package app.
func (p *process) runRole(ctx context.Context) {
	nc, err := nats.Connect(natsURL, p.natsOptions()...)
	if err != nil {
		p.w.fail("%s: connect: %v", p.title, err)
		return
	}
	defer nc.Close()
	var bounds intake.Bounds
	if p.w.plan.narrow {
		bounds.GroupBytes = 1 // one message
	}
	d, err := dispatcher.NewFiring(dispatcher.Config{
		Stores: dispatcher.Stores{Announce: p.store, Settle: p.store, Offer: p.store, Kill: p.store, Fire: p.store},
		Conn:   nc, Bounds: bounds, Log: p.w.logger(p.title), Trace: func(point string) {
			p.reach(point)
			p.awaitThaw()
		},
	})
	if err != nil {
		p.w.fail("%s: %v", p.title, err)
		return
	}
	p.firing.Store(d)
	parts := []func(context.Context) error{
		func(ctx context.Context) error { return p.keepStreams(ctx, nc) },
		p.keepClock,
		func(ctx context.Context) error {
			return scheduler.New(scheduler.Config{Store: p.store, Firer: d, Log: p.w.logger(p.title)}).Run(ctx)
		},
	}
	if p.role == dispatcherRole {
		parts[len(parts)-1] = dispatcher.NewRole(d, dispatcher.RoleStores{
			Assign: p.store, Verdict: p.store, Reconcile: p.store, Upkeep: p.store, Glance: p.store,
		}).Run
		parts = append(parts, p.workFollowUps)
	}
	watching, stopWatching := context.WithCancel(context.Background())
	defer stopWatching()
	var watch, work sync.WaitGroup
	run := func(wg *sync.WaitGroup, ctx context.Context, f func(context.Context) error) {
		wg.Go(func() {
			if err := f(ctx); err != nil {
				p.w.fail("%s: %v", p.title, err)
			}
		})
	}
	run(&watch, watching, d.Watch)
	select {
	case <-d.Ready():
	case <-ctx.Done():
	}
	for _, part := range parts {
		run(&work, ctx, part)
	}
	<-ctx.Done()
	if p.isDead() {
		nc.Close() // ends the waits for answers, which a dead process does not receive
	}
	work.Wait()
	stopWatching()
	watch.Wait()
}

// keepClock reads the database's clock, less often than the product does, so that a wrong estimate lasts.
func (p *process) keepClock(ctx context.Context) error {
	for lifecycle.Pause(ctx, 10*time.Second) {
		_ = p.store.SyncClock(ctx) // if this fails, the next reading comes soon
	}
	return nil
}

// keepStreams creates the streams at the start and after each reconnection.
func (p *process) keepStreams(ctx context.Context, nc *nats.Conn) error {
	js, err := jetstream.New(nc)
	if err != nil {
		return err
	}
	back := nc.StatusChanged(nats.CONNECTED)
	defer nc.RemoveStatusListener(back)
	for {
		retry := time.Minute
		if err := natsinfra.Ensure(ctx, js, 1); err != nil {
			retry = time.Second
		}
		select {
		case <-ctx.Done():
			return nil
		case <-back:
		case <-time.After(retry):
		}
	}
}

// workFollowUps processes retries and children like River: each at least once, with its effect and its completion in one
// transaction, and sometimes after a long delay.
func (p *process) workFollowUps(ctx context.Context) error {
	for ctx.Err() == nil {
		p.w.working.Add(1)
		u, ok := p.w.db.TakeFollowUp()
		if !ok {
			p.w.working.Add(-1)
			select {
			case <-ctx.Done():
			case <-time.After(p.w.dice.between(20*time.Millisecond, 500*time.Millisecond)):
			}
			continue
		}
		again := p.w.dice.chance(0.05)
		if p.w.dice.chance(0.02) {
			select {
			case <-ctx.Done():
			case <-time.After(20 * time.Second):
			}
		}
		var err error
		if u.Retry {
			_, err = p.store.Replan(ctx, []domain.RunID{u.RunID}, []int{u.Attempt})
		} else {
			err = p.store.PlanChild(ctx, u.RunID, u.ChildJob, u.EndedAt)
		}
		if err != nil || again {
			p.w.db.ReturnFollowUp(u)
		}
		p.w.working.Add(-1)
	}
	return nil
}

// runExecutor runs an instance.
func (p *process) runExecutor(ctx context.Context) {
	e, err := executor.New(executor.Config{
		NATSURL: natsURL, Group: p.group, Instance: p.name, Capacity: p.w.plan.capacity, SpoolDir: p.spool, DrainTimeout: 2 * time.Second,
		Logger: p.w.logger(p.title), NATSOptions: []nats.Option{nats.SetCustomDialer(p.link)},
		Clock: time.Now, // of the bubble; by default the executor also reads a clock of the machine
		Trace: func(point string) {
			p.reach(point)
			p.awaitThaw()
		},
	})
	if err != nil {
		p.w.fail("%s: %v", p.title, err)
		return
	}
	e.HandleFunc(handlerName, p.handle)
	e.RegisterScripts(scripts{p}, scriptLanguage)
	// After a freeze, the drain may end before the handlers do, which Run reports. It also does if a handler ignores the end of
	// its context.
	if err := e.Run(ctx); err != nil && !p.isDead() && !p.wasFrozen.Load() && !p.w.plan.rolling {
		p.w.fail("%s: %v", p.title, err)
	}
}
