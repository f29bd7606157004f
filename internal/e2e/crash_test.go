//go:build unix

package e2e

import (
	"path/filepath"
	"testing"
	"time"

	"github.com/belfryhq/belfry/internal/domain"
)

// A process that binds a run and dies before it offers it, or after it offered it and before it heard the answer,
// costs some seconds: the run starts once, and is not named lost. Both processes that bind are tried: the scheduler,
// which fires, and the dispatcher, which assigns what waited.

func TestDispatcherKilledBetweenBindAndOffer(t *testing.T) {
	t.Parallel()
	t.Run("firing", func(t *testing.T) { t.Parallel(); killWhileFiring(t, "bound:1") })
	t.Run("assigning", func(t *testing.T) { t.Parallel(); killWhileAssigning(t, "bound:1") })
}

func TestDispatcherKilledBetweenOfferAndAnswer(t *testing.T) {
	t.Parallel()
	t.Run("firing", func(t *testing.T) { t.Parallel(); killWhileFiring(t, "offered:1") })
	t.Run("assigning", func(t *testing.T) { t.Parallel(); killWhileAssigning(t, "offered:1") })
}

// killWhileFiring has the scheduler die that fires a triggered run; another dispatcher process goes on.
func killWhileFiring(t *testing.T, at string) {
	c := newCluster(t)
	c.dispatcher()
	c.executor("i1")
	file := filepath.Join(c.dir, "starts")
	job := c.job("once", startsIn(file))
	dying := c.scheduler(envCrashAt + "=" + at)
	id := c.trigger(job.ID)
	if code := dying.exit(); code != -1 {
		t.Fatalf("the scheduler ended with code %d, not by its signal", code)
	}
	c.startsOnce(id, file)
}

// killWhileAssigning has the dispatcher die that assigns a run which waited for an executor.
func killWhileAssigning(t *testing.T, at string) {
	c := newCluster(t)
	c.scheduler()
	file := filepath.Join(c.dir, "starts")
	job := c.job("once", startsIn(file))
	id := c.trigger(job.ID)
	c.reaches(id, patience, "waits", func(r domain.Run) bool { return r.State == domain.Queued && r.Waiting != "" })
	c.executor("i1")
	dying := c.dispatcher(envCrashAt + "=" + at)
	if code := dying.exit(); code != -1 {
		t.Fatalf("the dispatcher ended with code %d, not by its signal", code)
	}
	c.dispatcher()
	c.startsOnce(id, file)
}

// startsIn has a job append a line to a file, and last longer than a silent attempt is left unasked after.
func startsIn(file string) func(*domain.JobSpec) {
	return shell("echo started >> " + file + "; exec sleep 4")
}

// startsOnce waits for the end of a run of such a job.
func (c *cluster) startsOnce(id domain.RunID, file string) {
	c.t.Helper()
	run := c.finishes(id, 30*time.Second)
	if run.State != domain.Succeeded || run.Attempt != 1 || run.Reason != domain.NoReason {
		c.t.Errorf("the run ended %s/%s at attempt %d, want succeeded at the first", run.State, run.Reason, run.Attempt)
	}
	if got := linesOf(c.t, file); len(got) != 1 {
		c.t.Errorf("the handler started %d times", len(got))
	}
	c.t.Logf("from creation to start: %v", run.StartedAt.Sub(run.CreatedAt.Time))
}
