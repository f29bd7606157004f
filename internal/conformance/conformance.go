package conformance

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/belfryhq/belfry/internal/domain"
)

// Options say what Run tests. Only Command is required.
type Options struct {
	// Command is the executor, as a command line for /bin/sh.
	Command string
	// Short leaves out the duties that take long, and repeats freezes less often.
	Short bool
	// Only names the duties to test; empty means all.
	Only []string
	// LogDir is the directory for the executors' output. If it is empty, the output is removed at the end.
	LogDir string
	// Progress receives the line of each duty as soon as the duty is judged, one call at a time. It may be nil.
	Progress func(Line)
	// patience is how long cases wait for an expected event; 0 means defaultPatience.
	patience time.Duration
	// Notice receives messages for the user while the kit works, such as that a case is repeated. It may be nil.
	Notice func(text string)
}

// triesOfDisturbed bounds how often a case is repeated because the tester was disturbed.
const triesOfDisturbed = 3

// tester is one run of the kit.
type tester struct {
	options Options
	dir     string
	logDir  string
	number  atomic.Int64 // how many groups were created
	meter   meter

	mu        sync.Mutex
	processes []*process
	lines     map[string]Line
	worlds    []*world
}

// Run tests an executor and returns the report. It returns an error if the executor could not be tested. A broken duty is
// not an error.
func Run(ctx context.Context, o Options) (Report, error) {
	if strings.TrimSpace(o.Command) == "" {
		return Report{}, domain.NewError(domain.Invalid, "--executor: a command is required")
	}
	if !supported {
		return Report{}, domain.NewError(domain.Invalid, "executors can be tested on Unix systems only, where processes can be stopped and continued")
	}
	if o.patience == 0 {
		o.patience = defaultPatience
	}
	chosen, err := choose(o)
	if err != nil {
		return Report{}, err
	}
	dir, err := os.MkdirTemp("", "belfry-conformance-*")
	if err != nil {
		return Report{}, domain.WrapError(domain.Internal, "create a temporary directory", err)
	}
	t := &tester{options: o, dir: dir, logDir: o.LogDir, lines: make(map[string]Line)}
	if t.logDir == "" {
		t.logDir = filepath.Join(dir, "logs")
	}
	if err := os.MkdirAll(t.logDir, 0o700); err != nil {
		return Report{}, domain.WrapError(domain.Internal, "create the directory for output", err)
	}
	began := time.Now()
	err = t.test(ctx, chosen)
	t.killAll()
	if removed := os.RemoveAll(dir); err == nil && removed != nil {
		err = domain.WrapError(domain.Internal, "remove the temporary directory", removed)
	}
	if err != nil {
		return Report{}, err
	}
	r := Report{Executor: o.Command, Short: o.Short, TookMS: time.Since(began).Milliseconds()}
	for _, p := range chosen {
		for _, d := range p.duties {
			r.Duties = append(r.Duties, t.lines[d.id])
		}
	}
	order := make(map[string]int)
	for n, id := range Duties() {
		order[id] = n
	}
	slices.SortFunc(r.Duties, func(a, b Line) int { return order[a.Duty] - order[b.Duty] })
	r.count()
	return r, nil
}

// Duties returns the names of all duties, in the order of the report.
func Duties() (ids []string) {
	for _, name := range []string{"start", "offers", "beats", "limit", "again", "frozen", "control", "results", "repeat", "memory", "nats", "restart", "name", "overwrite", "term", "drained", "settled", "goodbye", "unsettled"} {
		for _, p := range plans() {
			for _, d := range p.duties {
				if p.name == name {
					ids = append(ids, d.id)
				}
			}
		}
	}
	return ids
}

// choose returns the plans with the duties that the options ask for.
func choose(o Options) (chosen []plan, err error) {
	for _, id := range o.Only {
		if !slices.Contains(Duties(), id) {
			return nil, domain.NewError(domain.Invalid, fmt.Sprintf("--duty: unknown duty %q; the duties are %s", id, strings.Join(Duties(), ", ")))
		}
	}
	for _, p := range plans() {
		var duties []duty
		for _, d := range p.duties {
			if len(o.Only) > 0 && slices.Contains(o.Only, d.id) || len(o.Only) == 0 && !(o.Short && d.long) {
				duties = append(duties, d)
			}
		}
		if p.duties = duties; len(duties) > 0 {
			chosen = append(chosen, p)
		}
	}
	return chosen, nil
}

// test runs the plans side by side.
func (t *tester) test(ctx context.Context, chosen []plan) error {
	shared, err := t.world(ctx)
	if err != nil {
		return err
	}
	metering, stopMeter := context.WithCancel(ctx)
	var meters, wg sync.WaitGroup
	meters.Go(func() { t.meter.run(metering) })
	errs := make(chan error, len(chosen))
	for _, p := range chosen {
		wg.Go(func() { errs <- t.follow(ctx, p, shared) })
	}
	wg.Wait()
	stopMeter()
	meters.Wait()
	close(errs)
	for e := range errs {
		if e != nil && err == nil {
			err = e
		}
	}
	t.addFaults()
	if closed := shared.close(context.WithoutCancel(ctx)); err == nil {
		err = closed
	}
	return err
}

