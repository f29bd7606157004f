package conformance

import (
	"context"
	"fmt"
	"path/filepath"
	"time"

	"github.com/belfryhq/belfry/executor/wire"
)

// defaultPatience is how long a case waits for what must come.
const defaultPatience = 60 * time.Second

// poll is how often a case looks for it.
const poll = 10 * time.Millisecond

// judgement ends a case. Cases throw it by panic, as tests end by runtime.Goexit; only judge catches it.
type judgement struct {
	verdict Verdict
	text    string
	// disturbed means that the tester itself was too late for the case to mean anything.
	disturbed bool
}

// stage is where a plan's duties are tested.
type stage struct {
	t    *tester
	w    *world
	plan plan
	ctx  context.Context //nolint:containedctx // it lives as long as the one plan
	dir  string
	all  []*instance
	// at is the process that most duties look at; nil in bare plans.
	at *instance
}

// fail says that the duty is broken.
func (s *stage) fail(format string, args ...any) {
	panic(judgement{verdict: Failed, text: fmt.Sprintf(format, args...)})
}

// check says that the duty is broken unless ok.
func (s *stage) check(ok bool, format string, args ...any) {
	if !ok {
		s.fail(format, args...)
	}
}

// notOffered says that the executor leaves out what is optional.
func (s *stage) notOffered(format string, args ...any) {
	panic(judgement{verdict: NotOffered, text: fmt.Sprintf(format, args...)})
}

// undisturbed asks for the case to be repeated unless ok.
func (s *stage) undisturbed(ok bool, format string, args ...any) {
	if !ok {
		panic(judgement{verdict: Unclear, text: fmt.Sprintf(format, args...), disturbed: true})
	}
}

// must is for faults of the tester.
func (s *stage) must(err error) {
	if err != nil {
		panic(judgement{verdict: Unclear, text: err.Error()})
	}
}

// wait pauses, as a case may.
func (s *stage) wait(d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-s.ctx.Done():
		s.must(s.ctx.Err())
	}
}

func (s *stage) waitUntil(at time.Time) { s.wait(time.Until(at)) }

// until polls for a condition and reports whether it came in time.
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

// await polls for a condition, and says that the duty is broken if it does not come.
func (s *stage) await(cond func() bool, format string, args ...any) {
	if !s.until(s.t.options.patience, cond) {
		s.fail("waited %v in vain: %s", s.t.options.patience, fmt.Sprintf(format, args...))
	}
}

// group makes a new group and the configuration of a process in it.
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

// launch starts a process and waits for the first heartbeat of a boot that was not there before.
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

// ready makes sure that the plan's process is there.
func (s *stage) ready() {
	if s.plan.bare || s.at != nil && s.at.p.alive() {
		return
	}
	if s.at != nil {
		s.t.say("%s: the executor has ended and is started again: %s", s.plan.name, s.at.p.tail())
	}
	c, rec := s.group(s.plan.capacity)
	s.at = nil
	s.at = s.launch(c, rec)
}

// clean ends what a case left behind: attempts that run, results that are not settled, and the processes of bare plans.
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

// end ends all processes of the plan.
func (s *stage) end() {
	for _, i := range s.all {
		i.p.signal(sigCont)
		i.p.kill()
	}
}

// file names a file to which a handler notes its starts.
func (s *stage) file(run string, attempt int) string {
	return filepath.Join(s.dir, fmt.Sprintf("%s-%d", run, attempt))
}

func refOf(a *attempt) wire.Ref { return wire.Ref{RunID: a.RunID, Attempt: a.Attempt} }
