package e2e

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"testing"

	"github.com/belfryhq/belfry/internal/domain"
	"github.com/belfryhq/belfry/internal/e2e/rig"
)

// TestIdleMemory checks that a program that uses the SDK needs little memory, even after it has executed runs.
func TestIdleMemory(t *testing.T) {
	if testing.Short() {
		t.Skip("NOT COVERED: the memory of an idle executor, which needs a cluster")
	}
	t.Parallel()
	const most = 25 << 20
	c := newCluster(t)
	c.scheduler()
	c.dispatcher()
	program := filepath.Join(c.dir, "idler")
	if out, err := exec.Command("go", "build", "-o", program, "./idler").CombinedOutput(); err != nil {
		t.Fatalf("build: %v\n%s", err, out)
	}
	cmd := exec.Command(program)
	cmd.Env = append(rig.Env(), "BELFRY_NATS_URL="+c.natsFor, "BELFRY_TOKEN="+c.join, "IDLER_SPOOL="+filepath.Join(c.dir, "spool-idler"))
	cmd.Stderr = os.Stderr
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	eventually(t, patience, "the idler is listed", func() bool { return c.listed("idler") })
	job := c.job("noop", handler("noop", ""))
	for range 3 {
		if r := c.finishes(c.trigger(job.ID), patience); r.State != domain.Succeeded {
			t.Fatalf("the run ended %s %s", r.State, r.Reason)
		}
	}
	if got := residentBytes(t, cmd.Process.Pid); got > most {
		t.Errorf("it uses %d bytes, want at most %d", got, most)
	} else {
		t.Logf("it uses %.1f MiB", float64(got)/(1<<20))
	}
}

var residentLine = regexp.MustCompile(`VmRSS:\s+(\d+) kB`)

func residentBytes(t *testing.T, pid int) int64 {
	t.Helper()
	m := residentLine.FindStringSubmatch(read(t, fmt.Sprintf("/proc/%d/status", pid)))
	if m == nil {
		t.Fatal("/proc has no VmRSS of the process")
	}
	n, err := strconv.ParseInt(m[1], 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	return n << 10
}
