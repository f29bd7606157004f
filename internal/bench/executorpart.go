package bench

import (
	"context"
	"io"
	"log/slog"
	"os"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/belfryhq/belfry/executor"
)

// handler is the name of the handler that does nothing.
const handler = "noop"

// runExecutor is an instance of the real SDK. Its handler does nothing but note how late it started, by this machine's
// clock, which is Postgres's too.
func (p *part) runExecutor(ctx context.Context) error {
	var late Histogram
	p.take = late.Take
	e, err := executor.New(executor.Config{
		NATSURL: p.order.NATS, Group: group, Instance: p.order.Name, Capacity: p.order.Capacity, SpoolDir: p.order.Dir,
		DrainTimeout: -1, Logger: logger(os.Stderr), NATSOptions: []nats.Option{nats.UserInfo(executorUser, p.order.Password)},
	})
	if err != nil {
		return err
	}
	e.HandleFunc(handler, func(_ context.Context, run executor.Run) error {
		late.Add(time.Since(run.DueAt()))
		return nil
	})
	go func() {
		select {
		case <-e.Ready():
			p.ready()
		case <-ctx.Done():
		}
	}()
	return e.Run(ctx)
}

// logger logs warnings alone: a part's log stands among the progress of the measurement.
func logger(w io.Writer) *slog.Logger {
	return slog.New(slog.NewTextHandler(w, &slog.HandlerOptions{Level: slog.LevelWarn}))
}
