//go:build unix

package e2e

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/belfryhq/belfry/internal/domain"
	"github.com/belfryhq/belfry/internal/e2e/rig"
)

// natsPy is what docs/examples/executor.py says that it needs.
const natsPy = "nats-py==2.9.0"

// python returns an interpreter that has natsPy: in a virtual environment that is kept, as every run of CI needs it.
func python(t *testing.T) string {
	t.Helper()
	home, err := os.UserCacheDir()
	if err != nil {
		home = os.TempDir()
	}
	dir := filepath.Join(home, "belfry-ci", strings.ReplaceAll(natsPy, "==", "-"))
	interpreter := filepath.Join(dir, "bin", "python3")
	has := func(python string) bool { return exec.Command(python, "-c", "import nats.aio.client").Run() == nil }
	if has(interpreter) {
		return interpreter
	}
	if os.Getenv("BELFRY_TEST_DOWNLOAD") == "" {
		t.Skip("NOT COVERED: the executor in Python needs " + natsPy + " from PyPI; BELFRY_TEST_DOWNLOAD=1 fetches it")
	}
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	made, err := os.MkdirTemp(t.TempDir(), "venv")
	if err != nil {
		t.Fatal(err)
	}
	for _, args := range [][]string{
		{"python3", "-m", "venv", made}, {filepath.Join(made, "bin", "pip"), "install", "--quiet", "--disable-pip-version-check", natsPy},
	} {
		if out, err := exec.CommandContext(ctx, args[0], args[1:]...).CombinedOutput(); err != nil {
			t.Skipf("NOT COVERED: on this system there is no python3 with %s: %s: %v\n%s", natsPy, strings.Join(args, " "), err, out)
		}
	}
	// What pip has installed finds itself by the interpreter, so that the directory may move.
	if err := os.MkdirAll(filepath.Dir(dir), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(made, dir); err != nil || !has(interpreter) {
		if errors.Is(err, syscall.EXDEV) || has(filepath.Join(made, "bin", "python3")) {
			return filepath.Join(made, "bin", "python3") // for this time
		}
		t.Fatalf("keep the virtual environment: %v", err)
	}
	return interpreter
}

// docs/wire.md is enough to write an executor in another language: docs/examples/executor.py works with the real server.
func TestPythonExecutor(t *testing.T) {
	t.Parallel()
	interpreter := python(t)
	c := newCluster(t)
	c.dispatcher()
	c.scheduler()
	py := start(t, "python", exec.Command(interpreter, "-u", filepath.Join(rig.Root(t), "docs", "examples", "executor.py")), c.dir, []string{
		"BELFRY_GROUP=" + group, "BELFRY_TOKEN=" + c.join, "BELFRY_NATS_URL=" + c.natsFor})
	name := ""
	eventually(t, patience, "the executor in Python is listed", func() bool {
		list, err := c.api.Instances(t.Context(), group)
		if err == nil && len(list) == 1 && strings.HasPrefix(list[0].ID, "python-") {
			name = list[0].ID
		}
		return name != ""
	})

	greeted := c.finishes(c.trigger(c.job("greet", handler("greet", "Ann")).ID), patience)
	if greeted.State != domain.Succeeded || greeted.Output != "hello Ann, attempt 1, shard 0 of 1" || greeted.Instance != name {
		t.Errorf("it greeted with %s %q on %s: %s", greeted.State, greeted.Output, greeted.Instance, greeted.Message)
	}
	eventually(t, patience, "its log is there", func() bool {
		page, err := c.api.Log(t.Context(), greeted.ID, 1, 10)
		return err == nil && len(page.Lines) == 1 && page.Lines[0].Text == "greeting Ann"
	})
	stumbled := c.finishes(c.trigger(c.job("stumble", handler("stumble", "a stone"), retries(1)).ID), patience)
	if stumbled.State != domain.Failed || stumbled.Reason != domain.ReasonHandlerError || stumbled.Attempt != 2 || !strings.Contains(stumbled.Message, "a stone") {
		t.Errorf("it stumbled with %s/%s at attempt %d: %s", stumbled.State, stumbled.Reason, stumbled.Attempt, stumbled.Message)
	}
	late := c.finishes(c.trigger(c.job("late", handler("nap", "600"), func(s *domain.JobSpec) { s.Timeout = domain.Duration(time.Second) }).ID), patience)
	if late.State != domain.Failed || late.Reason != domain.ReasonTimeout {
		t.Errorf("past its timeout it ended %s/%s", late.State, late.Reason)
	}
	running := func(r domain.Run) bool { return r.State == domain.Running }
	killed := c.trigger(c.job("killed", handler("nap", "600")).ID)
	c.reaches(killed, patience, "runs", running)
	if err := c.api.KillRun(t.Context(), killed); err != nil {
		t.Fatal(err)
	}
	if r := c.finishes(killed, patience); r.State != domain.Cancelled || r.Reason != domain.ReasonKilled {
		t.Errorf("killed, it ended %s/%s", r.State, r.Reason)
	}
	if left := queryOne[int](t, c.db, `SELECT count(*) FROM late_results`); left != 0 {
		t.Errorf("%d results came late", left)
	}

	last := c.trigger(c.job("last", handler("nap", "2")).ID)
	c.reaches(last, patience, "runs", running)
	py.signal(syscall.SIGTERM)
	if code := py.exit(); code != 0 {
		t.Errorf("it ended with code %d", code)
	}
	if r := c.run(last); r.State != domain.Succeeded {
		t.Errorf("what ran when it drained ended %s/%s", r.State, r.Reason)
	}
	eventually(t, patience, "it has taken itself off the list", func() bool { return !c.listed(name) })
}
