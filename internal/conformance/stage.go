package conformance

import (
	"context"
	"fmt"
	"path/filepath"
	"time"

	"github.com/belfryhq/belfry/executor/wire"
	"github.com/belfryhq/belfry/internal/lifecycle"
)

// defaultPatience is how long a case waits for an expected event.
const defaultPatience = 60 * time.Second

// poll is the interval at which a case checks for the event.
const poll = 10 * time.Millisecond

// judgement ends a case. A case panics with it, and only judge recovers from that panic.
type judgement struct {
	verdict Verdict
	text    string
	// disturbed means that the tester itself was too late for the case to mean anything.
	disturbed bool
}

// stage tests the duties of one plan.
type stage struct {
	t    *tester
	w    *world
	plan plan
	ctx  context.Context //nolint:containedctx // a stage lives only as long as its plan
	dir  string
	all  []*instance
	// at is the process that most duties test; nil in bare plans.
	at *instance
}

// fail ends the case: the duty is broken.
func (s *stage) fail(format string, args ...any) {
	panic(judgement{verdict: Failed, text: fmt.Sprintf(format, args...)})
}

// check ends the case as fail does, unless ok.
func (s *stage) check(ok bool, format string, args ...any) {
	if !ok {
		s.fail(format, args...)
	}
}

// notOffered ends the case: the executor leaves out an optional duty.
func (s *stage) notOffered(format string, args ...any) {
	panic(judgement{verdict: NotOffered, text: fmt.Sprintf(format, args...)})
}

// undisturbed ends the case and requests its repetition, unless ok.
func (s *stage) undisturbed(ok bool, format string, args ...any) {
	if !ok {
		panic(judgement{verdict: Unclear, text: fmt.Sprintf(format, args...), disturbed: true})
	}
}

// must ends the case as unclear if err, an error of the tester, is not nil.
func (s *stage) must(err error) {
	if err != nil {
		panic(judgement{verdict: Unclear, text: err.Error()})
	}
}

// wait waits for d. If the test is cancelled meanwhile, it ends the case.
func (s *stage) wait(d time.Duration) {
	if !lifecycle.Pause(s.ctx, d) {
		s.must(s.ctx.Err())
	}
}

func (s *stage) waitUntil(at time.Time) { s.wait(time.Until(at)) }

// until polls until a condition is met or d has passed, and reports whether it is met.
func (s *stage) until(d time.Duration, cond func() bool) bool {
	for end := time.Now().Add(d); ; {
		if cond() {
			return true
		}
		if time.Now().After(end) {
			return false
		}
		s.wait(poll)
	}
}

// await polls until a condition is met. If it is not met in time, the duty is broken.
func (s *stage) await(cond func() bool, format string, args ...any) {
	if !s.until(s.t.options.patience, cond) {
		s.fail("not seen within %v: %s", s.t.options.patience, fmt.Sprintf(format, args...))
	}
}

// group creates a group, and returns the configuration of a process in it.
func (s *stage) group(capacity int) (launchConfig, *record) {
	n := s.t.number.Add(1)
	c := launchConfig{
		group: fmt.Sprintf("conformance-%s-%d-x", s.plan.name, n), instance: fmt.Sprintf("executor-%d", n), capacity: capacity, drain: 30 * time.Second,
	}
	c.spool = s.t.spoolOf(c.group, "a")
	token, rec := s.w.group(c.group)
	c.token = token
	return c, rec
}

// launch starts a process and waits for the first heartbeat of its boot.
func (s *stage) launch(c launchConfig, rec *record) *instance {
	known := make(map[string]bool)
	rec.mu.Lock()
	for _, b := range rec.beats {
		known[b.BootID] = true
	}
	rec.mu.Unlock()
	started := time.Now()
	p, err := s.t.start(s.w, c)
	s.must(err)
	i := &instance{s: s, rec: rec, p: p, config: c, settled: make(map[wire.Ref]bool)}
	s.all = append(s.all, i)
	found := s.until(s.t.options.patience, func() bool {
		rec.mu.Lock()
		defer rec.mu.Unlock()
		for _, b := range rec.beats {
			if !known[b.BootID] || b.Beat == 1 && b.at.After(started) {
				i.first = b
				return true
			}
		}
		return !p.alive()
	})
	if i.first.BootID == "" && !p.alive() {
		s.fail("the executor ended before its first heartbeat: %s", p.tail())
	}
	s.check(found, "no heartbeat came within %v: %s", s.t.options.patience, p.tail())
	s.check(!known[i.first.BootID], "a restarted process has the boot id %s of the earlier one", i.first.BootID)
	i.name, i.boot, i.capacity = i.first.Instance, i.first.BootID, i.first.Capacity
	return i
}

// ready starts the plan's process if it does not run.
func (s *stage) ready() {
	if s.plan.bare || s.at != nil && s.at.p.alive() {
		return
	}
	if s.at != nil {
		s.t.say("%s: the executor has ended, starting it again: %s", s.plan.name, s.at.p.tail())
	}
	c, rec := s.group(s.plan.capacity)
	s.at = nil
	s.at = s.launch(c, rec)
}

// clean removes the remains of a case: it kills running attempts, settles results, and kills the processes of bare plans.
func (s *stage) clean() {
	for _, i := range s.all {
		if s.plan.bare {
			i.p.signal(sigCont)
			i.p.kill()
			continue
		}
		i.tidy()
	}
	if s.plan.bare {
		s.all = nil
	}
}

// end kills all processes of the plan.
func (s *stage) end() {
	for _, i := range s.all {
		i.p.signal(sigCont)
		i.p.kill()
	}
}

// file returns the path of the file in which a handler records its starts.
func (s *stage) file(run string, attempt int) string {
	return filepath.Join(s.dir, fmt.Sprintf("%s-%d", run, attempt))
}

func refOf(a *attempt) wire.Ref { return wire.Ref{RunID: a.RunID, Attempt: a.Attempt} }
