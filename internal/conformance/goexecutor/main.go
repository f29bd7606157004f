// Command goexecutor is an executor on the Go SDK with the handlers of docs/conformance.md. The tests run every duty
// against it. It also shows how to write these handlers.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/belfryhq/belfry/executor"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx)
	stop()
	if err != nil {
		slog.Error("the executor failed, the process ends", "err", err)
		os.Exit(1)
	}
}

// run reads the settings and takes runs until ctx is cancelled.
func run(ctx context.Context) error {
	c := executor.Config{
		NATSURL: os.Getenv("BELFRY_NATS_URL"), Token: os.Getenv("BELFRY_TOKEN"), Group: os.Getenv("BELFRY_GROUP"),
		Instance: os.Getenv("BELFRY_INSTANCE"), SpoolDir: os.Getenv("BELFRY_SPOOL_DIR"), Version: "conformance",
	}
	var err error
	if c.Capacity, err = strconv.Atoi(os.Getenv("BELFRY_CAPACITY")); err != nil {
		return fmt.Errorf("read BELFRY_CAPACITY: %w", err)
	}
	if c.DrainTimeout, err = time.ParseDuration(os.Getenv("BELFRY_DRAIN_TIMEOUT")); err != nil {
		return fmt.Errorf("read BELFRY_DRAIN_TIMEOUT: %w", err)
	}
	e, err := executor.New(c)
	if err != nil {
		return err
	}
	for name, handle := range handlers {
		e.HandleFunc(name, func(ctx context.Context, run executor.Run) error {
			var p param
			if err := json.Unmarshal([]byte(run.Param()), &p); err != nil {
				return executor.Permanent(fmt.Errorf("read the param: %w", err))
			}
			if err := noteStart(p.File, run); err != nil {
				return err
			}
			return handle(ctx, run, p)
		})
	}
	return e.Run(ctx)
}

// param is the param of each handler, as docs/conformance.md defines it.
type param struct {
	File  string `json:"file"`
	MS    int64  `json:"ms"`
	Bytes int    `json:"bytes"`
	Lines int    `json:"lines"`
	Text  string `json:"text"`
}

// text returns the text of a handler's message or output.
func (p param) text() string { return p.Text + strings.Repeat("é", p.Bytes/2) }

var handlers = map[string]func(context.Context, executor.Run, param) error{
	"conformance_sleep":  sleep,
	"conformance_fail":   func(_ context.Context, _ executor.Run, p param) error { return errors.New(p.text()) },
	"conformance_output": func(_ context.Context, run executor.Run, p param) error { return run.SetOutput(p.text()) },
	"conformance_echo":   echo,
	"conformance_log":    log,
}

// noteStart appends one line for each start. The tester reads the file, because it does not trust the executor's reports.
func noteStart(file string, run executor.Run) error {
	f, err := os.OpenFile(file, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return fmt.Errorf("note the start: %w", err)
	}
	_, err = fmt.Fprintf(f, "%s %d %d\n", run.ID(), run.Attempt(), time.Now().UnixMilli())
	return errors.Join(err, f.Close())
}

func sleep(ctx context.Context, _ executor.Run, p param) error {
	timer := time.NewTimer(time.Duration(p.MS) * time.Millisecond)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func echo(_ context.Context, run executor.Run, p param) error {
	index, total := run.Shard()
	output, err := json.Marshal(map[string]any{
		"attempt": run.Attempt(), "shard_index": index, "shard_total": total, "parent_output": run.ParentOutput(), "text": p.Text,
	})
	if err != nil {
		return err
	}
	return run.SetOutput(string(output))
}

func log(_ context.Context, run executor.Run, p param) error {
	for range p.Lines {
		if _, err := fmt.Fprintln(run.Stdout(), strings.Repeat("x", p.Bytes)); err != nil {
			return err
		}
	}
	return nil
}
