package bench

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"runtime"
	"time"

	"github.com/belfryhq/belfry/internal/lifecycle"
)

// baseline measures the pipeline without scheduling logic, on the servers of the engine.
type baseline struct{ *rig }

// measure measures the pipeline once.
func (b baseline) measure(ctx context.Context, of func(from time.Time) load) (f Figures, err error) {
	f = make(Figures)
	if err := b.servers.vacuum(ctx); err != nil {
		return nil, err
	}
	if err := b.meter.addSizes(ctx, f, "baseline", []string{"live"}, ".before"); err != nil {
		return nil, err
	}
	var parts []*child
	defer func() { err = errors.Join(err, stopAll(parts)) }()
	order := Order{Part: partResponder, NATS: b.servers.natsURL, Password: b.servers.password}
	responder, err := b.servers.startPart(ctx, order)
	if err != nil {
		return nil, err
	}
	parts = append(parts, responder)
	from := firstFire(0)
	l := of(from)
	order.Part, order.Load = partPipeline, &l
	begun := time.Now()
	pipeline, err := b.servers.startPart(ctx, order)
	if err != nil {
		return nil, err
	}
	parts = append(parts, pipeline)
	o, err := b.meter.observe(ctx, parts, func() error { return b.await(ctx, pipeline, l) })
	if err != nil {
		return nil, err
	}
	if l.Closed > 0 {
		from = begun
	}
	if err := b.addFigures(ctx, f, l, from, begun); err != nil {
		return nil, err
	}
	if err := f.lateness(ctx, []*child{responder}); err != nil {
		return nil, err
	}
	if err := b.meter.addSizes(ctx, f, "baseline", []string{"live"}, ".after"); err != nil {
		return nil, err
	}
	return f, b.meter.addCost(ctx, f, o, f["ended"])
}

// await returns when the pipeline has settled all runs.
func (b baseline) await(ctx context.Context, pipeline *child, l load) error {
	_, to := l.span()
	deadline := time.Now().Add(time.Until(to) + l.Closed + time.Minute)
	if l.Closed > 0 {
		deadline = time.Now().Add(l.Closed + time.Minute)
	}
	for lifecycle.Pause(ctx, 250*time.Millisecond) {
		data, err := pipeline.ask(ctx, "take")
		if err != nil {
			return err
		}
		var a pipelineAnswer
		if err := json.Unmarshal(data, &a); err != nil {
			return err
		}
		if a.Done {
			return nil
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("the baseline has settled only %d of %d runs", a.Settled, a.Inserted)
		}
		b.display.progress("baseline: %s settled", thousands(float64(a.Settled)))
	}
	return ctx.Err()
}

// addFigures adds the figures that the baseline's history table contains. They correspond to those of the engine.
func (b baseline) addFigures(ctx context.Context, f Figures, l load, from, begun time.Time) error {
	var started, settled *time.Time
	var ended int64
	lag := make([]float64, 4)
	err := b.servers.db.QueryRow(ctx, `
		SELECT count(*), max(started_at), max(settled_at),
		       COALESCE(percentile_cont(ARRAY[.5, .99, .999, 1]) WITHIN GROUP (ORDER BY extract(epoch FROM settled_at - due_at)::float8 * 1000), '{0,0,0,0}')
		  FROM (SELECT due_at, started_at, pg_xact_commit_timestamp(xmin) AS settled_at FROM baseline.history
		         WHERE due_at >= $1) h`, begun).Scan(&ended, &started, &settled, &lag)
	if err != nil {
		return fmt.Errorf("read the baseline's history: %w", err)
	}
	if started == nil || settled == nil {
		return errors.New("the baseline has settled no runs")
	}
	f.set("fires", float64(max(l.fires(), 0)))
	if l.Closed > 0 {
		f.set("fires", float64(ended))
	}
	f.set("ended", float64(ended))
	f.set("succeeded", float64(ended))
	f.ends(l, from, *started, *settled, ended, lag)
	return nil
}

// For its maximum, the baseline runs as fast as it can. If it leaves much of the processors unused, it waited for
// something else, such as a disk that other programs use, and the run says little. Then it runs again, and the fastest
// run counts.
const (
	baselineClosed = holdFor
	baselineTries  = 3
	baselineCPUs   = 2   // processors that the baseline is tuned for
	baselineBusy   = 0.8 // the minimum share of baselineCPUs that a valid run uses
)

// max returns the figures of the fastest of up to baselineTries runs.
func (b baseline) max(ctx context.Context) (best Figures, err error) {
	for range baselineTries {
		f, err := b.measure(ctx, func(time.Time) load { return load{Closed: baselineClosed} })
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
		b.display.say("the baseline reached %s/s, but used only %.0f %% CPU: something slowed it down", thousands(f["max_per_s"]), f["cpu_percent"])
	}
	return best, nil
}

// heldUp reports whether a baseline that ran as fast as it could left processors unused. It returns false if the system
// does not report CPU times.
func heldUp(f Figures, cpus int) bool {
	used := f["cpu_percent"] + f["others_cpu_percent"]
	return used > 0 && used < baselineBusy*100*float64(min(cpus, baselineCPUs))
}
