package followup

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/belfryhq/belfry/internal/lifecycle"
)

// While it works, a client of River wakes up 20 times a second and makes two transactions. Belfry seldom has follow-ups, so the workers rest while there
// are none. A process at rest listens to River's notifications of new jobs.
const (
	restAfter  = time.Minute // without a follow-up
	restCheck  = 10 * time.Second
	lookEvery  = 2 * time.Second // for follow-ups whose notifications were lost: see notifyEvery
	insertions = "river_insert"  // River's channel, within its schema
)

// rest waits until there is a follow-up that is not finished, or ctx ends.
func (w *Workers) rest(ctx context.Context) {
	for said := false; ctx.Err() == nil; said = true {
		err := w.pool.AcquireFunc(ctx, func(c *pgxpool.Conn) error { return w.listen(ctx, c.Conn()) })
		if err == nil {
			return
		}
		if !said && ctx.Err() == nil {
			w.log.WarnContext(ctx, "cannot look for follow-ups, retrying", "err", err)
		}
		lifecycle.Rest(ctx, lookEvery)
	}
}

// listen returns nil if there is a follow-up that is not finished.
func (w *Workers) listen(ctx context.Context, conn *pgx.Conn) error {
	defer conn.Close(context.WithoutCancel(ctx)) //nolint:errcheck // it listens, so the pool must not use it again
	if _, err := conn.Exec(ctx, "LISTEN "+pgx.Identifier{w.schema + "." + insertions}.Sanitize()); err != nil {
		return err
	}
	for {
		if unfinished, err := w.meter.unfinished(ctx, conn); err != nil || unfinished {
			return err
		}
		w.resting.Store(true)
		look, cancel := context.WithTimeout(ctx, lookEvery)
		_, err := conn.WaitForNotification(look)
		late := look.Err() != nil
		cancel()
		w.resting.Store(false)
		if err != nil && (!late || ctx.Err() != nil) {
			return err
		}
	}
}

// busy returns when ctx ends, or when there was no follow-up for w.restAfter.
func (w *Workers) busy(ctx context.Context) {
	worked, since := w.meter.worked.Load(), time.Now()
	for time.Since(since) < w.restAfter && lifecycle.Pause(ctx, min(restCheck, w.restAfter)) {
		unfinished, err := w.meter.unfinished(ctx, w.pool)
		if now := w.meter.worked.Load(); err != nil || unfinished || now != worked {
			worked, since = now, time.Now()
		}
	}
}
