package conformance

import (
	"encoding/json"
	"fmt"
	"os"
	"os/signal"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/belfryhq/belfry/executor/wire"
)

// mini is a small executor that implements the wire contract without the SDK. It has no spool, and a new name at each
// start. It keeps every duty, unless fault names a way to break one.
type mini struct {
	fault             string
	nc                *nats.Conn
	group, name, boot string
	capacity          int

	mu             sync.Mutex
	beats          []time.Time // when heartbeat k was about to be sent, counted from 1
	runs           map[attemptKey]*miniRun
	used           int
	seq            int64
	draining, over bool
	beatNow        chan struct{}

	stored     uint64      // the sequence number of the last heartbeat
	overwrites atomic.Bool // heartbeats have no condition any more
}

type miniRun struct {
	offer   wire.Offer
	sent    time.Time // of the heartbeat that the offer relies on
	status  string
	refusal string
	ending  string
	stop    chan struct{} // closed to end the handler
	started time.Time
	result  *wire.Result
	settled bool
	// published is set when the stream has acknowledged the result. Only a planted fault treats such a result as settled.
	published bool
	lines     int64
	again     time.Time
	pause     time.Duration
}

// passed returns the time since an instant, by the monotonic clock or the wall clock, whichever shows more.
func passed(since time.Time) time.Duration {
	now := time.Now()
	return max(now.Sub(since), now.Round(0).Sub(since.Round(0)))
}

func runMini(fault string) {
	m := &mini{
		fault: fault, group: os.Getenv("BELFRY_GROUP"), boot: randomHex(), runs: make(map[attemptKey]*miniRun), beatNow: make(chan struct{}, 1),
	}
	m.name = "mini-" + m.boot[:8]
	if fault == "same boot" {
		m.boot = "0123456789abcdef0123456789abcdef"
	}
	m.capacity, _ = strconv.Atoi(os.Getenv("BELFRY_CAPACITY"))
	buffer := -1
	if fault == "buffer" {
		buffer = 1 << 20
	}
	var err error
	m.nc, err = nats.Connect(os.Getenv("BELFRY_NATS_URL"), nats.Token(os.Getenv("BELFRY_TOKEN")), nats.Name(m.group+"."+m.name), nats.CustomInboxPrefix("_INBOX_"+m.group),
		nats.MaxReconnects(-1), nats.IgnoreAuthErrorAbort(), nats.ReconnectWait(200*time.Millisecond), nats.ReconnectBufSize(buffer),
		nats.ReconnectHandler(func(*nats.Conn) { m.reconnected() }), nats.ErrorHandler(func(*nats.Conn, *nats.Subscription, error) {}))
	if err != nil {
		panic(err)
	}
	subscribe := func() {
		for subject, handle := range map[string]nats.MsgHandler{
			wire.TriggerSubject(m.group, m.name): m.offers, wire.ControlSubject(m.group, m.name): m.control,
		} {
			if _, err := m.nc.Subscribe(subject, handle); err != nil {
				panic(err)
			}
		}
		_ = m.nc.Flush()
	}
	if fault == "greedy" {
		_, _ = m.nc.Subscribe("belfry.v1.trigger.>", func(*nats.Msg) {})
	}
	if fault == "late subscription" {
		time.AfterFunc(300*time.Millisecond, subscribe)
	} else {
		subscribe()
	}
	go m.heartbeats()
	go m.report()
	term := make(chan os.Signal, 1)
	signal.Notify(term, syscall.SIGTERM)
	<-term
	m.drain()
	time.AfterFunc(m.drainTime(), func() { m.end("running", "drained") })
	if fault == "goodbye first" {
		m.goodbye()
	}
	for range time.Tick(20 * time.Millisecond) {
		if m.idle() {
			break
		}
	}
	m.goodbye()
	m.nc.Close()
}

func (m *mini) drainTime() time.Duration {
	d, _ := time.ParseDuration(os.Getenv("BELFRY_DRAIN_TIMEOUT"))
	return d
}

func (m *mini) idle() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, r := range m.runs {
		switch {
		case r.stop == nil || r.settled:
		case m.fault == "goodbye unsettled" && r.published:
		default:
			return false
		}
	}
	m.over = true
	return true
}

func (m *mini) goodbye() {
	boot := m.boot
	if m.fault == "goodbye of another boot" {
		boot = "another-boot"
	}
	m.publish(&nats.Msg{Subject: wire.InstanceSubject(wire.InstanceKey(m.group, m.name)), Header: nats.Header{"KV-Operation": {"DEL"}},
		Data: wire.Encode(wire.Goodbye{V: wire.Version, SettledBoot: boot})})
}

func (m *mini) publish(msg *nats.Msg) {
	_, _ = m.nc.RequestMsg(msg, 2*time.Second)
}

