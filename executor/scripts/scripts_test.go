//go:build unix

package scripts_test

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/belfryhq/belfry/executor"
	"github.com/belfryhq/belfry/executor/executortest"
	"github.com/belfryhq/belfry/executor/internal/hook"
	"github.com/belfryhq/belfry/executor/scripts"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// open makes a Runner for languages in the test's directory.
func open(t *testing.T, languages ...string) *scripts.Runner {
	t.Helper()
	r, err := scripts.New(scripts.Options{Languages: languages, Dir: t.TempDir(), LogBytes: 64 << 10})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := r.Close(); err != nil {
			t.Error(err)
		}
	})
	return r
}

func scriptOf(language, code string) executor.Script {
	sum := sha256.Sum256([]byte(code))
	return executor.Script{Language: language, Version: 1, SHA256: hex.EncodeToString(sum[:]), Code: []byte(code)}
}

func run(ctx context.Context, r *scripts.Runner, language, code string, info executor.RunInfo) executortest.Result {
	return executortest.RunFunc(ctx, func(ctx context.Context, run executor.Run) error {
		return r.RunScript(ctx, run, scriptOf(language, code))
	}, info)
}

// need skips the test if an interpreter is missing.
func need(t *testing.T, programs ...string) {
	t.Helper()
	for _, p := range programs {
		if _, err := exec.LookPath(p); err == nil {
			return
		}
	}
	t.Skipf("NOT COVERED: there is no %s on PATH", strings.Join(programs, " or "))
}

// The same script in each language. It prints its arguments and a part of its environment, writes to stderr, and sets
// an output.
var samples = []struct {
	language string
	programs []string
	code     string
	fails    string // code that ends with exit status 3
}{
	{"bash", []string{"bash"}, `set -o pipefail; args=("$@")
echo "args ${args[0]} $2/$3"; echo "run $BELFRY_RUN_ID attempt $BELFRY_ATTEMPT"; echo oops >&2; echo "::output done"`, `exit 3`},
	{"sh", []string{"sh"}, `echo "args $1 $2/$3"; echo "run $BELFRY_RUN_ID attempt $BELFRY_ATTEMPT"; echo oops >&2; echo "::output done"`, `exit 3`},
	{"python", []string{"python3"}, `import os, sys
print("args", sys.argv[1], sys.argv[2] + "/" + sys.argv[3])
print("run", os.environ["BELFRY_RUN_ID"], "attempt", os.environ["BELFRY_ATTEMPT"])
print("oops", file=sys.stderr)
print("::output done")`, "import sys\nsys.exit(3)"},
	{"node", []string{"node", "nodejs"}, "const [param, index, total] = process.argv.slice(2);\n" +
		"console.log(`args ${param} ${index}/${total}`);\n" +
		"console.log(`run ${process.env.BELFRY_RUN_ID} attempt ${process.env.BELFRY_ATTEMPT}`);\n" +
		"console.error('oops');\nconsole.log('::output done');", "process.exit(3)"},
	{"php", []string{"php"}, `<?php
echo "args $argv[1] $argv[2]/$argv[3]\n";
echo "run ", getenv("BELFRY_RUN_ID"), " attempt ", getenv("BELFRY_ATTEMPT"), "\n";
fwrite(STDERR, "oops\n");
echo "::output done\n";`, "<?php exit(3);"},
	{"go", []string{"go"}, `package main

import (
	"fmt"
	"os"
)

func main() {
	fmt.Printf("args %s %s/%s\n", os.Args[1], os.Args[2], os.Args[3])
	fmt.Printf("run %s attempt %s\n", os.Getenv("BELFRY_RUN_ID"), os.Getenv("BELFRY_ATTEMPT"))
	fmt.Fprintln(os.Stderr, "oops")
	fmt.Println("::output done")
}`, "package main\n\nimport \"os\"\n\nfunc main() { os.Exit(3) }"},
}

func TestLanguages(t *testing.T) {
	for _, s := range samples {
		t.Run(s.language, func(t *testing.T) {
			need(t, s.programs...)
			r := open(t, s.language)
			info := executor.RunInfo{ID: "run-1", Attempt: 2, Param: "-x $HOME 'a b'", ShardIndex: 1, ShardTotal: 4}
			res := run(t.Context(), r, s.language, s.code, info)
			if res.Err != nil || res.Output != "done" {
				t.Fatalf("output %q, error %v, log:\n%s", res.Output, res.Err, res.Text())
			}
			for level, want := range map[string][]string{
				"stdout": {"args -x $HOME 'a b' 1/4", "run run-1 attempt 2", "::output done"}, "stderr": {"oops"},
			} {
				var got []string
				for _, l := range res.Lines {
					if l.Level == level {
						got = append(got, l.Text)
					}
				}
				if !slices.Equal(got, want) {
					t.Errorf("%s is %q, want %q", level, got, want)
				}
			}
			if res := run(t.Context(), r, s.language, s.fails, info); res.Err == nil || res.Err.Error() != "exit status 3" || res.Permanent {
				t.Errorf("exit 3: %v", res.Err)
			}
		})
	}
}

