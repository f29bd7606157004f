//go:build unix

package e2e

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/belfryhq/belfry/internal/domain"
)

// seedOf returns the seed of a random test, from E2E_SEED or random, and logs it.
func seedOf(t *testing.T) uint64 {
	t.Helper()
	seed := rand.Uint64()
	if text := os.Getenv("E2E_SEED"); text != "" {
		var err error
		if seed, err = strconv.ParseUint(text, 10, 64); err != nil {
			t.Fatal(err)
		}
	}
	t.Logf("E2E_SEED=%d repeats the actions, but not their timing", seed)
	return seed
}

// The test kills random processes, NATS, and connections to Postgres, again and again. Each fire time has one run or its place in the
// ledger, each attempt starts at most once, and each run ends. A run succeeds unless its executor was killed.
func TestAnythingKilled(t *testing.T) {
	t.Parallel()
	random := rand.New(rand.NewPCG(seedOf(t), 1))
	c := newCluster(t)
	file := filepath.Join(c.dir, "starts")
	note := func(and string) func(*domain.JobSpec) {
		return shell("echo $BELFRY_RUN_ID/$BELFRY_ATTEMPT >> " + file + "; " + and)
	}
	everySecond := func(s *domain.JobSpec) { s.Schedule = domain.Schedule{Kind: domain.ScheduleCron, Expr: "* * * * * *"} }
	parallel := func(s *domain.JobSpec) { s.Block = domain.BlockParallel }

	victims := map[string]func() *process{
		"scheduler a": func() *process { return c.scheduler() }, "scheduler b": func() *process { return c.scheduler() },
		"dispatcher a": func() *process { return c.dispatcher() }, "dispatcher b": func() *process { return c.dispatcher() },
		"i1": func() *process { return c.agent("i1") }, "i2": func() *process { return c.agent("i2") },
		"i3": func() *process { return c.agent("i3") },
	}
	names := []string{"scheduler a", "scheduler b", "dispatcher a", "dispatcher b", "i1", "i2", "i3"}
	alive := make(map[string]*process)
	for _, name := range names {
		alive[name] = victims[name]()
	}
	child := c.job("child", note("true"), parallel)
	jobs := []domain.Job{
		c.job("short", note("true"), everySecond),
		c.job("retried", note("true"), everySecond, parallel, retries(2)),
		c.job("lasting", note("exec sleep 2"), everySecond, parallel),
		c.job("serial", note("exec sleep 0.3"), everySecond, retries(1)),
		c.job("parent", note("true"), everySecond, parallel, func(s *domain.JobSpec) {
			s.Children = []domain.Child{{JobID: child.ID, On: domain.OnAlways}}
		}),
	}
	chain := c.job("chain", note("true"), func(s *domain.JobSpec) {
		s.Schedule = domain.Schedule{Kind: domain.ScheduleFixedDelay, Delay: domain.Duration(time.Second)}
	})

	every(1500*time.Millisecond, 18, func(int) {
		switch name := random.IntN(len(names) + 2); name {
		case len(names):
			t.Log("kill NATS")
			c.nats.kill()
			c.startNATS()
		case len(names) + 1:
			t.Log("kill every connection to Postgres")
			queryOne[int](t, c.db, `SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()`)
		default:
			t.Log("kill", names[name])
			alive[names[name]].kill()
			alive[names[name]] = victims[names[name]]()
		}
	})
	until := c.now()
	settles(t, c.db, until, patience)
	eventually(t, patience, "the chain continues", func() bool {
		return queryOne[int](t, c.db, `SELECT count(*) FROM runs WHERE job_id = $1 AND state = 'succeeded' AND created_at > $2`, chain.ID, until) > 0
	})
	for _, job := range jobs {
		_, worst := firesExactly(t, c.db, job, until, anythingKilled)
		t.Logf("%s: the latest %v late; dropped %+v", job.Name, worst, ledger(t, c.db, job.ID))
	}
	c.startedOnce(file)
	for _, overlap := range query(t, c.db, pgx.RowTo[string], `
		SELECT format('%s (attempt %s, %s to %s) and %s (attempt %s, %s to %s)',
		              a.fire_time, a.attempt, a.started_at, a.finished_at, b.fire_time, b.attempt, b.started_at, b.finished_at)
		  FROM runs a JOIN runs b ON a.job_id = b.job_id AND a.id < b.id
		 WHERE a.job_id = $1 AND a.finished_at IS NOT NULL AND b.finished_at IS NOT NULL
		   AND a.started_at IS NOT NULL AND b.started_at IS NOT NULL -- one whose last attempt was lost before it started never ran
		   AND greatest(a.started_at, b.started_at) < least(a.finished_at, b.finished_at) - interval '250 ms'`, jobs[3].ID) {
		t.Errorf("two runs of a serial job at once: %s", overlap)
	}
	// If the worker of a child's River job was killed, River runs the job again after its timeout, long after the parent has ended.
	eventually(t, patience, "each run of the parent has exactly one child", func() bool {
		return queryOne[int](t, c.db, `
		SELECT count(*) FROM runs_history p WHERE p.job_id = $1 AND p.fire_time <= $3
		   AND 1 <> (SELECT count(*) FROM runs c WHERE c.parent_run_id = p.id AND c.job_id = $2)`, jobs[4].ID, child.ID, until) == 0
	})
}

// startedOnce checks that each attempt wrote at most one start to the file, and each succeeded attempt exactly one.
func (c *cluster) startedOnce(file string) {
	c.t.Helper()
	type end struct {
		ID      string
		Attempt int
		State   domain.State
		Reason  domain.Reason
	}
	// Reads the ends before the starts, because jobs may continue meanwhile: each attempt that has ended has started.
	ends := query(c.t, c.db, pgx.RowToStructByPos[end], `SELECT id::text, attempt, state, reason FROM runs_history`)
	starts := make(map[string]int)
	for _, s := range linesOf(c.t, file) {
		starts[s]++
	}
	for s, n := range starts {
		if n > 1 {
			c.t.Errorf("the attempt %s started %d times", s, n)
		}
	}
	states := make(map[string]int)
	for _, r := range ends {
		states[string(r.State)+"/"+string(r.Reason)]++
		if s := fmt.Sprintf("%s/%d", r.ID, r.Attempt); r.State == domain.Succeeded && starts[s] != 1 {
			c.t.Errorf("the attempt %s succeeded and started %d times", s, starts[s])
		}
	}
	c.t.Logf("%d starts; ends: %v", len(starts), states)
}
