package dispatcher

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/belfryhq/belfry/executor/wire"
	"github.com/belfryhq/belfry/internal/domain"
	"github.com/belfryhq/belfry/internal/lifecycle"
)

// attempt identifies an attempt of a run.
type attempt struct {
	run string
	n   int
}

// puppet is an instance made of subscriptions. The test sets its answers.
type puppet struct {
	w         *world
	nc        *nats.Conn
	js        jetstream.JetStream
	group     string
	name      string
	boot      string
	handlers  []string
	languages []string
	capacity  int
	leave     func() // ends the instance: it sends and answers nothing more
	hush      func() // ends its heartbeats
	heartbeat bool
	unfit     *wire.Unfit
	older     bool // sends heartbeats without a beat number, as an older executor does

	mu      sync.Mutex
	refuse  string                             // the reason of all refusals; "" means accept
	mute    bool                               // does not answer offers
	deaf    bool                               // does not answer control requests
	refused bool                               // the bucket refuses its heartbeats
	silent  bool                               // does not report its runs of a job
	pinged  int                                // the number of pings that asked for the runs of a job
	auto    bool                               // ends runs successfully at once
	onOffer func(wire.Offer)                   // called with each accepted offer
	status  func(wire.Ref) (wire.Status, bool) // overrides its state of an attempt
	known   map[attempt]string                 // the state of each attempt, one of the wire.Status constants
	results map[attempt]wire.Result            // not settled yet
	offers  []wire.Offer                       // all received offers
	lacks   []string                           // digests that its answers request
	scripts []wire.Control                     // the scripts that it received
	kills   []wire.Ref
	settled map[attempt]int
	started map[attempt]int     // the number of first acceptances per attempt
	ended   string              // answers offers with "ended" and this outcome
	beats   []time.Time         // when it sent each heartbeat
	relied  map[attempt][]int64 // the beat numbers that the received offers name
	seq     int64
	taken   int
	drained bool
}