// The error of a failed script says why it failed, also if its log was cut before.
func TestTheErrorHasTheLastLineOfStderr(t *testing.T) {
	r, err := scripts.New(scripts.Options{Languages: []string{"sh"}, Dir: t.TempDir(), LogBytes: 1 << 10})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = r.Close() })
	res := run(t.Context(), r, "sh", "seq 10000; echo 'pg_dump: connection refused' >&2; exit 1", executor.RunInfo{})
	if want := "exit status 1: pg_dump: connection refused"; res.Err == nil || res.Err.Error() != want {
		t.Errorf("%v, want %s", res.Err, want)
	}
}

// TestPowerShell runs a stand-in, because Debian has no PowerShell. It verifies the command line of pwsh, not that pwsh
// runs scripts.
func TestPowerShell(t *testing.T) {
	bin := t.TempDir()
	stub := "#!/bin/sh\nwhile [ \"$1\" != -File ]; do echo \"option $1\"; shift; done\nshift\necho \"file ${1##*/}\"; cat \"$1\"; shift; echo \"args $*\"\n"
	if err := os.WriteFile(filepath.Join(bin, "pwsh"), []byte(stub), 0o700); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", bin+string(os.PathListSeparator)+os.Getenv("PATH"))
	res := run(t.Context(), open(t, "powershell"), "powershell", "Write-Output hi\n", executor.RunInfo{Param: "p", ShardTotal: 1})
	want := "option -NoLogo\noption -NoProfile\noption -NonInteractive\nfile script.ps1\nWrite-Output hi\nargs p 0 1\n"
	if res.Err != nil || res.Text() != want {
		t.Errorf("log %q, want %q, error %v", res.Text(), want, res.Err)
	}
}

func TestMissingInterpreters(t *testing.T) {
	t.Setenv("PATH", t.TempDir())
	_, err := scripts.New(scripts.Options{Languages: []string{"python", "cobol", "go"}})
	if err == nil {
		t.Fatal("missing interpreters were found")
	}
	for _, want := range []string{"python: there is no python3 or python on PATH", `"cobol" is no script language`, "go: there is no go on PATH"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("the error does not contain %q: %v", want, err)
		}
	}
}

func TestAnInterpreterThatIsGoneIsNotTheScriptsFault(t *testing.T) {
	bin := t.TempDir()
	if err := os.Symlink("/bin/sh", filepath.Join(bin, "php")); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", bin)
	r := open(t, "php")
	if err := os.Remove(filepath.Join(bin, "php")); err != nil {
		t.Fatal(err)
	}
	if res := run(t.Context(), r, "php", "<?php", executor.RunInfo{}); res.Err == nil || res.Permanent || executor.ReasonOf(res.Err) != "unsupported" {
		t.Errorf("%v, reason %s", res.Err, executor.ReasonOf(res.Err))
	}
	if res := run(t.Context(), r, "bash", "true", executor.RunInfo{}); executor.ReasonOf(res.Err) != "unsupported" {
		t.Errorf("a language that is not allowed: %v", res.Err)
	}
}

func TestEnvironment(t *testing.T) {
	t.Setenv("BELFRY_TOKEN", "bfg_secret")
	t.Setenv("BELFRY_NATS_URL", "nats://user:hush@h")
	t.Setenv("NOT_OURS", "kept")
	long := strings.Repeat("x", 100<<10)
	res := run(t.Context(), open(t, "sh"), "sh", `env | grep ^BELFRY_ | cut -c 1-60 | sort; echo "$NOT_OURS"; wc -c <"$BELFRY_PARENT_OUTPUT_FILE"; ls -A | wc -l`, executor.RunInfo{
		ID: "r", JobID: 7, JobName: "n", Group: "g", Cause: "child", Attempt: 3, Param: "p", ShardTotal: 1,
		FireTime: time.Date(2026, 1, 2, 3, 4, 5, 6e6, time.UTC), ParentRunID: "up", ParentOutput: long,
	})
	text := res.Text()
	for _, want := range []string{
		"BELFRY_RUN_ID=r", "BELFRY_JOB_ID=7", "BELFRY_JOB_NAME=n", "BELFRY_GROUP=g", "BELFRY_CAUSE=child", "BELFRY_ATTEMPT=3", "BELFRY_PARAM=p",
		"BELFRY_SHARD_INDEX=0", "BELFRY_SHARD_TOTAL=1", "BELFRY_FIRE_TIME=2026-01-02T03:04:05.006Z", "BELFRY_PARENT_RUN_ID=up", "kept",
		fmt.Sprint(len(long)), "0", // the working directory is empty
	} {
		if !strings.Contains("\n"+text, "\n"+want+"\n") {
			t.Errorf("there is no line %q in:\n%s", want, text)
		}
	}
	if strings.Contains(text, "secret") || strings.Contains(text, "hush") || strings.Contains(text, "BELFRY_PARENT_OUTPUT=") {
		t.Errorf("the environment has what it must not:\n%s", text)
	}
}

