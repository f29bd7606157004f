package sim

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/belfryhq/belfry/executor"
	"github.com/belfryhq/belfry/internal/domain"
)

const (
	handlerName    = "work"
	scriptLanguage = "sim"
)

// scripts runs script jobs like jobs with a handler. The code of a script is the job's name.
type scripts struct{ p *process }

// RunScript implements executor.ScriptRunner.
func (s scripts) RunScript(ctx context.Context, run executor.Run, script executor.Script) error {
	if string(script.Code) != run.JobName() || script.Version != 1 {
		s.p.w.fail("the script of %s, version %d, arrived with the code %q", run.JobName(), script.Version, script.Code)
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
	ended time.Time // zero while the handler runs; if the process crashed, the time of the crash
	ok    bool      // the handler returned no error, and its process was alive
	sure  bool      // the context was not cancelled, so the executor reports the handler's own result
}

// handlers decides what handlers do, and records their calls.
type handlers struct {
	*journal
	seed uint64

	mu     sync.Mutex
	starts map[attempt]*start
}

func newHandlers(j *journal, seed uint64) *handlers {
	return &handlers{journal: j, seed: seed, starts: make(map[attempt]*start)}
}

// behaviour is what a handler does with an attempt.
type behaviour struct {
	lasts         time.Duration
	ignoresCancel bool
	fails         bool
	panics        bool
	permanent     bool // the failure is not retried
	logs          bool
}

// behaviour returns the behaviour for an attempt, which depends only on the seed, the run and the attempt.
func (h *handlers) behaviour(run string, n int) behaviour {
	hash := fnv.New64a()
	fmt.Fprintf(hash, "%d %s %d", h.seed, run, n)
	rng := rand.New(rand.NewPCG(hash.Sum64(), 3))
	b := behaviour{lasts: time.Duration(rng.Int64N(int64(200 * time.Millisecond)))}
	switch dice := rng.IntN(100); {
	case dice < 3:
		b.lasts = 5*time.Second + time.Duration(rng.Int64N(int64(8*time.Second)))
	case dice < 20:
		b.lasts = time.Duration(rng.Int64N(int64(3 * time.Second)))
	case dice < 40:
		b.lasts = 0
	}
	b.ignoresCancel = rng.IntN(20) == 0
	b.fails = rng.IntN(6) == 0
	b.panics = b.fails && rng.IntN(5) == 0
	b.permanent = b.fails && rng.IntN(5) == 0
	b.logs = rng.IntN(5) == 0
	return b
}

var errHandler = errors.New("sim: the handler fails, as its behaviour says")

// handle is the handler of every job.
func (p *process) handle(ctx context.Context, run executor.Run) error {
	if p.isDead() {
		return errHandler
	}
	handlers := p.w.handlers
	s := handlers.begin(p, run)
	b := handlers.behaviour(run.ID(), run.Attempt())
	if b.logs {
		run.Log().Info("running")
	}
	if b.lasts > 0 {
		timer := time.NewTimer(b.lasts)
		defer timer.Stop()
		done := ctx.Done()
		if b.ignoresCancel {
			done = nil
		}
		select {
		case <-timer.C:
		case <-done:
			handlers.finish(ctx, s, false)
			return ctx.Err()
		case <-p.dead:
			return errHandler // the crash has recorded the end
		}
	}
	handlers.finish(ctx, s, !b.fails)
	switch {
	case b.panics:
		panic("sim: the handler panics, as its behaviour says")
	case b.permanent:
		return executor.Permanent(errHandler)
	case b.fails:
		return errHandler
	}
	return run.SetOutput("done")
}

// begin records the start of a handler, which happens once for an attempt.
func (h *handlers) begin(p *process, run executor.Run) *start {
	id, err := domain.ParseRunID(run.ID())
	if err != nil {
		h.fail("a handler received the run id %q", run.ID())
	}
	s := &start{attempt: attempt{id, run.Attempt()}, job: domain.JobID(run.JobID()), p: p, begun: time.Now()}
	h.mu.Lock()
	before := h.starts[s.attempt]
	h.starts[s.attempt] = s
	h.mu.Unlock()
	if before != nil {
		h.failRun(s.run, "attempt %d was started twice: on %s and on %s", s.n, before.p.title, p.title)
	}
	return s
}

func (h *handlers) finish(ctx context.Context, s *start, ok bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if s.ended.IsZero() {
		s.ended, s.ok, s.sure = time.Now(), ok, ctx.Err() == nil
	}
}

// crashed records the end of the handlers that ran on a crashed process.
func (h *handlers) crashed(p *process) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, s := range h.starts {
		if s.p == p && s.ended.IsZero() {
			s.ended = time.Now()
		}
	}
}

// running counts the handlers that run.
func (h *handlers) running() (n int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, s := range h.starts {
		if s.ended.IsZero() {
			n++
		}
	}
	return n
}
