//go:build unix

package e2e

import (
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/belfryhq/belfry/internal/client"
	"github.com/belfryhq/belfry/internal/domain"
)

// NATS is killed during runs and stays away for ten seconds. No run is lost, no attempt starts twice, and all runs succeed. The same
// holds if NATS's storage is wiped.
func TestNATSAway(t *testing.T) {
	t.Parallel()
	t.Run("storage kept", func(t *testing.T) { t.Parallel(); natsAway(t, 10*time.Second, false) })
	t.Run("storage wiped", func(t *testing.T) { t.Parallel(); natsAway(t, 10*time.Second, true) })
}

func natsAway(t *testing.T, away time.Duration, wipe bool) {
	c := newCluster(t)
	c.dispatcher()
	c.scheduler()
	c.executor("i1")
	c.executor("i2")
	starts := c.dir + "/starts"
	var ticks []domain.Job
	for i := range 4 {
		ticks = append(ticks, c.job(fmt.Sprintf("tick-%d", i), func(s *domain.JobSpec) {
			s.Schedule = domain.Schedule{Kind: domain.ScheduleCron, Expr: "* * * * * *"}
			s.Misfire = domain.MisfireFireAll
			if i%2 == 0 {
				s.Block = domain.BlockParallel
			}
		}))
	}
	work := c.job("work", handler("command", ""), func(s *domain.JobSpec) { s.Block = domain.BlockParallel })
	var runs []domain.RunID
	start := func(seconds int) {
		t.Helper()
		param := fmt.Sprintf(`["sh", "-c", "echo $BELFRY_RUN_ID >> %s; exec sleep %d"]`, starts, seconds)
		ids, err := c.api.TriggerJob(t.Context(), work.ID, client.Trigger{Param: &param})
		if err != nil {
			t.Fatal(err)
		}
		runs = append(runs, ids...)
	}
	for _, seconds := range []int{1, 3, 5, 8, 14, 18} { // some end before, some during, some after the outage
		start(seconds)
	}
	eventually(t, patience, "all handlers have started", func() bool { return len(linesOf(t, starts)) == len(runs) })

	c.nats.kill()
	gone := time.Now()
	every(2*time.Second, int(away/(2*time.Second)), func(int) { start(1) }) // runs triggered during the outage have to wait
	if wipe {
		if err := os.RemoveAll(c.store); err != nil {
			t.Fatal(err)
		}
	}
	t.Logf("NATS was away for %v", time.Since(gone).Round(time.Millisecond))
	c.startNATS()
	back := time.Now()
	for _, id := range runs {
		r := c.finishes(id, patience)
		if r.State != domain.Succeeded || r.Attempt != 1 {
			t.Errorf("a run ended %s/%s at attempt %d", r.State, r.Reason, r.Attempt)
		}
	}
	t.Logf("all runs had ended %v after NATS was back", time.Since(back).Round(time.Millisecond))
	until := c.now()
	settles(t, c.db, until, patience)
	for _, job := range ticks {
		firesExactly(t, c.db, job, until, eachSucceeds)
	}
	times := make(map[string]int)
	for _, id := range linesOf(t, starts) {
		times[id]++
	}
	for _, id := range runs {
		if times[id.String()] != 1 {
			t.Errorf("the run %s started %d times", id, times[id.String()])
		}
	}
}
