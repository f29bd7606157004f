//go:build unix

package e2e

import (
	"fmt"
	"path/filepath"
	"testing"

	"github.com/belfryhq/belfry/internal/domain"
)

// A broadcast's children run exactly once, even if the dispatcher that processes their follow-up is killed directly after the commit.
// The follow-up completes in the transaction of its effect, so no dispatcher processes it again. TestLastTwoShards of internal/store
// tests two dispatchers that settle the last two shards in interleaved transactions.
func TestScenarioChildrenOnceThoughTheWorkerIsKilled(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	c.scheduler()
	for i := range 2 {
		c.executor(fmt.Sprintf("i%d", i))
	}
	file := filepath.Join(c.dir, "starts")
	note := shell("echo $BELFRY_RUN_ID/$BELFRY_ATTEMPT >> " + file)
	child := c.job("child", note)
	parent := c.job("parent", note, func(s *domain.JobSpec) {
		s.Route = domain.RouteBroadcast
		s.Children = []domain.Child{{JobID: child.ID, On: domain.OnAlways}}
	})
	dying := c.dispatcher(envCrashAt + "=followed_up:1")
	c.trigger(parent.ID)
	if code := dying.exit(); code != -1 {
		t.Fatalf("the dispatcher ended with code %d, not by its signal", code)
	}
	if state := queryOne[string](t, c.db, `SELECT state::text FROM river_job WHERE kind = 'child'`); state != "completed" {
		t.Errorf("after the kill the follow-up is %s, so it will be worked again", state)
	}
	c.dispatcher()
	eventually(t, patience, "all runs have ended", func() bool {
		return queryOne[int](t, c.db, `SELECT count(*) FROM runs_live`) == 0
	})
	// When another broadcast has its child, no work of the first one is left that could add a second child to it.
	c.trigger(parent.ID)
	children := func() int {
		return queryOne[int](t, c.db, `SELECT count(*) FROM runs_history WHERE job_id = $1 AND state = 'succeeded'`, child.ID)
	}
	eventually(t, patience, "the second broadcast has its child", func() bool { return children() >= 2 })
	if n := children(); n != 2 {
		t.Errorf("two broadcasts have %d children", n)
	}
	c.startedOnce(file)
}
