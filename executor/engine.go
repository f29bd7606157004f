package executor

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/belfryhq/belfry/executor/wire"
)

// engine is one boot of an instance. It answers offers and control requests, and runs the attempts that it accepts. It
// does not depend on NATS.
type engine struct {
	group    string
	instance string
	boot     string
	log      *slog.Logger
	handlers map[string]*registered
	runners  map[string]ScriptRunner                                       // by language
	scripts  *scriptCache                                                  // nil without runners
	now      func() instant                                                // the local clocks; tests replace it
	trace    func(point string)                                            // Config.Trace; may be nil
	around   func(context.Context, Run, func(context.Context) error) error // Config.Around; may be nil
	reports  *reporter
	files    fileWatch
	logs     *logShipper
	work     context.Context // context for Init; cancelled when the drain timeout has passed
	stopWork context.CancelCauseFunc
	drained  chan struct{}  // closed when draining begins
	running  sync.WaitGroup // counts the attempts that have not ended
	ended    endings
	unleased unleased

	// mu guards the fields below. It is held for work in memory only.
	mu       sync.Mutex
	ledger   *ledger
	beats    beats
	lease    lease
	db       dbClock
	attempts map[attemptKey]*attempt
	starter  starter
	// barrier is the number of the last message of offers that arrived before the lease was renewed after a lapse.
	// Messages up to it waited in this process or its socket while the process was frozen. It applies to offers without
	// a beat.
	barrier int64
}

// answerOffers answers one message of offers and starts the accepted attempts. nth is the message's number in order of
// arrival.
func (x *engine) answerOffers(m *wire.Offers, nth int64, arrived instant) wire.Answer {
	x.mu.Lock()
	defer x.mu.Unlock()
	ans, fresh := x.decide(m, nth, arrived)
	if len(fresh) > 0 {
		x.schedule(fresh)
	}
	return ans
}

// decide answers offers. It returns the attempts to start, and adds each of them to running. The caller holds mu.
func (x *engine) decide(m *wire.Offers, nth int64, arrived instant) (ans wire.Answer, fresh []*attempt) {
	ans = wire.Answer{V: wire.Version, Instance: x.instance, BootID: x.boot, Verdicts: make([]wire.Verdict, 0, len(m.Offers))}
	now := x.now()
	frozen := m.Beat == 0 && nth <= x.barrier
	if m.BootID == x.boot && !frozen && len(m.Offers) > 0 {
		x.db.sample(m.Offers[0].Now.Time, arrived) // the arrival time, because decoding took a while
	}
	f := fence{beat: m.Beat, lapses: x.lease.lapses}
	known := false
	if m.Beat != 0 {
		f.sent, known = x.beats.sentAt(m.Beat, now)
	}
	for i := range m.Offers {
		o := &m.Offers[i]
		v := verdict{reason: wire.RefusedStale}
		if m.BootID == x.boot { // an offer to another boot is not recorded
			b := x.bid(o, now)
			if b.beat = m.Beat != 0; b.beat {
				b.stale = !known
			} else {
				x.oldRules(&b, o, frozen)
			}
			v = x.ledger.judge(b)
		}
		if v.fresh != nil {
			a := x.newAttempt(o, v.fresh)
			a.fence, a.startAt = f, arrived.mono+x.untilDue(o, arrived)
			ans.Scripts = x.lacking(ans.Scripts, o.Script)
			x.attempts[a.key] = a
			x.running.Add(1)
			fresh = append(fresh, a)
		}
		if !v.silent {
			ans.Verdicts = append(ans.Verdicts, wireVerdict(o, v))
		}
	}
	ans.Load = x.ledger.load(now)
	return ans, fresh
}

// bid fills in the part of a bid that does not depend on the beat. The caller holds mu.
func (x *engine) bid(o *wire.Offer, now instant) bid {
	b := bid{key: attemptKey{o.RunID, o.Attempt}, bind: o.Bind, now: now, unfit: x.unfit() != nil}
	switch {
	case o.Script != nil:
		if !x.runsScript(o.Script) {
			b.refuse = wire.RefusedUnsupported
		}
	case x.handlers[o.Handler] == nil:
		b.refuse = wire.RefusedNoHandler
	}
	return b
}

