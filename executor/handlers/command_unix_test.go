//go:build unix

package handlers_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/belfryhq/belfry/executor"
	"github.com/belfryhq/belfry/executor/executortest"
	"github.com/belfryhq/belfry/executor/handlers"
	"github.com/belfryhq/belfry/executor/internal/hook"
	"github.com/belfryhq/belfry/executor/runas"
)

func shell(t *testing.T, script string) string {
	t.Helper()
	b, err := json.Marshal([]string{"sh", "-c", script})
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

func TestCommand(t *testing.T) {
	res := executortest.RunFunc(t.Context(), handlers.Command, executor.RunInfo{
		ID: "run-1", JobID: 7, Attempt: 2, FireTime: time.Date(2026, 1, 2, 3, 4, 5, 6e6, time.UTC),
		Param: shell(t, `echo "$BELFRY_RUN_ID $BELFRY_JOB_ID $BELFRY_ATTEMPT $BELFRY_FIRE_TIME"; echo oops >&2; echo ::output first; echo '::output the last'; printf end`),
	})
	if res.Err != nil || res.Output != "the last" {
		t.Errorf("output %q, error %v", res.Output, res.Err)
	}
	if text := res.Text(); !strings.Contains(text, "run-1 7 2 2026-01-02T03:04:05.006Z\n") || !strings.Contains(text, "oops\n") || !strings.Contains(text, "end\n") {
		t.Errorf("log %q", text)
	}
	for _, l := range res.Lines {
		if want := map[bool]string{true: "stderr", false: "stdout"}[l.Text == "oops"]; l.Level != want {
			t.Errorf("line %q has level %s", l.Text, l.Level)
		}
	}
	dir := t.TempDir()
	res = executortest.RunFunc(t.Context(), handlers.Command, executor.RunInfo{
		Param: `{"argv": ["sh", "-c", "pwd; echo $A"], "env": {"A": "b"}, "dir": "` + dir + `"}`})
	if res.Err != nil || res.Text() != dir+"\nb\n" {
		t.Errorf("log %q, error %v", res.Text(), res.Err)
	}
	res = executortest.RunFunc(t.Context(), handlers.Command, executor.RunInfo{Param: shell(t, "exit 3")})
	if res.Err == nil || res.Err.Error() != "exit status 3" || res.Permanent {
		t.Errorf("exit 3: %v", res.Err)
	}
	for script, want := range map[string]string{
		"echo out; echo first >&2; echo 'cp: no space left' >&2; echo later; exit 1": "exit status 1: cp: no space left",
		`printf '  \tlast without an end' >&2; exit 2`:                               "exit status 2: last without an end",
		`printf 'the cause\n\n  \n\r\n' >&2; exit 2`:                                 "exit status 2: the cause",
		`printf '10%%\r50%%\rdisk failed\r' >&2; exit 2`:                             "exit status 2: disk failed",
		"head -c 499 /dev/zero | tr '\\0' x >&2; echo 'éxyz' >&2; exit 1":            "exit status 1: " + strings.Repeat("x", 499),
		"echo harmless >&2; kill -9 $$":                                              "signal: killed: harmless",
	} {
		if res := executortest.RunFunc(t.Context(), handlers.Command, executor.RunInfo{Param: shell(t, script)}); res.Err == nil || res.Err.Error() != want {
			t.Errorf("%s: %v, want %s", script, res.Err, want)
		}
	}
	if res := executortest.RunFunc(t.Context(), handlers.Command, executor.RunInfo{Param: shell(t, "echo warning >&2")}); res.Err != nil {
		t.Errorf("a success with a warning: %v", res.Err)
	}
	res = executortest.RunFunc(t.Context(), handlers.Command, executor.RunInfo{Param: shell(t, "kill -9 $$")})
	if res.Err == nil || res.Err.Error() != "signal: killed" {
		t.Errorf("killed: %v", res.Err)
	}
	for _, param := range []string{"", "date", "[]", `[""]`, `{"argv": []}`, `{"argv": ["a"], "shell": true}`, `["a", "b\u0000"]`, `{"argv": ["a"], "env": {"A=B": ""}}`, `["a"] ["b"]`} {
		if res := executortest.RunFunc(t.Context(), handlers.Command, executor.RunInfo{Param: param}); res.Err == nil || !res.Permanent {
			t.Errorf("param %s: %v, want a permanent error", param, res.Err)
		}
	}
	if res := executortest.RunFunc(t.Context(), handlers.Command, executor.RunInfo{Param: `["/no/such/program"]`}); res.Err == nil {
		t.Error("a missing program succeeded")
	}
}

func TestCommandIsCancelledAsAGroup(t *testing.T) {
	// run kills the program after it has written a line, which it does when its traps are set.
	run := func(script string) (text string, took time.Duration, err error) {
		ctx, cancel := context.WithCancelCause(t.Context())
		defer cancel(nil)
		var begin time.Time
		r, end := hook.NewRun(executor.RunInfo{Param: shell(t, script)}, func(l executor.Line) {
			if l.Text == "ready" {
				begin = time.Now()
				cancel(executor.ErrKilled)
				return
			}
			text += l.Text
		})
		err = handlers.Command(ctx, r.(executor.Run))
		end()
		return text, time.Since(begin), err
	}
	_, _, err := run("sleep 60 & echo ready; wait")
	if !errors.Is(err, executor.ErrKilled) || !strings.Contains(err.Error(), "signal: terminated") {
		t.Errorf("a process group that ends on SIGTERM: %v", err)
	}
	text, _, err := run("trap 'echo bye; exit 0' TERM; sleep 60 & echo ready; wait")
	if !errors.Is(err, executor.ErrKilled) || text != "bye" {
		t.Errorf("a program that writes on SIGTERM: %v, %q", err, text)
	}
	_, took, err := run("trap '' TERM; sleep 60 & echo ready; wait")
	if !errors.Is(err, executor.ErrKilled) || took < 5*time.Second || !strings.Contains(err.Error(), "signal: killed") {
		t.Errorf("a process group that ignores SIGTERM: %v after %v", err, took)
	}
}

func TestCommandKeepsTheAgentsSettingsToItself(t *testing.T) {
	t.Setenv("BELFRY_TOKEN", "bfg_secret")
	t.Setenv("NOT_OURS", "kept")
	res := executortest.RunFunc(t.Context(), handlers.Command, executor.RunInfo{Param: shell(t, `echo "::output [$BELFRY_TOKEN] $NOT_OURS"`)})
	if res.Err != nil || res.Output != "[] kept" {
		t.Fatalf("output %q, error %v", res.Output, res.Err)
	}
}

// TestCommandRunAs: a command runs under the account, starts in its home directory, and gets the param's environment and no other.
func TestCommandRunAs(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("NOT COVERED: only root can start programs under another account")
	}
	as, err := runas.Lookup("nobody")
	if err != nil {
		t.Fatal(err)
	}
	t.Setenv("CLOUD_SECRET", "hush")
	param, err := json.Marshal(map[string]any{"argv": []string{"sh", "-c", `id -u; pwd; echo "$EXTRA $CLOUD_SECRET"`}, "env": map[string]string{"EXTRA": "given"}})
	if err != nil {
		t.Fatal(err)
	}
	res := executortest.RunFunc(t.Context(), handlers.NewCommand(as), executor.RunInfo{Param: string(param)})
	if want := fmt.Sprintf("%d\n%s\ngiven \n", as.UID, as.Dir()); res.Err != nil || res.Text() != want {
		t.Errorf("log %q, want %q, error %v", res.Text(), want, res.Err)
	}
}
