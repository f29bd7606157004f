//go:build unix

package e2e

import (
	"fmt"
	"path/filepath"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/belfryhq/belfry/internal/domain"
)

// A scheduler is frozen in mid-second, rows and all, and thaws long after. The other one serves every fire time in
// time, and what the thawed one still believes to be due is not fired again.
func TestSchedulerFrozen(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	c.dispatcher()
	c.executor("i1")
	schedulers := [2]*process{c.scheduler(), c.scheduler()}
	var jobs []domain.Job
	for i := range 10 {
		jobs = append(jobs, c.job(fmt.Sprintf("tick-%d", i), func(s *domain.JobSpec) {
			s.Schedule = domain.Schedule{Kind: domain.ScheduleCron, Expr: "* * * * * *"}
			if i%2 == 0 {
				s.Block = domain.BlockParallel
			}
		}))
	}
	every(3300*time.Millisecond, 4, func(i int) {
		schedulers[i%2].signal(syscall.SIGSTOP)
		every(6700*time.Millisecond, 1, func(int) { schedulers[i%2].signal(syscall.SIGCONT) })
	})
	until := c.now()
	settles(t, c.db, until, patience)
	worst := time.Duration(0)
	for _, job := range jobs {
		_, late := firesExactly(t, c.db, job, until, inTime)
		worst = max(worst, late)
	}
	t.Logf("the latest fire was %v late", worst)
}

// An executor is frozen and thaws after its runs were named lost: it starts nothing that was given away, what it had
// running ends beside the record, and soon it serves again.
func TestExecutorFrozen(t *testing.T) {
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
	var offered []domain.RunID // to the frozen one, whose socket takes them
	job := c.job("offered", shell(note), first, func(s *domain.JobSpec) { s.Block = domain.BlockParallel }, retries(1))
	for range 5 {
		offered = append(offered, c.trigger(job.ID))
	}
	for _, id := range append(offered, running) {
		r := c.finishes(id, patience)
		if r.State != domain.Succeeded || r.Instance != "i2" {
			t.Errorf("the run %s ended %s/%s on %s", r.JobName, r.State, r.Reason, r.Instance)
		}
	}
	frozen.signal(syscall.SIGCONT)
	r := c.reaches(running, patience, "has a late result", func(r domain.Run) bool { return r.Attempts[0].LateOutcome != "" })
	if r.State != domain.Succeeded || r.Attempt != 2 || r.Attempts[0].Reason != domain.ReasonLost || r.Attempts[0].LateOutcome != "succeeded" {
		t.Errorf("after the thaw the run is %+v", r)
	}
	eventually(t, patience, "the thawed one is listed", func() bool { return c.listed("i1") })
	id := c.trigger(job.ID)
	if r := c.finishes(id, patience); r.State != domain.Succeeded {
		t.Errorf("a run after the thaw ended %s/%s", r.State, r.Reason)
	}
	c.startedOnce(file)
	for _, id := range offered {
		if r := c.run(id); r.Attempt > 1 && slices.Contains(linesOf(t, file), id.String()+"/1") {
			t.Errorf("the frozen executor started %s, which had been given away", id)
		}
	}
}
