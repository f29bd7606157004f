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
	"github.com/belfryhq/belfry/executor"
	"github.com/belfryhq/belfry/internal/domain"
	"github.com/belfryhq/belfry/internal/natsinfra"
	"github.com/belfryhq/belfry/internal/sim/simnats"
	"github.com/belfryhq/belfry/scheduler"
)

const natsURL = "nats://127.0.0.1:4222"

// role is what a process is.
type role string

const (
	schedulerRole  role = "scheduler"
	dispatcherRole role = "dispatcher"
	executorRole   role = "executor"
)

// node is a place in the cluster, which one process after the other fills.
type node struct {
	w     *World
	name  string
	role  role
	group string // of an executor

	mu       sync.Mutex
	current  *process // nil while it is down
	boots    int
	lives    []*process
	trouble  []span                  // when it was down, frozen or cut off
	diskLost []time.Time             // when its disk was lost
	trapped  atomic.Pointer[process] // whose trap is set
}

// span is a time in which a node was not to be relied on.
type span struct {
	from, to time.Time // to is zero while it lasts
	what     string
}

// process is one life of a node.
type process struct {
	*node
	title string // name and number
	link  *simnats.Link
	store *faultyStore
	spool string

	dead      chan struct{} // closed when it crashed
	deadOnce  sync.Once
	stop      context.CancelFunc
	done      chan struct{} // closed when its goroutines have ended
	frozen    atomic.Int64  // until when, in nanoseconds of the wall clock
	diedAt    atomic.Int64
	wasFrozen atomic.Bool
	trap      atomic.Pointer[trap]
	disp      atomic.Pointer[dispatcher.Firing]
}

// trap crashes or freezes a process at a point: of its code, or of the messages that pass its link.
type trap struct {
	point  string
	disk   bool          // it loses its disk, too
	freeze time.Duration // it freezes instead
	beside func()        // called when it freezes
	left   atomic.Int64  // times the point is still passed unharmed
}