func TestNothingIsLeft(t *testing.T) {
	dir := t.TempDir()
	r, err := scripts.New(scripts.Options{Languages: []string{"sh"}, Dir: dir})
	if err != nil {
		t.Fatal(err)
	}
	count := func() int {
		t.Helper()
		runs, err := filepath.Glob(filepath.Join(dir, "belfry-scripts-*", "run-*"))
		if err != nil {
			t.Fatal(err)
		}
		return len(runs)
	}
	res := run(t.Context(), r, "sh", `pwd; umask; mkdir -p a/b; echo x >a/b/c; chmod 500 a/b; exit 1`, executor.RunInfo{})
	if res.Err == nil || count() != 0 {
		t.Errorf("%v, %d directories are left", res.Err, count())
	}
	if first := res.Lines[0].Text; !strings.HasPrefix(first, dir) {
		t.Errorf("it ran in %s", first)
	}
	// A dead process leaves its directory, and the next process removes it. The directory of a running process stays.
	dead := filepath.Join(dir, "belfry-scripts-dead")
	if err := errors.Join(os.Mkdir(dead, 0o700), os.WriteFile(filepath.Join(dead, "lock"), nil, 0o600)); err != nil {
		t.Fatal(err)
	}
	other, err := scripts.New(scripts.Options{Languages: []string{"sh"}, Dir: dir})
	if err != nil {
		t.Fatal(err)
	}
	if res := run(t.Context(), other, "sh", "true", executor.RunInfo{}); res.Err != nil {
		t.Fatal(res.Err)
	}
	if _, err := os.Stat(dead); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a dead process's directory: %v", err)
	}
	if left, _ := filepath.Glob(filepath.Join(dir, "belfry-scripts-*")); len(left) != 2 {
		t.Errorf("%d directories, want one for each of two", len(left))
	}
	if err := errors.Join(r.Close(), other.Close()); err != nil {
		t.Fatal(err)
	}
	if left, _ := filepath.Glob(filepath.Join(dir, "*")); len(left) != 0 {
		t.Errorf("after Close there is %v", left)
	}
}

func TestLongLogsAreCutAndTheScriptGoesOn(t *testing.T) {
	res := run(t.Context(), open(t, "sh"), "sh", `i=0; while [ $i -lt 3000 ]; do echo "line $i of many that are written here"; i=$((i+1)); done; echo "::output end"`, executor.RunInfo{})
	if res.Err != nil || res.Output != "end" {
		t.Fatalf("output %q, error %v", res.Output, res.Err)
	}
	last := res.Lines[len(res.Lines)-1]
	if !strings.Contains(last.Text, "cut here") || last.Level != "warn" {
		t.Errorf("the last line is %s %q", last.Level, last.Text)
	}
	if size := len(res.Text()); size > 70<<10 || len(res.Lines) > 2000 || len(res.Lines) < 500 {
		t.Errorf("%d lines, %d bytes", len(res.Lines), size)
	}
	for i, l := range res.Lines[:len(res.Lines)-2] {
		if l.Text != fmt.Sprintf("line %d of many that are written here", i) {
			t.Fatalf("line %d is %q", i, l.Text)
		}
	}
}

func TestOutputThatIsTooLong(t *testing.T) {
	r := open(t, "sh")
	long := `printf '::output '; head -c 70000 /dev/zero | tr '\0' x; echo; exit `
	if res := run(t.Context(), r, "sh", long+"0", executor.RunInfo{}); res.Err == nil || !strings.Contains(res.Err.Error(), "output") || res.Output != "" {
		t.Errorf("%v, an output of %d bytes", res.Err, len(res.Output))
	}
	if res := run(t.Context(), r, "sh", long+"3", executor.RunInfo{}); res.Err == nil || res.Err.Error() != "exit status 3" {
		t.Errorf("a failed script with a long output: got %v, want exit status 3", res.Err)
	}
	for _, l := range run(t.Context(), r, "sh", "head -c 70000 /dev/zero | tr '\\0' x", executor.RunInfo{}).Lines {
		if len(l.Text) > executor.MaxLine {
			t.Errorf("a line of %d bytes", len(l.Text))
		}
	}
}

