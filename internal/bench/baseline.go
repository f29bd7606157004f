package bench

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/belfryhq/belfry/internal/lifecycle"
)

// ahead is how long before the first fire a load is ready: the pre-read's horizon, and time to start.
const ahead = 7 * time.Second

// firstFire is the whole second at which a load may begin that takes some time to prepare.
func firstFire(prepare time.Duration) time.Time {
	return time.Now().Add(ahead + prepare + 999*time.Millisecond).Truncate(time.Second)
}

// baseline measures the bare pipeline.
func (b *Bench) baseline(ctx context.Context, of func(from time.Time) load) (f Figures, err error) {
	f = make(Figures)
	if err := b.quiet(ctx); err != nil {
		return nil, err
	}
	if err := b.tables(ctx, f, "baseline", []string{"live"}, ".before"); err != nil {
		return nil, err
	}
	var parts []*child
	defer func() { err = errors.Join(err, stopAll(parts)) }()
	order := Order{Database: b.servers.pg.URL(), NATS: b.servers.natsURL, Password: b.servers.password, Profile: b.Config.Profile}
	order.Part = partResponder
	responder, err := startPart(ctx, order, b.Stderr)
	if err != nil {
		return nil, err
	}
	parts = append(parts, responder)
	from := firstFire(0)
	l := of(from)
	order.Part, order.Load = partPipeline, &l
	begun := time.Now()
	pipeline, err := startPart(ctx, order, b.Stderr)
	if err != nil {
		return nil, err
	}
	parts = append(parts, pipeline)
	before, err := b.read(ctx, parts)
	if err != nil {
		return nil, err
	}
	if err := b.profiled(ctx, parts, func() error { return b.awaitPipeline(ctx, pipeline, l) }); err != nil {
		return nil, err
	}
	after, err := b.read(ctx, parts)
	if err != nil {
		return nil, err
	}
	if l.Closed > 0 {
		from = begun
	}
	if err := b.baselineFigures(ctx, f, l, from, begun); err != nil {
		return nil, err
	}
	if err := f.lateness(ctx, []*child{responder}); err != nil {
		return nil, err
	}
	if err := b.tables(ctx, f, "baseline", []string{"live"}, ".after"); err != nil {
		return nil, err
	}
	return f, b.cost(ctx, f, before, after, f["ended"])
}

// awaitPipeline returns when the baseline has settled all.
func (b *Bench) awaitPipeline(ctx context.Context, pipeline *child, l load) error {
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
			return fmt.Errorf("the baseline has settled %d of %d runs", a.Settled, a.Inserted)
		}
		b.progress("baseline: %s settled", thousands(float64(a.Settled)))
	}
	return ctx.Err()
}

// baselineFigures reads from the baseline's history what the engine's history says, too.
func (b *Bench) baselineFigures(ctx context.Context, f Figures, l load, from, begun time.Time) error {
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
		return errors.New("the baseline has settled nothing")
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
