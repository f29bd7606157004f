package dispatcher

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/belfryhq/belfry/dispatcher/route"
	"github.com/belfryhq/belfry/executor/wire"
	"github.com/belfryhq/belfry/internal/domain"
)

// Runs of failover and busyover are admitted without an instance, under their block slot, and wait apart from all others.
// The slow lane then asks their instances and binds them. Whoever fired brings them there; what gets lost, because
// its process ends or the lane is full, is brought by the dispatchers, which look for waiting runs every second.

const (
	pingTimeout = 500 * time.Millisecond
	pingsMax    = 64                     // side by side, for one job
	askTimeout  = 10 * time.Second       // of all that is done for one job at a time
	askPause    = 200 * time.Millisecond // between two rounds for the same job, unless a run came
)

// asking is the state of a job whose instances are asked.
type asking struct {
	underWay bool
	again    bool // a run came meanwhile, for which they may have been asked too early
	last     time.Time
}

// ask brings waiting runs of a job to the slow lane, which asks the job's instances and binds what it can.
func (d *Dispatcher) ask(ctx context.Context, k domain.WaitingKey) {
	d.mu.Lock()
	a := d.asks[k]
	if a == nil {
		a = &asking{}
		d.asks[k] = a
	}
	if a.underWay {
		a.again = true
		d.mu.Unlock()
		return
	}
	a.underWay = true
	d.mu.Unlock()
	ctx = context.WithoutCancel(ctx)
	if !d.slow.do(func() { d.askFor(ctx, k, a) }) {
		d.mu.Lock()
		a.underWay, a.last = false, time.Now()
		d.mu.Unlock()
	}
}

// askAgain is ask for runs that have waited for a while. It reports whether it is too early for that.
func (d *Dispatcher) askAgain(ctx context.Context, k domain.WaitingKey) (early bool) {
	d.mu.Lock()
	a := d.asks[k]
	early = a != nil && (a.underWay || time.Since(a.last) < askPause)
	d.mu.Unlock()
	if !early {
		d.ask(ctx, k)
	}
	return early
}

// forgetAsked drops what nobody asks for any more.
func (d *Dispatcher) forgetAsked() {
	d.mu.Lock()
	defer d.mu.Unlock()
	for k, a := range d.asks {
		if !a.underWay && time.Since(a.last) > time.Minute {
			delete(d.asks, k)
		}
	}
}

func (d *Dispatcher) askFor(ctx context.Context, k domain.WaitingKey, a *asking) {
	for more := true; more; {
		d.mu.Lock()
		a.again = false
		d.mu.Unlock()
		work, cancel := context.WithTimeout(ctx, askTimeout)
		bound, later, err := d.assignAsked(work, k)
		cancel()
		if err != nil {
			d.logUnlessDone(ctx, "assigning runs whose instances were asked; trying again", err)
		}
		if len(later) > 0 { // what waits for a slot of scope instance is held, or covers, at due
			pause(ctx, min(later[0].DueAt.Sub(d.store.Now()), askPause))
		}
		d.mu.Lock()
		more = (bound == assignBatch || len(later) > 0 || a.again) && err == nil
		if !more {
			a.underWay, a.last = false, time.Now()
		}
		d.mu.Unlock()
	}
}

// assignAsked asks the instances of one job and binds and offers its waiting runs by what they answered. It returns how
// many were bound, and which have to be looked at again at due.
func (d *Dispatcher) assignAsked(ctx context.Context, k domain.WaitingKey) (int, []domain.Due, error) {
	if !d.steady.connected() {
		return 0, nil, nil
	}
	r := d.newRouting()
	cands := r.candidates(k.Group, k.Target)
	r.heard = d.pings(ctx, k, cands)
	bound, others, err := d.store.AssignWaiting(ctx, k, assignBatch, func(runs []domain.WaitingRun) []domain.Binding {
		out := make([]domain.Binding, len(runs))
		for i, w := range runs {
			out[i] = r.pick(w.Due(), w.Def)
		}
		return out
	})
	if err != nil {
		return 0, nil, err
	}
	d.offerBy(ctx, &d.slowLane, bound, r.beats, true)
	d.unassigned(ctx, others)
	return len(bound), others.Later, nil
}

// pings asks the candidates that have room, in the order of their names and side by side, until one can be chosen or all
// were asked.
func (d *Dispatcher) pings(ctx context.Context, k domain.WaitingKey, cands []*route.Candidate) map[string]route.Heard {
	open := slices.DeleteFunc(slices.Clone(cands), func(c *route.Candidate) bool { return c.Room() == 0 })
	slices.SortFunc(open, func(a, b *route.Candidate) int { return strings.Compare(a.Instance, b.Instance) })
	heard := make(map[string]route.Heard, len(open))
	var mu sync.Mutex
	for some := range slices.Chunk(open, pingsMax) {
		idle := false
		var wave sync.WaitGroup
		for _, c := range some {
			wave.Go(func() {
				h, ok := d.ping(ctx, k, c)
				if !ok {
					return
				}
				mu.Lock()
				defer mu.Unlock()
				heard[c.Instance] = h
				idle = idle || h.JobRuns == 0
			})
		}
		wave.Wait()
		if idle {
			break
		}
	}
	return heard
}

// ping asks one instance. No answer, or one of another boot, means that it must not be chosen.
func (d *Dispatcher) ping(ctx context.Context, k domain.WaitingKey, c *route.Candidate) (route.Heard, bool) {
	ctx, cancel := context.WithTimeout(ctx, pingTimeout)
	defer cancel()
	reply, err := d.control(ctx, k.Group, c.Instance, wire.Control{Op: wire.OpPing, JobID: int64(k.Apart)})
	switch {
	case errors.Is(err, nats.ErrNoResponders):
		d.roster.Drop(k.Group, c.Instance, c.BootID)
		fallthrough
	case err != nil:
		d.metrics.pings.WithLabelValues("none").Inc()
		return route.Heard{}, false
	case reply.BootID != c.BootID || reply.Load.Draining:
		d.metrics.pings.WithLabelValues("unfit").Inc()
		return route.Heard{}, false
	}
	d.metrics.pings.WithLabelValues("fit").Inc()
	d.roster.Load(k.Group, c.Instance, c.BootID, reply.Load)
	if reply.JobRuns == nil {
		return route.Heard{JobRuns: max(reply.Load.Running, 0)}, true // it does not say whose its runs are
	}
	return route.Heard{JobRuns: max(*reply.JobRuns, 0)}, true
}
