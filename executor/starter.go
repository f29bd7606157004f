package executor

import (
	"cmp"
	"context"
	"math"
	"slices"
	"time"

	"github.com/belfryhq/belfry/executor/wire"
)

// startsAtOnce is the number of attempts that begin under one lock of the mutex and one reading of the clocks.
const startsAtOnce = 64

// starter holds accepted attempts until they are due. One goroutine waits for all of them and exits when there are
// none. Thousands of attempts can be due at the same instant, and a timer and a stack for each would cost more than
// their handlers. The engine's mutex guards starter.
type starter struct {
	waiting []dueBatch // ordered by start time; stopped attempts stay here until then
	count   int        // attempts that are not stopped
	ended   []*attempt // attempts that must not start and must be reported
	living  bool       // the goroutine is running
	wake    chan struct{}
}

// dueBatch holds the attempts with the same start time.
type dueBatch struct {
	due      time.Duration // on the monotonic clock
	attempts []*attempt
}

func newStarter() starter { return starter{wake: make(chan struct{}, 1)} }

// add queues an attempt by its start time.
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

// remove prevents the start of an attempt. The attempt must then be reported.
func (s *starter) remove(a *attempt) {
	a.stopped = true
	if !a.filed {
		close(a.stop)
		return
	}
	s.ended = append(s.ended, a)
	s.count--
}

// take removes at most limit attempts that are due at now, on the monotonic clock. It returns the start time of the
// next one, or never if there is none.
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

// schedule starts attempts when they are due. An attempt with a script also waits for the script's code. The caller
// holds mu.
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

// start starts the attempts that are due and reports the ones that must not start. It returns when no attempt waits.
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

// begin takes the attempts that are due and lets the ledger decide on each. wait is the time until the next one is due.
// If none is left, ok is false and the caller's goroutine must end.
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

// beginOne lets the ledger decide whether an attempt may start at this instant, and records the decision. The caller
// holds mu.
func (x *engine) beginOne(a *attempt, now instant, at time.Time) {
	a.begun = begun{at: at}
	started := false
	if a.why = "the code of its script did not arrive"; a.handler != nil || a.killed != "" {
		started, a.why = x.ledger.start(a.entry, x.tooLate(a, now), at)
	}
	if !started {
		a.stopped = true // otherwise a kill before the report would report it twice
		return
	}
	// Not derived from the executor's context, because that context would keep all of them in one map: see stop.
	a.ctx, a.cancel = context.WithCancelCause(context.Background())
}

// stop cancels the contexts of all handlers. No more attempts start, because drain has handed the accepted ones back.
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
