//go:build unix

package e2e

import (
	"errors"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/belfryhq/belfry/internal/domain"
	"github.com/belfryhq/belfry/internal/e2e/rig"
)

// lostWithin is how soon after its instance's death a run is named lost.
const lostWithin = 15 * time.Second

func first(s *domain.JobSpec) { s.Route = domain.RouteFirst }

// An executor is killed while it runs: its runs are named lost within 15 s, and tried elsewhere where the job says so.
func TestExecutorKilled(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	c.dispatcher()
	c.scheduler()
	dying := c.executor("i1")
	c.executor("i2")
	again := c.trigger(c.job("again", handler("sleep", "60s"), first, retries(1)).ID)
	never := c.trigger(c.job("never", handler("sleep", "60s"), first).ID)
	for _, id := range []domain.RunID{again, never} {
		r := c.reaches(id, patience, "runs", func(r domain.Run) bool { return r.State == domain.Running })
		if r.Instance != "i1" {
			t.Fatalf("it runs on %s: %s", r.Instance, r.Route)
		}
	}
	dying.kill()
	killed := c.now()
	r := c.finishes(never, patience)
	inTime := func(what string, r domain.Run) {
		t.Helper()
		lost := r.Attempts[0].FinishedAt.Sub(killed)
		t.Logf("%s: named lost %v after the kill", what, lost)
		if r.Attempts[0].Reason != domain.ReasonLost || lost > c.pulse.allowed(lostWithin) {
			t.Errorf("%s: attempt 1 ended %s, %v after the kill by the database's clock", what, r.Attempts[0].Reason, lost)
		}
	}
	if r.State != domain.Failed || r.Reason != domain.ReasonLost || r.Attempt != 1 {
		t.Errorf("without retries the run ended %s/%s at attempt %d", r.State, r.Reason, r.Attempt)
	}
	inTime("without retries", r)
	r = c.reaches(again, patience, "runs again", func(r domain.Run) bool { return r.State == domain.Running && r.Attempt == 2 })
	if r.Instance != "i2" {
		t.Errorf("attempt 2 runs on %q", r.Instance)
	}
	inTime("with a retry", r)
}

// soon is when a retry with 1 s backoff must have started: below the 5 s between two looks of River's scheduler.
const soon = 4500 * time.Millisecond

// A retry with 1 s backoff happens within about 2 s, also when the River leader dies in between.
func TestRetryWithinTwoSeconds(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	leader := c.dispatcher()
	eventually(t, patience, "River has a leader", func() bool {
		return queryOne[int](t, c.db, `SELECT count(*) FROM river_leader WHERE expires_at > now()`) == 1
	})
	elected := queryOne[string](t, c.db, `SELECT leader_id FROM river_leader`)
	c.dispatcher()
	c.scheduler()
	c.executor("i1")
	job := c.job("unreachable", handler("http", `{"url": "http://127.0.0.1:`+rig.FreePort(t)+`/"}`), retries(1))
	check := func(what string, id domain.RunID) {
		t.Helper()
		r := c.finishes(id, patience)
		if len(r.Attempts) != 2 || r.State != domain.Failed || r.Reason != domain.ReasonHandlerError {
			t.Fatalf("%s: the run ended %s/%s after %d attempts", what, r.State, r.Reason, len(r.Attempts))
		}
		between := r.Attempts[1].StartedAt.Sub(r.Attempts[0].FinishedAt.Time)
		t.Logf("%s: %v between the attempts", what, between)
		if between < 900*time.Millisecond || between > c.pulse.allowed(soon) {
			t.Errorf("%s: %v between the attempts by the database's clock, want about 1 s", what, between)
		}
	}
	check("undisturbed", c.trigger(job.ID))

	id := c.trigger(job.ID)
	c.reaches(id, patience, "is retrying", func(r domain.Run) bool { return r.State == domain.Retrying })
	if now := queryOne[string](t, c.db, `SELECT leader_id FROM river_leader`); now != elected {
		t.Fatalf("the leader is %s; it was %s, which the first dispatcher had to be", now, elected)
	}
	leader.kill()
	check("with the leader killed", id)
}

// A log can be read while its run goes on, and outlives the executor that wrote it.
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

// A kill ends the handler and every process that it started, before the run is called cancelled.
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
	t.Logf("%v from the kill to its end", r.FinishedAt.Sub(r.KillAskedAt.Time))
}
