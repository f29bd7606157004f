package conformance

import (
	"context"
	"fmt"
	"path/filepath"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/belfryhq/belfry/executor/wire"
)

func outageDuties() []duty {
	return []duty{
		{id: "nats_away", title: "during and after an outage of NATS: handlers continue, results are published again, old heartbeats are not sent", section: secConnect, clock: true, run: caseNATSAway},
	}
}

func restartDuties() []duty {
	return []duty{
		{id: "restart", title: "a restarted process has another boot id, and ignores offers to the boot before", section: secConnect, run: caseRestart},
		{id: "spool", title: "results survive SIGKILL, and are published under the boot id that they ran under", section: secResults, optional: true, run: caseSpool},
	}
}

func nameDuties() []duty {
	return []duty{
		{id: "same_name", title: "of two processes with one name, the later one has the name and the earlier one does not answer", section: secHeartbeat, optional: true, run: caseName},
	}
}

func termDuties() []duty {
	return []duty{
		{id: "sigterm", title: "after SIGTERM: hands back attempts that are not due, finishes running ones, and deletes its heartbeat last", section: secRun, optional: true, run: caseTerm},
	}
}

func settledDuties() []duty {
	return []duty{
		{id: "goodbye_settled", title: "after SIGTERM, with results that are acknowledged but not settled: keeps its heartbeat, publishes them again, and deletes its heartbeat only when they are settled", section: secResults, optional: true, clock: true, run: caseGoodbyeSettled},
	}
}

func drainedDuties() []duty {
	return []duty{
		{id: "drained", title: "an attempt that does not end in time after SIGTERM fails as drained", section: secRun, optional: true, long: true, run: caseDrained},
	}
}

// caseNATSAway stops the server of this plan. Other plans have another server.
func caseNATSAway(s *stage) string {
	c, rec := s.group(32)
	i := s.launch(c, rec)
	ends, unsettled, long, due := i.sleeper(3*time.Second), i.sleeper(0), i.sleeper(forLong), i.sleeper(0)
	due.in = 1500 * time.Millisecond
	i.accept(ends, unsettled, long, due)
	i.awaitStart(ends)
	i.awaitStart(long)
	first := i.result(unsettled)
	last, _ := rec.newest(i.boot)
	s.must(s.w.close(s.ctx))
	s.wait(12 * time.Second)
	s.check(i.p.alive(), "the executor ended while NATS was not reachable: %s", i.p.tail())
	opened := time.Now()
	s.must(s.w.open(s.ctx))
	s.await(func() bool { b, ok := rec.newest(i.boot); return ok && b.at.After(opened) }, "a heartbeat of the same boot after NATS came back")
	i.outcome(ends, wire.Succeeded, "")
	i.startedOnce(ends, long)
	s.await(func() bool {
		all := rec.resultsOf(unsettled.key())
		return all[len(all)-1].at.After(opened)
	}, "another publication of an unsettled result after the outage (the first one was %v ago)", time.Since(first.at).Round(time.Second))
	res := i.result(due)
	n := len(i.starts(due))
	s.check(res.Outcome == wire.Succeeded && n == 1 || res.Outcome == wire.Unstarted && n == 0, "an attempt that was due while NATS was not reachable ended as %s after %d starts",
		res.Outcome, n)
	s.check(i.status(long).Status == wire.StatusRunning, "an attempt that ran before the outage does not run any more")
	s.wait(time.Second)
	// If a client keeps messages during the outage, the server receives all of them at once.
	beats := rec.beatsOf(i.boot, opened)
	for k := range beats {
		burst := 0
		for _, b := range beats[k:] {
			if b.at.Sub(beats[k].at) < 500*time.Millisecond {
				burst++
			}
		}
		s.check(burst <= 2, "%d heartbeats came at once, from beat %d on: the client sent old heartbeats after the outage", burst, beats[k].Beat)
	}
	fine := i.sleeper(0)
	i.accept(fine)
	i.outcome(fine, wire.Succeeded, "")
	return fmt.Sprintf("12 s without NATS: results were published again, beat went from %d to %d", last.Beat, beats[0].Beat)
}

func caseRestart(s *stage) string {
	c, rec := s.group(32)
	old := s.launch(c, rec)
	running, due := old.sleeper(forLong), old.sleeper(0)
	due.in = 4 * time.Second
	sent := old.accept(running, due)
	old.awaitStart(running)
	old.p.kill()
	s.undisturbed(time.Since(sent) < due.in, "the executor was killed too late")
	i := s.launch(c, rec)
	v := i.send(old.boot, i.beat(fresh).Beat, running).Verdicts[0] // send checks that the answer names the new boot
	s.check(v.Verdict == wire.Refused && v.Reason == wire.RefusedStale, "an offer to the boot before was %s", verdictText(v))
	for _, a := range []*attempt{running, due} {
		s.check(i.status(a).Status == wire.StatusUnknown, "an attempt that ran when the process was killed has status %s", i.status(a).Status)
	}
	fine := i.sleeper(0)
	i.accept(fine)
	i.outcome(fine, wire.Succeeded, "")
	s.waitUntil(sent.Add(due.in + time.Second))
	i.neverStarted("an attempt that the boot before had accepted", due)
	i.startedOnce(running)
	return fmt.Sprintf("boot %s after %s; offers to the old one refused stale", i.boot, old.boot)
}