// gone waits until no process has mark in its command line.
func gone(t *testing.T, mark string) {
	t.Helper()
	for deadline := time.Now().Add(5 * time.Minute); ; {
		files, _ := filepath.Glob("/proc/[0-9]*/cmdline")
		alive := false
		for _, file := range files { // a zombie's command line is empty
			args, _ := os.ReadFile(file)
			alive = alive || strings.Contains(string(args), mark)
		}
		if !alive {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("a process with %s still runs", mark)
		}
	}
}

func TestAStoppedScriptTakesItsGrandchildrenAlong(t *testing.T) {
	if _, err := os.Stat("/proc/self/cmdline"); err != nil {
		t.Skip("NOT COVERED: on this system processes cannot be listed by /proc")
	}
	r := open(t, "sh")
	mark := fmt.Sprintf("3%09d", os.Getpid()) // seconds to sleep; identifies the process
	code := `(sleep ` + mark + ` & sleep ` + mark + `) & echo ready; wait`
	ctx, cancel := context.WithCancelCause(t.Context())
	defer cancel(nil)
	made, end := hook.NewRun(executor.RunInfo{ID: "r"}, func(l executor.Line) {
		if l.Text == "ready" {
			cancel(executor.ErrKilled)
		}
	})
	err := r.RunScript(ctx, made.(executor.Run), scriptOf("sh", code))
	end()
	if !errors.Is(err, executor.ErrKilled) {
		t.Errorf("killed: %v", err)
	}
	gone(t, mark)
	res := run(t.Context(), r, "sh", code, executor.RunInfo{Timeout: 200 * time.Millisecond})
	if !errors.Is(res.Err, executor.ErrTimeout) {
		t.Errorf("timed out: %v", res.Err)
	}
	gone(t, mark)
}

func TestADaemonDoesNotHoldTheRun(t *testing.T) {
	need(t, "setsid")
	mark := fmt.Sprintf("4%09d", os.Getpid())
	res := run(t.Context(), open(t, "sh"), "sh", `setsid sleep `+mark+` & echo "::output $!"`, executor.RunInfo{Timeout: time.Minute})
	if res.Err != nil || res.Output == "" {
		t.Fatalf("output %q, error %v", res.Output, res.Err)
	}
	pid, err := strconv.Atoi(res.Output)
	if err == nil {
		err = syscall.Kill(pid, syscall.SIGKILL)
	}
	if err != nil {
		t.Fatalf("the daemon did not outlive its run: %v", err)
	}
}

func TestGoScripts(t *testing.T) {
	need(t, "go")
	r := open(t, "go")
	for name, c := range map[string]struct{ code, says string }{
		"no Go at all": {"print('hello')", "expected 'package'"},
		"no program":   {"package x", "package main"},
		"type error":   {"package main\n\nfunc main() { return 1 }\n", "main.go:3"},
	} {
		res := run(t.Context(), r, "go", c.code, executor.RunInfo{})
		if res.Err == nil || !res.Permanent || executor.ReasonOf(res.Err) != "bad_script" || !strings.Contains(res.Err.Error(), c.says) {
			t.Errorf("%s: %v, reason %s", name, res.Err, executor.ReasonOf(res.Err))
		}
	}
	// A module that cannot be downloaded is not the script's fault, because the proxy may only be unavailable.
	t.Setenv("GOPROXY", "off")
	t.Setenv("GOFLAGS", "")
	res := run(t.Context(), r, "go", "package main\n\nimport _ \"example.com/nowhere\"\n\nfunc main() {}\n", executor.RunInfo{})
	if res.Err == nil || res.Permanent || executor.ReasonOf(res.Err) != "handler_error" || !strings.Contains(res.Err.Error(), "example.com/nowhere") {
		t.Errorf("a module that cannot be downloaded: %v, reason %s", res.Err, executor.ReasonOf(res.Err))
	}
}

func TestGoScriptsAreBuiltOnce(t *testing.T) {
	need(t, "go")
	real, err := exec.LookPath("go")
	if err != nil {
		t.Fatal(err)
	}
	bin, counted := t.TempDir(), filepath.Join(t.TempDir(), "builds")
	stub := "#!/bin/sh\n[ \"$1\" = build ] && echo built >>" + counted + "\nexec " + real + " \"$@\"\n"
	if err := os.WriteFile(filepath.Join(bin, "go"), []byte(stub), 0o700); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", bin+string(os.PathListSeparator)+os.Getenv("PATH"))
	r := open(t, "go")
	ended := make(chan error)
	const runs = 4
	for range runs {
		go func() {
			ended <- run(context.Background(), r, "go", "package main\n\nfunc main() { println(1) }\n", executor.RunInfo{}).Err
		}()
	}
	for range runs {
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}
	if b, err := os.ReadFile(counted); err != nil || string(b) != "built\n" {
		t.Errorf("%d runs of one script: %q, %v", runs, b, err)
	}
}