// start begins a new life of the node.
func (n *node) start() {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.current != nil {
		return
	}
	n.boots++
	p := &process{
		node: n, title: fmt.Sprintf("%s#%d", n.name, n.boots), link: n.w.nats.Link(n.name),
		dead: make(chan struct{}), done: make(chan struct{}),
	}
	p.spool = filepath.Join(n.w.dir, p.title)
	p.store = &faultyStore{p: p, Store: n.w.db.Store()}
	if n.boots > 1 {
		n.copySpool(p.spool)
	}
	ctx, cancel := context.WithCancel(context.Background())
	p.stop = cancel
	n.current = p
	n.lives = append(n.lives, p)
	n.settleTrouble("down")
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

// copySpool gives the next life what the one before left on disk.
func (n *node) copySpool(to string) {
	from := filepath.Join(n.w.dir, "disk-"+n.name)
	if err := os.CopyFS(to, os.DirFS(from)); err != nil && !os.IsNotExist(err) {
		n.w.fault("copy the spool of %s: %v", n.name, err)
	}
}

// saveSpool keeps what is on a process's disk at this moment.
func (p *process) saveSpool() {
	if p.role != executorRole {
		return
	}
	to := filepath.Join(p.w.dir, "disk-"+p.name)
	if err := os.RemoveAll(to); err != nil {
		p.w.fault("clear the disk of %s: %v", p.name, err)
	}
	if err := os.CopyFS(to, os.DirFS(p.spool)); err != nil && !os.IsNotExist(err) {
		p.w.fault("keep the spool of %s: %v", p.name, err)
	}
}

// loseSpool forgets what was on the disk.
func (p *process) loseSpool() {
	if err := os.RemoveAll(filepath.Join(p.w.dir, "disk-"+p.name)); err != nil {
		p.w.fault("lose the disk of %s: %v", p.name, err)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.diskLost = append(p.diskLost, time.Now())
}

func (n *node) troubled(what string) {
	n.trouble = append(n.trouble, span{from: time.Now(), what: what})
}

func (n *node) settleTrouble(what string) {
	for i := range n.trouble {
		if s := &n.trouble[i]; s.what == what && s.to.IsZero() {
			s.to = time.Now()
		}
	}
}

// isDead reports whether the process crashed: then nothing it does counts.
func (p *process) isDead() bool {
	select {
	case <-p.dead:
		return true
	default:
		return false
	}
}

// crash ends the process at once. What it did not bring out of itself is lost. It may be called by the process itself.
// With disk, that of its whole machine is lost, too.
func (p *process) crash(why string, disk bool) {
	p.deadOnce.Do(func() {
		p.diedAt.Store(time.Now().UnixNano())
		close(p.dead)
		p.w.crashed(p)
		p.link.Kill()
		p.saveSpool()
		if disk {
			p.loseSpool()
			why += ", with its disk"
		}
		p.mu.Lock()
		p.current = nil
		p.troubled("down")
		p.mu.Unlock()
		p.w.event(p.name, "crashes: "+why)
		p.stop()
	})
}

// leave ends the process in an orderly way and waits for it.
func (p *process) leave() {
	p.mu.Lock()
	p.troubled("down")
	p.mu.Unlock()
	p.w.event(p.name, "is told to end")
	p.stop()
	<-p.done
	p.deadOnce.Do(func() {
		close(p.dead)
		p.link.Kill()
		p.saveSpool()
		p.mu.Lock()
		p.current = nil
		p.mu.Unlock()
		p.w.event(p.name, "has ended")
	})
}

// freeze stops the process's messages and store calls for a while.
func (p *process) freeze(d time.Duration) {
	p.wasFrozen.Store(true)
	p.frozen.Store(time.Now().Add(d).UnixNano())
	p.mu.Lock()
	p.troubled("frozen")
	p.mu.Unlock()
	p.link.Freeze(true)
	time.Sleep(d)
	p.link.Freeze(false)
	p.mu.Lock()
	p.settleTrouble("frozen")
	p.mu.Unlock()
}

// thaw waits while the process is frozen.
func (p *process) thaw() {
	for {
		d := time.Until(time.Unix(0, p.frozen.Load()))
		if d <= 0 || p.isDead() {
			return
		}
		time.Sleep(min(d, 50*time.Millisecond)) // the freeze ends early when all is healed
	}
}

// passes springs the process's trap if it is set for this point.
func (p *process) passes(point string) {
	t := p.trap.Load()
	if t == nil || t.point != point || t.left.Add(-1) >= 0 {
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
	p.frozen.Store(time.Now().Add(t.freeze).UnixNano()) // before whoever passes goes on
	p.w.helpers.Go(func() { p.freeze(t.freeze) })
	if t.beside != nil {
		p.w.helpers.Go(t.beside)
	}
}

func (p *process) natsOptions() []nats.Option {
	return []nats.Option{
		nats.SetCustomDialer(p.link), nats.Name(p.title), nats.MaxReconnects(-1), nats.ReconnectBufSize(-1), nats.RetryOnFailedConnect(true),
		nats.ReconnectWait(100 * time.Millisecond), nats.ReconnectJitter(200*time.Millisecond, 200*time.Millisecond),
		nats.PingInterval(2 * time.Second), nats.MaxPingsOutstanding(2), nats.IgnoreAuthErrorAbort(),
	}
}

// runRole runs a scheduler or a dispatcher as package app puts it together.
func (p *process) runRole(ctx context.Context) {
	nc, err := nats.Connect(natsURL, p.natsOptions()...)
	if err != nil {
		p.w.fault("%s: connect: %v", p.title, err)
		return
	}
	defer nc.Close()
	d, err := dispatcher.NewFiring(dispatcher.Config{
		Stores: dispatcher.Stores{Announce: p.store, Settle: p.store, Offer: p.store, Kill: p.store, Fire: p.store},
		Conn:   nc, Log: p.w.log(p), Trace: func(point string) {
			p.passes(point)
			p.thaw()
		},
	})
	if err != nil {
		p.w.fault("%s: %v", p.title, err)
		return
	}
	p.disp.Store(d)
	parts := []func(context.Context) error{
		func(ctx context.Context) error { return p.keepStreams(ctx, nc) },
		func(ctx context.Context) error {
			return scheduler.New(scheduler.Config{Store: p.store, Firer: d, Log: p.w.log(p)}).Run(ctx)
		},
	}
	if p.role == dispatcherRole {
		parts[1] = dispatcher.NewRole(d, dispatcher.RoleStores{
			Assign: p.store, Verdict: p.store, Reconcile: p.store, Upkeep: p.store,
		}).Run
		parts = append(parts, p.workFollowUps)
	}
	watching, stopWatching := context.WithCancel(context.Background())
	defer stopWatching()
	var watch, work sync.WaitGroup
	run := func(wg *sync.WaitGroup, ctx context.Context, f func(context.Context) error) {
		wg.Go(func() {
			if err := f(ctx); err != nil {
				p.w.fault("%s: %v", p.title, err)
			}
		})
	}
	run(&watch, watching, d.Watch)
	for _, part := range parts {
		run(&work, ctx, part)
	}
	<-ctx.Done()
	if p.isDead() {
		nc.Close() // nothing that it still waits for will come
	}
	work.Wait()
	stopWatching()
	watch.Wait()
}

// keepStreams makes the streams at the start and whenever NATS is back.
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

// workFollowUps works retries and children, as River does: at least once each, their effect and their completion
// together, now and then much later.
func (p *process) workFollowUps(ctx context.Context) error {
	for ctx.Err() == nil {
		p.w.working.Add(1)
		u, ok := p.w.db.TakeFollowUp()
		if !ok {
			p.w.working.Add(-1)
			select {
			case <-ctx.Done():
			case <-time.After(p.w.between(20*time.Millisecond, 500*time.Millisecond)):
			}
			continue
		}
		again := p.w.chance(0.05)
		if p.w.chance(0.02) {
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

// runExecutor runs an instance whose handlers do what their param says.
func (p *process) runExecutor(ctx context.Context) {
	e, err := executor.New(executor.Config{
		NATSURL: natsURL, Group: p.group, Instance: p.name, Capacity: p.w.plan.capacity, SpoolDir: p.spool, DrainTimeout: 2 * time.Second,
		Logger: p.w.log(p), NATSOptions: []nats.Option{nats.SetCustomDialer(p.link)},
		Clock: time.Now, // so that no clock of the real machine is read
		Trace: func(point string) {
			p.passes(point)
			p.thaw()
		},
	})
	if err != nil {
		p.w.fault("%s: %v", p.title, err)
		return
	}
	e.HandleFunc(handlerName, p.handle)
	e.RegisterScripts(scripts{p}, scriptLanguage)
	// A process that was frozen may not have waited for handlers that were frozen with it: the rest of it goes on here.
	if err := e.Run(ctx); err != nil && !p.isDead() && !p.wasFrozen.Load() {
		p.w.fault("%s: %v", p.title, err)
	}
}
