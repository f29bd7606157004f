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

// handler is the name of the handler that the jobs of a measurement run.
const handler = "noop"

// runExecutor runs an executor on the SDK. Its handler only records how late it started, by the clock of this machine,
// which is also the clock of Postgres.
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

// logger returns a logger for warnings and errors only, because the logs of the parts are mixed with the progress.
func logger(w io.Writer) *slog.Logger {
	return slog.New(slog.NewTextHandler(w, &slog.HandlerOptions{Level: slog.LevelWarn}))
}
