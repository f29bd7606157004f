package conformance

import (
	"time"

	"github.com/belfryhq/belfry/executor/wire"
)

func controlDuties() []duty {
	return []duty{
		{id: "ping", title: "answers ping, and an unknown op with error", section: secControl, run: casePing},
		{id: "job_runs", title: "counts a job's attempts in the answer to ping", section: secControl, optional: true, run: caseJobRuns},
		{id: "status", title: "status: unknown, accepted, running, done with the result, refused, barred", section: secControl, run: caseStatus},
		{id: "kill_unknown", title: "a kill bars an attempt that is unknown or was refused", section: secControl, run: caseKillUnknown},
		{id: "kill_accepted", title: "a kill before the due instant: unstarted, never started, not accepted again", section: secRun, run: caseKillAccepted},
		{id: "kill_running", title: "a kill ends a running attempt, with the reason of the kill", section: secRun, run: caseKillRunning},
		{id: "kill_ended", title: "a kill after the end changes nothing", section: secControl, run: caseKillEnded},
		{id: "drain", title: "op drain: a heartbeat says so, no further attempt starts, running attempts continue", section: secRun, run: caseDrain},
	}
}

func casePing(s *stage) string {
	i := s.at
	rep := i.control(wire.Control{Op: wire.OpPing})
	s.check(rep.Error == "" && rep.Load.Capacity == i.capacity, "ping was answered with error %q and capacity %d", rep.Error, rep.Load.Capacity)
	rep = i.control(wire.Control{Op: "conformance"})
	s.check(rep.Error != "", "an unknown op was answered without error")
	return "answered; unknown op: " + rep.Error
}

func caseJobRuns(s *stage) string {
	i := s.at
	const job = 4711
	ping := func() int {
		rep := i.control(wire.Control{Op: wire.OpPing, JobID: job})
		if rep.JobRuns == nil {
			s.notOffered("the answer has no job_runs")
		}
		return *rep.JobRuns
	}
	s.check(ping() == 0, "job_runs is %d before any attempt of the job", ping())
	running, due, other := i.sleeper(forLong), i.sleeper(forLong), i.sleeper(forLong)
	running.JobID, due.JobID, due.in = job, job, 5*time.Second
	i.accept(running, due, other)
	s.check(ping() == 2, "job_runs is %d with one attempt accepted and one running", ping())
	i.kill("killed", running, due)
	i.result(running)
	i.result(due)
	s.await(func() bool { return ping() == 0 }, "job_runs 0 after both ended")
	return "0, 2, 0"
}

func caseStatus(s *stage) string {
	i := s.at
	unknown, later, runs, done := i.sleeper(0), i.sleeper(0), i.sleeper(forLong), i.make(handlerFail, param{Text: "as asked"})
	later.in = 5 * time.Second
	s.check(i.status(unknown).Status == wire.StatusUnknown, "an attempt that was never offered has status %s", i.status(unknown).Status)
	i.accept(later)
	st := i.status(later)
	s.check(st.Status == wire.StatusAccepted && st.StartedAt.IsZero(), "an attempt that is not due has status %s, started_at %v", st.Status, st.StartedAt)
	i.kill("killed", later)
	i.accept(runs, done)
	i.awaitStart(runs)
	st = i.awaitStatus(runs, wire.StatusRunning)
	s.check(!st.StartedAt.IsZero(), "a running attempt has no started_at")
	res := i.outcome(done, wire.Failed, "handler_error")
	st = i.awaitStatus(done, wire.StatusDone)
	s.check(st.Result != nil && st.Result.Outcome == wire.Failed && st.Result.RunID == done.RunID && st.Result.BootID == res.BootID,
		"the status of an attempt whose result is not settled has the result %+v", st.Result)
	s.check(st.Outcome == wire.Failed, "the status of a failed attempt has the outcome %q", st.Outcome)
	i.settle(done)
	s.await(func() bool { return i.status(done).Result == nil }, "a status without the result, after the result is settled")
	st = i.status(done)
	s.check(st.Status == wire.StatusDone && st.Outcome == wire.Failed, "a failed attempt whose result is settled has status %s, outcome %q", st.Status, st.Outcome)
	several := i.statuses(wire.OpStatus, "", unknown, runs, done)
	s.check(several[0].Status == wire.StatusUnknown && several[1].Status == wire.StatusRunning, "the statuses of three attempts are %s, %s, %s",
		several[0].Status, several[1].Status, several[2].Status)
	return "unknown, accepted, running, done with and without result"
}

