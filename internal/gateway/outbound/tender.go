package outbound

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/belfryhq/belfry/executor/wire"
	"github.com/belfryhq/belfry/internal/domain"
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

	mu       sync.Mutex // guards the fields below
	machine  *address.Machine
	presence *address.Presence
	lease    clock.Instant // when the last renewal began
	leaving  bool          // the executor said that it stops
	drained  bool          // an operator drains the instance
	retiring bool          // the process stops
	doubted  clock.Instant // when Postgres last may have got sends that the machine does not know
	calls    int           // requests that start runs, on their way
	tails    []*tail
	subs     []*nats.Subscription
	executor *protocol.Executor
	caller   *caller // with which executor was made
}

func newTender(f *Fleet, a gateway.Address, begun clock.Instant) *tender {
	t := &tender{
		f: f, log: f.Log.With("group", a.Group, "instance", a.Instance), address: a, lease: begun, leaving: a.LeavingAt != nil,
		offers: make(chan *nats.Msg, offersWaiting), controls: make(chan *nats.Msg, controlsWaiting),
		beatSoon: make(chan struct{}, 1), lookSoon: make(chan struct{}, 1), readSoon: make(chan struct{}, 1),
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
		if !t.restore() || !t.subscribe() {
			return
		}
		for _, loop := range []func(){t.serveOffers, t.serveControls, t.beat, (&watcher{t}).watch, (&logReader{t}).readLogs} {
			t.loops.Go(loop)
		}
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

// retire ends the service in order: new offers are refused, waiting attempts go back, and requests that have arrived get answers.
func (t *tender) retire() {
	t.mu.Lock()
	t.retiring = true
	t.machine.Drain(true)
	for _, a := range t.machine.Attempts() {
		if a.State == address.Waiting {
			t.machine.Kill(a.Attempt, "", clock.Now()) // ends the wait
		}
	}
	subs := t.subs
	t.mu.Unlock()
	for _, s := range subs {
		_ = s.Drain() // fails only if the connection is closed
	}
	if t.f.Conn.IsConnected() {
		_ = t.f.Conn.FlushTimeout(time.Second) // what the server sent before is in the channels then
	}
	for {
		select {
		case m := <-t.offers:
			t.takeOffers(m)
		case m := <-t.controls:
			t.takeControl(m)
		default:
			return
		}
	}
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
	return clock.Since(t.lease, now) < Lease-margin
}

// restore loads the attempts that earlier owners have sent, or reports false if the service has ended.
func (t *tender) restore() bool {
	for {
		err := t.restoreOnce()
		if err == nil {
			return true
		}
		if !lifecycle.Pause(t.ctx, 500*time.Millisecond) {
			return false
		}
		t.log.WarnContext(t.ctx, "cannot read the runs of an executor, retrying", "err", err)
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
			if a := t.machine.Restore(s); a != nil && a.State != address.Ended {
				t.follow(a)
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
		if !lifecycle.Pause(t.ctx, 500*time.Millisecond) {
			return false
		}
	}
}

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
		return errors.Join(offers.Unsubscribe(), controls.Unsubscribe(), t.ctx.Err())
	}
	t.subs = []*nats.Subscription{offers, controls}
	return nil
}

func (t *tender) serveOffers() {
	for {
		select {
		case <-t.ctx.Done():
			return
		case m := <-t.offers:
			t.takeOffers(m)
		}
	}
}

func (t *tender) serveControls() {
	for {
		select {
		case <-t.ctx.Done():
			return
		case m := <-t.controls:
			t.takeControl(m)
		}
	}
}

// takeOffers answers a message of offers. Without an answer, the dispatcher asks about the attempts later.
func (t *tender) takeOffers(msg *nats.Msg) {
	var m wire.Offers
	if err := wire.Decode(msg.Data, &m); err != nil || len(m.Offers) > wire.MaxOffers {
		t.log.WarnContext(t.ctx, "received malformed offers, the dispatcher gets no answer", "err", err)
		return
	}
	now := clock.Now()
	if !t.holds(now) {
		return
	}
	t.mu.Lock()
	verdicts, fresh, raised := t.machine.Judge(&m, now)
	t.mu.Unlock()
	ok := true
	if len(raised) > 0 {
		ctx, cancel := context.WithTimeout(t.ctx, storeTime)
		ok = t.f.Sends.RaiseBinds(ctx, raised) == nil
		cancel()
	}
	verdicts, stored := t.storeFresh(fresh, verdicts)
	if !ok || !stored || !t.holds(clock.Now()) {
		return
	}
	t.mu.Lock()
	answer := wire.Answer{V: wire.Version, Instance: t.address.Instance, BootID: t.address.BootID, Load: t.machine.Load(), Verdicts: verdicts}
	t.mu.Unlock()
	t.respond(msg, wire.EncodeAnswer(&answer))
}

// storeFresh stores the sends of attempts that were judged as accepted, and begins to carry them. It returns the verdicts as Postgres corrects them, and false if there is to be no
// answer.
func (t *tender) storeFresh(fresh []*address.Attempt, verdicts []wire.Verdict) ([]wire.Verdict, bool) {
	if len(fresh) == 0 {
		return verdicts, true
	}
	ctx, cancel := context.WithTimeout(t.ctx, storeTime)
	defer cancel()
	offers := make([]gateway.Offer, 0, len(fresh))
	for _, a := range fresh {
		id, err := t.f.ids.of(ctx, t.address.Group, a.Task.JobID)
		if err != nil {
			t.forget(fresh)
			return nil, false
		}
		t.mu.Lock()
		a.WireID = id
		offers = append(offers, a.Offer)
		t.mu.Unlock()
	}
	ids, err := t.f.Sends.Accept(ctx, t.f.Owner, t.address.Hold(), offers)
	if err != nil {
		t.mu.Lock()
		t.doubted = clock.Now() // the sends may be stored
		t.mu.Unlock()
		t.forget(fresh)
		if !errors.Is(err, gateway.ErrNotHeld) {
			t.log.WarnContext(t.ctx, "cannot store accepted runs, the dispatcher gets no answer", "runs", len(fresh), "err", err)
		}
		return nil, false
	}
	var other []*address.Attempt
	t.mu.Lock()
	for _, a := range fresh {
		id, ok := ids[a.Attempt]
		if !ok {
			other = append(other, a)
			continue
		}
		t.machine.Admit(a, id)
		t.f.carrying.Add(1)
		go (&carrier{t}).carry(a)
	}
	t.mu.Unlock()
	if len(other) == 0 {
		return verdicts, true
	}
	return t.recall(ctx, other, verdicts)
}

// forget removes attempts that were not stored.
func (t *tender) forget(attempts []*address.Attempt) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, a := range attempts {
		t.machine.Forget(a)
	}
}

