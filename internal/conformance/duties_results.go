package conformance

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/belfryhq/belfry/executor/wire"
)

func resultDuties() []duty {
	return []duty{
		{id: "outcome_failed", title: "a handler's error is reported as failed handler_error, with its text", section: secResults, run: caseFailed},
		{id: "result_fields", title: "results have all fields, and no unknown outcome or reason", section: secResults, run: caseResultFields},
		{id: "result_acknowledged", title: "results are published as requests", section: secConnect, run: caseQuiet("each had a reply subject")},
		{id: "timeout", title: "timeout_ms ends an attempt as failed timeout", section: secRun, run: caseTimeout},
		{id: "result_limits", title: "a message has at most 16 KiB, an output at most 64 KiB, both UTF-8 without NUL", section: secResults, run: caseLimits},
		{id: "many_results", title: "large results of many attempts all arrive", section: secResults, run: caseManyResults},
		{id: "logs", title: "log lines are numbered from 1 and keep the limits", section: secLogs, optional: true, run: caseLogs},
	}
}

func repeatDuties() []duty {
	return []duty{
		{id: "result_repeated", title: "a result is published again until it is settled", section: secResults, run: caseRepeated},
		{id: "result_settled", title: "a settled result is not published again", section: secResults, clock: true, run: caseSettled},
	}
}

func caseFailed(s *stage) string {
	i := s.at
	a := i.make(handlerFail, param{Text: "a stone in the way"})
	i.accept(a)
	res := i.outcome(a, wire.Failed, "handler_error")
	s.check(strings.Contains(res.Message, "a stone in the way"), "the message is %q", res.Message)
	return "failed handler_error: " + res.Message
}

func caseResultFields(s *stage) string {
	i := s.at
	a := i.sleeper(50 * time.Millisecond)
	i.accept(a)
	res := i.outcome(a, wire.Succeeded, "")
	s.check(res.Instance == i.name && res.BootID == i.boot && res.Bind == 1, "a result names instance %q, boot %q, bind %d", res.Instance, res.BootID, res.Bind)
	took := res.FinishedAt.Sub(res.StartedAt.Time)
	s.check(took >= 45*time.Millisecond, "a handler that sleeps for 50 ms took %v by its result", took)
	return fmt.Sprintf("instance, boot, bind, and an attempt of %v", took)
}

func caseTimeout(s *stage) string {
	i := s.at
	a, fine := i.sleeper(forLong), i.sleeper(10*time.Millisecond)
	a.TimeoutMS, fine.TimeoutMS = 600, 60_000
	i.accept(a, fine)
	started := i.awaitStart(a).at
	res := i.outcome(a, wire.Failed, "timeout")
	after := res.at.Sub(started)
	s.check(after >= 550*time.Millisecond, "an attempt with 600 ms was ended after %v", after)
	i.outcome(fine, wire.Succeeded, "")
	return fmt.Sprintf("failed timeout %v after its start, with timeout_ms 600", after.Round(time.Millisecond))
}

func caseLimits(s *stage) string {
	i := s.at
	failed, long, exact, small := i.make(handlerFail, param{Bytes: 100_000}), i.make(handlerOutput, param{Bytes: 300_000}),
		i.make(handlerOutput, param{Bytes: 64 << 10}), i.make(handlerOutput, param{Text: "Grüße 日本"})
	i.accept(failed, long, exact, small)
	message := i.outcome(failed, wire.Failed, "handler_error").Message
	s.check(message != "", "a long message is missing")
	i.result(long)
	output := i.outcome(exact, wire.Succeeded, "").Output
	s.check(len(output) >= 60<<10, "an output of 64 KiB arrived with %d bytes", len(output))
	s.check(i.outcome(small, wire.Succeeded, "").Output == "Grüße 日本", "an output arrived as %q", i.result(small).Output)
	return fmt.Sprintf("a message of 100,000 bytes has %d, an output of 300,000 has %d, one of 64 KiB has %d", len(message), len(i.result(long).Output), len(output))
}