func caseSpool(s *stage) string {
	c, rec := s.group(32)
	old := s.launch(c, rec)
	as := make([]*attempt, 10)
	for n := range as {
		as[n] = old.make(handlerOutput, param{Text: fmt.Sprintf("result %d", n)})
	}
	old.accept(as...)
	for _, a := range as {
		old.result(a)
	}
	old.p.kill()
	killed := time.Now()
	i := s.launch(c, rec)
	back := func() (n int) {
		for _, a := range as {
			all := rec.resultsOf(a.key())
			if all[len(all)-1].at.After(killed) {
				n++
			}
		}
		return n
	}
	if i.name != old.name {
		s.notOffered("the restarted process has another name, so it sends no results under the old one")
	}
	const within = 15 * time.Second
	if !s.until(within, func() bool { return back() == len(as) }) {
		s.check(back() == 0, "of %d results, only %d were published again after SIGKILL", len(as), back())
		s.notOffered("no result was published again within %v of the restart", within)
	}
	for n, a := range as {
		all := rec.resultsOf(a.key())
		last := all[len(all)-1]
		s.check(last.BootID == old.boot && last.Output == fmt.Sprintf("result %d", n), "a result was published again under boot %s with output %q", last.BootID, last.Output)
	}
	a := as[0]
	a.Bind = 2
	i.refused(a, wire.RefusedStale, "an attempt whose result an earlier boot left on disk")
	refs := make([]wire.Ref, 0, len(as))
	for _, a := range as {
		ref := refOf(a)
		ref.BootID = old.boot
		refs = append(refs, ref)
	}
	s.w.settle(s.w.system, c.group, i.name, refs...)
	s.await(func() bool { return i.status(a).Result == nil }, "a status without the result, after the result is settled")
	return fmt.Sprintf("%d results under the old boot id", len(as))
}

func caseName(s *stage) string {
	c, rec := s.group(32)
	first := s.launch(c, rec)
	fine := first.sleeper(0)
	first.accept(fine)
	first.outcome(fine, wire.Succeeded, "")
	other := c
	other.spool = filepath.Join(filepath.Dir(c.spool), "b")
	second := s.launch(other, rec)
	if second.name != first.name {
		s.notOffered("each process draws another name: %s, %s", first.name, second.name)
	}
	subject := wire.InstanceSubject(wire.InstanceKey(c.group, first.name))
	stored := func() string {
		var h wire.Heartbeat
		stream, err := s.w.js.Stream(s.ctx, "KV_"+wire.BucketInstances)
		s.must(err)
		msg, err := stream.GetLastMsgForSubject(s.ctx, subject)
		s.must(err)
		s.must(wire.Decode(msg.Data, &h))
		return h.BootID
	}
	s.await(func() bool { return stored() == second.boot }, "the heartbeat of the later process in the bucket")
	taken := time.Now()
	s.check(!s.until(10*time.Second, func() bool { return stored() != second.boot }), "the bucket stored a heartbeat of the earlier process after one of the later process")
	s.check(len(rec.beatsOf(first.boot, taken)) > 0, "the earlier process does not try to send heartbeats any more")
	only := func(what, subject string, data []byte) {
		inbox := s.w.system.NewInbox()
		sub, err := s.w.system.SubscribeSync(inbox)
		s.must(err)
		defer func() { _ = sub.Unsubscribe() }() // if this fails, the end of the connection does it
		s.must(s.w.system.PublishRequest(subject, inbox, data))
		var got []*nats.Msg
		s.until(2*time.Second, func() bool {
			if msg, err := sub.NextMsg(poll); err == nil {
				got = append(got, msg)
			}
			return false
		})
		s.check(len(got) == 1, "%s had %d answers", what, len(got))
		var ans wire.ControlReply // an answer to offers has these fields too
		s.check(wire.Decode(got[0].Data, &ans) == nil && ans.BootID == second.boot, "%s was answered by boot %q", what, ans.BootID)
	}
	only("a ping", wire.ControlSubject(c.group, first.name), wire.Encode(wire.Control{V: wire.Version, Op: wire.OpPing}))
	a := second.sleeper(0)
	only("an offer", wire.TriggerSubject(c.group, first.name), second.offers(second.boot, second.beat(fresh).Beat, []*attempt{a}))
	second.outcome(a, wire.Succeeded, "")
	second.startedOnce(a)
	return "the heartbeats of the later process stay, and only that process answers"
}

// lastMessages is how long the tester waits for messages that a process published before its end.
const lastMessages = 10 * time.Second

