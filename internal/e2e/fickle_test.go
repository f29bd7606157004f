//go:build unix

package e2e

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/belfryhq/belfry/executor/wire"
	"github.com/belfryhq/belfry/internal/natsauth"
)

// fickle is an instance with one slot that the test itself implements, over NATS with the group's token. It refuses the first message
// of offers and accepts later ones; the stock agent cannot do that at a given moment. It runs no handlers. The test decides when an
// accepted attempt ends.
type fickle struct {
	t    testing.TB
	nc   *nats.Conn
	name string
	boot string

	mu       sync.Mutex
	seq      int64                 // guarded by mu
	known    map[string]string     // guarded by mu; run id to wire.Status…
	accepted map[string]wire.Offer // guarded by mu
	binds    []int                 // guarded by mu; the rounds of all received offers
	refused  bool                  // guarded by mu; whether it has received the first message
}

// refuseFirst adds such an instance to group, with the handler command. It leaves at the end of the test.
func (c *cluster) refuseFirst(name string) *fickle {
	c.t.Helper()
	nc, err := nats.Connect(c.natsFor, nats.Timeout(patience), nats.Token(c.join), nats.Name(natsauth.ClientName(group, name)), nats.CustomInboxPrefix(natsauth.InboxPrefix(group)))
	if err != nil {
		c.t.Fatal(err)
	}
	f := &fickle{t: c.t, nc: nc, name: name, boot: "boot-" + name, known: make(map[string]string), accepted: make(map[string]wire.Offer)}
	for subject, answer := range map[string]nats.MsgHandler{
		wire.TriggerSubject(group, name): f.offered, wire.ControlSubject(group, name): f.asked,
	} {
		if _, err := nc.Subscribe(subject, answer); err != nil {
			c.t.Fatal(err)
		}
	}
	ctx, cancel := context.WithCancel(context.Background())
	var beats sync.WaitGroup
	beats.Go(func() {
		tick := time.NewTicker(wire.HeartbeatEvery)
		defer tick.Stop()
		for {
			f.beat()
			select {
			case <-tick.C:
			case <-ctx.Done():
				return
			}
		}
	})
	c.t.Cleanup(func() {
		cancel()
		beats.Wait()
		nc.Close()
	})
	eventually(c.t, patience, "the instance "+name+" is listed", func() bool { return c.listed(name) })
	return f
}

func (f *fickle) beat() {
	f.mu.Lock()
	load := f.load()
	f.mu.Unlock()
	h := wire.Heartbeat{
		V: wire.Version, Instance: f.name, Group: group, BootID: f.boot, Handlers: []string{"command"},
		Capacity: load.Capacity, Running: load.Running, Seq: load.Seq,
	}
	_ = f.nc.Publish("$KV."+wire.BucketInstances+"."+wire.InstanceKey(group, f.name), wire.Encode(h)) // repeated after 3 s
}

// load returns the instance's load. mu is held.
func (f *fickle) load() wire.Load {
	f.seq++
	running := 0
	for _, st := range f.known {
		if st == wire.StatusRunning {
			running++
		}
	}
	return wire.Load{Capacity: 1, Running: running, Seq: f.seq}
}

func (f *fickle) offered(m *nats.Msg) {
	var msg wire.Offers
	if err := wire.Decode(m.Data, &msg); err != nil {
		f.t.Errorf("decode an offer: %v", err)
		return
	}
	f.mu.Lock()
	a := wire.Answer{V: wire.Version, Instance: f.name, BootID: f.boot}
	for _, o := range msg.Offers {
		f.binds = append(f.binds, o.Bind)
		v := wire.Verdict{RunID: o.RunID, Attempt: o.Attempt, Verdict: wire.Accepted}
		switch {
		case f.known[o.RunID] == wire.StatusRunning:
		case !f.refused || len(f.accepted) > 0:
			v.Verdict, v.Reason = wire.Refused, wire.RefusedFull
			f.known[o.RunID] = wire.StatusRefused
		default:
			f.known[o.RunID] = wire.StatusRunning
			f.accepted[o.RunID] = o
		}
		a.Verdicts = append(a.Verdicts, v)
	}
	f.refused = true
	a.Load = f.load()
	f.mu.Unlock()
	if err := m.Respond(wire.Encode(a)); err != nil && !errors.Is(err, nats.ErrConnectionClosed) { // at the end of the test
		f.t.Errorf("answer: %v", err)
	}
}

func (f *fickle) asked(m *nats.Msg) {
	var c wire.Control
	if err := wire.Decode(m.Data, &c); err != nil || m.Reply == "" {
		return
	}
	f.mu.Lock()
	reply := wire.ControlReply{V: wire.Version, Instance: f.name, BootID: f.boot, Load: f.load()}
	for _, r := range c.Runs {
		st := f.known[r.RunID]
		if st == "" {
			st = wire.StatusUnknown
		}
		reply.Statuses = append(reply.Statuses, wire.Status{RunID: r.RunID, Attempt: r.Attempt, Status: st})
	}
	f.mu.Unlock()
	_ = m.Respond(wire.Encode(reply)) // the dispatcher asks again
}

// has reports whether the instance accepted a run.
func (f *fickle) has(run string) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	_, ok := f.accepted[run]
	return ok
}

// succeed publishes the success of an accepted run.
func (f *fickle) succeed(run string) {
	f.t.Helper()
	f.mu.Lock()
	o := f.accepted[run]
	f.known[run] = wire.StatusDone
	now := wire.Time{Time: time.Now()}
	msg := wire.Results{V: wire.Version, Load: f.load(), Results: []wire.Result{{
		Instance: f.name, BootID: f.boot, RunID: o.RunID, Attempt: o.Attempt, Bind: o.Bind, Outcome: wire.Succeeded, StartedAt: now, FinishedAt: now,
	}}}
	f.mu.Unlock()
	if _, err := f.nc.Request(wire.ResultSubject(group), wire.Encode(msg), patience); err != nil {
		f.t.Fatalf("publish a result: %v", err)
	}
}
