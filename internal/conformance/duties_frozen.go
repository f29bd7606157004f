package conformance

import (
	"fmt"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/belfryhq/belfry/executor/wire"
)

func frozenDuties() []duty {
	duties := []duty{
		{id: "frozen_short", title: "a freeze that ends within the limit has no effect on attempts", section: secBeat, clock: true, run: caseFrozenShort},
		{id: "frozen", title: "after a freeze past the limit, no attempt starts that was accepted or offered before", section: secBeat, clock: true,
			run: caseFrozen(wire.LeaseTTL+700*time.Millisecond, 200)},
		{id: "frozen_queue", title: "the same, with 1,000 waiting offers", section: secBeat, clock: true, long: true, run: caseFrozen(12*time.Second, 1000)},
	}
	for _, seconds := range []int{11, 14, 12, 20, 13, 17, 15} {
		duties = append(duties, duty{
			id: fmt.Sprintf("frozen_%d", seconds), title: fmt.Sprintf("the same, frozen for %d s", seconds), section: secBeat, clock: true, long: true,
			run: caseFrozen(time.Duration(seconds)*time.Second, 300),
		})
	}
	return duties
}

// stopped is how long the threads of a process may take to stop after the signal.
const stopped = 300 * time.Millisecond

func caseFrozenShort(s *stage) string {
	i := s.at
	b := i.beat(500 * time.Millisecond)
	before, during := i.sleeper(0), i.sleeper(0)
	before.in = 2 * time.Second
	v := i.send(i.boot, b.Beat, before).Verdicts[0]
	s.inTime(v, b)
	s.check(v.Verdict == wire.Accepted, "a fresh offer was %s", verdictText(v))
	s.check(i.p.signal(sigStop), "the executor ended: %s", i.p.tail())
	s.wait(stopped)
	s.must(s.w.system.PublishRequest(wire.TriggerSubject(i.config.group, i.name), s.w.system.NewInbox(), i.offers(i.boot, b.Beat, []*attempt{during})))
	s.waitUntil(b.at.Add(5 * time.Second))
	i.p.signal(sigCont)
	s.undisturbed(time.Since(b.at) < 6500*time.Millisecond, "the executor was continued too late")
	i.outcome(before, wire.Succeeded, "")
	i.outcome(during, wire.Succeeded, "")
	i.startedOnce(before, during)
	return "attempts that were accepted before or offered during a freeze of 4 s were started once"
}

// caseFrozen stops the executor's process group until the limit of a heartbeat has passed. Before the stop, the executor accepts
// attempts that are due during the stop and after it. During the stop, further offers on the same heartbeat wait in the
// executor's socket. None of these attempts may start, even if newer heartbeats are acknowledged after the stop.
func caseFrozen(frozen time.Duration, queued int) func(*stage) string {
	return func(s *stage) string {
		i := s.at
		runs := i.sleeper(forLong)
		i.accept(runs)
		i.awaitStart(runs)
		b := i.beat(300 * time.Millisecond)
		wake := b.at.Add(frozen)
		var within, after []*attempt
		for n := range 8 {
			a, c := i.sleeper(0), i.sleeper(0)
			a.in = 3*time.Second + time.Duration(n)*100*time.Millisecond
			c.in = time.Until(wake) + time.Duration(n)*300*time.Millisecond
			within, after = append(within, a), append(after, c)
		}
		sent := time.Now()
		for _, v := range i.send(i.boot, b.Beat, append(within, after...)...).Verdicts {
			s.inTime(v, b)
			s.check(v.Verdict == wire.Accepted, "a fresh offer was %s", verdictText(v))
		}
		s.check(i.p.signal(sigStop), "the executor ended: %s", i.p.tail())
		s.wait(stopped)
		s.undisturbed(time.Since(sent) < 2500*time.Millisecond, "the executor was stopped too late")
		waiting, answers := i.enqueue(b.Beat, queued, b.at.Add(wire.LeaseTTL-time.Second))
		defer answers.stop()
		s.waitUntil(wake)
		i.p.signal(sigCont)
		all := append(append(append([]*attempt(nil), within...), after...), waiting...)
		for _, a := range append(within, after...) {
			res := i.result(a)
			s.check(res.Outcome == wire.Unstarted, "an attempt that was accepted before a freeze of %v ended as %q %q, not unstarted", frozen, res.Outcome, res.Reason)
		}
		// The executor reads the waiting offers before it reads an offer that is sent now.
		s.await(func() bool {
			last, ok := i.rec.newest(i.boot)
			return ok && last.at.After(wake)
		}, "a heartbeat after the freeze")
		fine := i.sleeper(0)
		i.accept(fine)
		i.outcome(fine, wire.Succeeded, "")
		s.waitUntil(wake.Add(4 * time.Second))
		i.neverStarted("an attempt that relied on a heartbeat before the freeze", all...)
		n := answers.judge(i)
		s.check(i.status(runs).Status == wire.StatusRunning, "an attempt that ran before the freeze does not run any more")
		return fmt.Sprintf("frozen for %v: %d accepted attempts unstarted; of %d waiting offers, %d refused stale and none started",
			frozen, len(within)+len(after), len(waiting), n)
	}
}

// answers receives the answers to the offers that waited for a frozen executor.
type answers struct {
	sub *nats.Subscription
	by  map[string]*attempt // by inbox
}

// enqueue sends offers one by one, spread evenly until an instant.
func (i *instance) enqueue(beat int64, n int, until time.Time) ([]*attempt, *answers) {
	base := i.s.w.system.NewInbox()
	sub, err := i.s.w.system.SubscribeSync(base + ".*")
	i.s.must(err)
	heard := &answers{sub: sub, by: make(map[string]*attempt)}
	as := make([]*attempt, n)
	pause := time.Until(until) / time.Duration(n)
	for k := range as {
		as[k] = i.sleeper(0)
		inbox := fmt.Sprintf("%s.%d", base, k)
		heard.by[inbox] = as[k]
		i.s.must(i.s.w.system.PublishRequest(wire.TriggerSubject(i.config.group, i.name), inbox, i.offers(i.boot, beat, as[k:k+1])))
		if k%10 == 9 {
			i.s.wait(10 * pause)
		}
	}
	return as, heard
}

// judge checks the answers that have come and returns their number. An offer may have no answer, because a client may drop
// messages that wait too long.
func (h *answers) judge(i *instance) (n int) {
	for {
		msg, err := h.sub.NextMsg(poll)
		if err != nil {
			return n
		}
		a := h.by[msg.Subject]
		if a == nil || len(msg.Data) == 0 {
			continue
		}
		v := i.answer(msg, []*attempt{a}).Verdicts[0]
		i.s.check(v.Verdict == wire.Refused && v.Reason == wire.RefusedStale, "an offer that was read after its limit was %s", verdictText(v))
		n++
	}
}

func (h *answers) stop() { _ = h.sub.Unsubscribe() } // if this fails, the end of the connection does it
