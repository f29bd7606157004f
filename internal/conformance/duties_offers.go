package conformance

import (
	"fmt"
	"math"
	"sync"
	"time"

	"github.com/belfryhq/belfry/executor/wire"
)

func offerDuties() []duty {
	return []duty{
		{id: "offer_once", title: "an accepted offer is started once", section: secOffers, run: caseOnce},
		{id: "never_early", title: "no handler starts before due_at, by the offer's clock", section: secRun, clock: true, run: caseNeverEarly},
		{id: "duplicates", title: "an offer that is repeated is accepted again but not started again", section: secOffers, run: caseDuplicates},
		{id: "ended", title: "an offer of an ended attempt is answered ended, with the outcome", section: secOffers, run: caseEnded},
		{id: "offer_batch", title: "256 offers in one message get 256 verdicts", section: secOffers, run: caseBatch},
		{id: "refuse_no_handler", title: "an unknown handler is refused as no_handler", section: secOffers, run: caseNoHandler},
		{id: "refuse_unsupported", title: "a script in an unknown language is refused as unsupported", section: secOffers, run: caseUnsupported},
		{id: "refuse_boot", title: "offers to another boot are refused as stale and not remembered", section: secOffers, run: caseOtherBoot},
		{id: "refuse_full", title: "without a free slot, offers are refused as full; a refusal is final for its bind", section: secOffers, run: caseFull},
		{id: "unknown_fields", title: "unknown fields are ignored", section: secRules, run: caseUnknownFields},
		{id: "wrong_version", title: "offers of another version get no answer and have no effect", section: secRules, run: caseVersion},
		{id: "malformed", title: "malformed messages get no answer and have no effect", section: secRules, run: caseMalformed},
		{id: "shard", title: "the handler receives attempt and shard", section: secOffers, run: caseShard},
		{id: "parent", title: "the handler receives the parent's output", section: secOffers, run: caseParent},
	}
}

func memoryDuties() []duty {
	return []duty{
		{id: "memory", title: "outcomes are remembered for minutes", section: secOffers, long: true, run: caseMemory},
	}
}

// caseMemory waits for longer than an executor must remember refusals and unstarted attempts.
func caseMemory(s *stage) string {
	i := s.at
	const pause = 90 * time.Second
	a := i.sleeper(0)
	i.accept(a)
	i.outcome(a, wire.Succeeded, "")
	i.settle(a)
	s.wait(pause)
	a.Bind = 2
	v := i.verdict(a)
	s.check(v.Verdict == wire.Ended && v.Outcome == wire.Succeeded, "%v after its result was settled, an attempt was %s", pause, verdictText(v))
	i.startedOnce(a)
	return fmt.Sprintf("ended succeeded, %v after the result was settled", pause)
}

func caseOnce(s *stage) string {
	i := s.at
	as := make([]*attempt, 8)
	for n := range as {
		as[n] = i.sleeper(20 * time.Millisecond)
	}
	i.accept(as...)
	for _, a := range as {
		i.outcome(a, wire.Succeeded, "")
	}
	i.startedOnce(as...)
	return fmt.Sprintf("%d attempts, each started once and succeeded", len(as))
}

func caseNeverEarly(s *stage) string {
	i := s.at
	var as []*attempt
	for _, in := range []time.Duration{700 * time.Millisecond, 1300 * time.Millisecond, 2 * time.Second} {
		a := i.sleeper(0)
		a.in = in
		as = append(as, a)
	}
	sent := i.accept(as...)
	var late time.Duration
	for _, a := range as {
		at := i.awaitStart(a).at
		early := sent.Add(a.in).Sub(at)
		// Both instants are truncated to milliseconds.
		s.check(early <= 3*time.Millisecond, "an attempt due in %v was started %v too early", a.in, early)
		late = max(late, -early)
	}
	return fmt.Sprintf("3 attempts due in up to 2 s started at most %v late", late.Round(time.Millisecond))
}

