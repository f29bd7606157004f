//go:build unix

package e2e

import (
	"context"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/belfryhq/belfry/executor/wire"
	"github.com/belfryhq/belfry/internal/domain"
)

// An executor gets SIGTERM while no dispatcher settles its results, and the stream loses them although it has acknowledged them. A
// dispatcher that takes results from the stream without settling them has the same effect. The executor stays until its results are
// settled. After its end, its disk is lost, as with a pod. No result is lost.
func TestScenarioOrderlyStopLosesNoResult(t *testing.T) {
	t.Parallel()
	for name, frozen := range map[string]bool{"without a dispatcher": false, "a frozen dispatcher": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := newCluster(t)
			var dispatcher *process
			if frozen {
				dispatcher = c.dispatcher()
				dispatcher.signal(syscall.SIGSTOP)
			}
			c.scheduler()
			file := filepath.Join(c.dir, "starts")
			job := c.job("once", shell("echo $BELFRY_RUN_ID/$BELFRY_ATTEMPT >> "+file), func(s *domain.JobSpec) { s.Block = domain.BlockParallel })
			agent, ids := c.executorWithoutDispatcher("i1", job.ID, "--settle-timeout", "1h")
			for range 5 {
				ids = append(ids, c.trigger(job.ID))
			}
			eventually(t, patience, "some runs have started", func() bool { return len(linesOf(t, file)) > 1 })
			agent.signal(syscall.SIGTERM)
			agent.logs("waiting until the results are settled")
			if frozen {
				dispatcher.signal(syscall.SIGCONT)
			} else {
				ctx, cancel := context.WithTimeout(context.Background(), patience)
				defer cancel()
				s, err := c.jetStream().Stream(ctx, wire.StreamResults)
				if err == nil {
					err = s.Purge(ctx)
				}
				if err != nil {
					t.Fatal(err)
				}
				c.dispatcher()
			}
			if code := agent.exit(); code != 0 {
				t.Errorf("the executor ended with code %d", code)
			}
			if err := os.RemoveAll(filepath.Join(c.dir, "spool-i1")); err != nil {
				t.Fatal(err)
			}
			c.agent("i2") // for runs that no instance had taken
			byFirst := 0
			for _, id := range ids {
				r := c.finishes(id, patience)
				if r.State != domain.Succeeded || r.Attempt != 1 {
					t.Errorf("a run ended %s/%s at attempt %d on %s", r.State, r.Reason, r.Attempt, r.Instance)
				}
				if r.Instance == "i1" {
					byFirst++
				}
			}
			if byFirst == 0 {
				t.Error("the stopped executor had no runs")
			}
			c.startedOnce(file)
		})
	}
}
