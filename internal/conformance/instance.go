package conformance

import (
	"encoding/json"
	"errors"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/belfryhq/belfry/executor/wire"
	"github.com/belfryhq/belfry/internal/domain"
)

// instance is a running executor as the dispatcher sees it.
type instance struct {
	s        *stage
	rec      *record
	p        *process
	config   launchConfig
	first    seenBeat
	name     string
	boot     string
	capacity int
	live     []*attempt        // offered attempts that may run
	settled  map[wire.Ref]bool // the results that tidy has settled
}

// behind is the difference between the dispatcher's clock and the executor's. An executor that compares instants of
// offers with its own clock starts all attempts at once, and fails.
const behind = -time.Hour

// databaseNow returns the current instant for offers.
func databaseNow() wire.Time {
	return wire.Time{Time: time.Now().Add(behind).UTC().Truncate(time.Millisecond)}
}

// attempt is an attempt of a run that a case offers once or more often.
type attempt struct {
	wire.Offer
	in     time.Duration // from the offer to the due instant
	file   string        // its handler appends a line here at each start
	relied time.Time     // when the tester received the heartbeat that the last offer named
}

func (a *attempt) key() attemptKey { return attemptKey{a.RunID, a.Attempt} }

// param is the parameter of the handlers of docs/conformance.md.
type param struct {
	File  string `json:"file"`
	MS    int64  `json:"ms,omitempty"`
	Bytes int    `json:"bytes,omitempty"`
	Lines int    `json:"lines,omitempty"`
	Text  string `json:"text,omitempty"`
}

// The handlers of docs/conformance.md.
const (
	handlerSleep  = "conformance_sleep"
	handlerFail   = "conformance_fail"
	handlerOutput = "conformance_output"
	handlerEcho   = "conformance_echo"
	handlerLog    = "conformance_log"
)

// forLong is the time of handlers that run until they are killed.
const forLong = 10 * time.Minute

// make returns an attempt of a new run.
func (i *instance) make(handler string, p param) *attempt {
	run := domain.NewRunID(time.Now()).String()
	a := &attempt{file: i.s.file(run, 1), Offer: wire.Offer{
		RunID: run, Attempt: 1, Bind: 1, JobID: 7, JobName: "conformance", Group: i.config.group, Handler: handler, Cause: "manual",
		Shard: wire.Shard{Index: 0, Total: 1},
	}}
	p.File = a.file
	a.Param = string(wire.Encode(p))
	return a
}

// sleeper returns an attempt whose handler runs for d.
func (i *instance) sleeper(d time.Duration) *attempt {
	return i.make(handlerSleep, param{MS: d.Milliseconds()})
}

// beat returns the newest heartbeat. If that is older than most, beat waits for the next one.
func (i *instance) beat(most time.Duration) seenBeat {
	var b seenBeat
	i.s.await(func() bool {
		var ok bool
		b, ok = i.rec.newest(i.boot)
		return ok && time.Since(b.at) <= most
	}, "a heartbeat of boot %s that is newer than %v", i.boot, most)
	return b
}

// request sends a request and returns the answer, or nil if there was none in time.
func (i *instance) request(subject string, data []byte, within time.Duration) *nats.Msg {
	msg, err := i.s.w.system.Request(subject, data, within)
	if errors.Is(err, nats.ErrTimeout) || errors.Is(err, nats.ErrNoResponders) {
		return nil
	}
	i.s.must(err)
	return msg
}

// offers encodes a message of offers, with the current instant of the dispatcher's clock.
func (i *instance) offers(boot string, beat int64, as []*attempt) []byte {
	m := wire.Offers{V: wire.Version, BootID: boot, Beat: beat}
	now := databaseNow()
	for _, a := range as {
		o := a.Offer
		o.Now, o.BoundAt, o.DueAt = now, wire.Time{Time: now.Add(-5 * time.Millisecond)}, wire.Time{Time: now.Add(a.in)}
		o.FireTime = o.DueAt
		m.Offers = append(m.Offers, o)
	}
	relied := i.rec.received(i.boot, beat)
	for _, a := range as {
		a.relied = relied
	}
	i.live = append(i.live, as...)
	return wire.Encode(m)
}

// answerWithin is a generous bound on an answer that should come within 2 s.
const answerWithin = 20 * time.Second

// send offers attempts and returns the answer, whose verdicts are in the order of the offers.
func (i *instance) send(boot string, beat int64, as ...*attempt) wire.Answer {
	msg := i.request(wire.TriggerSubject(i.config.group, i.name), i.offers(boot, beat, as), answerWithin)
	i.s.check(msg != nil, "offers got no answer within %v", answerWithin)
	return i.answer(msg, as)
}

