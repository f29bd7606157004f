//go:build unix

package e2e

import (
	"fmt"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/belfryhq/belfry/internal/domain"
)

// A scheduler binds a run to an executor and dies before it offers the run. Then the executor gets SIGTERM. Its goodbye says that it has no
// attempts, so the run goes to another executor at once, as the same attempt. Without that, the run would be lost.
func TestScenarioStopOfABoundInstance(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	c.dispatcher()
	agent := c.executor("i1")
	file := filepath.Join(c.dir, "starts")
	job := c.job("bound", shell("echo $BELFRY_RUN_ID/$BELFRY_ATTEMPT >> "+file), func(s *domain.JobSpec) { s.Block = domain.BlockParallel })
	dying := c.scheduler(envCrashAt + "=bound:1")
	var ids []domain.RunID
	for {
		id := c.trigger(job.ID)
		ids = append(ids, id)
		if !c.bindsUnless(dying, id) {
			break
		}
	}
	agent.signal(syscall.SIGTERM)
	if code := agent.exit(); code != 0 {
		t.Errorf("the executor ended with code %d", code)
	}
	c.agent("i2")
	c.firstAttemptsSucceed(file, ids)
}

// Executors get SIGTERM in turn, while runs are fired without a pause. Every run succeeds at its first attempt, and starts once.
func TestScenarioStopsUnderLoad(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	c.dispatcher()
	c.scheduler()
	file := filepath.Join(c.dir, "starts")
	job := c.job("load", shell("echo $BELFRY_RUN_ID/$BELFRY_ATTEMPT >> "+file), func(s *domain.JobSpec) { s.Block = domain.BlockParallel })
	agent := c.executor("i0")
	var ids []domain.RunID
	for round := range 4 {
		next := c.executor(fmt.Sprint("i", round+1))
		for range 10 {
			ids = append(ids, c.trigger(job.ID))
		}
		agent.signal(syscall.SIGTERM)
		for alive := true; alive; {
			ids = append(ids, c.trigger(job.ID))
			select {
			case <-agent.ended:
				alive = false
			default:
			}
		}
		if code := agent.exit(); code != 0 {
			t.Errorf("an executor ended with code %d", code)
		}
		agent = next
	}
	c.firstAttemptsSucceed(file, ids)
}

// firstAttemptsSucceed waits for the ends of runs.
func (c *cluster) firstAttemptsSucceed(file string, ids []domain.RunID) {
	c.t.Helper()
	for _, id := range ids {
		if r := c.finishes(id, patience); r.State != domain.Succeeded || r.Attempt != 1 || len(r.Attempts) != 1 {
			c.t.Errorf("run %s ended %s/%s at attempt %d, with %d attempts", id, r.State, r.Reason, r.Attempt, len(r.Attempts))
		}
	}
	c.startedOnce(file)
}