// recall corrects the verdicts on attempts that Postgres did not accept, because they have sends already.
func (t *tender) recall(ctx context.Context, attempts []*address.Attempt, verdicts []wire.Verdict) ([]wire.Verdict, bool) {
	ids := make([]gateway.Attempt, len(attempts))
	for i, a := range attempts {
		ids[i] = a.Attempt
	}
	sends, err := t.f.Records.Known(ctx, ids)
	if err != nil {
		t.forget(attempts)
		return nil, false
	}
	of := make(map[gateway.Attempt][]gateway.Send)
	for _, s := range sends {
		of[s.Attempt] = append(of[s.Attempt], s)
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	corrected := make(map[string]wire.Verdict, len(attempts))
	for _, a := range attempts {
		v := address.Recall(of[a.Attempt], t.address.Instance, t.address.BootID, &a.Task)
		switch v.Verdict {
		case wire.Refused:
			t.machine.Refuse(a, v.Reason, clock.Now())
		default:
			t.machine.Forget(a)
			if v.Verdict == wire.Accepted {
				t.doubted = clock.Now()
			}
		}
		corrected[v.RunID] = v
	}
	out := verdicts[:0]
	for _, v := range verdicts {
		c, ok := corrected[v.RunID]
		switch {
		case !ok || v.Attempt != c.Attempt:
			out = append(out, v)
		case c.Verdict != wire.Accepted: // the machine does not know an attempt that is under way here: it goes back soon
			out = append(out, c)
		}
	}
	return out, true
}

func (t *tender) respond(msg *nats.Msg, answer []byte) {
	if msg.Reply == "" {
		return
	}
	if err := msg.Respond(answer); err != nil {
		t.log.DebugContext(t.ctx, "cannot send an answer, the sender asks again", "subject", msg.Subject, "err", err)
	}
}

// takeControl carries out a control request and answers it.
func (t *tender) takeControl(msg *nats.Msg) {
	var m wire.Control
	if err := wire.Decode(msg.Data, &m); err != nil {
		t.log.WarnContext(t.ctx, "a control request is malformed, it gets no answer", "err", err)
		return
	}
	if m.Op == wire.OpSettled {
		t.settled(m.Runs)
		return
	}
	if m.Op == wire.OpOverwrite || !t.holds(clock.Now()) {
		return
	}
	reply := wire.ControlReply{V: wire.Version, Instance: t.address.Instance, BootID: t.address.BootID}
	switch m.Op {
	case wire.OpPing:
		if m.JobID != 0 {
			t.loops.Go(func() { t.ping(msg, m.JobID, reply) })
			return
		}
	case wire.OpStatus, wire.OpKill:
		var ok bool
		if m.Op == wire.OpKill {
			t.kill(m.Runs, m.Reason)
		}
		if reply.Statuses, ok = t.statuses(m.Runs); !ok {
			return
		}
	case wire.OpDrain:
		t.mu.Lock()
		t.drained = true
		t.drainIfNeeded(clock.Now())
		t.mu.Unlock()
		lifecycle.Signal(t.beatSoon)
	case wire.OpScript: // Postgres has the code
	default:
		reply.Error = "unknown operation"
	}
	t.reply(msg, reply)
}

func (t *tender) reply(msg *nats.Msg, reply wire.ControlReply) {
	if !t.holds(clock.Now()) {
		return
	}
	t.mu.Lock()
	reply.Load = t.machine.Load()
	t.mu.Unlock()
	t.respond(msg, wire.Encode(reply))
}

// pingTime is how long an executor has to answer when a route asks whether it is there. The dispatcher waits 500 ms.
const pingTime = 400 * time.Millisecond

// ping answers how many runs of a job the executor has, if the executor answers. The routes failover and busyover ask.
func (t *tender) ping(msg *nats.Msg, job int64, reply wire.ControlReply) {
	ctx, cancel := context.WithTimeout(t.ctx, pingTime)
	defer cancel()
	e, err := t.executorNow()
	if err != nil || e.Beat(ctx).Outcome != protocol.Taken {
		return
	}
	if id, err := t.f.ids.of(ctx, t.address.Group, job); err == nil {
		t.mu.Lock()
		n := t.machine.JobRuns(id)
		t.mu.Unlock()
		reply.JobRuns = &n
	}
	t.reply(msg, reply)
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

// statuses answers what is known of attempts. It reports false if Postgres cannot be asked: without it, an attempt must not be called unknown.
func (t *tender) statuses(refs []wire.Ref) ([]wire.Status, bool) {
	out := make([]wire.Status, 0, len(refs))
	var ask []gateway.Attempt
	now := clock.Now()
	t.mu.Lock()
	for _, r := range refs {
		id, ok := attemptOf(r)
		if !ok {
			out = append(out, wire.Status{RunID: r.RunID, Attempt: r.Attempt, Status: wire.StatusUnknown})
			continue
		}
		if a := t.machine.Known(id); a != nil && a.State != address.Ended {
			out = append(out, address.StatusOf(a))
			continue
		}
		ask = append(ask, id)
	}
	t.mu.Unlock()
	if len(ask) == 0 {
		return out, true
	}
	ctx, cancel := context.WithTimeout(t.ctx, storeTime)
	defer cancel()
	sends, err := t.f.Records.Known(ctx, ask)
	if err != nil {
		return nil, false
	}
	of := make(map[gateway.Attempt][]gateway.Send)
	for _, s := range sends {
		if s.Instance == t.address.Instance && s.BootID == t.address.BootID {
			of[s.Attempt] = append(of[s.Attempt], s)
		}
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, id := range ask {
		s := statusOf(id, of[id])
		if noted := t.machine.Noted(id, now); s.Status == wire.StatusUnknown && noted != "" {
			s.Status = noted
		}
		out = append(out, s)
	}
	return bounded(out), true
}

// statusBytes bounds the results in one answer. The dispatcher asks again for what is left out.
const statusBytes = 512 << 10

func bounded(all []wire.Status) []wire.Status {
	size, out := 0, all[:0]
	for i, s := range all {
		if s.Result != nil {
			size += len(s.Result.Output) + len(s.Result.Message) + 512
		}
		if size > statusBytes && i > 0 && s.Result != nil {
			continue
		}
		out = append(out, s)
	}
	return out
}

// statusOf returns the status of an attempt by its sends of this boot, by log id.
func statusOf(id gateway.Attempt, sends []gateway.Send) wire.Status {
	st := wire.Status{RunID: id.Run.String(), Attempt: id.Number, Status: wire.StatusUnknown}
	for i := range sends {
		s := &sends[i]
		if s.SentAt != nil {
			st.StartedAt = wire.Time{Time: *s.SentAt}
		}
		switch {
		case s.State == gateway.Accepted:
			st.Status = wire.StatusAccepted
		case s.EndedAt == nil:
			st.Status = wire.StatusRunning
		case s.Settled && s.State == gateway.Unstarted:
			st.Status, st.StartedAt = wire.StatusRefused, wire.Time{}
		default:
			st.Status = wire.StatusDone
			if s.State != gateway.Unstarted {
				st.Outcome = s.Result.Outcome
			}
			if !s.Settled {
				r := resultOf(s, 0)
				st.Result = &r
			}
		}
	}
	return st
}

func attemptOf(r wire.Ref) (gateway.Attempt, bool) {
	id, err := domain.ParseRunID(r.RunID)
	return gateway.Attempt{Run: id, Number: r.Attempt}, err == nil
}

// kill records kills. The carriers of attempts that were not sent give them back, and the watch kills the others.
func (t *tender) kill(refs []wire.Ref, reason string) {
	if reason != string(domain.ReasonCovered) && reason != string(domain.ReasonTimeout) {
		reason = string(domain.ReasonKilled)
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	now := clock.Now()
	for _, r := range refs {
		if id, ok := attemptOf(r); ok {
			t.machine.Kill(id, reason, now)
		}
	}
	lifecycle.Signal(t.lookSoon)
}

// settled records that the results of attempts are settled. If Postgres is away, the results are published and settled again.
func (t *tender) settled(refs []wire.Ref) {
	batch := make([]gateway.SettledAttempt, 0, len(refs))
	for _, r := range refs {
		if id, ok := attemptOf(r); ok {
			batch = append(batch, gateway.SettledAttempt{Attempt: id, BootID: r.BootID})
		}
	}
	ctx, cancel := context.WithTimeout(t.f.work, storeTime)
	defer cancel()
	if err := t.f.Sends.Settle(ctx, batch); err != nil {
		t.log.DebugContext(ctx, "cannot record that results are settled, they are published again", "runs", len(batch), "err", err)
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, b := range batch {
		if b.BootID == "" || b.BootID == t.address.BootID {
			t.finishTail(b.Attempt, true)
			t.machine.Settled(b.Attempt)
		}
	}
}

// ended records that the end of an attempt is stored.
func (t *tender) ended(s *gateway.Send) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if s.BootID == t.address.BootID && t.machine.End(s.Attempt, s.Result.Outcome) {
		t.finishTail(s.Attempt, false)
		lifecycle.Signal(t.beatSoon)
	}
}

// beatTime bounds the publication of a heartbeat.
const beatTime = 2500 * time.Millisecond

// beat sends heartbeats, at once after a change, but not more than every beatGap.
func (t *tender) beat() {
	const beatGap = 200 * time.Millisecond
	tick := time.NewTicker(wire.HeartbeatEvery)
	defer tick.Stop()
	failing := false
	for {
		err := t.beatOnce()
		if err != nil && !failing && t.ctx.Err() == nil {
			t.log.WarnContext(t.ctx, "a heartbeat was not confirmed, retrying", "err", err)
		}
		failing = err != nil
		if !lifecycle.Pause(t.ctx, beatGap) {
			return
		}
		select {
		case <-t.ctx.Done():
			return
		case <-tick.C:
		case <-t.beatSoon:
		}
	}
}

func (t *tender) beatOnce() error {
	now := clock.Now()
	if !t.holds(now) {
		return nil // the fleet logs why
	}
	a := &t.address
	t.mu.Lock()
	load := t.machine.Load()
	h := wire.Heartbeat{
		V: wire.Version, Instance: a.Instance, Group: a.Group, BootID: a.BootID, Beat: t.machine.Beat(now), Handlers: []string{wire.AnyHandler}, Lacks: t.machine.Lacks(now),
		Languages: languagesOf(a.Kind), Capacity: load.Capacity, Running: load.Running, Seq: load.Seq, Draining: load.Draining, Unfit: t.machine.Unfit(),
		Labels: map[string]string{"xxl_job": a.Kind}, Version: protocol.Clip(a.Agent, 100), Host: a.URL, StartedAt: wire.Time{Time: a.CreatedAt},
	}
	if t.presence.Shared(now) {
		h.Labels["shared"] = "true"
	}
	t.mu.Unlock()
	ctx, cancel := context.WithTimeout(t.ctx, beatTime)
	defer cancel()
	return publish(ctx, t.f.Conn, &nats.Msg{Subject: wire.InstanceSubject(wire.InstanceKey(a.Group, a.Instance)), Data: wire.Encode(h)})
}

// goodbye removes the instance's heartbeat after its address was removed.
func (t *tender) goodbye(ctx context.Context) {
	msg := &nats.Msg{
		Subject: wire.InstanceSubject(wire.InstanceKey(t.address.Group, t.address.Instance)), Header: nats.Header{"KV-Operation": {"DEL"}},
		Data: wire.Encode(wire.Goodbye{V: wire.Version, SettledBoot: t.address.BootID}),
	}
	if err := publish(ctx, t.f.Conn, msg); err != nil && ctx.Err() == nil {
		t.log.WarnContext(ctx, "cannot delete the heartbeat, it expires after 10 s", "err", err)
	}
}

// troubled makes the instance take no runs until the executor answers again.
func (t *tender) troubled(reason, message string) {
	u := &wire.Unfit{Reason: reason, Message: protocol.Clip(message, wire.MaxUnfitMessage)}
	t.mu.Lock()
	changed := t.machine.Trouble(u)
	t.mu.Unlock()
	if changed {
		t.log.WarnContext(t.ctx, "an executor cannot be called, it gets no runs until it answers", "url", t.address.URL, "reason", reason, "err", message)
	}
	lifecycle.Signal(t.beatSoon)
}

// publish publishes a message to a stream, and returns after the stream has stored it.
func publish(ctx context.Context, nc *nats.Conn, msg *nats.Msg) error {
	reply, err := nc.RequestMsgWithContext(ctx, msg)
	if err != nil {
		return fmt.Errorf("publish on %s: %w", msg.Subject, err)
	}
	return acknowledged(reply.Data)
}