func (m *mini) reconnected() {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, r := range m.runs {
		r.again = time.Time{}
	}
	m.wake()
}

func (m *mini) wake() {
	select {
	case m.beatNow <- struct{}{}:
	default:
	}
}

func (m *mini) load(change int) wire.Load {
	m.used += change
	if change != 0 {
		m.seq++
	}
	return wire.Load{Capacity: m.capacity, Running: m.used, Seq: m.seq, Draining: m.draining}
}

func (m *mini) heartbeats() {
	started := time.Now()
	for {
		m.mu.Lock()
		if m.over {
			m.mu.Unlock()
			return
		}
		l := m.load(0)
		m.beats = append(m.beats, time.Now())
		h := wire.Heartbeat{V: 1, Instance: m.name, Group: m.group, BootID: m.boot, Beat: int64(len(m.beats)), Languages: []string{},
			Handlers: []string{handlerSleep, handlerFail, handlerOutput, handlerEcho, handlerLog},
			Capacity: l.Capacity, Running: l.Running, Seq: l.Seq, Version: "test", Host: "test", StartedAt: wire.Time{Time: started}, Draining: l.Draining}
		m.mu.Unlock()
		if m.fault == "beat jumps" {
			h.Beat *= 2
		}
		m.publishHeartbeat(&nats.Msg{Subject: wire.InstanceSubject(wire.InstanceKey(m.group, m.name)), Data: wire.Encode(h)})
		select {
		case <-m.beatNow:
		case <-time.After(3 * time.Second):
		}
	}
}

// publishHeartbeat publishes without a condition, because the name is new at each start. With the faults about overwriting, the
// condition is the sequence number of the last heartbeat.
func (m *mini) publishHeartbeat(msg *nats.Msg) {
	conditional := strings.Contains(m.fault, "overwrit")
	if conditional && m.stored > 0 && !m.overwrites.Load() {
		msg.Header = nats.Header{nats.ExpectedLastSubjSeqHdr: {strconv.FormatUint(m.stored, 10)}}
	}
	rep, err := m.nc.RequestMsg(msg, 2*time.Second)
	var ack struct {
		Seq   uint64
		Error json.RawMessage
	}
	if err == nil && json.Unmarshal(rep.Data, &ack) == nil && ack.Error == nil {
		m.stored = ack.Seq
	}
}

func (m *mini) offers(msg *nats.Msg) {
	received := time.Now()
	var in wire.Offers
	if err := wire.Decode(msg.Data, &in); err != nil {
		if m.fault == "crashes" {
			panic(err)
		}
		if m.fault != "any version" || !strings.Contains(err.Error(), "version 2") {
			return
		}
	}
	if len(in.Offers) > wire.MaxOffers {
		return
	}
	m.mu.Lock()
	ans := wire.Answer{V: 1, Instance: m.name, BootID: m.boot}
	for _, o := range in.Offers {
		v := wire.Verdict{RunID: o.RunID, Attempt: o.Attempt, Verdict: wire.Refused, Reason: wire.RefusedStale}
		if in.BootID == m.boot || m.fault == "any boot" {
			v.Verdict, v.Reason, v.Outcome = m.judge(o, in.Beat, received)
		}
		ans.Verdicts = append(ans.Verdicts, v)
	}
	ans.Load = m.load(0)
	m.mu.Unlock()
	if len(in.Offers) > 0 {
		_ = msg.Respond(wire.Encode(ans))
	}
}

func (m *mini) judge(o wire.Offer, beat int64, received time.Time) (verdict, reason, outcome string) {
	key := attemptKey{o.RunID, o.Attempt}
	r := m.runs[key]
	stale := func() (string, string, string) { return wire.Refused, wire.RefusedStale, "" }
	switch {
	case r != nil && r.stop != nil:
		repeated := o.Bind <= r.offer.Bind
		r.offer.Bind = max(r.offer.Bind, o.Bind)
		switch {
		case m.fault == "twice" && r.status == wire.StatusRunning:
			go m.handle(r)
			return wire.Accepted, "", ""
		case r.status != wire.StatusDone || m.fault == "not ended":
			return wire.Accepted, "", ""
		case r.result.Outcome != wire.Unstarted:
			return wire.Ended, "", r.result.Outcome
		case repeated || !r.settled && m.fault != "unstarted at once":
			return stale()
		case (r.ending == "killed" || r.ending == "covered") && m.fault != "forgets kills":
			return stale()
		}
	case r != nil && o.Bind == r.offer.Bind && m.fault != "judges anew":
		return wire.Refused, r.refusal, ""
	case r != nil && o.Bind <= r.offer.Bind && m.fault != "judges anew":
		return stale()
	}
	known := beat >= 1 && beat <= int64(len(m.beats))
	var sent time.Time
	if known {
		sent = m.beats[beat-1]
	}
	if m.fault == "newest beat" {
		known, sent = true, m.beats[len(m.beats)-1]
	}
	why := ""
	switch {
	case !known || passed(sent) >= wire.LeaseTTL:
		why = wire.RefusedStale
	case m.draining:
		why = wire.RefusedDraining
	case o.Script != nil:
		why = wire.RefusedUnsupported
	case !strings.HasPrefix(o.Handler, "conformance_") || strings.Contains(o.Handler, "nobody"):
		why = wire.RefusedNoHandler
	case m.used >= m.capacity && m.fault != "never full":
		why = wire.RefusedFull
	}
	r = &miniRun{offer: o, sent: sent, status: wire.StatusRefused, refusal: why}
	m.runs[key] = r
	if why != "" {
		return wire.Refused, why, ""
	}
	r.status, r.stop = wire.StatusAccepted, make(chan struct{})
	m.load(+1)
	in := o.DueAt.Sub(o.Now.Time) - time.Since(received)
	switch m.fault {
	case "early":
		in = 0
	case "own clock":
		in = time.Until(o.DueAt.Time)
	}
	go m.work(r, in)
	return wire.Accepted, "", ""
}

