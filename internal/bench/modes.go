package bench

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// burst measures fires that are all due in one instant.
func (b *Bench) burst(ctx context.Context) error {
	of := func(from time.Time) load { return load{Sets: []set{{N: b.Config.Fires, From: from}}} }
	return b.both(ctx, fmt.Sprintf("burst of %s", thousands(float64(b.Config.Fires))), of)
}

// rate measures a steady rate of fires. Late runs do not slow the load down.
func (b *Bench) rate(ctx context.Context) error { return b.both(ctx, b.rateName(), b.rateLoad) }

func (b *Bench) rateName() string {
	how := "on whole seconds"
	if b.Config.Spread {
		how = "spread"
	}
	return fmt.Sprintf("%s/s %s for %v", thousands(float64(b.Config.Rate)), how, b.Config.Span)
}

func (b *Bench) rateLoad(from time.Time) load {
	return load{Sets: []set{{N: b.Config.Rate, From: from, For: b.Config.Span.Truncate(time.Second), Spread: b.Config.Spread}}}
}

// max finds the highest sustained rate. The baseline runs as fast as it can; the engine's rate is found by a search.
func (b *Bench) max(ctx context.Context) error {
	return b.alternate(ctx, maximum,
		baseline{b.rig}.max,
		func(ctx context.Context) (Figures, error) { return b.search.run(ctx, b.Config.Rate) })
}

// maximum names the measurement of the highest sustained rate in the report.
const maximum = "maximum"

// The phases before, during and after an overload. The rate is half the maximum, then twice the maximum, then half the maximum
// again.
const (
	beforeOverload = 5 * time.Second
	afterOverload  = 30 * time.Second
	overloadStart  = 3 // seconds at the start of the overload that do not count, because queues fill
)

// overload offers twice the maximum for a span.
func (b *Bench) overload(ctx context.Context) error {
	most := b.Config.Max
	if most == 0 {
		if err := b.max(ctx); err != nil {
			return err
		}
		b.report.summarize()
		for _, s := range b.report.Summaries {
			if s.What == maximum {
				most = int(s.Engine["max_per_s"])
			}
		}
	}
	if most < 2 {
		return errors.New("the maximum is not known: set --max")
	}
	span := b.Config.Span.Truncate(time.Second)
	of := func(from time.Time) load {
		return load{Sets: []set{
			{N: most / 2, From: from, For: beforeOverload + span + afterOverload, Spread: b.Config.Spread},
			{N: most * 3 / 2, From: from.Add(beforeOverload), For: span, Spread: b.Config.Spread},
		}}
	}
	return b.alternate(ctx, fmt.Sprintf("overload: %s/s offered for %v", thousands(float64(2*most)), span), nil, func(ctx context.Context) (Figures, error) {
		e := engineRun{rig: b.rig, of: of}
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

// The numbers of jobs and of past runs that are compared.
const (
	fewJobs     = 10_000
	manyJobs    = 1_000_000
	manyHistory = 20_000_000
)

// idle compares few enabled jobs with many: the cost at rest, and the cost of a fire under --rate.
func (b *Bench) idle(ctx context.Context) error {
	many := b.Config.Jobs
	if many == 0 {
		many = manyJobs
	}
	have := 0
	for _, n := range []int{min(fewJobs, many), many} {
		if err := b.loader.addIdleJobs(ctx, n-have); err != nil {
			return err
		}
		have = n
		beside := thousands(float64(n)) + " jobs"
		roles := func(ctx context.Context) (Figures, error) { return b.atRest(ctx, (*engineRun).startAll) }
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

func (b *Bench) atRest(ctx context.Context, start func(*engineRun, context.Context) error) (Figures, error) {
	e := engineRun{rig: b.rig}
	return e.atRest(ctx, start)
}

// history compares the cost of a fire in two databases: without past runs, and with many.
func (b *Bench) history(ctx context.Context) error {
	many := b.Config.History
	if many == 0 {
		many = manyHistory
	}
	if err := b.both(ctx, b.rateName()+", no past runs", b.rateLoad); err != nil {
		return err
	}
	if err := b.loader.addHistory(ctx, many); err != nil {
		return err
	}
	return b.both(ctx, b.rateName()+", "+thousands(float64(many))+" past runs", b.rateLoad)
}