// join creates an instance of group g, or of the group that edit sets, and waits until the dispatcher knows it.
func (w *world) join(name string, edit ...func(*puppet)) *puppet {
	w.t.Helper()
	p := &puppet{
		w: w, group: "g", name: name, boot: "boot-" + name, handlers: []string{"echo"}, capacity: 100, heartbeat: true,
		known: make(map[attempt]string), results: make(map[attempt]wire.Result), settled: make(map[attempt]int), started: make(map[attempt]int),
		relied: make(map[attempt][]int64),
	}
	for _, e := range edit {
		e(p)
	}
	p.nc = w.connect()
	var err error
	if p.js, err = jetstream.New(p.nc); err != nil {
		w.t.Fatal(err)
	}
	if _, err := p.nc.Subscribe(wire.TriggerSubject(p.group, name), p.offered); err != nil {
		w.t.Fatal(err)
	}
	if _, err := p.nc.Subscribe(wire.ControlSubject(p.group, name), p.asked); err != nil {
		w.t.Fatal(err)
	}
	if err := p.nc.Flush(); err != nil {
		w.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	var beats sync.WaitGroup
	if p.heartbeat {
		beats.Go(func() {
			for p.beat(); lifecycle.Pause(ctx, time.Second); {
				p.beat()
			}
		})
		w.eventually(name+" joins", func() bool { boot, _ := w.roster.Boot(p.group, name); return boot == p.boot })
	}
	p.hush = sync.OnceFunc(func() {
		cancel()
		beats.Wait()
	})
	p.leave = sync.OnceFunc(func() {
		p.hush()
		p.nc.Close()
	})
	w.t.Cleanup(p.leave)
	return p
}

// auto makes runs end successfully at once.
func auto(p *puppet) { p.auto = true }

func capacity(n int) func(*puppet) { return func(p *puppet) { p.capacity = n } }

// die ends the instance in the same way as the expiry of its lease.
func (p *puppet) die() {
	p.w.t.Helper()
	p.leave()
	kv, err := p.w.js.KeyValue(context.Background(), wire.BucketInstances)
	if err != nil {
		p.w.t.Fatal(err)
	}
	if err := kv.Delete(context.Background(), wire.InstanceKey(p.group, p.name)); err != nil {
		p.w.t.Fatal(err)
	}
	p.w.eventually(p.name+" is gone", func() bool { _, alive := p.w.roster.Boot(p.group, p.name); return !alive })
}

func (p *puppet) beat() {
	p.mu.Lock()
	p.seq++
	h := wire.Heartbeat{
		V: wire.Version, Instance: p.name, Group: p.group, BootID: p.boot, Handlers: p.handlers, Languages: p.languages, Capacity: p.capacity, Running: p.taken,
		Seq: p.seq, Draining: p.drained, Unfit: p.unfit,
	}
	p.beats = append(p.beats, time.Now())
	if !p.older {
		h.Beat = int64(len(p.beats))
	}
	refused := p.refused
	p.mu.Unlock()
	m := &nats.Msg{Subject: "$KV." + wire.BucketInstances + "." + wire.InstanceKey(p.group, p.name), Data: wire.Encode(h)}
	if refused {
		m.Header = nats.Header{nats.ExpectedLastSubjSeqHdr: []string{"1"}}
	}
	// A heartbeat that is lost while NATS is unavailable is followed by another one.
	_ = p.nc.PublishMsg(m)
}

// set changes the instance's behaviour.
func (p *puppet) set(change func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	change()
}

func (p *puppet) load() wire.Load {
	p.seq++
	return wire.Load{Capacity: p.capacity, Running: p.taken, Seq: p.seq, Draining: p.drained}
}

func (p *puppet) offered(m *nats.Msg) {
	var msg wire.Offers
	if err := wire.Decode(m.Data, &msg); err != nil {
		p.w.t.Errorf("an offer cannot be read: %v", err)
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	a := wire.Answer{V: wire.Version, Instance: p.name, BootID: p.boot}
	var ended []wire.Offer
	if sound := msg.Beat >= 1 && msg.Beat <= int64(len(p.beats)); sound == p.older {
		p.w.t.Errorf("of %d heartbeats the offers rely on number %d", len(p.beats), msg.Beat)
	}
	for _, o := range msg.Offers {
		p.offers = append(p.offers, o)
		k := attempt{o.RunID, o.Attempt}
		p.relied[k] = append(p.relied[k], msg.Beat)
		v := wire.Verdict{RunID: o.RunID, Attempt: o.Attempt, Verdict: wire.Accepted}
		switch {
		case msg.BootID != p.boot:
			v.Verdict, v.Reason = wire.Refused, wire.RefusedStale
		case p.ended != "":
			v.Verdict, v.Outcome, p.known[k] = wire.Ended, p.ended, wire.StatusDone
		case p.known[k] == wire.StatusAccepted || p.known[k] == wire.StatusRunning || p.known[k] == wire.StatusDone:
		case p.refuse != "":
			v.Verdict, v.Reason = wire.Refused, p.refuse
			p.known[k] = wire.StatusRefused
		case p.taken >= p.capacity:
			v.Verdict, v.Reason = wire.Refused, wire.RefusedFull
			p.known[k] = wire.StatusRefused
		case p.mute:
			continue // it never received the offer
		default:
			p.known[k] = wire.StatusRunning
			p.started[k]++
			p.taken++
			if p.auto {
				ended = append(ended, o)
			}
			if p.onOffer != nil {
				p.onOffer(o)
			}
		}
		a.Verdicts = append(a.Verdicts, v)
	}
	a.Load, a.Scripts = p.load(), p.lacks
	if !p.mute {
		p.sent("answer", m.Respond(wire.Encode(a)))
	}
	for len(ended) > 0 {
		n := min(len(ended), wire.MaxResults)
		p.send(ended[:n], wire.Succeeded)
		ended = ended[n:]
	}
}

// send publishes results without waiting for their acknowledgement. The caller holds mu.
func (p *puppet) send(offers []wire.Offer, outcome string, edit ...func(*wire.Result)) {
	now := wire.Time{Time: time.Now()}
	msg := wire.Results{V: wire.Version}
	for _, o := range offers {
		r := wire.Result{
			Instance: p.name, BootID: p.boot, RunID: o.RunID, Attempt: o.Attempt, Bind: o.Bind, Outcome: outcome, StartedAt: now, FinishedAt: now,
		}
		if outcome == wire.Failed {
			r.Reason = string(domain.ReasonHandlerError)
		}
		if outcome == wire.Unstarted {
			r.StartedAt = wire.Time{}
		}
		for _, e := range edit {
			e(&r)
		}
		k := attempt{o.RunID, o.Attempt}
		p.results[k] = r
		if p.known[k] == wire.StatusRunning {
			p.taken--
		}
		p.known[k] = wire.StatusDone
		msg.Results = append(msg.Results, r)
	}
	msg.Load = p.load()
	_, err := p.js.PublishAsync(wire.ResultSubject(p.group), wire.Encode(msg))
	p.sent("results", err)
}

// sent checks the result of a publish. It ignores a message that failed because the instance has left.
func (p *puppet) sent(what string, err error) {
	if err != nil && !errors.Is(err, nats.ErrConnectionClosed) {
		p.w.t.Errorf("%s: %v", what, err)
	}
}

// report publishes the outcome of an attempt.
func (p *puppet) report(o wire.Offer, outcome string, edit ...func(*wire.Result)) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.send([]wire.Offer{o}, outcome, edit...)
}

func (p *puppet) asked(m *nats.Msg) {
	var c wire.Control
	if err := wire.Decode(m.Data, &c); err != nil {
		p.w.t.Errorf("a control request cannot be read: %v", err)
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	reply := wire.ControlReply{V: wire.Version, Instance: p.name, BootID: p.boot, Load: p.load()}
	for _, r := range c.Runs {
		k := attempt{r.RunID, r.Attempt}
		switch c.Op {
		case wire.OpSettled:
			p.settled[k]++
			delete(p.results, k)
			continue
		case wire.OpKill:
			p.kills = append(p.kills, r)
			if p.known[k] == "" || p.known[k] == wire.StatusRefused {
				p.known[k] = wire.StatusBarred
			}
		}
		st := wire.Status{RunID: r.RunID, Attempt: r.Attempt, Status: p.known[k]}
		if st.Status == "" {
			st.Status = wire.StatusUnknown
		}
		if res, ok := p.results[k]; ok {
			st.Result = &res
		}
		if p.status != nil {
			if s, ok := p.status(r); ok {
				st = s
			}
		}
		reply.Statuses = append(reply.Statuses, st)
	}
	if c.Op == wire.OpPing && c.JobID != 0 {
		n := 0
		for _, o := range p.offers {
			if k := (attempt{o.RunID, o.Attempt}); o.JobID == c.JobID && p.known[k] == wire.StatusRunning {
				n++
			}
		}
		p.pinged++
		if !p.silent {
			reply.JobRuns = &n
		}
	}
	if c.Op == wire.OpDrain {
		p.drained = true
	}
	if c.Op == wire.OpScript {
		p.scripts = append(p.scripts, c)
	}
	if m.Reply != "" && !p.deaf {
		p.sent("reply", m.Respond(wire.Encode(reply)))
	}
}

// got waits for the offer of an attempt. If the instance refused it because it was full, got waits until it has accepted it.
func (p *puppet) got(id domain.RunID, n int) wire.Offer {
	p.w.t.Helper()
	var o wire.Offer
	p.w.eventually(fmt.Sprintf("%s is offered attempt %d of %s", p.name, n, id), func() bool {
		p.mu.Lock()
		defer p.mu.Unlock()
		at := slices.IndexFunc(p.offers, func(o wire.Offer) bool { return o.RunID == id.String() && o.Attempt == n })
		if at >= 0 {
			o = p.offers[at]
		}
		return at >= 0 && (p.refuse != "" || p.known[attempt{o.RunID, o.Attempt}] != wire.StatusRefused)
	})
	return o
}

// offersOf returns all received offers of a run.
func (p *puppet) offersOf(id domain.RunID) []wire.Offer {
	p.mu.Lock()
	defer p.mu.Unlock()
	var out []wire.Offer
	for _, o := range p.offers {
		if o.RunID == id.String() {
			out = append(out, o)
		}
	}
	return out
}

// gotSettled waits until the instance is notified that the result of an attempt is settled.
func (p *puppet) gotSettled(id domain.RunID, n int) {
	p.w.t.Helper()
	p.w.eventually(fmt.Sprintf("%s is notified that attempt %d of %s is settled", p.name, n, id), func() bool {
		p.mu.Lock()
		defer p.mu.Unlock()
		return p.settled[attempt{id.String(), n}] > 0
	})
}

// startedOnce checks that no attempt was accepted twice, on any of the instances.
func startedOnce(t *testing.T, puppets ...*puppet) {
	t.Helper()
	all := make(map[attempt]int)
	for _, p := range puppets {
		p.mu.Lock()
		for k, n := range p.started {
			all[k] += n
		}
		p.mu.Unlock()
	}
	for k, n := range all {
		if n > 1 {
			t.Errorf("attempt %d of run %s was started %d times", k.n, k.run, n)
		}
	}
}