// work runs an accepted attempt.
func (m *mini) work(r *miniRun, in time.Duration) {
	due := time.NewTimer(in)
	defer due.Stop()
	select {
	case <-due.C:
	case <-r.stop:
	}
	m.mu.Lock()
	sent := r.sent
	if m.fault == "newest beat" || m.fault == "newest beat at the start" {
		sent = m.beats[len(m.beats)-1]
	}
	over := passed(sent) >= wire.LeaseTTL && m.fault != "no check"
	if r.ending != "" && !(m.fault == "kill late") || over || m.draining && m.fault != "starts while draining" {
		reason := strings.TrimSuffix(r.ending, "drained")
		m.finish(r, wire.Unstarted, reason, "", "")
		m.mu.Unlock()
		return
	}
	r.status, r.started = wire.StatusRunning, time.Now()
	if t := r.offer.TimeoutMS; t > 0 && m.fault != "no timeout" {
		timer := time.AfterFunc(time.Duration(t)*time.Millisecond, func() {
			m.mu.Lock()
			defer m.mu.Unlock()
			m.cancel(r, "timeout")
		})
		defer timer.Stop()
	}
	m.mu.Unlock()
	output, err := m.handle(r)
	m.mu.Lock()
	defer m.mu.Unlock()
	switch {
	case err == nil:
		m.finish(r, wire.Succeeded, "", "", output)
	case r.ending == "killed" || r.ending == "covered":
		m.finish(r, wire.Cancelled, r.ending, "", "")
	case r.ending != "":
		m.finish(r, wire.Failed, r.ending, err.Error(), "")
	default:
		m.finish(r, wire.Failed, "handler_error", err.Error(), "")
	}
}

// handle runs the handlers of docs/conformance.md.
func (m *mini) handle(r *miniRun) (string, error) {
	o := r.offer
	var p param
	if err := json.Unmarshal([]byte(o.Param), &p); err != nil {
		return "", err
	}
	f, err := os.OpenFile(p.File, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return "", err
	}
	_, err = fmt.Fprintf(f, "%s %d %d\n", o.RunID, o.Attempt, time.Now().UnixMilli())
	if f.Close(); err != nil {
		return "", err
	}
	text := p.Text + strings.Repeat("é", p.Bytes/2)
	switch o.Handler {
	case handlerFail:
		return "", fmt.Errorf("%s", text)
	case handlerOutput:
		return text, nil
	case handlerEcho:
		e := echoed{Attempt: o.Attempt, ShardIndex: o.Shard.Index, ShardTotal: o.Shard.Total, Text: p.Text}
		if o.Parent != nil {
			e.ParentOutput = o.Parent.Output
		}
		return string(wire.Encode(e)), nil
	case handlerLog:
		l := wire.Logs{V: 1, Instance: m.name, RunID: o.RunID, Attempt: o.Attempt}
		for n := 1; n <= p.Lines; n++ {
			l.Lines = append(l.Lines, wire.LogLine{N: int64(n), At: wire.Time{Time: time.Now()}, Level: "info", Text: strings.Repeat("x", min(p.Bytes, 16<<10))})
			if len(l.Lines) == 500 || n == p.Lines {
				m.publish(&nats.Msg{Subject: wire.LogSubject(m.group), Data: wire.Encode(l)})
				l.Lines = nil
			}
		}
		r.lines = int64(p.Lines)
		return "", nil
	}
	select {
	case <-time.After(time.Duration(p.MS) * time.Millisecond):
		return "", nil
	case <-r.stop:
		return "", fmt.Errorf("ended")
	}
}

