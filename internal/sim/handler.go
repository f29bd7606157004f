package sim

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"time"

	"github.com/belfryhq/belfry/executor"
	"github.com/belfryhq/belfry/internal/domain"
)

const (
	handlerName    = "work"
	scriptLanguage = "sim"
)

// scripts runs jobs that are scripts as it does those with the handler. Their code is the job's name.
type scripts struct{ p *process }

// RunScript implements executor.ScriptRunner.
func (s scripts) RunScript(ctx context.Context, run executor.Run, script executor.Script) error {
	if string(script.Code) != run.JobName() || script.Version != 1 {
		s.p.w.fault("the script of %s, version %d, came with the code %q", run.JobName(), script.Version, script.Code)
	}
	return s.p.handle(ctx, run)
}

// attempt names one try of a run.
type attempt struct {
	run domain.RunID
	n   int
}

// start is a handler's call, as the handler itself saw it.
type start struct {
	attempt
	job   domain.JobID
	p     *process
	begun time.Time
	ended time.Time // zero while it runs; of a process that crashed, when it crashed
	ok    bool      // it returned without an error, and its process lived
	sure  bool      // nobody had cancelled its context, so that this is what counts
}

// behaviour is what a handler does with an attempt. It follows from the seed, the run and the attempt.
type behaviour struct {
	lasts    time.Duration
	stubborn bool // it ignores its context
	fails    bool
	panics   bool
	final    bool // a failure that is not to be tried again
	logs     bool
}

func (w *World) behaviour(run string, n int) behaviour {
	h := fnv.New64a()
	fmt.Fprintf(h, "%d %s %d", w.seed, run, n)
	rng := rand.New(rand.NewPCG(h.Sum64(), 3))
	b := behaviour{lasts: time.Duration(rng.Int64N(int64(200 * time.Millisecond)))}
	switch dice := rng.IntN(100); {
	case dice < 3:
		b.lasts = 5*time.Second + time.Duration(rng.Int64N(int64(8*time.Second)))
	case dice < 20:
		b.lasts = time.Duration(rng.Int64N(int64(3 * time.Second)))
	case dice < 40:
		b.lasts = 0
	}
	b.stubborn = rng.IntN(20) == 0
	b.fails = rng.IntN(6) == 0
	b.panics = b.fails && rng.IntN(5) == 0
	b.final = b.fails && rng.IntN(5) == 0
	b.logs = rng.IntN(5) == 0
	return b
}

var errHandler = errors.New("the handler was told to fail")

// handle is the handler of every job.
func (p *process) handle(ctx context.Context, run executor.Run) error {
	if p.isDead() {
		return errHandler
	}
	s := p.w.begin(p, run)
	b := p.w.behaviour(run.ID(), run.Attempt())
	if b.logs {
		run.Log().Info("at work")
	}
	if b.lasts > 0 {
		timer := time.NewTimer(b.lasts)
		defer timer.Stop()
		done := ctx.Done()
		if b.stubborn {
			done = nil
		}
		select {
		case <-timer.C:
		case <-done:
			p.w.finish(ctx, s, false)
			return ctx.Err()
		case <-p.dead:
			return errHandler // finish was said by the crash
		}
	}
	p.w.finish(ctx, s, !b.fails)
	switch {
	case b.panics:
		panic("the handler was told to")
	case b.final:
		return executor.Permanent(errHandler)
	case b.fails:
		return errHandler
	}
	return run.SetOutput("done")
}

// begin notes that a handler began. That happens once for an attempt.
func (w *World) begin(p *process, run executor.Run) *start {
	id, err := domain.ParseRunID(run.ID())
	if err != nil {
		w.fault("a handler was given run id %q", run.ID())
	}
	s := &start{attempt: attempt{id, run.Attempt()}, job: domain.JobID(run.JobID()), p: p, begun: time.Now()}
	w.mu.Lock()
	before := w.starts[s.attempt]
	w.starts[s.attempt] = s
	w.mu.Unlock()
	if before != nil {
		w.faultOf(s.run, "attempt %d was started twice: on %s and on %s", s.n, before.p.title, p.title)
	}
	return s
}

func (w *World) finish(ctx context.Context, s *start, ok bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if s.ended.IsZero() {
		s.ended, s.ok, s.sure = time.Now(), ok, ctx.Err() == nil
	}
}

// crashed ends what ran on a process that crashed.
func (w *World) crashed(p *process) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, s := range w.starts {
		if s.p == p && s.ended.IsZero() {
			s.ended = time.Now()
		}
	}
}

// handling counts the handlers that run.
func (w *World) handling() (n int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, s := range w.starts {
		if s.ended.IsZero() {
			n++
		}
	}
	return n
}
