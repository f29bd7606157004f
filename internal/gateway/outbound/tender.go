package outbound

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/belfryhq/belfry/executor/wire"
	"github.com/belfryhq/belfry/internal/gateway/address"
	"github.com/belfryhq/belfry/internal/gateway/clock"
	"github.com/belfryhq/belfry/internal/lifecycle"
	"github.com/belfryhq/belfry/internal/store/gateway"
	"github.com/belfryhq/belfry/internal/xxl/protocol"
)

// The number of messages that may wait for a tender. Further ones are dropped, and their senders get no answer.
const (
	offersWaiting   = 128
	controlsWaiting = 512
)

// tender serves one address. It ends when the address gets another owner, when the address is removed, or when the process stops.
type tender struct {
	f       *Fleet
	log     *slog.Logger
	address gateway.Address // read when the service began

	ctx      context.Context //nolint:containedctx // the life of the tender
	cancel   context.CancelFunc
	loops    sync.WaitGroup
	offers   chan *nats.Msg
	controls chan *nats.Msg
	beatSoon chan struct{} // capacity 1
	lookSoon chan struct{} // capacity 1
	readSoon chan struct{} // capacity 1
	begun    clock.Instant
	retired  chan struct{} // closed when the process stops, after the last offer has arrived
	quiet    chan struct{} // closed when no more offers are judged and no more heartbeats are sent

	mu        sync.Mutex // guards the fields below
	machine   *address.Machine
	presence  *address.Presence
	lease     clock.Instant // when the last renewal began
	leaving   bool          // the executor said that it stops
	drained   bool          // an operator drains the instance
	drainedAt clock.Instant // when this process stored that; renewals that began before may not show it
	retiring  bool          // the process stops
	released  bool          // another process may serve the address
	doubted   clock.Instant // when Postgres last may have got sends that the machine does not know
	calls     int           // requests that start runs, on their way
	tails     tails
	subs      []*nats.Subscription // of offers, then of control requests
	executor  *protocol.Executor
	caller    *caller // with which executor was made
}

func newTender(f *Fleet, a gateway.Address, begun clock.Instant) *tender {
	t := &tender{
		f: f, log: f.Log.With("group", a.Group, "instance", a.Instance), address: a, lease: begun, leaving: a.LeavingAt != nil, drained: a.DrainedAt != nil,
		offers: make(chan *nats.Msg, offersWaiting), controls: make(chan *nats.Msg, controlsWaiting),
		beatSoon: make(chan struct{}, 1), lookSoon: make(chan struct{}, 1), readSoon: make(chan struct{}, 1), begun: begun, retired: make(chan struct{}), quiet: make(chan struct{}),
		tails: tails{most: f.mostTails},
	}
	capacity := 1
	if g, ok := f.Groups.Group(a.Group); ok {
		capacity = g.Capacity
	}
	t.machine = address.New(address.Config{
		BootID: a.BootID, Epoch: a.Epoch, Capacity: capacity, Languages: languagesOf(a.Kind), PerHandler: a.Kind == string(protocol.KindGo),
	})
	t.presence = address.NewPresence(f.Patience, a.Kind, a.Registrations, a.SourceChangedAt, begun)
	t.ctx, t.cancel = context.WithCancel(f.work)
	t.drainIfNeeded(begun)
	return t
}

// languagesOf returns the script languages that executors of a kind run. Those of unknown kinds may be behind a proxy that changes headers.
func languagesOf(kind string) []string {
	switch protocol.Kind(kind) {
	case protocol.KindGo, protocol.KindPython:
		return []string{}
	case protocol.KindJava, protocol.KindOther:
	}
	return []string{"bash", "groovy", "node", "php", "powershell", "python", "sh"}
}

func (t *tender) place() place { return place{t.address.Group, t.address.Instance} }

// start begins to serve in the background.
func (t *tender) start() {
	t.loops.Go(func() {
		defer close(t.quiet)
		if !t.restore() || !t.subscribe() {
			return
		}
		for _, loop := range []func(){t.serveControls, (&watcher{t}).watch, (&logReader{t}).readLogs} {
			t.loops.Go(loop)
		}
		var loops sync.WaitGroup
		loops.Go(t.serveOffers)
		loops.Go(t.beat)
		loops.Wait()
	})
}

// end stops the service without waiting.
func (t *tender) end() {
	t.cancel()
	t.mu.Lock()
	subs := t.subs
	t.subs = nil
	t.mu.Unlock()
	for _, s := range subs {
		_ = s.Unsubscribe() // fails only if the connection is closed
	}
}

// retire takes no more runs, gives back the attempts that wait, and returns when no more offers are judged and no more heartbeats are sent: a heartbeat that came after
// that of the next owner would hide it. Control requests are still carried out, because dispatchers settle the results of what was given back.
func (t *tender) retire() {
	t.mu.Lock()
	t.retiring = true
	t.machine.Retire()
	for _, a := range t.machine.Attempts() {
		if a.State == address.Waiting {
			t.machine.Kill(a.Attempt, "", clock.Now()) // ends the wait
		}
	}
	subs := t.subs
	t.mu.Unlock()
	if len(subs) > 0 {
		_ = subs[0].Drain() // fails only if the connection is closed
		if t.f.Conn.IsConnected() {
			_ = t.f.Conn.FlushTimeout(time.Second) // what the server sent before is in the channel then
		}
	}
	close(t.retired)
	select {
	case <-t.quiet:
	case <-t.ctx.Done():
	}
}

