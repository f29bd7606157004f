package conformance

import (
	"fmt"
	"slices"
	"time"

	"github.com/belfryhq/belfry/executor/wire"
)

func startDuties() []duty {
	return []duty{
		{id: "login", title: "logs in with the group's token", section: secConnect, run: caseLogin},
		{id: "subjects", title: "uses only its own subjects", section: secConnect, run: caseQuiet("the server refused nothing")},
		{id: "subscribed", title: "subscribes before its first heartbeat", section: secConnect, run: caseQuiet("both subjects had a receiver")},
		{id: "handlers", title: "has the handlers of docs/conformance.md", section: secHeartbeat, run: caseHandlers},
		{id: "heartbeat_fields", title: "heartbeats have all fields", section: secHeartbeat, run: caseQuiet("all heartbeats had them")},
		{id: "heartbeat_beats", title: "beat is 1, 2, … within a boot", section: secHeartbeat, run: caseBeats},
		{id: "heartbeat_period", title: "a heartbeat every 3 s", section: secHeartbeat, clock: true, run: casePeriod},
		{id: "load", title: "running and seq follow the slots", section: secHeartbeat, run: caseLoad},
	}
}

// caseQuiet returns the case of a duty that any message of any case may break. The record notes such faults.
func caseQuiet(seen string) func(*stage) string { return func(*stage) string { return seen } }

func caseLogin(s *stage) string {
	return fmt.Sprintf("instance %s, boot %s", s.at.name, s.at.boot)
}

func caseHandlers(s *stage) string {
	for _, h := range []string{handlerSleep, handlerFail, handlerOutput, handlerEcho} {
		s.check(slices.Contains(s.at.first.Handlers, h), "the heartbeat does not list the handler %s", h)
	}
	return fmt.Sprintf("%d handlers", len(s.at.first.Handlers))
}

func caseBeats(s *stage) string {
	const most = 4
	first := s.at.first.Beat // more than 1 if the executor counted heartbeats before it was connected
	s.check(first <= most, "the first heartbeat has beat %d", first)
	last := first
	s.await(func() bool {
		last = first
		for _, b := range s.at.rec.beatsOf(s.at.boot, time.Time{}) {
			s.check(b.Beat == last || b.Beat == last+1, "beat %d follows beat %d", b.Beat, last)
			last = b.Beat
		}
		return last >= first+most
	}, "beat %d", first+most)
	return fmt.Sprintf("%d to %d", first, last)
}

// casePeriod checks the median of the gaps, because a single late heartbeat hardly changes it.
func casePeriod(s *stage) string {
	const gaps = 3
	s.await(func() bool { return len(s.at.rec.beatsOf(s.at.boot, time.Time{})) > gaps }, "%d heartbeats", gaps+1)
	beats := s.at.rec.beatsOf(s.at.boot, time.Time{})
	between := make([]time.Duration, 0, len(beats))
	for n := 1; n < len(beats); n++ {
		between = append(between, beats[n].at.Sub(beats[n-1].at))
	}
	slices.Sort(between)
	median := between[len(between)/2].Round(time.Millisecond)
	s.check(median > 1500*time.Millisecond && median < 6*time.Second, "the median of %d gaps is %v", len(between), median)
	return fmt.Sprintf("the median of %d gaps is %v", len(between), median)
}

func caseLoad(s *stage) string {
	i := s.at
	idle := i.control(wire.Control{Op: wire.OpPing}).Load
	s.check(idle.Running == 0 && idle.Capacity == i.capacity, "an idle instance reports running %d, capacity %d (heartbeat: %d)",
		idle.Running, idle.Capacity, i.capacity)
	a, b := i.sleeper(forLong), i.sleeper(forLong)
	i.accept(a, b)
	taken := i.control(wire.Control{Op: wire.OpPing}).Load
	s.check(taken.Running == 2 && taken.Seq > idle.Seq, "with two attempts the instance reports running %d, seq %d after %d", taken.Running, taken.Seq, idle.Seq)
	s.await(func() bool {
		h, _ := i.rec.newest(i.boot)
		return h.Running == 2
	}, "a heartbeat with running 2")
	i.awaitStart(a)
	i.awaitStart(b)
	i.kill("killed", a, b)
	i.result(a)
	i.result(b)
	i.settle(a, b)
	var last wire.Load
	s.await(func() bool { last = i.control(wire.Control{Op: wire.OpPing}).Load; return last.Running == 0 }, "running 0 after both attempts ended")
	s.check(last.Seq > taken.Seq, "seq is %d after both ended, %d before", last.Seq, taken.Seq)
	return fmt.Sprintf("running 0, 2, 0; seq %d, %d, %d", idle.Seq, taken.Seq, last.Seq)
}