func (t *tester) world(ctx context.Context) (*world, error) {
	t.mu.Lock()
	dir := filepath.Join(t.dir, fmt.Sprintf("world-%d", len(t.worlds)+1))
	t.mu.Unlock()
	w, err := newWorld(ctx, dir)
	if err != nil {
		return nil, err
	}
	t.mu.Lock()
	t.worlds = append(t.worlds, w)
	t.mu.Unlock()
	return w, nil
}

// follow tests the duties of one plan, one after the other.
func (t *tester) follow(ctx context.Context, p plan, shared *world) error {
	s := &stage{t: t, w: shared, plan: p, ctx: ctx, dir: filepath.Join(t.dir, "starts", p.name)}
	if err := os.MkdirAll(s.dir, 0o755); err != nil {
		return domain.WrapError(domain.Internal, "create a directory for starts", err)
	}
	if p.own {
		w, err := t.world(ctx)
		if err != nil {
			return err
		}
		s.w = w
		defer func() {
			_ = w.close(context.WithoutCancel(ctx)) // its files are removed with all others
		}()
	}
	defer s.end()
	for _, d := range p.duties {
		l := s.judge(d)
		if err := ctx.Err(); err != nil {
			return err
		}
		t.mu.Lock()
		t.lines[d.id] = l
		if t.options.Progress != nil {
			t.options.Progress(l)
		}
		t.mu.Unlock()
	}
	return nil
}

// judge tests one duty. If the tester was disturbed, it tests the duty again.
func (s *stage) judge(d duty) Line {
	began := time.Now()
	l := Line{Duty: d.id, Title: d.title, Section: d.section, Optional: d.optional}
	for try := 1; ; try++ {
		since := time.Now()
		j := s.attempt(d)
		s.clean()
		if d.clock && j.verdict == Failed {
			if stall := s.t.meter.worst(since); stall > stallThatCounts {
				j.disturbed, j.text = true, fmt.Sprintf("%s (the tester stood still for %v)", j.text, stall.Round(time.Millisecond))
			}
		}
		l.Verdict, l.Seen, l.TookMS = j.verdict, j.text, time.Since(began).Milliseconds()
		if !j.disturbed || s.ctx.Err() != nil {
			return l
		}
		if try == triesOfDisturbed {
			l.Verdict = Unclear
			return l
		}
		s.t.say("%s is tested again: %s", d.id, j.text)
	}
}

// attempt runs a case and returns its judgement, even if the case panics with one.
func (s *stage) attempt(d duty) (j judgement) {
	defer func() {
		if e := recover(); e != nil {
			var ok bool
			if j, ok = e.(judgement); !ok {
				panic(e)
			}
			if j.verdict == NotOffered && !d.optional {
				j.verdict = Failed
			}
		}
	}()
	s.ready()
	return judgement{verdict: Passed, text: d.run(s)}
}

// addFaults marks a duty as failed if a message of any case broke it.
func (t *tester) addFaults() {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, w := range t.worlds {
		for _, r := range w.allRecords() {
			r.mu.Lock()
			for id, faults := range r.faults {
				if l, ok := t.lines[id]; ok && l.Verdict != Failed {
					l.Verdict, l.Seen = Failed, faults[0]
					t.lines[id] = l
				}
			}
			r.mu.Unlock()
		}
	}
}

// killAll kills all processes of executors that are left.
func (t *tester) killAll() {
	t.mu.Lock()
	processes := t.processes
	t.mu.Unlock()
	for _, p := range processes {
		p.kill()
	}
}

func (t *tester) say(format string, args ...any) {
	if t.options.Notice != nil {
		t.options.Notice(fmt.Sprintf(format, args...))
	}
}

// stallThatCounts is how long the tester may stand still before a case that is judged by instants is repeated.
const stallThatCounts = time.Second

// meter records when the tester itself stood still.
type meter struct {
	mu     sync.Mutex
	stalls []stall
}

type stall struct {
	end  time.Time
	last time.Duration
}

func (m *meter) run(ctx context.Context) {
	const every = 50 * time.Millisecond
	tick := time.NewTicker(every)
	defer tick.Stop()
	last := time.Now()
	for {
		select {
		case <-tick.C:
			now := time.Now()
			if d := now.Sub(last) - every; d > stallThatCounts/4 {
				m.mu.Lock()
				m.stalls = append(m.stalls, stall{now, d})
				m.mu.Unlock()
			}
			last = now
		case <-ctx.Done():
			return
		}
	}
}

// worst returns the longest stall since an instant.
func (m *meter) worst(since time.Time) (worst time.Duration) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, s := range m.stalls {
		if s.end.After(since) {
			worst = max(worst, s.last)
		}
	}
	return worst
}
