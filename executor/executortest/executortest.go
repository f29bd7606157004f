// Package executortest runs a handler of package executor in a test, without NATS and without Belfry.
//
//	res := executortest.Run(t.Context(), handler, executor.RunInfo{Param: "7"})
//	if res.Err != nil || res.Output != "…" { … }
//
// The handler is called once, on a goroutine of its own, with what an attempt would be told. A panic is caught and
// handed back, as the executor would catch and report it.
package executortest

import (
	"context"
	"errors"
	"fmt"
	"io"
	"runtime/debug"
	"time"

	"github.com/belfryhq/belfry/executor"
	"github.com/belfryhq/belfry/executor/internal/hook"
)

// Result is what a handler left behind.
type Result struct {
	Err        error           // what the handler returned
	Panic      any             // what it panicked with, or nil
	Stack      string          // of the panic
	Output     string          // what it set last
	Lines      []executor.Line // the run's log
	Permanent  bool            // Err was marked by executor.Permanent
	RetryAfter time.Duration   // from executor.RetryAfter; 0 if Err was not marked by it
}

// Text is the log's text, a line each.
func (r Result) Text() string {
	var b []byte
	for _, l := range r.Lines {
		b = append(append(b, l.Text...), '\n')
	}
	return string(b)
}

// errGoexit is handed back for a handler that called runtime.Goexit, as testing.T.FailNow does.
var errGoexit = errors.New("executortest: the handler called runtime.Goexit")

// Run runs one attempt. What info leaves empty gets a plain value: a run id, attempt 1, shard 0 of 1, now as fire
// time. A Timeout in info cancels the handler's context with executor.ErrTimeout. A handler with Init is made ready
// first; one that can be closed is closed.
func Run(ctx context.Context, h executor.Handler, info executor.RunInfo) (res Result) {
	made, end := hook.NewRun(withDefaults(info), func(l executor.Line) { res.Lines = append(res.Lines, l) })
	if info.Timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeoutCause(ctx, info.Timeout, executor.ErrTimeout)
		defer cancel()
	}
	panicked, stack, err := call(ctx, h, made.(executor.Run))
	res.Err, res.Panic, res.Stack, res.Output = err, panicked, stack, end()
	res.Permanent = executor.IsPermanent(err)
	res.RetryAfter, _ = executor.RetryDelay(err)
	return res
}

// RunFunc is Run for a function.
func RunFunc(ctx context.Context, h executor.HandlerFunc, info executor.RunInfo) Result {
	return Run(ctx, h, info)
}

func call(ctx context.Context, h executor.Handler, run executor.Run) (panicked any, stack string, err error) {
	finished := make(chan struct{})
	go func() {
		defer close(finished)
		err = errGoexit // unless the handler comes back
		defer func() {
			if panicked = recover(); panicked != nil {
				err, stack = nil, string(debug.Stack())
			}
		}()
		err = handle(ctx, h, run)
	}()
	<-finished
	return panicked, stack, err
}

func handle(ctx context.Context, h executor.Handler, run executor.Run) error {
	if i, ok := h.(executor.Initializer); ok {
		if err := i.Init(ctx); err != nil {
			return fmt.Errorf("make the handler ready: %w", err)
		}
	}
	err := h.Handle(ctx, run)
	if c, ok := h.(io.Closer); ok {
		if closeErr := c.Close(); closeErr != nil {
			return errors.Join(err, fmt.Errorf("close the handler: %w", closeErr))
		}
	}
	return err
}

func withDefaults(info executor.RunInfo) executor.RunInfo {
	if info.ID == "" {
		info.ID = "00000000-0000-7000-8000-000000000001"
	}
	if info.Attempt == 0 {
		info.Attempt = 1
	}
	if info.ShardTotal == 0 {
		info.ShardTotal = 1
	}
	if info.Cause == "" {
		info.Cause = "manual"
	}
	if info.FireTime.IsZero() {
		info.FireTime = time.Now().Truncate(time.Millisecond)
	}
	if info.DueAt.IsZero() {
		info.DueAt = info.FireTime
	}
	return info
}