// oldRules judges the age of an offer without a beat, which an older server sends. It uses the database's clock and the
// lease. frozen means that the message waited for this process while the lease lapsed. The caller holds mu.
func (x *engine) oldRules(b *bid, o *wire.Offer, frozen bool) {
	latest := x.db.latest(b.now)
	b.stale = frozen || latest.Sub(o.BoundAt.Time) > offerAge || o.Now.Sub(o.BoundAt.Time) > offerAge
	b.leaseOver = x.lease.over(b.now)
	if x.lease.lapsed {
		renewed := latest.Add(-since(x.lease.renewed, b.now))
		b.stale = b.stale || o.BoundAt.Before(renewed)
	}
}

// untilDue returns how long after its arrival an attempt starts. The offer carries the database's clock at the time of
// sending. No clock of this machine is compared with the database's clock, and a start is never early.
func (x *engine) untilDue(o *wire.Offer, arrived instant) time.Duration {
	now := o.Now.Time
	if now.IsZero() {
		now = x.db.now(arrived)
	}
	return max(o.DueAt.Sub(now), 0)
}

// fence determines how long an accepted attempt may still start.
type fence struct {
	beat   int64   // 0 for an offer of an older server
	sent   instant // when the sending of that heartbeat began
	lapses int     // for offers without a beat: the number of lapses before the attempt was accepted
}

// tooLate returns why an accepted attempt may no longer start, or "" if it may. The caller holds mu.
func (x *engine) tooLate(a *attempt, now instant) string {
	switch f := &a.fence; {
	//sim:seam fence-at-start
	case f.beat != 0 && expired(f.sent, now):
		return "it could not start within 10 s of the heartbeat that its offer relied on"
	case f.beat == 0 && x.lease.over(now), f.beat == 0 && f.lapses != x.lease.lapses:
		return "the instance's lease had expired when the run was due to start"
	}
	return ""
}

func wireVerdict(o *wire.Offer, v verdict) wire.Verdict {
	w := wire.Verdict{RunID: o.RunID, Attempt: o.Attempt, Verdict: wire.Accepted}
	switch {
	case v.ended != noOutcome:
		w.Verdict, w.Outcome = wire.Ended, v.ended.String()
	case !v.accepted:
		w.Verdict, w.Reason = wire.Refused, v.reason
	}
	return w
}

// answerControl performs a control request and answers it.
func (x *engine) answerControl(m *wire.Control) wire.ControlReply {
	rep := wire.ControlReply{V: wire.Version, Instance: x.instance, BootID: x.boot}
	switch m.Op {
	case wire.OpPing:
		if m.JobID != 0 {
			n := x.attemptsOf(m.JobID)
			rep.JobRuns = &n
		}
	case wire.OpStatus:
		rep.Statuses = x.statuses(m.Runs)
	case wire.OpKill:
		x.kill(m.Runs, m.Reason)
		rep.Statuses = x.statuses(m.Runs)
	case wire.OpDrain:
		x.drain()
	case wire.OpSettled:
		x.settle(m.Runs)
	case wire.OpScript:
		if err := x.takeScript(m); err != nil {
			rep.Error = err.Error()
		}
	default:
		rep.Error = "unknown operation"
	}
	rep.Load = x.load()
	return rep
}

// attemptsOf counts a job's accepted attempts that have not ended.
func (x *engine) attemptsOf(job int64) (n int) {
	x.mu.Lock()
	defer x.mu.Unlock()
	for _, a := range x.attempts {
		if a.run.info.JobID == job {
			n++
		}
	}
	return n
}

// statusBytes bounds the results in one answer. Attempts that do not fit are left out, and the dispatcher asks for them
// again.
const statusBytes = 512 << 10

