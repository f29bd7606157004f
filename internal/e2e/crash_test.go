//go:build unix

package e2e

import (
	"path/filepath"
	"testing"
	"time"

	"github.com/belfryhq/belfry/internal/domain"
)

// A process dies after it has bound a run, before it offers the run or before it receives the answer. The run starts some seconds
// late, starts only once, and is not declared lost. The test tries both processes that bind: the scheduler, which fires, and the
// dispatcher, which assigns waiting runs.

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

// killWhileFiring lets the scheduler die while it fires a triggered run. A dispatcher process stays alive. A scheduler that has just
// started may not know the executor yet. Then the run waits, the dispatcher assigns it, and the test triggers another run.
func killWhileFiring(t *testing.T, at string) {
	c := newCluster(t)
	c.dispatcher()
	c.executor("i1")
	file := filepath.Join(c.dir, "starts")
	job := c.job("parallel", startsIn(file), func(s *domain.JobSpec) { s.Block = domain.BlockParallel })
	dying := c.scheduler(envCrashAt + "=" + at)
	var ids []domain.RunID
	for deadline := time.Now().Add(patience); ; {
		if time.Now().After(deadline) {
			t.Fatalf("the scheduler fired none of %d runs", len(ids))
		}
		id := c.trigger(job.ID)
		ids = append(ids, id)
		if !c.bindsUnless(dying, id) {
			break
		}
	}
	if code := dying.exit(); code != -1 {
		t.Fatalf("the scheduler ended with code %d, not by its signal", code)
	}
	c.startsOnce(file, ids...)
}

// bindsUnless waits until a run is bound, and returns true, or until the process has died, and returns false.
func (c *cluster) bindsUnless(dying *process, id domain.RunID) bool {
	c.t.Helper()
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	grace := 0
	for deadline := time.Now().Add(patience); time.Now().Before(deadline); {
		select {
		case <-dying.ended:
			return false
		case <-tick.C:
		}
		// If the process itself has bound the run, it dies a moment later.
		if c.run(id).Instance != "" {
			if grace++; grace > 40 {
				return true
			}
		}
	}
	c.t.Fatalf("run %s is not bound, and the process is alive", id)
	return false
}

// killWhileAssigning lets the dispatcher die while it assigns a run that waited for an executor.
func killWhileAssigning(t *testing.T, at string) {
	c := newCluster(t)
	c.scheduler()
	file := filepath.Join(c.dir, "starts")
	job := c.job("once", startsIn(file))
	id := c.trigger(job.ID)
	c.reaches(id, patience, "waits", func(r domain.Run) bool { return r.State == domain.Queued && r.Waiting != nil })
	c.executor("i1")
	dying := c.dispatcher(envCrashAt + "=" + at)
	if code := dying.exit(); code != -1 {
		t.Fatalf("the dispatcher ended with code %d, not by its signal", code)
	}
	c.dispatcher()
	c.startsOnce(file, id)
}

// startsIn returns an edit: the job appends its run's id to a file, and lasts longer than a dispatcher waits before it asks about an
// attempt without news.
func startsIn(file string) func(*domain.JobSpec) {
	return shell("echo $BELFRY_RUN_ID >> " + file + "; exec sleep 4")
}

// startsOnce waits for the ends of runs of such a job, and checks that each started once.
func (c *cluster) startsOnce(file string, ids ...domain.RunID) {
	c.t.Helper()
	for _, id := range ids {
		run := c.finishes(id, patience)
		if run.State != domain.Succeeded || run.Attempt != 1 || run.Reason != domain.NoReason {
			c.t.Errorf("run %s ended %s/%s at attempt %d, want succeeded at the first", id, run.State, run.Reason, run.Attempt)
		}
		c.t.Logf("from creation to start: %v", run.StartedAt.Sub(run.CreatedAt.Time))
	}
	starts := make(map[string]int)
	for _, line := range linesOf(c.t, file) {
		starts[line]++
	}
	for _, id := range ids {
		if n := starts[id.String()]; n != 1 {
			c.t.Errorf("the handler of run %s started %d times", id, n)
		}
	}
}