// release ends the ownership of the process: another process may serve the address now.
func (t *tender) release() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.released = true
}

// renewed records a renewal of the lease that began at an instant, and what the address's row shows.
func (t *tender) renewed(a *gateway.Address, begun clock.Instant) {
	g, open := t.f.Groups.Group(a.Group)
	t.mu.Lock()
	defer t.mu.Unlock()
	now := clock.Now()
	if clock.Since(t.lease, begun) > Lease { // Postgres was away, or the process was frozen
		t.presence.Interrupted(now)
	}
	t.lease = begun
	t.presence.Observe(a.Registrations, a.SourceChangedAt, now)
	before := t.machine.Load()
	t.leaving = a.LeavingAt != nil
	if clock.Since(t.drainedAt, begun) > 0 {
		t.drained = a.DrainedAt != nil
	}
	t.drainIfNeeded(now)
	if open {
		t.machine.SetCapacity(g.Capacity)
	}
	if t.machine.Load() != before {
		lifecycle.Signal(t.beatSoon)
	}
}

// drainIfNeeded decides whether the instance takes runs. The caller holds mu.
func (t *tender) drainIfNeeded(now clock.Instant) {
	t.machine.Drain(t.leaving || t.drained || t.retiring || t.presence.Silent(now))
}

// leaves records that the executor has said that it stops.
func (t *tender) leaves() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.leaving = true
	t.drainIfNeeded(clock.Now())
	lifecycle.Signal(t.beatSoon)
}

// holds reports whether the lease certainly holds, so that no other process serves the address.
func (t *tender) holds(now clock.Instant) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.leased(now)
}

// leased is holds for callers that hold mu.
func (t *tender) leased(now clock.Instant) bool {
	return !t.released && clock.Since(t.lease, now) < Lease-margin
}

// restore loads the attempts that earlier owners have sent, or reports false if the service has ended.
func (t *tender) restore() bool {
	for {
		err := t.restoreOnce()
		if err == nil {
			return true
		}
		if !t.pause() {
			return false
		}
		t.log.WarnContext(t.ctx, "cannot read the runs of an executor, retrying", "err", err)
	}
}

// pause waits before another try to begin the service. It reports false if the service ends.
func (t *tender) pause() bool {
	select {
	case <-t.ctx.Done():
		return false
	case <-t.retired:
		return false
	case <-time.After(tryAgain):
		return true
	}
}

// restorePage is how many sends one query reads.
const restorePage = 500

func (t *tender) restoreOnce() error {
	for after := int64(0); ; {
		ctx, cancel := context.WithTimeout(t.ctx, storeTime)
		sends, err := t.f.Records.Outstanding(ctx, &t.address, after, restorePage)
		cancel()
		if err != nil {
			return err
		}
		t.mu.Lock()
		for i := range sends {
			s := &sends[i]
			after = s.LogID
			if a := t.machine.Restore(s); a != nil && a.Outcome != wire.Unstarted {
				t.follow(a) // also if it has ended: its owner may not have read the end of the log
			}
		}
		t.mu.Unlock()
		if len(sends) < restorePage {
			return nil
		}
	}
}

// subscribe subscribes to the subjects of the instance, and returns after the server has processed that. It reports false if the service has ended.
func (t *tender) subscribe() bool {
	for {
		err := t.subscribeOnce()
		if err == nil {
			return true
		}
		if !t.pause() {
			return false
		}
	}
}

var errRetiring = errors.New("the process stops")

func (t *tender) subscribeOnce() error {
	group, instance := t.address.Group, t.address.Instance
	offers, err := t.f.Conn.ChanSubscribe(wire.TriggerSubject(group, instance), t.offers)
	if err != nil {
		return err
	}
	controls, err := t.f.Conn.ChanSubscribe(wire.ControlSubject(group, instance), t.controls)
	if err != nil {
		return errors.Join(err, offers.Unsubscribe())
	}
	if err := t.f.Conn.FlushTimeout(2 * time.Second); err != nil {
		return errors.Join(err, offers.Unsubscribe(), controls.Unsubscribe())
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.ctx.Err() != nil || t.retiring {
		return errors.Join(errRetiring, offers.Unsubscribe(), controls.Unsubscribe())
	}
	t.subs = []*nats.Subscription{offers, controls}
	return nil
}

func (t *tender) respond(msg *nats.Msg, answer []byte) {
	if msg.Reply == "" {
		return
	}
	if err := msg.Respond(answer); err != nil {
		t.log.DebugContext(t.ctx, "cannot send an answer, the sender asks again", "subject", msg.Subject, "err", err)
	}
}

// executorNow returns the executor, to be called with the present settings of the group.
func (t *tender) executorNow() (*protocol.Executor, error) {
	c, err := t.f.caller(t.address.Group)
	if err != nil {
		return nil, err
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.caller != c {
		e, err := c.executor(t.address.URL)
		if err != nil {
			return nil, err
		}
		t.caller, t.executor = c, e
	}
	return t.executor, nil
}
