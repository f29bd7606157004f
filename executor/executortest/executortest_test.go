package executortest_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/belfryhq/belfry/executor"
	"github.com/belfryhq/belfry/executor/executortest"
)

func TestRun(t *testing.T) {
	broken := errors.New("broken")
	res := executortest.RunFunc(t.Context(), func(_ context.Context, run executor.Run) error {
		index, total := run.Shard()
		run.Log().Warn("shard", "index", index, "total", total, "parent", run.ParentOutput())
		fmt.Fprint(run.Stderr(), "no line break")
		if err := run.SetOutput(run.Param()); err != nil {
			return err
		}
		return executor.RetryAfter(executor.Permanent(broken), time.Minute)
	}, executor.RunInfo{Param: "p", ShardIndex: 2, ShardTotal: 3, ParentOutput: "of parent"})
	if !errors.Is(res.Err, broken) || res.Output != "p" || !res.Permanent || res.RetryAfter != time.Minute || res.Panic != nil {
		t.Errorf("%+v", res)
	}
	if want := "shard index=2 total=3 parent=\"of parent\"\nno line break\n"; res.Text() != want {
		t.Errorf("log %q, want %q", res.Text(), want)
	}
	if res.Lines[0].Level != "warn" || res.Lines[1].Level != "stderr" || res.Lines[1].N != 2 {
		t.Errorf("lines %+v", res.Lines)
	}
}

func TestRunCatches(t *testing.T) {
	res := executortest.RunFunc(t.Context(), func(context.Context, executor.Run) error { panic("oh no") }, executor.RunInfo{})
	if res.Panic != "oh no" || !strings.Contains(res.Stack, "TestRunCatches") {
		t.Errorf("panic %v, stack %s", res.Panic, res.Stack)
	}
	res = executortest.RunFunc(t.Context(), func(context.Context, executor.Run) error { runtime.Goexit(); return nil }, executor.RunInfo{})
	if res.Err == nil {
		t.Error("runtime.Goexit was not detected")
	}
	res = executortest.RunFunc(t.Context(), func(ctx context.Context, _ executor.Run) error {
		<-ctx.Done()
		return context.Cause(ctx)
	}, executor.RunInfo{Timeout: time.Millisecond})
	if !errors.Is(res.Err, executor.ErrTimeout) {
		t.Errorf("timeout: %v", res.Err)
	}
}

type resource struct{ calls []string }

func (r *resource) Init(context.Context) error { r.calls = append(r.calls, "init"); return nil }
func (r *resource) Close() error               { r.calls = append(r.calls, "close"); return nil }
func (r *resource) Handle(context.Context, executor.Run) error {
	r.calls = append(r.calls, "handle")
	return nil
}

func TestRunInitsAndCloses(t *testing.T) {
	var r resource
	if res := executortest.Run(t.Context(), &r, executor.RunInfo{}); res.Err != nil {
		t.Fatal(res.Err)
	}
	if got := strings.Join(r.calls, " "); got != "init handle close" {
		t.Errorf("calls: %s", got)
	}
}
