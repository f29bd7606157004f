package app

import (
	"context"
	"io"

	"github.com/belfryhq/belfry/internal/bench"
	"github.com/belfryhq/belfry/internal/config"
)

// Bench measures Belfry on this machine.
func (a *App) Bench(ctx context.Context, c config.Bench) error {
	b := bench.Bench{Config: c, Stdout: a.Stdout, Stderr: a.Stderr, Version: a.Version}
	return b.Run(ctx)
}

// BenchPart is one process of a measurement.
func (a *App) BenchPart(ctx context.Context, orders io.Reader) error {
	quiet := *a
	quiet.Stdout = io.Discard // where the measurement listens
	return bench.RunPart(ctx, orders, a.Stdout, &quiet)
}

// BenchScheduler is the scheduler role as it is measured.
func (a *App) BenchScheduler(ctx context.Context, database, nats config.URL) error {
	c := config.DefaultScheduler()
	c.DatabaseURL, c.NATSURL, c.Level, c.Format = database, nats, "warn", "text"
	return a.Scheduler(ctx, c)
}

// BenchDispatcher is the dispatcher role as it is measured.
func (a *App) BenchDispatcher(ctx context.Context, database, nats config.URL) error {
	c := config.DefaultDispatcher()
	c.DatabaseURL, c.NATSURL, c.Level, c.Format = database, nats, "warn", "text"
	return a.Dispatcher(ctx, c)
}
