package executor

import (
	"cmp"
	"context"
	"math"
	"slices"
	"time"

	"github.com/belfryhq/belfry/executor/wire"
)

// startsAtOnce is how many attempts are begun under one hold of the mutex, and by one look at the lease.
const startsAtOnce = 64

// starter holds accepted attempts until they are due. One goroutine, which lives while there are any, waits for all of
// them: thousands are due at the same instant, and a timer and a stack for each would cost more than their handlers. The
// engine's mutex guards it.
type starter struct {
	waiting []dueBatch // by the time to start; those that are stopped meanwhile stay until then
	count   int        // of those that are not stopped
	ended   []*attempt // those that are not to start, and have to be reported
	living  bool       // the goroutine
	wake    chan struct{}
}

// dueBatch is the attempts that start at one time.
type dueBatch struct {
	due      time.Duration // on the monotonic clock
	attempts []*attempt
}

func newStarter() starter { return starter{wake: make(chan struct{}, 1)} }

// add files an attempt under the time to start it.
func (s *starter) add(a *attempt) {
	due := a.startAt
	i, found := slices.BinarySearchFunc(s.waiting, due, func(b dueBatch, at time.Duration) int { return cmp.Compare(b.due, at) })
	if !found {
		s.waiting = slices.Insert(s.waiting, i, dueBatch{due: due})
	}
	s.waiting[i].attempts = append(s.waiting[i].attempts, a)
	a.filed = true
	s.count++
}

// remove keeps an attempt from being started; it has to be reported.
func (s *starter) remove(a *attempt) {
	a.stopped = true
	if !a.filed {
		close(a.stop)
		return
	}
	s.ended = append(s.ended, a)
	s.count--
}

// take removes at most limit attempts that are due at now, on the monotonic clock, and says when the next one is; never
// says that there is none.
func (s *starter) take(now time.Duration, limit int) (due []*attempt, next time.Duration) {
	for len(s.waiting) > 0 && s.waiting[0].due <= now && len(due) < limit {
		b := &s.waiting[0]
		n := min(limit-len(due), len(b.attempts))
		due = slices.Grow(due, n)
		for _, a := range b.attempts[:n] {
			if !a.stopped {
				due = append(due, a)
			}
		}
		if b.attempts = b.attempts[n:]; len(b.attempts) == 0 {
			s.waiting[0].attempts = nil
			s.waiting = s.waiting[1:]
		}
	}
	s.count -= len(due)
	if s.count == 0 {
		s.waiting = nil
		return due, never
	}
	return due, s.waiting[0].due
}

const never time.Duration = math.MaxInt64

// schedule starts attempts at their due instants, those of scripts not before their code is here. The mutex is held.
func (x *engine) schedule(fresh []*attempt) {
	for _, a := range fresh {
		if a.stop == nil {
			x.starter.add(a)
			continue
		}
		go func() {
			x.fetch(a)
			x.mu.Lock()
			defer x.mu.Unlock()
			if x.starter.add(a); a.stopped {
				x.starter.remove(a)
			}
			x.wakeStarter()
		}()
	}
	if len(x.starter.waiting) > 0 {
		x.wakeStarter()
	}
}

func (x *engine) wakeStarter() {
	if !x.starter.living {
		x.starter.living = true
		go x.start()
		return
	}
	wake(x.starter.wake)
}

// start starts what is due, and reports what is not to start, until nothing waits any more.
func (x *engine) start() {
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for {
		x.at("due")
		batch, wait, ok := x.begin()
		for _, a := range batch {
			if a.why == "" {
				go x.perform(a)
			} else {
				a.result = x.newResult(a)
				a.result.result.Outcome, a.result.result.Message = wire.Unstarted, a.why
				x.finish(a)
			}
		}
		switch {
		case !ok:
			return
		case len(batch) > 0:
			continue
		}
		timer.Reset(wait)
		select {
		case <-timer.C:
		case <-x.starter.wake:
		}
	}
}

// begin asks the ledger about the attempts that are due now. It says how long the next one is to wait; it is not ok when
// there is none, and the goroutine that asked is to end.
func (x *engine) begin() (batch []*attempt, wait time.Duration, ok bool) {
	x.mu.Lock()
	defer x.mu.Unlock()
	now := x.now()
	at := x.db.now(now)
	due, next := x.starter.take(now.mono, startsAtOnce)
	batch = slices.Concat(x.starter.ended, due)
	x.starter.ended = nil
	for _, a := range batch {
		x.beginOne(a, now, at)
	}
	if len(batch) == 0 && next == never {
		x.starter.living = false
		return nil, 0, false
	}
	return batch, next - now.mono, true
}

// beginOne asks the ledger whether an attempt may start, at this instant, and notes what it says. The mutex is held.
func (x *engine) beginOne(a *attempt, now instant, at time.Time) {
	a.begun = begun{at: at}
	started := false
	if a.why = "the code of its script did not come"; a.handler != nil || a.killed != "" {
		started, a.why = x.ledger.start(a.entry, x.tooLate(a, now), at)
	}
	if !started {
		a.stopped = true // or a kill, before it is reported, would have it reported twice
		return
	}
	// Not derived from the executor's context, which would keep all of them in one map: see stop.
	a.ctx, a.cancel = context.WithCancelCause(context.Background())
}

// stop cancels the contexts of all handlers. Nothing starts any more: what was accepted has been handed back.
func (x *engine) stop(cause error) {
	x.stopWork(cause)
	x.mu.Lock()
	defer x.mu.Unlock()
	for _, a := range x.attempts {
		if a.cancel != nil {
			a.cancel(cause)
		}
	}
}
