package e2e

import (
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/belfryhq/belfry/internal/domain"
	"github.com/belfryhq/belfry/internal/explain"
)

// notOffered returns why an instance gets no runs, "" if it does or if it is not listed.
func (c *cluster) notOffered(instance string) (code explain.Code, text string) {
	c.t.Helper()
	all, err := c.api.Instances(c.t.Context(), group)
	if err != nil {
		c.t.Fatal(err)
	}
	for _, i := range all {
		if i.ID == instance && i.NotOffered != nil {
			return i.NotOffered.Code, i.NotOffered.Text
		}
	}
	return "", ""
}

// ready returns the status and the body of a process's /readyz.
func ready(t *testing.T, url string) (status int, body string) {
	t.Helper()
	a, err := http.Get(url + "/readyz") //nolint:gosec // an address of the test
	if err != nil {
		t.Fatal(err)
	}
	defer a.Body.Close()
	text, err := io.ReadAll(a.Body)
	if err != nil {
		t.Fatal(err)
	}
	return a.StatusCode, string(text)
}

// An executor's process in trouble takes itself out of rotation and says why. Runs go to the other instance, although the route
// prefers the one in trouble. That one returns by itself.
func unfitTest(t *testing.T, c *cluster, agent *process, code explain.Code, cause, cure func()) {
	c.executor("i2")
	url := strings.TrimPrefix(agent.says("metrics: "), "metrics: ")
	job := c.job("preferred", shell("true"), first)
	runsOn := func(want string) {
		t.Helper()
		r := c.finishes(c.trigger(job.ID), patience)
		if r.State != domain.Succeeded || r.Instance != want {
			t.Errorf("the run ended %s/%s on %s, want %s", r.State, r.Reason, r.Instance, want)
		}
	}
	eventually(t, patience, "the instance is ready", func() bool { status, _ := ready(t, url); return status == 200 })
	runsOn("i1")
	busy := c.trigger(c.job("busy", shell("until [ -e "+filepath.Join(c.dir, "go-on")+" ]; do sleep 0.1; done"), first).ID)
	eventually(t, patience, "a run is running", func() bool { return c.run(busy).State == domain.Running })

	cause()
	eventually(t, patience, "the instance is out of rotation", func() bool { got, _ := c.notOffered("i1"); return got == code })
	_, why := c.notOffered("i1")
	t.Log(why)
	reason := strings.TrimPrefix(string(code), "instance_")
	if status, body := ready(t, url); status != http.StatusServiceUnavailable || !strings.HasPrefix(body, reason+": ") {
		t.Errorf("/readyz answers %d %q", status, body)
	}
	runsOn("i2")

	cure()
	eventually(t, patience, "the instance is back", func() bool { got, _ := c.notOffered("i1"); return got == "" })
	eventually(t, patience, "the instance is ready again", func() bool { status, _ := ready(t, url); return status == 200 })
	runsOn("i1")
	if err := os.WriteFile(filepath.Join(c.dir, "go-on"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if r := c.finishes(busy, patience); r.State != domain.Succeeded || r.Instance != "i1" || r.Attempt != 1 {
		t.Errorf("the run that ran meanwhile ended %s/%s on %s at attempt %d", r.State, r.Reason, r.Instance, r.Attempt)
	}
}

func TestExecutorOutOfFiles(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	c.dispatcher()
	c.scheduler()
	agent := c.executor("i1", "--metrics", "127.0.0.1:0")
	limit := func(l unix.Rlimit) (before unix.Rlimit) {
		t.Helper()
		if err := unix.Prlimit(agent.cmd.Process.Pid, unix.RLIMIT_NOFILE, &l, &before); err != nil {
			t.Fatal(err)
		}
		return before
	}
	var before unix.Rlimit
	unfitTest(t, c, agent, explain.InstanceOutOfFiles, func() {
		if err := unix.Prlimit(agent.cmd.Process.Pid, unix.RLIMIT_NOFILE, nil, &before); err != nil {
			t.Fatal(err)
		}
		open, err := os.ReadDir(filepath.Join("/proc", strconv.Itoa(agent.cmd.Process.Pid), "fd"))
		if err != nil {
			t.Fatal(err)
		}
		limit(unix.Rlimit{Cur: uint64(len(open)) + 8, Max: before.Max}) // enough for /readyz, too few for runs
	}, func() { limit(before) })
}

func TestExecutorWithAFullSpool(t *testing.T) {
	t.Parallel()
	needRoot(t)
	c := newCluster(t)
	c.dispatcher()
	c.scheduler()
	spool := filepath.Join(c.dir, "spools", "small")
	if err := os.MkdirAll(spool, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Mount("tmpfs", spool, "tmpfs", 0, "size=1m"); err != nil {
		t.Skipf("NOT COVERED: this machine cannot mount a tmpfs: %v", err)
	}
	t.Cleanup(func() {
		if err := syscall.Unmount(spool, syscall.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	agent := c.executor("i1", "--metrics", "127.0.0.1:0", "--spool-dir", spool)
	ballast := filepath.Join(spool, "ballast")
	unfitTest(t, c, agent, explain.InstanceSpoolFull, func() {
		f, err := os.Create(ballast)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		for chunk := make([]byte, 4096); err == nil; {
			_, err = f.Write(chunk)
		}
	}, func() {
		if err := os.Remove(ballast); err != nil {
			t.Fatal(err)
		}
	})
}