func caseKillUnknown(s *stage) string {
	i := s.at
	never, refused := i.sleeper(0), i.make("conformance_that_nobody_has", param{})
	st := i.kill("killed", never)
	s.check(st[0].Status == wire.StatusBarred, "a kill of an unknown attempt is answered with status %s", st[0].Status)
	i.refused(refused, wire.RefusedNoHandler, "an offer of an unknown handler")
	st = i.kill("killed", refused)
	s.check(st[0].Status == wire.StatusBarred, "a kill of a refused attempt is answered with status %s", st[0].Status)
	refused.Handler = handlerSleep
	for range 2 {
		i.refused(never, wire.RefusedStale, "an attempt that a kill had barred")
		never.Bind++
		refused.Bind++
		i.refused(refused, wire.RefusedStale, "an attempt that was refused and then barred")
	}
	i.neverStarted("a barred attempt", never, refused)
	return "barred; refused stale under the same bind and a higher one"
}

func caseKillAccepted(s *stage) string {
	i := s.at
	a := i.sleeper(0)
	a.in = 2 * time.Second
	sent := i.accept(a)
	i.kill("killed", a)
	s.undisturbed(time.Since(sent) < a.in, "the kill was sent after the due instant")
	i.outcome(a, wire.Unstarted, "killed")
	s.waitUntil(sent.Add(a.in + time.Second))
	i.settle(a)
	s.await(func() bool { return i.status(a).Result == nil }, "a status without the result, after the result is settled")
	a.Bind++
	i.refused(a, wire.RefusedStale, "an attempt that a kill ended before its start")
	i.neverStarted("an attempt that was killed before its due instant", a)
	return "unstarted killed; refused stale under a higher bind"
}

func caseKillRunning(s *stage) string {
	i := s.at
	want := []struct{ reason, outcome string }{{"killed", wire.Cancelled}, {"covered", wire.Cancelled}, {"timeout", wire.Failed}}
	for _, w := range want {
		a := i.sleeper(forLong)
		i.accept(a)
		i.awaitStart(a)
		i.kill(w.reason, a)
		i.outcome(a, w.outcome, w.reason)
		i.startedOnce(a)
	}
	return "cancelled killed, cancelled covered, failed timeout"
}

func caseKillEnded(s *stage) string {
	i := s.at
	a := i.sleeper(0)
	i.accept(a)
	i.outcome(a, wire.Succeeded, "")
	st := i.kill("killed", a)
	s.check(st[0].Status == wire.StatusDone, "a kill of an ended attempt is answered with status %s", st[0].Status)
	a.Bind++
	v := i.verdict(a)
	s.check(v.Verdict == wire.Ended && v.Outcome == wire.Succeeded, "after the kill, the ended attempt was %s", verdictText(v))
	for _, res := range i.rec.resultsOf(a.key()) {
		s.check(res.Outcome == wire.Succeeded, "after the kill a result says %s", res.Outcome)
	}
	return "done; its outcome is still succeeded"
}

// caseDrain is the last case of its plan, because it leaves an instance that accepts no attempts.
func caseDrain(s *stage) string {
	i := s.at
	runs, later := i.sleeper(2*time.Second), i.sleeper(0)
	later.in = 5 * time.Second
	sent := i.accept(runs, later)
	i.awaitStart(runs)
	i.control(wire.Control{Op: wire.OpDrain})
	s.undisturbed(time.Since(sent) < later.in, "the drain was sent after the due instant")
	s.await(func() bool { b, _ := i.rec.newest(i.boot); return b.Draining }, "a heartbeat with draining")
	res := i.result(later)
	s.check(res.Outcome == wire.Unstarted, "an attempt that was not due ended as %q %q, not unstarted", res.Outcome, res.Reason)
	refused := i.sleeper(0)
	i.refused(refused, wire.RefusedDraining, "an offer during a drain")
	i.outcome(runs, wire.Succeeded, "")
	s.waitUntil(sent.Add(later.in + time.Second))
	i.neverStarted("an attempt that was not due at the drain", later, refused)
	return "draining in a heartbeat; unstarted; refused draining; the running attempt succeeded"
}
