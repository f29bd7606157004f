//go:build unix

package e2e

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/belfryhq/belfry/executor/wire"
	"github.com/belfryhq/belfry/internal/client"
	"github.com/belfryhq/belfry/internal/domain"
)

// long skips a test under -short, because the test waits for long timeouts of the contract.
func long(t *testing.T) {
	t.Helper()
	if testing.Short() {
		t.Skip("NOT COVERED: it takes a minute or more; -short leaves it out")
	}
	t.Parallel()
}

// An executor is frozen for longer than its lease, with offers in its socket. Those attempts are declared lost and retried on another
// instance. After it resumes, the executor starts none of them, the attempt that it was running ends as a late result, and the executor
// soon gets new runs.
func TestScenarioExecutorFrozenWithOffersInItsSocket(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	c.dispatcher()
	c.scheduler()
	frozen := c.executor("i1")
	c.executor("i2")
	file := filepath.Join(c.dir, "starts")
	note := "echo $BELFRY_RUN_ID/$BELFRY_ATTEMPT >> " + file
	running := c.trigger(c.job("running", shell(note+"; exec sleep 3"), first, retries(1)).ID)
	c.reaches(running, patience, "runs", func(r domain.Run) bool { return r.State == domain.Running })
	frozen.signal(syscall.SIGSTOP)
	var offered []domain.RunID // offered to the frozen executor, and held in its socket
	job := c.job("offered", shell(note), first, func(s *domain.JobSpec) { s.Block = domain.BlockParallel }, retries(1))
	for range 5 {
		offered = append(offered, c.trigger(job.ID))
	}
	for _, id := range append(offered, running) {
		r := c.finishes(id, patience)
		if r.State != domain.Succeeded || r.Instance != "i2" || r.Attempt != 2 {
			t.Fatalf("the run %s ended %s/%s at attempt %d on %s", r.JobName, r.State, r.Reason, r.Attempt, r.Instance)
		}
		if a := r.Attempts[0]; a.Reason != domain.ReasonLost || a.Instance != "i1" {
			t.Errorf("attempt 1 of %s ended %s on %s", r.JobName, a.Reason, a.Instance)
		}
	}
	frozen.signal(syscall.SIGCONT)
	r := c.reaches(running, patience, "has a late result", func(r domain.Run) bool { return r.Attempts[0].LateOutcome != "" })
	if r.State != domain.Succeeded || r.Attempt != 2 || r.Attempts[0].Reason != domain.ReasonLost || r.Attempts[0].LateOutcome != "succeeded" {
		t.Errorf("after the freeze the run is %+v", r)
	}
	eventually(t, patience, "the resumed executor is listed", func() bool { return c.listed("i1") })
	// Pinned to the executor: when this run ends, the executor has processed all data of its socket.
	ids, err := c.api.TriggerJob(t.Context(), job.ID, client.Trigger{Instance: "i1"})
	if err != nil {
		t.Fatal(err)
	}
	if r := c.finishes(ids[0], patience); r.State != domain.Succeeded || r.Instance != "i1" {
		t.Errorf("a run after the freeze ended %s/%s on %s", r.State, r.Reason, r.Instance)
	}
	c.startedOnce(file)
	for _, id := range offered {
		if slices.Contains(linesOf(t, file), id.String()+"/1") {
			t.Errorf("the frozen executor started %s, which had been declared lost", id)
		}
	}
}

// jetStream returns the test's access to the streams, as user belfry.
func (c *cluster) jetStream() jetstream.JetStream {
	c.t.Helper()
	nc, err := nats.Connect(c.natsURL, nats.Timeout(patience), nats.MaxReconnects(-1), nats.ReconnectWait(100*time.Millisecond))
	if err != nil {
		c.t.Fatal(err)
	}
	c.t.Cleanup(nc.Close)
	js, err := jetstream.New(nc)
	if err != nil {
		c.t.Fatal(err)
	}
	return js
}