// answer decodes an answer to offers and checks its verdicts.
func (i *instance) answer(msg *nats.Msg, as []*attempt) wire.Answer {
	var ans wire.Answer
	if err := wire.Decode(msg.Data, &ans); err != nil {
		i.s.fail("an answer cannot be read: %v", err)
	}
	i.s.check(ans.Instance == i.name && ans.BootID == i.boot, "an answer names instance %q and boot %q, not %q and %q",
		ans.Instance, ans.BootID, i.name, i.boot)
	i.rec.mu.Lock()
	i.rec.load(ans.BootID, ans.Load)
	i.rec.mu.Unlock()
	verdicts := make(map[attemptKey]wire.Verdict, len(ans.Verdicts))
	for _, v := range ans.Verdicts {
		verdicts[attemptKey{v.RunID, v.Attempt}] = v
	}
	i.s.check(len(ans.Verdicts) == len(as) && len(verdicts) == len(as), "an answer to %d offers has %d verdicts", len(as), len(ans.Verdicts))
	for n, a := range as {
		v, ok := verdicts[a.key()]
		i.s.check(ok, "an answer has no verdict for run %s attempt %d", a.RunID, a.Attempt)
		ans.Verdicts[n] = v
	}
	return ans
}

// fresh is the greatest age of a heartbeat that a case relies on.
const fresh = 4 * time.Second

// verdict offers one attempt on the newest heartbeat and returns the verdict.
func (i *instance) verdict(a *attempt) wire.Verdict {
	return i.send(i.boot, i.beat(fresh).Beat, a).Verdicts[0]
}

// accept offers attempts that must be accepted, and returns when the offer was about to be sent.
func (i *instance) accept(as ...*attempt) time.Time {
	b := i.beat(fresh)
	at := time.Now()
	ans := i.send(i.boot, b.Beat, as...)
	for _, v := range ans.Verdicts {
		i.s.inTime(v, b)
		i.s.check(v.Verdict == wire.Accepted, "a fresh offer was %s, not accepted", verdictText(v))
	}
	return at
}

// almostLimit is the age of a heartbeat from which on a busy executor may treat the limit as passed.
const almostLimit = 8 * time.Second

// inTime requests a repetition of the case if an offer was refused as stale because the machine was too slow.
func (s *stage) inTime(v wire.Verdict, b seenBeat) {
	s.undisturbed(v.Reason != wire.RefusedStale || time.Since(b.at) < almostLimit, "an offer was answered after its limit")
}

// refused offers an attempt that must be refused for a reason.
func (i *instance) refused(a *attempt, reason, what string) {
	v := i.verdict(a)
	i.s.check(v.Verdict == wire.Refused && v.Reason == reason, "%s was %s, not refused as %s", what, verdictText(v), reason)
}

func verdictText(v wire.Verdict) string {
	return strings.TrimSpace(strings.Join([]string{v.Verdict, v.Reason, v.Outcome}, " "))
}

// control sends a control request that must be answered.
func (i *instance) control(m wire.Control) wire.ControlReply {
	m.V = wire.Version
	return i.reply(wire.Encode(m), m.Op)
}

func (i *instance) reply(data []byte, op string) wire.ControlReply {
	msg := i.request(wire.ControlSubject(i.config.group, i.name), data, answerWithin)
	i.s.check(msg != nil, "%s got no answer within %v", op, answerWithin)
	var rep wire.ControlReply
	if err := wire.Decode(msg.Data, &rep); err != nil {
		i.s.fail("an answer to %s cannot be read: %v", op, err)
	}
	i.s.check(rep.Instance == i.name && rep.BootID == i.boot, "an answer to %s names instance %q and boot %q", op, rep.Instance, rep.BootID)
	i.rec.mu.Lock()
	i.rec.load(rep.BootID, rep.Load)
	i.rec.mu.Unlock()
	return rep
}

func (i *instance) status(a *attempt) wire.Status { return i.statuses(wire.OpStatus, "", a)[0] }

// kill requests the end of attempts and returns the statuses in the answer.
func (i *instance) kill(reason string, as ...*attempt) []wire.Status {
	return i.statuses(wire.OpKill, reason, as...)
}

func (i *instance) statuses(op, reason string, as ...*attempt) []wire.Status {
	m := wire.Control{Op: op, Reason: reason}
	for _, a := range as {
		m.Runs = append(m.Runs, refOf(a))
	}
	rep := i.control(m)
	i.s.check(len(rep.Statuses) == len(as), "an answer to %s of %d attempts has %d statuses", op, len(as), len(rep.Statuses))
	out := make([]wire.Status, len(as))
	for n, a := range as {
		for _, st := range rep.Statuses {
			if st.RunID == a.RunID && st.Attempt == a.Attempt {
				out[n] = st
			}
		}
		i.s.check(out[n].Status != "", "an answer to %s has no status of run %s", op, a.RunID)
	}
	return out
}

// awaitStatus polls until an attempt has a status.
func (i *instance) awaitStatus(a *attempt, want string) wire.Status {
	var st wire.Status
	if !i.s.until(i.s.t.options.patience, func() bool { st = i.status(a); return st.Status == want }) {
		i.s.fail("an attempt has status %s, not %s", st.Status, want)
	}
	return st
}