func caseDuplicates(s *stage) string {
	i := s.at
	a := i.sleeper(forLong)
	a.in = 1500 * time.Millisecond
	i.accept(a)
	again := func(when string) {
		v := i.verdict(a)
		s.check(v.Verdict == wire.Accepted, "the second offer of an attempt that was %s was answered %s", when, verdictText(v))
	}
	again("accepted")
	a.Bind = 2
	again("accepted")
	i.awaitStart(a)
	again("running")
	// Send several offers at once, like independent dispatchers.
	data := i.offers(i.boot, i.beat(fresh).Beat, []*attempt{a})
	var wg sync.WaitGroup
	for range 5 {
		wg.Go(func() {
			_, _ = s.w.system.Request(wire.TriggerSubject(i.config.group, i.name), data, answerWithin) // the number of starts shows an error
		})
	}
	wg.Wait()
	a.Bind = 4
	again("running")
	i.kill("killed", a)
	res := i.outcome(a, wire.Cancelled, "killed")
	s.check(res.Bind == 4, "the result has bind %d; the highest offered bind is 4", res.Bind)
	i.startedOnce(a)
	return "offered 9 times, started once; the result has the highest bind"
}

func caseEnded(s *stage) string {
	i := s.at
	good, bad, killed := i.sleeper(0), i.make(handlerFail, param{Text: "as asked"}), i.sleeper(forLong)
	i.accept(good, bad, killed)
	i.awaitStart(killed)
	i.kill("killed", killed)
	want := map[*attempt]string{good: wire.Succeeded, bad: wire.Failed, killed: wire.Cancelled}
	ask := func(when string) {
		for a, outcome := range want {
			s.check(i.result(a).Outcome == outcome, "an attempt ended as %s, not %s", i.result(a).Outcome, outcome)
			v := i.verdict(a)
			s.check(v.Verdict == wire.Ended && v.Outcome == outcome, "%s, an attempt that had %s was answered %q when it was offered again",
				when, outcome, verdictText(v))
			a.Bind++
			v = i.verdict(a)
			s.check(v.Verdict == wire.Ended && v.Outcome == outcome, "%s, an attempt that had %s was answered %q under a higher bind",
				when, outcome, verdictText(v))
		}
	}
	ask("before its result was settled")
	i.settle(good, bad, killed)
	ask("after its result was settled")
	i.startedOnce(good, bad, killed)
	return "ended succeeded, failed, cancelled, before and after settled"
}

func caseBatch(s *stage) string {
	i := s.at
	as := make([]*attempt, wire.MaxOffers)
	for n := range as {
		as[n] = i.sleeper(0)
		as[n].in = time.Second
	}
	ans := i.send(i.boot, i.beat(fresh).Beat, as...)
	var accepted []*attempt
	for n, v := range ans.Verdicts {
		switch {
		case v.Verdict == wire.Accepted:
			accepted = append(accepted, as[n])
		default:
			s.check(v.Verdict == wire.Refused && v.Reason == wire.RefusedFull, "an offer of the batch was %s", verdictText(v))
		}
	}
	want := min(len(as), i.capacity)
	s.check(len(accepted) >= want, "with %d slots, only %d of 256 offers were accepted", i.capacity, len(accepted))
	for _, a := range accepted {
		i.outcome(a, wire.Succeeded, "")
	}
	i.startedOnce(accepted...)
	return fmt.Sprintf("%d accepted with %d slots, each started once", len(accepted), i.capacity)
}

func caseNoHandler(s *stage) string {
	i := s.at
	a := i.make("conformance_that_nobody_has", param{})
	i.refused(a, wire.RefusedNoHandler, "an offer of an unknown handler")
	i.refused(a, wire.RefusedNoHandler, "the same offer again")
	s.check(i.status(a).Status == wire.StatusRefused, "its status is %s", i.status(a).Status)
	return "refused no_handler, status refused"
}

func caseUnsupported(s *stage) string {
	i := s.at
	a := i.sleeper(0)
	a.Handler, a.Script = "", &wire.Script{Language: "conformance", Version: 1, SHA256: "b5bb9d8014a0f9b1d61e21e796d78dccdf1352f23cd32812f4850b878ae4944c"}
	i.refused(a, wire.RefusedUnsupported, "a script in an unknown language")
	return "refused unsupported"
}