// An executor publishes a result, and NATS's storage is wiped before a dispatcher settles it. Then the executor is killed and started
// again. The run still succeeds, because the executor keeps the result on disk until it is settled.
func TestScenarioResultOutlivesWipedNATS(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	c.scheduler() // fires; without a dispatcher, no result is settled
	file := filepath.Join(c.dir, "starts")
	job := c.job("once", shell("echo $BELFRY_RUN_ID/$BELFRY_ATTEMPT >> "+file), func(s *domain.JobSpec) { s.Block = domain.BlockParallel })
	agent, ids := c.executorWithoutDispatcher("i1", job.ID)
	js := c.jetStream()
	unsettled := func() int {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		s, err := js.Stream(ctx, wire.StreamResults)
		if err != nil {
			return -1
		}
		return int(s.CachedInfo().State.Msgs)
	}
	eventually(t, patience, "a result is in the stream", func() bool { return unsettled() > 0 })
	c.nats.kill()
	if err := os.RemoveAll(c.store); err != nil {
		t.Fatal(err)
	}
	agent.kill() // before it can publish again
	c.startNATS()
	eventually(t, patience, "the stream exists again, and is empty", func() bool { return unsettled() == 0 })
	c.dispatcher()
	c.agent("i1")
	for _, id := range ids {
		r := c.finishes(id, patience)
		if r.State != domain.Succeeded || r.Attempt != 1 {
			t.Errorf("the run ended %s/%s at attempt %d", r.State, r.Reason, r.Attempt)
		}
	}
	c.startedOnce(file)
}

// executorWithoutDispatcher starts an agent and triggers runs until one has started on it. A run that was fired before the scheduler
// knew the agent waits for a dispatcher.
func (c *cluster) executorWithoutDispatcher(instance string, job domain.JobID, args ...string) (*process, []domain.RunID) {
	c.t.Helper()
	p := c.executor(instance, args...)
	var ids []domain.RunID
	eventually(c.t, patience, "a run is fired", func() bool {
		ids = append(ids, c.trigger(job))
		bound := false
		every(100*time.Millisecond, 10, func(int) { bound = bound || c.run(ids[len(ids)-1]).Instance != "" })
		return bound
	})
	return p, ids
}

// NATS is away for four lease times while a hundred handlers run. No run is lost, and all are settled later. Then one executor is
// killed, and its runs are declared lost.
func TestScenarioNATSAwayForFourLeases(t *testing.T) {
	long(t)
	t.Logf("the last run was declared lost %v after the kill", natsAwayForFourLeases(t, newCluster(t)))
}

// natsAwayForFourLeases returns the time from the kill to the verdict about the last run.
func natsAwayForFourLeases(t *testing.T, c *cluster) (detected time.Duration) {
	const (
		executors = 4
		each      = 25
	)
	c.dispatcher()
	c.dispatcher()
	c.scheduler()
	var agents []*process
	for i := range executors {
		agents = append(agents, c.executor(fmt.Sprintf("i%d", i)))
	}
	job := c.job("work", handler("sleep", ""), func(s *domain.JobSpec) { s.Block = domain.BlockParallel }, retries(1))
	start := func(instance, param string) domain.RunID {
		t.Helper()
		ids, err := c.api.TriggerJob(t.Context(), job.ID, client.Trigger{Param: &param, Instance: instance})
		if err != nil {
			t.Fatal(err)
		}
		return ids[0]
	}
	var ending, lasting []domain.RunID // lasting ones are on the executor that the test kills
	for i := range executors {
		for n := range each {
			if i == executors-1 {
				lasting = append(lasting, start(fmt.Sprintf("i%d", i), "600s"))
				continue
			}
			// Some end before Belfry notices the outage, most during it, and some after it.
			ending = append(ending, start(fmt.Sprintf("i%d", i), fmt.Sprintf("%ds", 8+2*n)))
		}
	}
	// Runs that last over a second become `running` in Postgres. By then their handlers run.
	all := executors * each
	eventually(t, patience, "all handlers run", func() bool {
		return queryOne[int](t, c.db, `SELECT count(*) FROM runs WHERE job_id = $1 AND (state = 'running' OR state = 'succeeded')`, job.ID) == all
	})
	c.nats.kill()
	every(4*wire.LeaseTTL, 1, func(int) {})
	c.startNATS()
	for _, id := range ending {
		if r := c.finishes(id, patience); r.State != domain.Succeeded || r.Attempt != 1 {
			t.Errorf("a run ended %s/%s at attempt %d", r.State, r.Reason, r.Attempt)
		}
	}
	for _, id := range lasting {
		if r := c.run(id); r.State != domain.Running || r.Attempt != 1 {
			t.Errorf("a lasting run is %s/%s at attempt %d", r.State, r.Reason, r.Attempt)
		}
	}
	agents[executors-1].kill()
	killed := c.now()
	for _, id := range lasting {
		r := c.reaches(id, patience, "is declared lost", func(r domain.Run) bool { return len(r.Attempts) > 0 && r.Attempts[0].Reason == domain.ReasonLost })
		detected = max(detected, r.Attempts[0].FinishedAt.Sub(killed))
	}
	return detected
}
