package fire

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/belfryhq/belfry/dispatcher/offer"
	"github.com/belfryhq/belfry/dispatcher/route"
	"github.com/belfryhq/belfry/dispatcher/waiting"
	"github.com/belfryhq/belfry/executor/wire"
	"github.com/belfryhq/belfry/internal/engine"
	"github.com/belfryhq/belfry/internal/lifecycle"
)

// A run with the route failover or busyover takes its block slot but is admitted without an instance. The runs of such a job
// wait in a queue of their own. The process that fires them starts work on the slow lane, which asks the job's instances and
// binds the runs. If the process ends or the lane is full, an assigner starts that work within about a second.

const (
	pingTimeout = 500 * time.Millisecond
	maxPings    = 64 // concurrent pings for one job
	// AskPause is the time between two rounds of pings for one job while runs wait that the first round could not bind. After a round
	// that left no run, the next run is asked for at once: also one that a stopping instance has handed back.
	AskPause = 200 * time.Millisecond
)

// asking is the state of a job whose instances are asked.
type asking struct {
	underWay bool
	again    bool      // a run arrived during the round, so the instances have to be asked again
	last     time.Time // when the last round ended; zero if it left no waiting run
}

// ask starts work on the slow lane that asks a job's instances and binds its waiting runs.
func (f *Firer) ask(ctx context.Context, k engine.WaitingKey) {
	f.mu.Lock()
	a := f.asking[k]
	if a == nil {
		a = &asking{}
		f.asking[k] = a
	}
	if a.underWay {
		a.again = true
		f.mu.Unlock()
		return
	}
	a.underWay = true
	f.mu.Unlock()
	ctx = context.WithoutCancel(ctx)
	if !f.Sender.Aside(func() { f.askFor(ctx, k, a) }) {
		f.mu.Lock()
		a.underWay, a.last = false, time.Now()
		f.mu.Unlock()
	}
}

// AskAgain starts a round that asks the instances of a job on behalf of waiting runs. If the last round is too recent, AskAgain
// does nothing and returns true.
func (f *Firer) AskAgain(ctx context.Context, k engine.WaitingKey) (early bool) {
	f.mu.Lock()
	a := f.asking[k]
	early = a != nil && (a.underWay || time.Since(a.last) < AskPause)
	f.mu.Unlock()
	if !early {
		f.ask(ctx, k)
	}
	return early
}

// ForgetAsked removes the state of jobs whose instances were not asked for a minute.
func (f *Firer) ForgetAsked() {
	f.mu.Lock()
	defer f.mu.Unlock()
	for k, a := range f.asking {
		if !a.underWay && time.Since(a.last) > time.Minute {
			delete(f.asking, k)
		}
	}
}

// Asking reports whether the instances of any job are being asked.
func (f *Firer) Asking() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, a := range f.asking {
		if a.underWay {
			return true
		}
	}
	return false
}

func (f *Firer) askFor(ctx context.Context, k engine.WaitingKey, a *asking) {
	for more := true; more; {
		f.mu.Lock()
		a.again = false
		f.mu.Unlock()
		work, cancel := context.WithTimeout(ctx, offer.SlowTimeout)
		bound, left, later, err := f.assignAsked(work, k)
		cancel()
		if err != nil {
			f.warn(ctx, "cannot assign runs whose instances were asked, retrying", err)
		}
		if len(later) > 0 { // a run with block scope instance can be held or cover other runs only when it is due
			lifecycle.Pause(ctx, min(later[0].DueAt.Sub(f.Store.Now()), AskPause))
		}
		f.mu.Lock()
		more = (bound == waiting.Batch || len(later) > 0 || a.again) && err == nil
		if !more {
			a.underWay, a.last = false, time.Time{}
			if left || err != nil {
				a.last = time.Now()
			}
		}
		f.mu.Unlock()
	}
}

// assignAsked asks the instances of one job, and binds and offers its waiting runs according to the answers. It returns the
// number of bound runs, whether other runs may still wait, and the runs that have to be assigned again when they are due.
func (f *Firer) assignAsked(ctx context.Context, k engine.WaitingKey) (bound int, left bool, later []engine.Due, err error) {
	if !f.Peers.Connected() {
		return 0, true, nil, nil
	}
	r := f.NewRouting()
	candidates := r.Candidates(k.Group, k.Target)
	r.heard = f.pingAll(ctx, k, candidates)
	looked := 0
	runs, others, err := f.Store.AssignWaiting(ctx, k, waiting.Batch, func(runs []engine.WaitingRun) []engine.Binding {
		looked = len(runs)
		out := make([]engine.Binding, len(runs))
		for i, w := range runs {
			out[i] = r.Pick(w.Due(), w.Def)
		}
		return out
	})
	if err != nil {
		return 0, true, nil, err
	}
	f.Sender.SendSlow(ctx, runs, r.Beats())
	f.Unassigned(ctx, others)
	return len(runs), len(runs) < looked, others.Later, nil
}

// pingAll pings the candidates that have room, in the order of their names, several at a time. It stops when one of them is
// idle.
func (f *Firer) pingAll(ctx context.Context, k engine.WaitingKey, candidates []*route.Candidate) map[string]route.Heard {
	open := slices.DeleteFunc(slices.Clone(candidates), func(c *route.Candidate) bool { return c.Room() == 0 })
	slices.SortFunc(open, func(a, b *route.Candidate) int { return strings.Compare(a.Instance, b.Instance) })
	heard := make(map[string]route.Heard, len(open))
	var mu sync.Mutex
	for some := range slices.Chunk(open, maxPings) {
		idle := false
		var round sync.WaitGroup
		for _, c := range some {
			round.Go(func() {
				h, ok := f.ping(ctx, k, c)
				if !ok {
					return
				}
				mu.Lock()
				defer mu.Unlock()
				heard[c.Instance] = h
				idle = idle || h.JobRuns == 0
			})
		}
		round.Wait()
		if idle {
			break
		}
	}
	return heard
}

// ping asks one instance how many runs of the job it has. ok is false if the instance must not be chosen, because it does not
// answer, another boot answers, or it drains.
func (f *Firer) ping(ctx context.Context, k engine.WaitingKey, c *route.Candidate) (heard route.Heard, ok bool) {
	ctx, cancel := context.WithTimeout(ctx, pingTimeout)
	defer cancel()
	reply, err := f.Peers.Ask(ctx, k.Group, c.Instance, wire.Control{Op: wire.OpPing, JobID: int64(k.Apart)})
	switch {
	case errors.Is(err, nats.ErrNoResponders):
		f.Roster.Drop(k.Group, c.Instance, c.BootID)
		fallthrough
	case err != nil:
		f.pings.WithLabelValues("none").Inc()
		return route.Heard{}, false
	case reply.BootID != c.BootID || reply.Load.Draining:
		f.pings.WithLabelValues("unfit").Inc()
		return route.Heard{}, false
	}
	f.pings.WithLabelValues("fit").Inc()
	f.Roster.Load(k.Group, c.Instance, c.BootID, reply.Load)
	if reply.JobRuns == nil {
		return route.Heard{JobRuns: max(reply.Load.Running, 0)}, true // the instance does not report JobRuns
	}
	return route.Heard{JobRuns: max(*reply.JobRuns, 0)}, true
}