func caseOtherBoot(s *stage) string {
	i := s.at
	a := i.sleeper(0)
	ans := i.send("0123456789abcdef", i.beat(fresh).Beat, a) // send checks that the answer names the executor's own boot
	v := ans.Verdicts[0]
	s.check(v.Verdict == wire.Refused && v.Reason == wire.RefusedStale, "an offer to another boot was %s", verdictText(v))
	i.accept(a) // under the same bind
	i.outcome(a, wire.Succeeded, "")
	i.startedOnce(a)
	return "refused stale with its own boot id; then accepted under the same bind"
}

func caseFull(s *stage) string {
	i := s.at
	const most = 1024
	s.check(i.capacity <= most, "the capacity is %d, though BELFRY_CAPACITY is %d; this case needs at most %d", i.capacity, i.config.capacity, most)
	var as []*attempt
	for len(as) < i.capacity {
		batch := make([]*attempt, min(i.capacity-len(as), wire.MaxOffers))
		for n := range batch {
			batch[n] = i.sleeper(forLong)
		}
		i.accept(batch...)
		as = append(as, batch...)
	}
	over := i.sleeper(0)
	over.Bind = 5
	i.refused(over, wire.RefusedFull, "an offer beyond the last slot")
	i.kill("killed", as[0])
	i.result(as[0])
	i.settle(as[0])
	s.await(func() bool { return i.control(wire.Control{Op: wire.OpPing}).Load.Running < i.capacity }, "a free slot")
	i.refused(over, wire.RefusedFull, "the refused offer under the same bind, with a free slot,")
	over.Bind = 4
	i.refused(over, wire.RefusedStale, "an offer under a lower bind than the refused one")
	over.Bind = 6
	i.accept(over)
	i.outcome(over, wire.Succeeded, "")
	i.startedOnce(over)
	return fmt.Sprintf("%d accepted, then full; full again under its bind, stale under a lower one, accepted under a higher one", len(as))
}

func caseUnknownFields(s *stage) string {
	i := s.at
	a := i.sleeper(0)
	more := func(m map[string]any) { m["conformance_novelty"] = map[string]any{"deep": []any{1, "two", nil}} }
	data := raw(i.offers(i.boot, i.beat(fresh).Beat, []*attempt{a}), func(m map[string]any) {
		more(m)
		for _, o := range m["offers"].([]any) {
			more(o.(map[string]any))
			more(o.(map[string]any)["shard"].(map[string]any))
		}
	})
	msg := i.request(wire.TriggerSubject(i.config.group, i.name), data, answerWithin)
	s.check(msg != nil, "an offer with unknown fields got no answer")
	v := i.answer(msg, []*attempt{a}).Verdicts[0]
	s.check(v.Verdict == wire.Accepted, "an offer with unknown fields was %s", verdictText(v))
	i.outcome(a, wire.Succeeded, "")
	i.reply(raw(wire.Encode(wire.Control{V: wire.Version, Op: wire.OpStatus, Runs: []wire.Ref{refOf(a)}}), more), wire.OpStatus)
	return "an offer and a control request with unknown fields were processed"
}

// unanswered is how long a case waits for an answer that must not come.
const unanswered = time.Second

func caseVersion(s *stage) string {
	i := s.at
	a := i.sleeper(0)
	data := raw(i.offers(i.boot, i.beat(fresh).Beat, []*attempt{a}), func(m map[string]any) { m["v"] = 2 })
	msg := i.request(wire.TriggerSubject(i.config.group, i.name), data, unanswered)
	s.check(msg == nil, "offers with v 2 got an answer")
	running := i.sleeper(forLong)
	i.accept(running)
	i.awaitStart(running)
	kill := raw(wire.Encode(wire.Control{V: wire.Version, Op: wire.OpKill, Runs: []wire.Ref{refOf(running)}, Reason: "killed"}),
		func(m map[string]any) { m["v"] = 2 })
	if msg := i.request(wire.ControlSubject(i.config.group, i.name), kill, unanswered); msg != nil {
		var rep wire.ControlReply
		s.check(wire.Decode(msg.Data, &rep) == nil && rep.Error != "", "a control request with v 2 got an answer without error")
	}
	s.check(i.status(running).Status == wire.StatusRunning, "a kill with v 2 had an effect")
	i.neverStarted("an offer with v 2", a)
	return "no answer, no effect"
}

