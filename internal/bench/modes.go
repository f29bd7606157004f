package bench

import (
	"context"
	"errors"
	"fmt"
	"math"
	"runtime"
	"time"

	"github.com/belfryhq/belfry/internal/lifecycle"
)

// The search for the maximum: a rate that grows by steps until fires become late gives an estimate, and rates about that one
// are then held for as long as the baseline runs.
const (
	rampStep       = 5 * time.Second
	rampGrowth     = 1.1
	rampSteps      = 15
	holdFor        = 15 * time.Second
	holdGrowth     = 1.04
	holdTries      = 16
	lateAtEnd      = time.Second     // at the end of a step or of a hold: it is not sustained
	lateStop       = 3 * time.Second // no more is offered
	baselineClosed = holdFor
)

// max finds the highest rate that is sustained: the baseline's by running as fast as it can, the engine's by trial.
func (b *Bench) max(ctx context.Context) error { return b.findMax(ctx, b.Config.Rate) }

func (b *Bench) findMax(ctx context.Context, begin int) error {
	return b.alternate(ctx, "maximum",
		b.baselineMax,
		func(ctx context.Context) (Figures, error) { return b.climb(ctx, begin) })
}

// The baseline runs as fast as it can: where it leaves a good part of the processors unused, it waited for something else,
// such as a disk that others use, and is no measure. It is then measured again, and the fastest counts.
const (
	baselineTries = 3
	baselineCPUs  = 2   // that it is made for, and keeps busy
	baselineBusy  = 0.8 // of these
)

func (b *Bench) baselineMax(ctx context.Context) (best Figures, err error) {
	for range baselineTries {
		f, err := b.baseline(ctx, func(from time.Time) load { return load{Closed: baselineClosed} })
		if err != nil {
			return nil, err
		}
		f.set("max_per_s", f["fires_per_s"])
		if best == nil || f["max_per_s"] > best["max_per_s"] {
			best = f
		}
		if !heldUp(f, runtime.NumCPU()) {
			break
		}
		b.say("the baseline made %s/s at %.0f %% CPU, so something held it up", thousands(f["max_per_s"]), f["cpu_percent"])
	}
	return best, nil
}

// heldUp reports whether a baseline that runs as fast as it can did not, as far as the system tells.
func heldUp(f Figures, cpus int) bool {
	used := f["cpu_percent"] + f["others_cpu_percent"]
	return used > 0 && used < baselineBusy*100*float64(min(cpus, baselineCPUs))
}

// climb estimates the maximum by a ramp from a rate on, or from half of it if that is too high already, and returns the figures
// of the highest rate that was held.
//
// What one run found is where the next begins: the shorter a search is, the less a machine's speed changes between it and the
// baseline that it is compared with.
func (b *Bench) climb(ctx context.Context, begin int) (f Figures, err error) {
	defer func() { b.found = int(f["max_per_s"]) }()
	if b.found > 0 {
		if f, err := b.hold(ctx, b.found); !errors.Is(err, errTooBusy) {
			return f, err
		}
		b.say("the machine became much slower: searching from the beginning")
	}
	for {
		most, err := b.ramp(ctx, begin)
		switch last := rampRate(begin, rampSteps-1); {
		case err != nil:
			return nil, err
		case most >= last:
			begin = last
		case most > 0:
			return b.hold(ctx, most)
		case begin < 20:
			return nil, errors.New("not even 10 fires a second were sustained")
		default:
			b.say("%d/s were not sustained; beginning with %d/s", begin, begin/2)
			begin /= 2
		}
	}
}

// ramp returns the rate of the highest step that was sustained, zero if none was.
func (b *Bench) ramp(ctx context.Context, begin int) (most int, err error) {
	e := engineRun{Bench: b, stop: lateStop, of: func(from time.Time) load { return ramp(from, begin, b.Config.Spread) }}
	if _, err := e.run(ctx); err != nil {
		return 0, err
	}
	// One late step does not end the search, as it may have been somebody else on this machine.
	for k := range rampSteps {
		if e.sustained(e.from.Add(time.Duration(k+1) * rampStep)) {
			most = rampRate(begin, k)
		}
	}
	return most, nil
}

var errTooBusy = errors.New("the machine is too busy to measure")

// hold holds rates about an estimate, and returns the figures of the highest that was sustained.
func (b *Bench) hold(ctx context.Context, estimate int) (best Figures, err error) {
	search := holds{rate: float64(estimate)}
	for rate := search.next(); rate > 0; rate = search.next() {
		e := engineRun{Bench: b, stop: lateStop, of: func(from time.Time) load {
			return load{Sets: []set{{N: rate, From: from, For: holdFor, Spread: b.Config.Spread}}}
		}}
		f, err := e.run(ctx)
		if err != nil {
			return nil, err
		}
		held := e.sustained(e.from.Add(holdFor))
		b.say("%s/s for %v: sustained: %t", thousands(float64(rate)), holdFor, held)
		if search.was(held) {
			// The last fires come a second before the end, so that all may be settled before it.
			f.set("max_per_s", min(float64(rate), f["fires_per_s"]))
			best = f
		}
	}
	if best == nil {
		return nil, fmt.Errorf("%w: of the rates that were tried below %d/s none was sustained for %v", errTooBusy, estimate, holdFor)
	}
	return best, nil
}

