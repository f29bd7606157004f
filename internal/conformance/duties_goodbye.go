package conformance

import (
	"time"

	"github.com/belfryhq/belfry/executor/wire"
)

func goodbyeDuties() []duty {
	return []duty{
		{id: "goodbye_boot", title: "after SIGTERM, with all results settled: the goodbye names its boot", section: secHeartbeat, optional: true, run: caseGoodbyeBoot},
	}
}

func unsettledDuties() []duty {
	return []duty{
		{id: "goodbye_unsettled", title: "a goodbye with a result that is not settled does not say that all are", section: secHeartbeat, optional: true, long: true, run: caseGoodbyeUnsettled},
	}
}

// settledBoot returns the boot that a goodbye names, or "" if it names none.
func (s *stage) settledBoot(bye seenGoodbye) string {
	if len(bye.body) == 0 {
		return ""
	}
	var m wire.Goodbye
	err := wire.Decode(bye.body, &m)
	s.check(err == nil, "the goodbye cannot be read: %v", err)
	return m.SettledBoot
}

func caseGoodbyeBoot(s *stage) string {
	c, rec := s.group(32)
	i := s.launch(c, rec)
	rec.settleAll(true)
	a := i.sleeper(0)
	i.accept(a)
	i.outcome(a, wire.Succeeded, "")
	i.settle(a)
	i.p.signal(sigTerm)
	s.await(func() bool { return !i.p.alive() }, "the end of the process after SIGTERM")
	var bye seenGoodbye
	if !s.until(lastMessages, func() (ok bool) { bye, ok = rec.goodbye(); return ok }) {
		s.notOffered("the process ends without a goodbye")
	}
	boot := s.settledBoot(bye)
	if boot == "" {
		s.notOffered("the goodbye names no boot")
	}
	s.check(boot == i.boot, "the goodbye names the boot %q, not %q", boot, i.boot)
	return "settled_boot is the boot of the process"
}

func caseGoodbyeUnsettled(s *stage) string {
	c, rec := s.group(32)
	i := s.launch(c, rec)
	a := i.sleeper(0)
	i.accept(a)
	i.outcome(a, wire.Succeeded, "")
	i.p.signal(sigTerm)
	if !s.until(leastSettleWait+10*time.Second, func() bool { return !i.p.alive() }) {
		_, left := rec.goodbye()
		s.check(!left, "the process said goodbye, although it still waits for the settling of a result")
		rec.settleAll(true)
		i.settle(a)
		return "it waits for the settling of its result"
	}
	var bye seenGoodbye
	if !s.until(lastMessages, func() (ok bool) { bye, ok = rec.goodbye(); return ok }) {
		s.notOffered("the process ends without a goodbye")
	}
	s.check(s.settledBoot(bye) == "", "the goodbye says that all results are settled, although one is not")
	return "the goodbye names no boot"
}