func caseManyResults(s *stage) string {
	i := s.at
	as := make([]*attempt, min(40, i.capacity))
	for n := range as {
		as[n] = i.make(handlerOutput, param{Bytes: 60_000})
	}
	i.accept(as...)
	for _, a := range as {
		i.outcome(a, wire.Succeeded, "")
	}
	return fmt.Sprintf("%d results of 60,000 bytes each, in messages below 1 MiB", len(as))
}

func caseLogs(s *stage) string {
	i := s.at
	if !slices.Contains(i.first.Handlers, handlerLog) {
		s.notOffered("there is no handler %s", handlerLog)
	}
	const many, long = 1300, 4
	a, b := i.make(handlerLog, param{Lines: many, Bytes: 100}), i.make(handlerLog, param{Lines: long, Bytes: 40_000})
	i.accept(a, b)
	last := map[*attempt]int64{a: many, b: long}
	for at, want := range last {
		res := i.outcome(at, wire.Succeeded, "")
		if res.LastLine == 0 && len(i.rec.linesOf(at.key())) == 0 {
			s.notOffered("there are neither lines nor last_line")
		}
		// The executor may cut or split a line that is too long.
		s.check(res.LastLine >= want, "last_line is %d; the handler wrote %d lines", res.LastLine, want)
		have := make(map[int64]bool)
		missing := func() (n int64) {
			for _, l := range i.rec.linesOf(at.key()) {
				have[l.N] = true
			}
			for n = 1; n <= res.LastLine; n++ {
				if !have[n] {
					return n
				}
			}
			return 0
		}
		if !s.until(s.t.options.patience, func() bool { return missing() == 0 }) {
			s.fail("line %d of %d did not come", missing(), res.LastLine)
		}
		s.check(int64(len(have)) == res.LastLine, "there are %d lines, and last_line is %d", len(have), res.LastLine)
	}
	return fmt.Sprintf("%d and %d lines, numbered from 1", i.result(a).LastLine, i.result(b).LastLine)
}

func caseRepeated(s *stage) string {
	i := s.at
	as := []*attempt{i.sleeper(0), i.make(handlerFail, param{Text: "as asked"})}
	i.accept(as...)
	for _, a := range as {
		s.await(func() bool { return len(i.rec.resultsOf(a.key())) > 1 }, "a second publication of a result that is not settled")
		all := i.rec.resultsOf(a.key())
		s.check(all[0].Result == all[1].Result, "a repeated result has other content")
	}
	again := i.rec.resultsOf(as[0].key())
	return fmt.Sprintf("published again after %v", again[1].at.Sub(again[0].at).Round(100*time.Millisecond))
}

// caseSettled waits until another result, which is not settled, has been repeated twice.
func caseSettled(s *stage) string {
	i := s.at
	settled, other := i.sleeper(0), i.sleeper(0)
	i.accept(settled, other)
	i.result(settled)
	i.result(other)
	i.settle(settled)
	s.await(func() bool { return i.status(settled).Result == nil }, "a status without the result, after the result is settled")
	at := time.Now()
	s.await(func() bool { return len(i.rec.resultsOf(other.key())) > 2 }, "two repetitions of another result")
	s.wait(2 * time.Second)
	for _, res := range i.rec.resultsOf(settled.key()) {
		s.check(res.at.Before(at.Add(time.Second)), "a settled result was published again %v later", res.at.Sub(at).Round(100*time.Millisecond))
	}
	v := i.verdict(settled)
	s.check(v.Verdict == wire.Ended, "a settled attempt was %s", verdictText(v))
	return "not published again, while another result was repeated twice"
}

// echo decodes the output of conformance_echo.
func echo(s *stage, res seenResult) (e echoed) {
	if err := json.Unmarshal([]byte(res.Output), &e); err != nil {
		s.fail("the output of conformance_echo is %.200q", res.Output)
	}
	return e
}
