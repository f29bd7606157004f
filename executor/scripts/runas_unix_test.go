//go:build unix

package scripts_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/belfryhq/belfry/executor"
	"github.com/belfryhq/belfry/executor/internal/hook"
	"github.com/belfryhq/belfry/executor/runas"
	"github.com/belfryhq/belfry/executor/scripts"
)

// stranger returns an account without rights. The tests that need one run only as root.
func stranger(t *testing.T) *runas.Account {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("NOT COVERED: only root can start programs under another account")
	}
	as, err := runas.Lookup("nobody")
	if err != nil {
		t.Fatal(err)
	}
	return as
}

// openAs makes a Runner whose scripts run under an account, in a directory that the account can reach.
func openAs(t *testing.T, as *runas.Account, languages ...string) *scripts.Runner {
	t.Helper()
	dir, err := os.MkdirTemp("", "belfry-runas-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	r, err := scripts.New(scripts.Options{Languages: languages, Dir: dir, RunAs: as})
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

// TestRunAs: a script runs under the account, with its groups and a clean environment. It can use its directories and the files that
// name its output, and cannot read what belongs to root.
func TestRunAs(t *testing.T) {
	as := stranger(t)
	as.Groups = []int{as.GID, 54321}
	t.Setenv("BELFRY_TOKEN", "bfg_secret")
	t.Setenv("CLOUD_SECRET", "hush")
	spool := t.TempDir()
	secret := filepath.Join(spool, "results")
	if err := errors.Join(os.Chmod(spool, 0o700), os.WriteFile(secret, []byte("hush"), 0o600)); err != nil {
		t.Fatal(err)
	}
	r := openAs(t, as, "sh")
	res := run(t.Context(), r, "sh", `
		echo "uid $(id -u) gid $(id -g) groups $(id -G)"
		echo "user $USER home $HOME"
		env | grep -e BELFRY_TOKEN -e CLOUD_SECRET && echo leaked
		echo "run $BELFRY_RUN_ID path ${PATH:+set}"
		cat `+secret+` && echo read
		ls `+spool+` && echo listed
		cat /proc/$PPID/environ && echo read
		: > file && mkdir dir && echo "wrote $(ls | wc -l)"
		touch ../../other && echo escaped
		ls ../.. && echo listed
		cat "$BELFRY_PARENT_OUTPUT_FILE" "$0" | wc -l
		echo named >/dev/stdout
		echo oops >/dev/stderr
		echo "::output done"`,
		executor.RunInfo{ID: "run-1", Attempt: 1, Cause: "child", ParentRunID: "up", ParentOutput: "one\n"})
	text := res.Text()
	if res.Err != nil || res.Output != "done" {
		t.Fatalf("output %q, error %v, log:\n%s", res.Output, res.Err, text)
	}
	for _, want := range []string{
		fmt.Sprintf("uid %d gid %d groups %d 54321", as.UID, as.GID, as.GID), "user nobody home " + as.Dir(), "run run-1 path set", "wrote 2", "named", "oops",
	} {
		if !strings.Contains("\n"+text, "\n"+want+"\n") {
			t.Errorf("there is no line %q in:\n%s", want, text)
		}
	}
	for _, bad := range []string{"leaked", "hush", "secret\n", "read\n", "listed\n", "escaped"} {
		if strings.Contains(text, bad) {
			t.Errorf("there is %q in:\n%s", bad, text)
		}
	}
}

// TestRunAsIsCancelledAsAGroup: root's signals reach the account's processes, and the run's directory is removed.
func TestRunAsIsCancelledAsAGroup(t *testing.T) {
	r := openAs(t, stranger(t), "sh")
	mark := fmt.Sprintf("5%09d", os.Getpid())
	ctx, cancel := context.WithCancelCause(t.Context())
	defer cancel(nil)
	var dir string
	made, end := hook.NewRun(executor.RunInfo{ID: "r"}, func(l executor.Line) {
		dir = l.Text
		cancel(executor.ErrKilled)
	})
	err := r.RunScript(ctx, made.(executor.Run), scriptOf("sh", `sleep `+mark+` & pwd; wait`))
	end()
	if !errors.Is(err, executor.ErrKilled) {
		t.Errorf("killed: %v", err)
	}
	gone(t, mark)
	if _, err := os.Stat(dir); dir == "" || !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the directory %q: %v", dir, err)
	}
}

// TestRunAsDaemon: a daemon that a script leaves behind, and that holds the script's output open, does not delay the end of the run.
func TestRunAsDaemon(t *testing.T) {
	as := stranger(t)
	need(t, "setsid")
	mark := fmt.Sprintf("6%09d", os.Getpid())
	res := run(t.Context(), openAs(t, as, "sh"), "sh", `setsid sleep `+mark+` & echo "::output $!"`, executor.RunInfo{Timeout: time.Minute})
	if res.Err != nil || res.Output == "" {
		t.Fatalf("output %q, error %v", res.Output, res.Err)
	}
	pid, err := strconv.Atoi(res.Output)
	if err != nil {
		t.Fatal(err)
	}
	p, err := os.FindProcess(pid)
	if err == nil {
		err = p.Kill()
	}
	if err != nil {
		t.Fatalf("the daemon did not outlive its run: %v", err)
	}
}

// TestRunAsBuilds: Go scripts are built and run under the account.
func TestRunAsBuilds(t *testing.T) {
	need(t, "go")
	as := stranger(t)
	toolchain, err := exec.LookPath("go")
	if err != nil {
		t.Fatal(err)
	}
	if text, err := exec.Command("su", "-s", "/bin/sh", "nobody", "-c", toolchain+" env GOROOT").CombinedOutput(); err != nil {
		t.Skipf("NOT COVERED: another account cannot run %s: %v %s", toolchain, err, text)
	}
	res := run(t.Context(), openAs(t, as, "go"), "go", "package main\n\nimport (\n\t\"fmt\"\n\t\"os\"\n)\n\nfunc main() { fmt.Println(\"::output\", os.Getuid()) }\n", executor.RunInfo{})
	if res.Err != nil || res.Output != strconv.Itoa(as.UID) {
		t.Errorf("output %q, error %v", res.Output, res.Err)
	}
}

// TestRunAsOutOfReach: if the account cannot reach the scripts' directory, the error says so.
func TestRunAsOutOfReach(t *testing.T) {
	as := stranger(t)
	dir := t.TempDir()
	if err := os.Chmod(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	r, err := scripts.New(scripts.Options{Languages: []string{"sh"}, Dir: dir, RunAs: as})
	if err != nil {
		t.Fatal(err)
	}
	res := run(t.Context(), r, "sh", "true", executor.RunInfo{})
	if res.Err == nil || executor.ReasonOf(res.Err) != "unsupported" || !strings.Contains(res.Err.Error(), "must be able to reach this program and the directory") {
		t.Errorf("%v, reason %s", res.Err, executor.ReasonOf(res.Err))
	}
	if err := r.Close(); err != nil {
		t.Error(err)
	}
}
