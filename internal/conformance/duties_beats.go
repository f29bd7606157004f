package conformance

import (
	"fmt"
	"time"

	"github.com/belfryhq/belfry/executor/wire"
)

func beatDuties() []duty {
	return []duty{
		{id: "beat_unknown", title: "an offer on an unknown heartbeat is refused as stale", section: secBeat, run: caseUnknownBeat},
		{id: "beat_old", title: "an offer on a heartbeat older than 10 s is refused as stale, on a newer one it is accepted", section: secBeat,
			clock: true, run: caseOldBeat},
	}
}

func limitDuties() []duty {
	return []duty{
		{id: "beat_limit", title: "an attempt due past the limit of its heartbeat is handed back as unstarted", section: secBeat,
			clock: true, run: caseLimit},
	}
}

func againDuties() []duty {
	return []duty{
		{id: "unstarted_again", title: "an unstarted attempt is refused until its result is settled, and can be accepted afterwards", section: secOffers, clock: true, run: caseUnstartedAgain},
	}
}

func caseUnknownBeat(s *stage) string {
	i := s.at
	a := i.sleeper(0)
	v := i.send(i.boot, unknownBeat, a).Verdicts[0]
	s.check(v.Verdict == wire.Refused && v.Reason == wire.RefusedStale, "an offer on the unknown beat %d was %s", unknownBeat, verdictText(v))
	i.refused(a, wire.RefusedStale, "the refused offer under the same bind")
	i.neverStarted("an offer on an unknown beat", a)
	a.Bind = 2
	i.accept(a)
	i.outcome(a, wire.Succeeded, "")
	i.startedOnce(a)
	return "refused stale; accepted under a higher bind on a known beat"
}

// caseOldBeat sends offers on heartbeats of a known age. The tester receives a heartbeat after the executor has begun to send
// it, so 10 s after the receipt, the limit of the heartbeat has certainly passed.
func caseOldBeat(s *stage) string {
	i := s.at
	b := i.beat(500 * time.Millisecond)
	young, old := i.sleeper(0), i.sleeper(0)
	s.waitUntil(b.at.Add(6 * time.Second))
	v := i.send(i.boot, b.Beat, young).Verdicts[0]
	s.undisturbed(time.Since(b.at) < almostLimit, "an offer came late")
	s.check(v.Verdict == wire.Accepted, "an offer on a heartbeat that was 6 s old was %s", verdictText(v))
	i.outcome(young, wire.Succeeded, "")
	s.waitUntil(b.at.Add(wire.LeaseTTL + 500*time.Millisecond))
	age := time.Since(b.at)
	v = i.send(i.boot, b.Beat, old).Verdicts[0]
	s.check(v.Verdict == wire.Refused && v.Reason == wire.RefusedStale, "an offer on a heartbeat that was %v old was %s",
		age.Round(time.Millisecond), verdictText(v))
	i.neverStarted("an offer on an old beat", old)
	return fmt.Sprintf("accepted on a heartbeat 6 s old, refused stale on one %v old", age.Round(time.Millisecond))
}

func caseLimit(s *stage) string {
	a, after := pastLimit(s)
	s.wait(time.Second)
	s.at.neverStarted("an attempt whose limit had passed", a)
	return fmt.Sprintf("unstarted, due %v after its heartbeat", after.Round(100*time.Millisecond))
}

// pastLimit offers an attempt that is due after the limit of its heartbeat, and checks that the executor hands it back. Newer
// heartbeats are acknowledged meanwhile and must not extend the limit.
func pastLimit(s *stage) (a *attempt, after time.Duration) {
	i := s.at
	b := i.beat(500 * time.Millisecond)
	s.waitUntil(b.at.Add(4 * time.Second))
	a = i.sleeper(0)
	a.in = 7500 * time.Millisecond
	due := time.Now().Add(a.in)
	v := i.send(i.boot, b.Beat, a).Verdicts[0]
	s.undisturbed(time.Since(b.at) < almostLimit, "an offer came late")
	s.check(v.Verdict == wire.Accepted, "an offer on a heartbeat that was 4 s old was %s", verdictText(v))
	after = due.Sub(b.at)
	res := i.result(a)
	s.check(res.Outcome == wire.Unstarted && res.Reason == "", "an attempt due %v after its heartbeat ended as %q %q, not unstarted",
		after.Round(100*time.Millisecond), res.Outcome, res.Reason)
	s.waitUntil(due)
	return a, after
}

func caseUnstartedAgain(s *stage) string {
	i := s.at
	a, _ := pastLimit(s)
	a.in = 0
	a.Bind = 2
	i.refused(a, wire.RefusedStale, "an attempt whose unstarted result was not settled")
	i.settle(a)
	var v wire.Verdict
	s.await(func() bool { a.Bind++; v = i.verdict(a); return v.Verdict != wire.Refused }, "an attempt that was handed back is accepted under a higher bind")
	s.check(v.Verdict == wire.Accepted, "an attempt that was handed back and settled was %s under a higher bind", verdictText(v))
	s.await(func() bool { return len(i.rec.resultsOf(a.key())) > 1 }, "the result of the second offer")
	all := i.rec.resultsOf(a.key())
	last := all[len(all)-1]
	s.check(last.Outcome == wire.Succeeded && last.Bind == a.Bind, "the second offer ended as %q with bind %d, not succeeded with bind %d",
		last.Outcome, last.Bind, a.Bind)
	i.startedOnce(a)
	return "refused stale before settled, started once after it"
}