func (x *engine) statuses(refs []wire.Ref) []wire.Status {
	out := make([]wire.Status, 0, len(refs))
	room := statusBytes
	for _, ref := range refs {
		key := attemptKey{ref.RunID, ref.Attempt}
		x.mu.Lock()
		state, startedAt, outcome := x.ledger.known(key)
		x.mu.Unlock()
		st := wire.Status{
			RunID: ref.RunID, Attempt: ref.Attempt, Status: string(state), Outcome: outcome.String(), StartedAt: wire.Time{Time: startedAt},
		}
		if state == done {
			if res, ok := x.reports.result(key); ok {
				if room -= len(wire.Encode(res)); room < 0 && len(out) > 0 {
					continue
				}
				st.Result, st.StartedAt = &res, res.StartedAt
			}
		}
		out = append(out, st)
	}
	return out
}

// kill ends attempts. It bars attempts that have not been offered yet.
func (x *engine) kill(refs []wire.Ref, reason string) {
	if reason != reasonCovered && reason != reasonTimeout {
		reason = reasonKilled
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	now := x.now()
	for _, ref := range refs {
		key := attemptKey{ref.RunID, ref.Attempt}
		x.ledger.kill(key, reason, now)
		if a := x.attempts[key]; a != nil && a.killed == "" {
			a.killed = reason
			x.abort(a, killCause(reason))
		}
	}
}

func killCause(reason string) error {
	if reason == reasonTimeout {
		return ErrTimeout
	}
	return ErrKilled
}

// abort ends an attempt, whether it has started or not. The caller holds mu.
func (x *engine) abort(a *attempt, cause error) {
	if a.cancel != nil {
		a.cancel(cause)
	} else if !a.stopped {
		x.starter.remove(a)
		x.wakeStarter()
	}
}

// settle removes results that are in the database.
func (x *engine) settle(refs []wire.Ref) {
	x.mu.Lock()
	now := x.now()
	for _, ref := range refs {
		x.ledger.settle(attemptKey{ref.RunID, ref.Attempt}, now)
	}
	x.mu.Unlock()
	x.reports.settled(refs)
}

// drain stops the acceptance and the start of attempts. It hands accepted attempts that have not started back at once.
func (x *engine) drain() {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.ledger.draining {
		return
	}
	x.ledger.drain()
	for _, a := range x.attempts {
		if a.cancel == nil {
			x.abort(a, ErrDrained)
		}
	}
	close(x.drained)
}

// spooled frees the slots of attempts whose results are in the spool.
func (x *engine) spooled(results []*pending) {
	x.mu.Lock()
	defer x.mu.Unlock()
	for _, p := range results {
		if p.entry != nil {
			x.ledger.free(p.entry)
		}
	}
}

// nextBeat returns the number of the next heartbeat and the instant at which its sending begins. The caller sends the
// heartbeat after this call.
func (x *engine) nextBeat() (beat int64, sent instant) {
	x.mu.Lock()
	defer x.mu.Unlock()
	sent = x.now()
	return x.beats.next(sent), sent
}

// confirmed records that the heartbeat sent at the given instant was confirmed. It reports whether that ended a lapse
// of the lease. If it did, messages of offers up to number arrived are stale.
func (x *engine) confirmed(sent instant, arrived int64) bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	now := x.now()
	ended := x.lease.confirm(sent, now)
	if ended {
		x.db.lapse(now)
		x.barrier = arrived
	}
	return ended
}

// unfit returns why the instance takes no runs although it may have free slots, nil if it takes runs.
func (x *engine) unfit() *wire.Unfit {
	if u := x.files.unfit.Load(); u != nil {
		return u
	}
	return x.reports.trouble.Load()
}

func (x *engine) load() wire.Load {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.ledger.load(x.now())
}

// unfinished returns the attempts whose handlers have not returned.
func (x *engine) unfinished() []attemptKey {
	x.mu.Lock()
	defer x.mu.Unlock()
	keys := make([]attemptKey, 0, len(x.attempts))
	for k := range x.attempts {
		keys = append(keys, k)
	}
	return keys
}

// at calls Config.Trace, if it is set, with the name of a point that the process has reached.
func (x *engine) at(point string) {
	if x.trace != nil {
		x.trace(point)
	}
}