// finish ends an attempt with a result. The mutex must be held.
func (m *mini) finish(r *miniRun, outcome, reason, message, output string) {
	most := 16 << 10
	if m.fault == "long message" {
		most = 17 << 10
	}
	clip := func(s string, n int) string { return strings.ToValidUTF8(s[:min(len(s), n)], "") }
	m.load(-1)
	r.status, r.pause = wire.StatusDone, 4*time.Second
	r.result = &wire.Result{Instance: m.name, BootID: m.boot, RunID: r.offer.RunID, Attempt: r.offer.Attempt, Bind: r.offer.Bind, Outcome: outcome, Reason: reason,
		Message: clip(message, most), Output: clip(output, 64<<10), StartedAt: wire.Time{Time: r.started}, FinishedAt: wire.Time{Time: time.Now()}, LastLine: r.lines}
}

func (m *mini) report() {
	for range time.Tick(20 * time.Millisecond) {
		m.mu.Lock()
		now, batch := time.Now(), wire.Results{V: 1, Load: m.load(0)}
		var sent []*miniRun
		for _, r := range m.runs {
			if r.result == nil || r.again.After(now) || len(batch.Results) == 8 || r.settled && m.fault != "publishes settled" {
				continue
			}
			batch.Results = append(batch.Results, *r.result)
			sent = append(sent, r)
			r.again, r.pause = now.Add(r.pause), min(2*r.pause, time.Minute)
			if m.fault == "forgets" || m.fault == "stays silent" {
				r.again = now.Add(time.Hour)
			}
		}
		m.mu.Unlock()
		if len(batch.Results) > 0 {
			m.publish(&nats.Msg{Subject: wire.ResultSubject(m.group), Data: wire.Encode(batch)})
			m.mu.Lock()
			for _, r := range sent {
				r.published = true
			}
			m.mu.Unlock()
		}
	}
}

// cancel stops an attempt. The mutex must be held.
func (m *mini) cancel(r *miniRun, reason string) {
	if r.ending == "" && (r.status == wire.StatusAccepted || r.status == wire.StatusRunning) {
		r.ending = reason
		if r.status == wire.StatusRunning || m.fault != "kill late" {
			close(r.stop)
		}
	}
}

func (m *mini) end(status, reason string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, r := range m.runs {
		if r.status == status {
			m.cancel(r, reason)
		}
	}
}

func (m *mini) drain() {
	m.mu.Lock()
	m.draining = true
	m.seq++
	m.mu.Unlock()
	m.wake()
	if m.fault != "starts while draining" {
		m.end(wire.StatusAccepted, "drained")
	}
}

func (m *mini) control(msg *nats.Msg) {
	var in wire.Control
	rep := wire.ControlReply{V: 1, Instance: m.name, BootID: m.boot}
	if wire.Decode(msg.Data, &in) != nil {
		return
	}
	switch {
	case in.Op == wire.OpDrain:
		m.drain()
	case in.Op == wire.OpOverwrite && (in.BootID == m.boot || m.fault == "overwrites for any boot"):
		m.overwrites.Store(true)
		m.wake()
	}
	m.mu.Lock()
	for _, ref := range in.Runs {
		key := attemptKey{ref.RunID, ref.Attempt}
		r := m.runs[key]
		switch {
		case in.Op == wire.OpSettled && r != nil && r.result != nil && (ref.BootID == "" || ref.BootID == m.boot):
			r.settled = true
			if m.fault == "forgets outcomes" {
				delete(m.runs, key)
			}
		case in.Op == wire.OpKill && r != nil && r.stop != nil:
			m.cancel(r, in.Reason)
		case in.Op == wire.OpKill && m.fault != "no bar":
			r = &miniRun{offer: wire.Offer{Bind: 1 << 30}, status: wire.StatusBarred, refusal: wire.RefusedStale}
			m.runs[key] = r
		}
		st := wire.Status{RunID: ref.RunID, Attempt: ref.Attempt, Status: wire.StatusUnknown}
		if r != nil {
			st.Status, st.StartedAt = r.status, wire.Time{Time: r.started}
			if r.result != nil && r.result.Outcome != wire.Unstarted {
				st.Outcome = r.result.Outcome
			}
			if !r.settled {
				st.Result = r.result
			}
		}
		if in.Op == wire.OpKill || in.Op == wire.OpStatus {
			rep.Statuses = append(rep.Statuses, st)
		}
	}
	rep.Load = m.load(0)
	m.mu.Unlock()
	switch in.Op {
	case wire.OpPing, wire.OpStatus, wire.OpKill, wire.OpDrain, wire.OpSettled:
	default:
		rep.Error = "unknown op"
	}
	if msg.Reply != "" {
		_ = msg.Respond(wire.Encode(rep))
	}
}