// holds is the search for the highest rate that is sustained: lower ones until one is, or higher ones until one is not, and at
// last the one between the two. A rate fails only the second time, as the first time it may have been somebody else on this machine.
type holds struct {
	rate   float64 // to be tried
	best   float64 // the highest that was sustained, 0: none yet
	above  float64 // the lowest that was not, 0: none yet
	failed bool    // rate failed once
	last   bool    // rate is the one between
	tries  int
}

// next returns the rate to try, 0 when the search is over.
func (h *holds) next() int {
	if h.tries++; h.tries > holdTries {
		return 0
	}
	return int(h.rate)
}

// was takes how the rate did, and reports whether it is the best so far.
func (h *holds) was(sustained bool) bool {
	if !sustained && !h.failed {
		h.failed = true
		return false
	}
	h.failed = false
	if sustained {
		h.best = h.rate
	} else {
		h.above = h.rate
	}
	switch {
	case h.last:
		h.tries = holdTries
	case h.above == 0:
		h.rate *= holdGrowth
	case h.best == 0:
		h.rate /= holdGrowth
	default:
		h.rate, h.last = (h.best+h.above)/2, true
	}
	return sustained
}

// rampRate is the rate of a step.
func rampRate(begin, step int) int { return int(float64(begin) * math.Pow(rampGrowth, float64(step))) }

// ramp is a load that grows, step by step.
func ramp(from time.Time, begin int, spread bool) load {
	var l load
	had := 0
	for k := range rampSteps {
		rate := rampRate(begin, k)
		l.Sets = append(l.Sets, set{
			N: rate - had, From: from.Add(time.Duration(k) * rampStep), For: time.Duration(rampSteps-k) * rampStep, Spread: spread,
		})
		had = rate
	}
	return l
}

// sustained reports whether the load was offered up to an instant, and nothing was late then.
func (e *engineRun) sustained(end time.Time) bool {
	return (e.stopped.IsZero() || !end.After(e.stopped)) && e.lagAt(end) <= lateAtEnd
}

// lagAt returns the largest lag of the second before an instant.
func (e *engineRun) lagAt(at time.Time) time.Duration {
	var most time.Duration
	for _, s := range e.seconds {
		if s.at.After(at.Add(-time.Second)) && !s.at.After(at) {
			most = max(most, s.lag)
		}
	}
	return most
}

// settledBySecond returns how many runs were settled in each second since the first fire.
func (e *engineRun) settledBySecond(ctx context.Context) ([]float64, error) {
	rows, err := e.servers.db.Query(ctx, `
		SELECT floor(extract(epoch FROM settled_at - $1::timestamptz))::int, count(*)
		  FROM (SELECT pg_xact_commit_timestamp(xmin) AS settled_at FROM runs_history WHERE id >= first_run_id($1)) h
		 WHERE settled_at >= $1 GROUP BY 1`, e.from)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	var out []float64
	for rows.Next() {
		var at int
		var n float64
		if err := rows.Scan(&at, &n); err != nil {
			return nil, err
		}
		for len(out) <= at {
			out = append(out, 0)
		}
		out[at] += n
	}
	return out, rows.Err()
}

// mean is of the values from a place up to another.
func mean(values []float64, from, to int) float64 {
	if to > len(values) || from >= to {
		return 0
	}
	sum := 0.0
	for _, v := range values[from:to] {
		sum += v
	}
	return sum / float64(to-from)
}

// The phases of an overload: half the maximum, then twice, then half again.
const (
	beforeOverload = 5 * time.Second
	afterOverload  = 30 * time.Second
	overloadStart  = 3 // seconds that are not counted, as queues fill
)

