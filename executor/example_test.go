package executor_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/belfryhq/belfry/executor"
	"github.com/belfryhq/belfry/executor/executortest"
	"github.com/belfryhq/belfry/executor/scripts"
)

// A program that serves one handler until it receives a signal.
func Example() {
	e, err := executor.New(executor.Config{
		NATSURL: "nats://127.0.0.1:4222",
		Token:   os.Getenv("BELFRY_TOKEN"),
		Group:   "billing",
	})
	if err != nil {
		slog.Error("the executor's settings", "error", err)
		return
	}
	e.HandleFunc("invoice", func(ctx context.Context, run executor.Run) error {
		run.Log().Info("writing invoices", "for", run.Param(), "fire_time", run.FireTime())
		return run.SetOutput("12 invoices")
	})

	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := e.Run(ctx); err != nil { // blocks until ctx is done and the executor has drained
		slog.Error("the executor ended", "error", err)
	}
}

var errNoSuchCustomer = errors.New("no such customer")

// An error that a retry cannot fix ends the run at once.
func ExamplePermanent() {
	handler := func(_ context.Context, run executor.Run) error {
		if run.Param() == "" {
			return executor.Permanent(fmt.Errorf("look up the customer: %w", errNoSuchCustomer))
		}
		return nil
	}

	res := executortest.RunFunc(context.Background(), handler, executor.RunInfo{})
	fmt.Println(res.Err, res.Permanent, errors.Is(res.Err, errNoSuchCustomer))
	// Output: look up the customer: no such customer true true
}

// An error can set the delay before the next attempt, instead of the job's backoff.
func ExampleRetryAfter() {
	handler := func(context.Context, executor.Run) error {
		return executor.RetryAfter(errors.New("the bank is closed"), 8*time.Hour)
	}

	res := executortest.RunFunc(context.Background(), handler, executor.RunInfo{})
	fmt.Println(res.Err, res.RetryAfter)
	// Output: the bank is closed 8h0m0s
}

// Each shard of a broadcast handles its part.
func ExampleRun_Shard() {
	handler := func(_ context.Context, run executor.Run) error {
		index, total := run.Shard()
		for customer := range 10 {
			if customer%total == index {
				run.Log().Info("mail", "customer", customer)
			}
		}
		return nil
	}

	res := executortest.RunFunc(context.Background(), handler, executor.RunInfo{ShardIndex: 1, ShardTotal: 4})
	fmt.Print(res.Text())
	// Output:
	// mail customer=1
	// mail customer=5
	// mail customer=9
}

// reports is a handler that needs a connection.
type reports struct{ db string }

// Init is called before the first run.
func (r *reports) Init(context.Context) error { r.db = "connected"; return nil }

// Close is called when the executor ends.
func (r *reports) Close() error { r.db = ""; return nil }

// Handle is called for each attempt.
func (r *reports) Handle(_ context.Context, run executor.Run) error { return run.SetOutput(r.db) }

func ExampleExecutor_Handle() {
	e, err := executor.New(executor.Config{NATSURL: "nats://127.0.0.1:4222", Group: "billing"})
	if err != nil {
		fmt.Println(err)
		return
	}
	e.Handle("report", &reports{})

	res := executortest.Run(context.Background(), &reports{}, executor.RunInfo{})
	fmt.Println(res.Output)
	// Output: connected
}

// An executor that also runs the scripts of its group's jobs, in two languages.
func ExampleExecutor_RegisterScripts() {
	e, err := executor.New(executor.Config{NATSURL: "nats://127.0.0.1:4222", Token: os.Getenv("BELFRY_TOKEN"), Group: "tools"})
	if err != nil {
		slog.Error("the executor's settings", "error", err)
		return
	}
	runner, err := scripts.New(scripts.Options{Languages: []string{"bash", "python"}})
	if err != nil {
		slog.Error("interpreters are missing", "error", err) // the error names each of them
		return
	}
	e.RegisterScripts(runner, runner.Languages()...)
	if err := e.Run(context.Background()); err != nil {
		slog.Error("the executor ended", "error", err)
	}
}
