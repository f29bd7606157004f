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
		{id: "nats_away", title: "NATS away: handlers go on, results come again, nothing old is sent", section: secConnect, clock: true, run: caseNATSAway},
	}
}

func restartDuties() []duty {
	return []duty{
		{id: "restart", title: "a restarted process has another boot id, and takes nothing of the boot before", section: secConnect, run: caseRestart},
		{id: "spool", title: "results outlive SIGKILL, and come under the boot id that they ran under", section: secResults, optional: true, run: caseSpool},
	}
}

func nameDuties() []duty {
	return []duty{
		{id: "same_name", title: "the later of two processes of one name has it, the earlier is silent", section: secHeartbeat, optional: true, run: caseName},
	}
}

func termDuties() []duty {
	return []duty{
		{id: "sigterm", title: "SIGTERM: hands back, finishes, reports, and takes its heartbeat back last", section: secRun, optional: true, run: caseTerm},
	}
}

func drainedDuties() []duty {
	return []duty{
		{id: "drained", title: "what does not end in time after SIGTERM fails as drained", section: secRun, optional: true, long: true, run: caseDrained},
	}
}

// caseNATSAway stops the server of this plan alone.
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
	s.check(i.p.alive(), "the executor ended while NATS was away: %s", i.p.tail())
	opened := time.Now()
	s.must(s.w.open(s.ctx))
	s.await(func() bool { b, ok := rec.newest(i.boot); return ok && b.at.After(opened) }, "a heartbeat of the same boot after NATS came back")
	i.outcome(ends, wire.Succeeded, "")
	i.startedOnce(ends, long)
	s.await(func() bool {
		all := rec.resultsOf(unsettled.key())
		return all[len(all)-1].at.After(opened)
	}, "an unsettled result (first published %v before NATS went) is published again", time.Until(first.at).Round(time.Second))
	res := i.result(due)
	n := len(i.starts(due))
	s.check(res.Outcome == wire.Succeeded && n == 1 || res.Outcome == wire.Unstarted && n == 0, "an attempt due while NATS was away ended as %s after %d starts",
		res.Outcome, n)
	s.check(i.status(long).Status == wire.StatusRunning, "what ran before does not run any more")
	s.wait(time.Second)
	// The server receives in one burst what a client has kept for it.
	beats := rec.beatsOf(i.boot, opened)
	for k := range beats {
		burst := 0
		for _, b := range beats[k:] {
			if b.at.Sub(beats[k].at) < 500*time.Millisecond {
				burst++
			}
		}
		s.check(burst <= 2, "%d heartbeats came at once, from beat %d on: the client sent later what it could not send in time", burst, beats[k].Beat)
	}
	fine := i.sleeper(0)
	i.accept(fine)
	i.outcome(fine, wire.Succeeded, "")
	return fmt.Sprintf("away for 12 s: results came again, beat went from %d to %d", last.Beat, beats[0].Beat)
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
	v := i.send(old.boot, i.beat(fresh).Beat, running).Verdicts[0] // which checks that the answer names the new boot
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
		s.notOffered("the restarted process has another name, and nothing to send under the old one")
	}
	const within = 15 * time.Second
	if !s.until(within, func() bool { return back() == len(as) }) {
		s.check(back() == 0, "of %d results %d came again after SIGKILL", len(as), back())
		s.notOffered("no result came again within %v of the restart", within)
	}
	for n, a := range as {
		all := rec.resultsOf(a.key())
		last := all[len(all)-1]
		s.check(last.BootID == old.boot && last.Output == fmt.Sprintf("result %d", n), "a result came again under boot %s with output %q", last.BootID, last.Output)
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
	s.await(func() bool { return i.status(a).Result == nil }, "a status without result once that is settled")
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
	s.await(func() bool { return stored() == second.boot }, "the later process's heartbeat is stored")
	taken := time.Now()
	s.check(!s.until(10*time.Second, func() bool { return stored() != second.boot }), "the bucket stored a heartbeat of the earlier process after one of the later process")
	s.check(len(rec.beatsOf(first.boot, taken)) > 0, "the earlier process does not try to send heartbeats any more")
	only := func(what, subject string, data []byte) {
		inbox := s.w.system.NewInbox()
		sub, err := s.w.system.SubscribeSync(inbox)
		s.must(err)
		defer func() { _ = sub.Unsubscribe() }() // with the connection at the latest
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
	return "the later process's heartbeats stay; it alone answers"
}

// lastMessages is how long the tester may take to receive what a process published before its end.
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
		s.notOffered("it ends at once")
	}
	s.check(len(got) > 0 && got[0].Outcome == wire.Succeeded, "what ran at SIGTERM has not succeeded: %d results", len(got))
	handed := rec.resultsOf(later.key())
	s.check(len(handed) > 0 && handed[0].Outcome == wire.Unstarted, "what was not due at SIGTERM was not handed back: %d results", len(handed))
	i.neverStarted("an attempt that was not due at SIGTERM", later)
	s.check(ok, "it did not take its heartbeat back")
	s.check(bye.instance == i.name, "it took back the heartbeat of %q", bye.instance)
	s.check(got[0].at.Before(bye.at) && handed[0].at.Before(bye.at), "it took its heartbeat back before its results were sent")
	s.check(len(rec.beatsOf(i.boot, bye.at)) == 0, "a heartbeat came after it was taken back")
	stream, err := s.w.js.Stream(s.ctx, "KV_"+wire.BucketInstances)
	s.must(err)
	last, err := stream.GetLastMsgForSubject(context.WithoutCancel(s.ctx), wire.InstanceSubject(wire.InstanceKey(c.group, i.name)))
	s.check(err != nil || last.Header.Get("KV-Operation") == "DEL", "the bucket still has its heartbeat")
	drained := false
	rec.mu.Lock()
	for _, b := range rec.beats {
		drained = drained || b.Draining
	}
	rec.mu.Unlock()
	s.check(drained, "no heartbeat said draining")
	return "unstarted, succeeded, then the heartbeat taken back"
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
	s.await(func() bool { return len(rec.resultsOf(a.key())) > 0 || !i.p.alive() }, "the result of what ran at SIGTERM")
	s.until(lastMessages, func() bool { return len(rec.resultsOf(a.key())) > 0 })
	got := rec.resultsOf(a.key())
	if len(got) == 0 {
		s.notOffered("it ends at once")
	}
	s.check(got[0].Outcome == wire.Failed && got[0].Reason == "drained", "it ended as %q %q, not failed drained", got[0].Outcome, got[0].Reason)
	s.await(func() bool { return !i.p.alive() }, "the end of the process after SIGTERM")
	return fmt.Sprintf("failed drained; BELFRY_DRAIN_TIMEOUT was %v", c.drain)
}
