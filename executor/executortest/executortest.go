// Package executortest runs a handler of package executor in a test, without NATS and without Belfry.
//
//	res := executortest.Run(t.Context(), handler, executor.RunInfo{Param: "7"})
//	if res.Err != nil || res.Output != "…" { … }
//
// The handler is called once, on a new goroutine, with the data of an attempt. If it panics, Run recovers the panic and
// returns it, as the executor would report it.
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

// Result is the outcome of a handler.
type Result struct {
	Err        error           // the error that the handler returned
	Panic      any             // the value that the handler panicked with, or nil
	Stack      string          // the panic's stack
	Output     string          // the last output that the handler set
	Lines      []executor.Line // the run's log
	Permanent  bool            // executor.Permanent marked Err
	RetryAfter time.Duration   // the delay from executor.RetryAfter; 0 without one
}

// Text returns the log's text, one line per log line.
func (r Result) Text() string {
	var b []byte
	for _, l := range r.Lines {
		b = append(append(b, l.Text...), '\n')
	}
	return string(b)
}

// errGoexit is the error of a handler that called runtime.Goexit, as testing.T.FailNow does.
var errGoexit = errors.New("executortest: the handler called runtime.Goexit")

// Run runs one attempt. Empty fields of info get defaults: a run id, attempt 1, shard 0 of 1, and now as the fire time.
// If info has a Timeout, Run cancels the handler's context with executor.ErrTimeout when it has passed. Run calls Init
// first if the handler implements executor.Initializer. It calls Close at the end if the handler implements io.Closer.
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

// RunFunc runs one attempt of a function, like Run.
func RunFunc(ctx context.Context, h executor.HandlerFunc, info executor.RunInfo) Result {
	return Run(ctx, h, info)
}

func call(ctx context.Context, h executor.Handler, run executor.Run) (panicked any, stack string, err error) {
	finished := make(chan struct{})
	go func() {
		defer close(finished)
		err = errGoexit // replaced if the handler returns or panics
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