func caseMalformed(s *stage) string {
	i := s.at
	offers := i.offers(i.boot, i.beat(fresh).Beat, []*attempt{i.sleeper(0)})
	bad := [][]byte{
		nil, []byte("{"), []byte("[]"), []byte("null"), []byte(`"text"`), []byte("\xff\x00\x01"), offers[:len(offers)/2],
		[]byte(`{"v":1}`), []byte(`{"v":"1","boot_id":5,"offers":{}}`),
		raw(offers, func(m map[string]any) { m["offers"] = "none" }),
		raw(offers, func(m map[string]any) { m["offers"] = []any{17} }),
	}
	for n, data := range bad {
		msg := i.request(wire.TriggerSubject(i.config.group, i.name), data, unanswered/4)
		var ans wire.Answer
		s.check(msg == nil || wire.Decode(msg.Data, &ans) == nil && len(ans.Verdicts) == 0, "malformed offers (%d) got an answer with verdicts", n)
		i.request(wire.ControlSubject(i.config.group, i.name), data, unanswered/4) // an answer with error is allowed
	}
	s.check(i.p.alive(), "the executor ended: %s", i.p.tail())
	many := make([]*attempt, wire.MaxOffers+1)
	for n := range many {
		many[n] = i.sleeper(0)
	}
	msg := i.request(wire.TriggerSubject(i.config.group, i.name), i.offers(i.boot, i.beat(fresh).Beat, many), unanswered)
	s.check(msg == nil, "a message with %d offers got an answer", len(many))
	i.neverStarted("an attempt of a message with too many offers", many...)
	a := i.sleeper(0)
	i.accept(a)
	i.outcome(a, wire.Succeeded, "")
	before, _ := i.rec.newest(i.boot)
	s.await(func() bool { b, _ := i.rec.newest(i.boot); return b.Beat > before.Beat }, "another heartbeat of the same boot")
	return fmt.Sprintf("after %d malformed messages on each subject and one with %d offers, the executor still works", len(bad), len(many))
}

// echoed is the output of conformance_echo.
type echoed struct {
	Attempt      int    `json:"attempt"`
	ShardIndex   int    `json:"shard_index"`
	ShardTotal   int    `json:"shard_total"`
	ParentOutput string `json:"parent_output"`
	Text         string `json:"text"`
}

func caseShard(s *stage) string {
	i := s.at
	const text = "Grüße, \"quoted\" \\ 日本 \U0001F514"
	a := i.make(handlerEcho, param{Text: text})
	a.Attempt, a.Shard, a.file = 3, wire.Shard{Index: 2, Total: 5}, s.file(a.RunID, 3)
	a.Param = string(wire.Encode(param{File: a.file, Text: text}))
	i.accept(a)
	got := echo(s, i.outcome(a, wire.Succeeded, ""))
	s.check(got == echoed{Attempt: 3, ShardIndex: 2, ShardTotal: 5, Text: text}, "the handler received %+v", got)
	i.startedOnce(a)
	return "attempt 3, shard 2 of 5, a param with non-ASCII letters"
}

func caseParent(s *stage) string {
	i := s.at
	a := i.make(handlerEcho, param{})
	a.Parent = &wire.Parent{RunID: s.at.make(handlerEcho, param{}).RunID, Output: `{"rows": 17}`}
	i.accept(a)
	got := echo(s, i.outcome(a, wire.Succeeded, ""))
	s.check(got.ParentOutput == a.Parent.Output, "the handler received the parent's output %q", got.ParentOutput)
	return "the handler received the output of the parent"
}

// unknownBeat is the number of a heartbeat that no executor sends.
const unknownBeat = math.MaxInt32