func caseTerm(s *stage) string {
	c, rec := s.group(32)
	i := s.launch(c, rec)
	rec.settleAll(true)
	runs, later := i.sleeper(2*time.Second), i.sleeper(0)
	later.in = 5 * time.Second
	sent := i.accept(runs, later)
	i.awaitStart(runs)
	i.p.signal(sigTerm)
	s.undisturbed(time.Since(sent) < later.in, "SIGTERM was sent after the due instant")
	s.await(func() bool { return !i.p.alive() }, "the end of the process after SIGTERM")
	var bye seenGoodbye
	ok := s.until(lastMessages, func() (ok bool) { bye, ok = rec.goodbye(); return ok })
	got := rec.resultsOf(runs.key())
	if !ok && len(got) == 0 {
		s.notOffered("the process ends at once")
	}
	s.check(len(got) > 0 && got[0].Outcome == wire.Succeeded, "the attempt that ran at SIGTERM has not succeeded: it has %d results", len(got))
	handed := rec.resultsOf(later.key())
	s.check(len(handed) > 0 && handed[0].Outcome == wire.Unstarted, "the attempt that was not due at SIGTERM was not handed back: it has %d results", len(handed))
	i.neverStarted("an attempt that was not due at SIGTERM", later)
	s.check(ok, "the process did not delete its heartbeat")
	s.check(bye.instance == i.name, "the process deleted the heartbeat of %q", bye.instance)
	s.check(got[0].at.Before(bye.at) && handed[0].at.Before(bye.at), "the process deleted its heartbeat before it sent its results")
	s.check(len(rec.beatsOf(i.boot, bye.at)) == 0, "a heartbeat came after the process had deleted it")
	stream, err := s.w.js.Stream(s.ctx, "KV_"+wire.BucketInstances)
	s.must(err)
	last, err := stream.GetLastMsgForSubject(context.WithoutCancel(s.ctx), wire.InstanceSubject(wire.InstanceKey(c.group, i.name)))
	s.check(err != nil || last.Header.Get("KV-Operation") == "DEL", "the bucket still has the heartbeat of the process")
	drained := false
	rec.mu.Lock()
	for _, b := range rec.beats {
		drained = drained || b.Draining
	}
	rec.mu.Unlock()
	s.check(drained, "no heartbeat had draining")
	return "unstarted, succeeded, then the heartbeat deleted"
}

// leastSettleWait is the shortest time after SIGTERM at which an executor may give up waiting for settled results.
const leastSettleWait = 30 * time.Second

func caseGoodbyeSettled(s *stage) string {
	c, rec := s.group(32)
	i := s.launch(c, rec)
	a, other := i.sleeper(0), i.sleeper(0)
	i.accept(a, other)
	i.outcome(a, wire.Succeeded, "")
	i.outcome(other, wire.Succeeded, "")
	i.settle(other)
	stopped := time.Now()
	i.p.signal(sigTerm)
	again := func() bool {
		all := rec.resultsOf(a.key())
		return all[len(all)-1].at.After(stopped)
	}
	s.until(min(s.t.options.patience, leastSettleWait-5*time.Second), func() bool { return again() || !i.p.alive() })
	if !i.p.alive() {
		s.until(lastMessages, again)
		if _, ok := rec.goodbye(); !ok && !again() {
			s.notOffered("the process ends at once")
		}
	}
	s.check(again(), "the result was not published again after SIGTERM")
	_, left := rec.goodbye()
	s.undisturbed(time.Since(stopped) < leastSettleWait, "the case took too long")
	s.check(!left, "the process deleted its heartbeat before its result was settled")
	s.check(i.p.alive(), "the process ended before its result was settled")
	published := time.Since(stopped)
	settled := time.Now()
	s.check(len(rec.beatsOf(i.boot, stopped)) > 0, "no heartbeat came after SIGTERM, while a result was not settled")
	rec.settleAll(true)
	i.settle(a)
	s.await(func() bool { return !i.p.alive() }, "the end of the process after its result was settled")
	s.check(s.until(lastMessages, func() (ok bool) { _, ok = rec.goodbye(); return ok }), "the process did not delete its heartbeat")
	bye, _ := rec.goodbye()
	s.check(bye.at.After(settled), "the process deleted its heartbeat before its result was settled")
	return fmt.Sprintf("published again %v after SIGTERM, and the heartbeat deleted after settled", published.Round(100*time.Millisecond))
}

func caseDrained(s *stage) string {
	c, rec := s.group(32)
	c.drain = time.Second
	i := s.launch(c, rec)
	rec.settleAll(true)
	a := i.sleeper(forLong)
	i.accept(a)
	i.awaitStart(a)
	i.p.signal(sigTerm)
	s.await(func() bool { return len(rec.resultsOf(a.key())) > 0 || !i.p.alive() }, "the result of the attempt that ran at SIGTERM")
	s.until(lastMessages, func() bool { return len(rec.resultsOf(a.key())) > 0 })
	got := rec.resultsOf(a.key())
	if len(got) == 0 {
		s.notOffered("the process ends at once")
	}
	s.check(got[0].Outcome == wire.Failed && got[0].Reason == "drained", "the attempt ended as %q %q, not failed drained", got[0].Outcome, got[0].Reason)
	s.await(func() bool { return !i.p.alive() }, "the end of the process after SIGTERM")
	return fmt.Sprintf("failed drained; BELFRY_DRAIN_TIMEOUT was %v", c.drain)
}
