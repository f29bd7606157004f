//go:build unix

package e2e

import (
	"errors"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/belfryhq/belfry/internal/domain"
)

func first(s *domain.JobSpec) { s.Route = domain.RouteFirst }

// The log of a run can be read while the run is running, and is kept after the death of the executor that wrote it.
func TestLogsWhileRunning(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	c.dispatcher()
	c.scheduler()
	agent := c.executor("i1")
	id := c.trigger(c.job("talks", shell(`i=0; while :; do i=$((i+1)); echo "line $i"; sleep 0.2; done`)).ID)

	eventually(t, patience, "three lines can be read", func() bool {
		page, err := c.api.Log(t.Context(), id, 1, 100)
		if err != nil {
			t.Fatal(err)
		}
		if page.End {
			t.Fatal("the log of a running run has ended")
		}
		return len(page.Lines) >= 3 && page.Lines[0].Text == "line 1" && page.Lines[0].N == 1
	})
	enough := errors.New("enough")
	var streamed []string
	err := c.api.FollowLog(t.Context(), id, 1, func(l domain.LogLine) error {
		streamed = append(streamed, l.Text)
		if len(streamed) == 8 {
			return enough
		}
		return nil
	})
	if !errors.Is(err, enough) || streamed[0] != "line 1" || streamed[7] != "line 8" {
		t.Errorf("the stream gave %q and ended with %v", streamed, err)
	}
	eventually(t, patience, "the run is shown as running", func() bool { return c.run(id).State == domain.Running })

	follower := c.cli("run", "log", "-f", id.String())
	follower.says("line 12")
	agent.kill()
	page, err := c.api.Log(t.Context(), id, 1, 1000)
	if err != nil || len(page.Lines) < 12 || page.Lines[11].Text != "line 12" {
		t.Errorf("after the executor's death the log has %d lines (%v)", len(page.Lines), err)
	}
	if r := c.finishes(id, patience); r.Reason != domain.ReasonLost {
		t.Errorf("the run ended %s/%s", r.State, r.Reason)
	}
	if code := follower.exit(); code != 0 {
		t.Errorf("run log -f ended with code %d: %s", code, follower.stderr.text())
	}
	seen := strings.Split(follower.stdout.text(), "\n")
	for i, l := range seen {
		if l != "line "+strconv.Itoa(i+1) {
			t.Errorf("run log -f printed %q as line %d", l, i+1)
		}
	}
}

// cli runs a client command against the console.
func (c *cluster) cli(args ...string) *process {
	c.t.Helper()
	return launch(c.t, args[0], "belfry", c.dir, []string{"BELFRY_SERVER=" + c.server, "BELFRY_TOKEN=" + c.token}, args...)
}

// A kill ends the handler and all processes that it started. Only then the run becomes cancelled.
func TestKillWhileRunning(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	c.dispatcher()
	c.scheduler()
	c.executor("i1")
	file := filepath.Join(c.dir, "group")
	id := c.trigger(c.job("family", shell("sleep 61 & sleep 62 & echo $$ > "+file+"; wait"), retries(3)).ID)
	var leader int
	eventually(t, patience, "the handler runs", func() bool {
		var err error
		leader, err = strconv.Atoi(strings.TrimSpace(read(t, file)))
		return err == nil
	})
	if err := syscall.Kill(-leader, 0); err != nil {
		t.Fatalf("its process group: %v", err)
	}
	if err := c.api.KillRun(t.Context(), id); err != nil {
		t.Fatal(err)
	}
	r := c.finishes(id, patience)
	if r.State != domain.Cancelled || r.Reason != domain.ReasonKilled || r.Attempt != 1 {
		t.Errorf("the run ended %s/%s at attempt %d", r.State, r.Reason, r.Attempt)
	}
	if err := syscall.Kill(-leader, 0); !errors.Is(err, syscall.ESRCH) {
		t.Errorf("the process group is not gone: %v", err)
	}
	t.Logf("%v from the kill request to the end of the run", r.FinishedAt.Sub(r.KillAskedAt.Time))
}