// result waits for the result of an attempt.
func (i *instance) result(a *attempt) seenResult {
	var got []seenResult
	i.s.await(func() bool { got = i.rec.resultsOf(a.key()); return len(got) > 0 }, "the result of an attempt of %s", a.Handler)
	return got[0]
}

// settle notifies the executor that the results of attempts are in the database.
func (i *instance) settle(as ...*attempt) {
	refs := make([]wire.Ref, 0, len(as))
	for _, a := range as {
		ref := refOf(a)
		ref.BootID = i.boot
		refs = append(refs, ref)
	}
	i.s.w.settle(i.s.w.system, i.config.group, i.name, refs...)
}

// startLine is the line that a handler writes at its start.
type startLine struct {
	run     string
	attempt int
	at      time.Time // by the wall clock, which the executor and the tester share
}

// starts returns the start lines of an attempt.
func (i *instance) starts(a *attempt) []startLine {
	data, err := os.ReadFile(a.file)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	i.s.must(err)
	var out []startLine
	for line := range strings.Lines(string(data)) {
		fields := strings.Fields(line)
		if !strings.HasSuffix(line, "\n") {
			continue // it is being written
		}
		i.s.check(len(fields) == 3, "a handler wrote %q instead of run id, attempt and milliseconds", strings.TrimSpace(line))
		n, errN := strconv.Atoi(fields[1])
		ms, errMS := strconv.ParseInt(fields[2], 10, 64)
		i.s.check(errN == nil && errMS == nil, "a handler wrote %q instead of run id, attempt and milliseconds", strings.TrimSpace(line))
		i.s.check(fields[0] == a.RunID && n == a.Attempt, "the handler of run %s attempt %d was called as %s", a.RunID, a.Attempt, strings.TrimSpace(line))
		out = append(out, startLine{fields[0], n, time.UnixMilli(ms)})
	}
	return out
}

// awaitStart waits until the handler of an attempt has started.
func (i *instance) awaitStart(a *attempt) startLine {
	var got []startLine
	i.s.await(func() bool { got = i.starts(a); return len(got) > 0 }, "a handler's start")
	return got[0]
}

// neverStarted checks that no handler was called for attempts.
func (i *instance) neverStarted(what string, as ...*attempt) {
	for _, a := range as {
		n := len(i.starts(a))
		i.s.check(n == 0, "%s was started", what)
	}
}

// startedOnce checks that the handler of each attempt was called once.
func (i *instance) startedOnce(as ...*attempt) {
	for _, a := range as {
		n := len(i.starts(a))
		i.s.check(n == 1, "an attempt was started %d times", n)
	}
}

// outcome waits for the result of an attempt and checks it.
func (i *instance) outcome(a *attempt, outcome, reason string) seenResult {
	res := i.result(a)
	i.s.undisturbed(res.Outcome != wire.Unstarted || outcome == wire.Unstarted || res.at.Before(a.relied.Add(almostLimit)),
		"an attempt had no chance to start before its limit")
	i.s.check(res.Outcome == outcome && res.Reason == reason, "an attempt ended as %q %q, not %q %q: %.200s",
		res.Outcome, res.Reason, outcome, reason, res.Message)
	return res
}

// tidy kills the attempts that a case left running and settles their results.
func (i *instance) tidy() {
	defer func() {
		if e := recover(); e != nil {
			if _, ok := e.(judgement); !ok {
				panic(e)
			}
		}
	}()
	if !i.p.alive() {
		return
	}
	i.p.signal(sigCont)
	live := i.live
	i.live = nil
	for len(live) > 0 {
		n := min(len(live), 100)
		m := wire.Control{V: wire.Version, Op: wire.OpKill, Reason: "killed"}
		for _, a := range live[:n] {
			m.Runs = append(m.Runs, refOf(a))
		}
		i.request(wire.ControlSubject(i.config.group, i.name), wire.Encode(m), answerWithin)
		live = live[n:]
	}
	i.s.until(answerWithin, func() bool {
		for ref, instance := range i.rec.allResults() {
			if !i.settled[ref] {
				i.settled[ref] = true
				i.s.w.settle(i.s.w.system, i.config.group, instance, ref)
			}
		}
		msg := i.request(wire.ControlSubject(i.config.group, i.name), wire.Encode(wire.Control{V: wire.Version, Op: wire.OpPing}), answerWithin)
		var rep wire.ControlReply
		return msg == nil || wire.Decode(msg.Data, &rep) == nil && rep.Load.Running == 0
	})
}

// raw changes the JSON of a message.
func raw(data []byte, change func(map[string]any)) []byte {
	var m map[string]any
	if err := json.Unmarshal(data, &m); err != nil {
		panic(err) // it was just encoded
	}
	change(m)
	return wire.Encode(m)
}
