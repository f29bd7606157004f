//go:build unix

package e2e

import (
	"fmt"
	"syscall"
	"testing"
	"time"

	"github.com/belfryhq/belfry/internal/domain"
)

// A scheduler is frozen in mid-second, rows and all, and thaws long after. The other one serves every fire time in
// time, and what the thawed one still believes to be due is not fired again.
func TestSchedulerFrozen(t *testing.T) {
	c := newCluster(t) // beside no other test: five seconds are its bound
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
	for i := range 4 {
		// Both live for a while: where one froze just as the other one thawed, none would have lived through the five
		// seconds in which a fire time has to be served.
		every(3300*time.Millisecond, 1, func(int) {})
		schedulers[i%2].signal(syscall.SIGSTOP)
		every(6700*time.Millisecond, 1, func(int) {})
		schedulers[i%2].signal(syscall.SIGCONT)
	}
	until := c.now()
	settles(t, c.db, until, patience)
	worst := time.Duration(0)
	for _, job := range jobs {
		_, late := firesExactly(t, c.db, job, until, inTime)
		worst = max(worst, late)
	}
	t.Logf("the latest fire was %v late", worst)
	if worst > c.pulse.allowed(latest) {
		t.Errorf("a fire was %v late", worst)
	}
}