// overload offers twice the maximum for a span.
func (b *Bench) overload(ctx context.Context) error {
	most := b.Config.Max
	if most == 0 {
		if err := b.findMax(ctx, b.Config.Rate); err != nil {
			return err
		}
		b.report.summarize()
		for _, s := range b.report.Summaries {
			if s.What == "maximum" {
				most = int(s.Engine["max_per_s"])
			}
		}
	}
	if most < 2 {
		return fmt.Errorf("no maximum is known: give it by --max")
	}
	span := b.Config.Span.Truncate(time.Second)
	of := func(from time.Time) load {
		return load{Sets: []set{
			{N: most / 2, From: from, For: beforeOverload + span + afterOverload, Spread: b.Config.Spread},
			{N: most * 3 / 2, From: from.Add(beforeOverload), For: span, Spread: b.Config.Spread},
		}}
	}
	return b.alternate(ctx, fmt.Sprintf("overload: %s/s offered for %v", thousands(float64(2*most)), span), nil, func(ctx context.Context) (Figures, error) {
		e := engineRun{Bench: b, of: of}
		f, err := e.run(ctx)
		if err != nil {
			return nil, err
		}
		perSecond, err := e.settledBySecond(ctx)
		if err != nil {
			return nil, err
		}
		first := int(beforeOverload / time.Second)
		f.set("overload_per_s", mean(perSecond, first+overloadStart, first+int(span/time.Second)))
		f.set("overload_of_max", f["overload_per_s"]/float64(most))
		f.set("recovery_s", e.recovery(e.from.Add(beforeOverload+span)).Seconds())
		return f, e.order(ctx, f)
	})
}

// recovery is how long after an instant fires are on time again.
func (e *engineRun) recovery(since time.Time) time.Duration {
	last := since
	for _, s := range e.seconds {
		if s.at.After(since) && s.lag > lateAtEnd {
			last = s.at
		}
	}
	return last.Sub(since)
}

// order adds the share of runs that started although one that was due over a second later had started before.
func (e *engineRun) order(ctx context.Context, f Figures) error {
	var share, worst float64
	err := e.servers.db.QueryRow(ctx, `
		SELECT COALESCE(avg((newest - due_at > interval '1 second')::int), 0)::float8, COALESCE(max(extract(epoch FROM newest - due_at)), 0)::float8
		  FROM (SELECT due_at, max(due_at) OVER (ORDER BY started_at, due_at ROWS UNBOUNDED PRECEDING) AS newest FROM runs_history
		         WHERE id >= first_run_id($1) AND started_at IS NOT NULL) h`, e.from).Scan(&share, &worst)
	f.set("out_of_order", share)
	f.set("out_of_order_max_s", worst)
	return err
}

// The numbers of jobs and of past runs that are compared.
const (
	fewJobs     = 10_000
	manyJobs    = 1_000_000
	manyHistory = 20_000_000
	idleWarmUp  = 10 * time.Second
)

// idle compares few enabled jobs with many: at rest, and what a fire costs beside them.
func (b *Bench) idle(ctx context.Context) error {
	many := b.Config.Jobs
	if many == 0 {
		many = manyJobs
	}
	have := 0
	for _, n := range []int{min(fewJobs, many), many} {
		if err := b.addIdleJobs(ctx, n-have); err != nil {
			return err
		}
		have = n
		beside := thousands(float64(n)) + " jobs"
		roles := func(ctx context.Context) (Figures, error) { return b.atRest(ctx, (*engineRun).start) }
		if err := b.alternate(ctx, "idle, "+beside, nil, roles); err != nil {
			return err
		}
		one := func(ctx context.Context) (Figures, error) { return b.atRest(ctx, (*engineRun).startStandalone) }
		if err := b.alternate(ctx, "idle standalone, "+beside, nil, one); err != nil {
			return err
		}
		if err := b.both(ctx, b.rateName()+", beside "+beside, b.rateLoad); err != nil {
			return err
		}
	}
	return nil
}

// atRest measures the engine while nothing is due.
func (b *Bench) atRest(ctx context.Context, start func(*engineRun, context.Context) error) (f Figures, err error) {
	f = make(Figures)
	e := engineRun{Bench: b}
	defer func() { err = errors.Join(err, stopAll(e.parts)) }()
	if err := b.quiet(ctx); err != nil {
		return nil, err
	}
	if err := start(&e, ctx); err != nil {
		return nil, err
	}
	lifecycle.Pause(ctx, idleWarmUp)
	before, err := b.read(ctx, e.parts)
	if err != nil {
		return nil, err
	}
	if err := b.profiled(ctx, e.parts, func() error { lifecycle.Pause(ctx, b.Config.Span); return ctx.Err() }); err != nil {
		return nil, err
	}
	after, err := b.read(ctx, e.parts)
	if err != nil {
		return nil, err
	}
	return f, b.cost(ctx, f, before, after, 0)
}

// history compares the cost of a fire on an empty history with that on a long one.
func (b *Bench) history(ctx context.Context) error {
	many := b.Config.History
	if many == 0 {
		many = manyHistory
	}
	if err := b.both(ctx, b.rateName()+", no past runs", b.rateLoad); err != nil {
		return err
	}
	if err := b.addHistory(ctx, many); err != nil {
		return err
	}
	return b.both(ctx, b.rateName()+", "+thousands(float64(many))+" past runs", b.rateLoad)
}
