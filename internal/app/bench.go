package app

import (
	"context"
	"crypto/rand"
	"io"
	"strings"

	"github.com/belfryhq/belfry/internal/bench"
	"github.com/belfryhq/belfry/internal/config"
)

// Bench measures the performance of Belfry on this machine.
func (a *App) Bench(ctx context.Context, c config.Bench, orders io.Reader) error {
	if orders != nil {
		return a.benchPart(ctx, orders)
	}
	b := bench.Bench{Config: c, Stdout: a.Stdout, Stderr: a.Stderr, Version: a.Build.Version}
	return b.Run(ctx)
}

// benchPart runs one process of a measurement.
func (a *App) benchPart(ctx context.Context, orders io.Reader) error {
	quiet := *a
	quiet.Stdout = io.Discard // the measuring process reads replies from standard output
	return bench.RunPart(ctx, orders, a.Stdout, &quiet)
}

// BenchScheduler runs the scheduler with the settings of a measurement.
func (a *App) BenchScheduler(ctx context.Context, database, nats config.URL) error {
	c := config.DefaultScheduler()
	c.DatabaseURL, c.NATSURL, c.Level, c.Format = database, nats, "warn", "text"
	return a.Scheduler(ctx, c)
}

// BenchDispatcher runs the dispatcher with the settings of a measurement.
func (a *App) BenchDispatcher(ctx context.Context, database, nats config.URL) error {
	c := config.DefaultDispatcher()
	c.DatabaseURL, c.NATSURL, c.Level, c.Format = database, nats, "warn", "text"
	return a.Dispatcher(ctx, c)
}

// BenchConsole runs the console on a free port. The password of its administrator is random and is not printed.
func (a *App) BenchConsole(ctx context.Context, database, nats config.URL) error {
	c := config.DefaultConsole()
	c.DatabaseURL, c.NATSURL, c.HTTP, c.Level, c.Format = database, nats, "127.0.0.1:0", "warn", "text"
	c.AdminPassword = config.Secret(rand.Text())
	return a.Console(ctx, c)
}

// BenchGateway runs a gateway on a free port, and calls ready with its URL.
func (a *App) BenchGateway(ctx context.Context, database, nats config.URL, dir string, ready func(url string)) error {
	c := config.DefaultGateway()
	c.DatabaseURL, c.NATSURL, c.HTTP, c.SpoolDir, c.Level, c.Format = database, nats, "127.0.0.1:0", dir, "warn", "text"
	b := *a
	b.Stdout = firstLine(func(line string) { ready(strings.TrimPrefix(line, "gateway: ")) })
	return b.Gateway(ctx, c)
}

// firstLine is called with the line that is written. A gateway writes one line, its URL.
type firstLine func(line string)

// Write implements io.Writer.
func (f firstLine) Write(line []byte) (int, error) {
	f(strings.TrimSpace(string(line)))
	return len(line), nil
}

// BenchStandalone runs all roles in this process, with its own NATS and the measurement's Postgres.
func (a *App) BenchStandalone(ctx context.Context, database config.URL, dir string) error {
	c := config.DefaultStandalone()
	c.DatabaseURL, c.DataDir, c.HTTP, c.NATSListen, c.Level, c.Format = database, dir, "127.0.0.1:0", "127.0.0.1:0", "warn", "text"
	return a.Standalone(ctx, c)
}
