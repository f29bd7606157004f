//go:build unix

package e2e

import (
	"fmt"
	"os"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/belfryhq/belfry/internal/client"
	"github.com/belfryhq/belfry/internal/domain"
	"github.com/belfryhq/belfry/internal/e2e/hostile"
)

// One executor is killed during a run, and another one is frozen at the same moment. The runs of both are declared lost within 15 s,
// and retried on another instance if the job has retries.
func TestPromiseExecutorGone(t *testing.T) {
	needsQuiet(t)
	executorsGo(t, func(*cluster) {})
}

// The same while a client with the token of another group makes NATS refuse the heartbeats of these instances: it sends
// messages whose replies NATS stores under the keys of these heartbeats.
func TestPromiseExecutorGoneDuringAttack(t *testing.T) {
	needsQuiet(t)
	executorsGo(t, func(c *cluster) { attacked(t, c, []hostile.Kind{hostile.Answers}) })
}

// executorsGo calls begun when all runs of the test are running, and then ends two of three executors.
func executorsGo(t *testing.T, begun func(*cluster)) {
	c := newCluster(t)
	pulse := promise(t, c)
	c.dispatcher()
	c.scheduler()
	killed, frozen := c.executor("i1"), c.executor("i2")
	c.executor("i3")
	job := c.job("work", handler("sleep", "600s"), func(s *domain.JobSpec) { s.Block = domain.BlockParallel })
	again := c.job("again", handler("sleep", "600s"), first, retries(1))
	on := func(instance string, job domain.JobID) domain.RunID {
		t.Helper()
		ids, err := c.api.TriggerJob(t.Context(), job, client.Trigger{Instance: instance})
		if err != nil {
			t.Fatal(err)
		}
		return ids[0]
	}
	never := map[string]domain.RunID{"killed": on("i1", job.ID), "frozen": on("i2", job.ID)}
	alive, retried := on("i3", job.ID), c.trigger(again.ID)
	for _, id := range []domain.RunID{never["killed"], never["frozen"], alive, retried} {
		c.reaches(id, patience, "runs", func(r domain.Run) bool { return r.State == domain.Running })
	}
	if r := c.run(retried); r.Instance != "i1" {
		t.Fatalf("it runs on %s: %s", r.Instance, r.Route)
	}
	begun(c)
	frozen.signal(syscall.SIGSTOP)
	killed.kill()
	gone := c.now()
	for what, id := range never {
		r := c.finishes(id, patience)
		if r.State != domain.Failed || r.Reason != domain.ReasonLost || r.Attempt != 1 {
			t.Errorf("%s: without retries the run ended %s/%s at attempt %d", what, r.State, r.Reason, r.Attempt)
		}
		judge(t, pulse, "from the death of the "+what+" executor to the verdict", r.Attempts[0].FinishedAt.Sub(gone), lostWithin)
	}
	r := c.reaches(retried, patience, "runs again", func(r domain.Run) bool { return r.State == domain.Running && r.Attempt == 2 })
	if r.Instance != "i3" || r.Attempts[0].Reason != domain.ReasonLost {
		t.Errorf("attempt 1 ended %s, attempt 2 runs on %q", r.Attempts[0].Reason, r.Instance)
	}
	judge(t, pulse, "from the death of the executor to the verdict about a run with a retry", r.Attempts[0].FinishedAt.Sub(gone), lostWithin)
	if r := c.run(alive); r.State != domain.Running || r.Attempt != 1 {
		t.Errorf("the run of the live executor is %s/%s at attempt %d", r.State, r.Reason, r.Attempt)
	}
}

// attacked starts a hostile client with the token of another group. The client's own use of the CPU is not part of a promise.
func attacked(t *testing.T, c *cluster, kinds []hostile.Kind) *process {
	t.Helper()
	made, err := c.api.CreateGroup(t.Context(), "mallory", "")
	if err != nil {
		t.Fatal(err)
	}
	config := hostile.Config{
		URL: c.natsFor, Group: "mallory", Token: made.Token, Kinds: kinds, Victims: []string{group + ".i1", group + ".i2", group + ".i3"},
	}
	attacker := launch(t, "hostile", "hostile", c.dir, []string{"GOMAXPROCS=1", config.Env()})
	if err := syscall.Setpriority(syscall.PRIO_PROCESS, attacker.cmd.Process.Pid, 10); err != nil {
		t.Fatal(err)
	}
	attacker.says("attacking")
	return attacker
}

// The bounds of lateness for a group while a hostile client has the token of another one.
const (
	undisturbedP99 = 250 * time.Millisecond
	undisturbed    = time.Second
)

// A hostile client with the token of one group attacks in every way, and the jobs of another group run on time.
func TestPromiseHostileGroup(t *testing.T) {
	needsQuiet(t)
	attacks := map[string][]hostile.Kind{"everything": nil}
	length := 20 * time.Second
	if os.Getenv("BELFRY_TEST_LONG") != "" {
		length = time.Minute
		for _, k := range hostile.Kinds() {
			attacks[string(k)] = []hostile.Kind{k}
		}
	}
	for name, kinds := range attacks {
		t.Run(name, func(t *testing.T) { withstands(t, kinds, length) })
	}
}

// withstands checks that jobs of one group run on time while the kinds of attack come from another group.
func withstands(t *testing.T, kinds []hostile.Kind, length time.Duration) {
	c := newCluster(t)
	pulse := promise(t, c)
	c.dispatcher()
	c.scheduler()
	c.executor("i1")
	c.executor("i2")
	var jobs []domain.Job
	for i := range 20 {
		jobs = append(jobs, c.job(fmt.Sprintf("tick-%02d", i), func(s *domain.JobSpec) {
			s.Schedule, s.Misfire = domain.Schedule{Kind: domain.ScheduleCron, Expr: "* * * * * *"}, domain.MisfireFireAll
			if i%2 == 0 { // the others are serial: a result that is settled late delays the next run
				s.Block = domain.BlockParallel
			}
		}))
	}
	attacker := attacked(t, c, kinds)
	from := c.now()
	every(length, 1, func(int) {})
	until := c.now()
	attacker.kill()
	settles(t, c.db, until, patience)
	for _, job := range jobs {
		firesExactly(t, c.db, job, until, eachSucceeds)
	}
	late := query(t, c.db, pgx.RowTo[float64], `
		SELECT extract(epoch FROM started_at - due_at)::float8 FROM runs_history
		 WHERE group_name = $1 AND due_at >= $2 AND due_at <= $3 AND attempt = 1 ORDER BY 1`, group, from, until)
	if want := int(length/time.Second-2) * len(jobs); len(late) < want {
		t.Fatalf("%d runs were due during the attack, want at least %d", len(late), want)
	}
	seconds := func(f float64) time.Duration { return time.Duration(f * float64(time.Second)).Round(time.Millisecond) }
	judge(t, pulse, fmt.Sprintf("the 99th percentile of %d fires", len(late)), seconds(late[len(late)*99/100]), undisturbedP99)
	judge(t, pulse, "the latest of them", seconds(late[len(late)-1]), undisturbed)
}
