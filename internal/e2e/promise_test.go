//go:build unix

package e2e

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/belfryhq/belfry/internal/domain"
	"github.com/belfryhq/belfry/internal/e2e/rig"
)

// The promise tests are the only tests of Belfry that fail because something took too long: they hold Belfry to the times that
// its contract promises. They are in this file, those of executors that go and of hostile clients in promise_attack_test.go, and each name begins with TestPromise, so that `-run '^TestPromise'` and
// `-skip '^TestPromise'` select them. They run one after the other, never at the same time as another test of this package.
// Each measures the machine's stalls while it runs, and adds the delay that they explain to the bound.

// The bounds, by the database's clock.
const (
	latest     = 5 * time.Second         // from the due instant of a run to its start, while a scheduler lives
	lostWithin = 15 * time.Second        // from the death of an instance to the verdict about its attempts
	replaced   = 250 * time.Millisecond  // from the due instant of a run to its start, while processes are stopped in order and started again
	soon       = 4500 * time.Millisecond // between two attempts with a backoff of 1 s; River's own scheduler polls every 5 s
)

// needsQuiet skips a promise test unless the caller of the tests has said that nothing else runs on the machine.
func needsQuiet(t *testing.T) {
	t.Helper()
	if os.Getenv("BELFRY_TEST_PROMISES") == "" {
		t.Skip("NOT COVERED: how soon something happens, because other tests may run at the same time; `task promises` and `.ci/long promises` run it")
	}
}

// promise begins a promise test on a cluster. It returns the pulse that measures the machine's stalls.
func promise(t *testing.T, c *cluster) *rig.Pulse {
	t.Helper()
	if !strings.HasPrefix(t.Name(), "TestPromise") {
		t.Fatal("only a test whose name begins with TestPromise may judge how long something took")
	}
	t.Setenv("E2E_PROMISE", t.Name()) // package testing refuses this in a parallel test
	return rig.StartPulse(t, func(ctx context.Context) error {
		_, err := c.db.Exec(ctx, `SELECT 1`)
		return err
	})
}

// judge fails the test if something took longer than the bound allows on this machine.
func judge(t *testing.T, p *rig.Pulse, what string, took, bound time.Duration) {
	t.Helper()
	allowed := p.Allowed(bound)
	t.Logf("%s: %v, at most %v (%v on a machine without stalls)", what, took, allowed, bound)
	if took > allowed {
		t.Errorf("%s took %v by the database's clock, want at most %v", what, took, allowed)
	}
}

// The test kills one of two schedulers in turn, in the middle of a second. No fire time is lost or doubled, and no run starts more than
// 5 s late.
func TestPromiseSchedulerKilledMidSecond(t *testing.T) {
	needsQuiet(t)
	c := newCluster(t)
	pulse := promise(t, c)
	c.dispatcher()
	c.executor("i1")
	c.executor("i2")
	alive := [2]*process{c.scheduler(), c.scheduler()}

	var jobs []domain.Job
	for i := range 20 {
		jobs = append(jobs, c.job(fmt.Sprintf("tick-%02d", i), func(s *domain.JobSpec) {
			s.Schedule, s.Misfire = domain.Schedule{Kind: domain.ScheduleCron, Expr: "* * * * * *"}, domain.MisfireFireAll
			switch {
			case i%5 == 1: // also due in the middle of a second
				s.Schedule.Jitter = domain.Duration(900 * time.Millisecond)
			case i%5 == 2:
				s.Schedule.Expr = "*/2 * * * * *"
			case i%5 == 3:
				s.Schedule = domain.Schedule{Kind: domain.ScheduleFixedRate, Every: domain.Duration(1100 * time.Millisecond)}
			}
			if i%2 == 0 { // the others are serial: a dead scheduler may leave block slots behind
				s.Block = domain.BlockParallel
			}
		}))
	}

	for i := range 6 {
		// The next kill comes after the new scheduler has taken its share, and after all runs of the killed one are fired.
		every(3700*time.Millisecond, 1, func(int) {})
		eventually(t, patience, "the runs of the killed scheduler are fired", func() bool {
			return queryOne[int](t, c.db, `SELECT count(*) FROM runs_live WHERE state = 'pending' AND NOT held AND due_at < clock_timestamp() - interval '3 s'`) == 0
		})
		alive[i%2].kill()
		alive[i%2] = c.scheduler()
	}
	until := c.now()
	settles(t, c.db, until, patience)

	fires, worst := 0, time.Duration(0)
	for _, job := range jobs {
		n, late := firesExactly(t, c.db, job, until, eachSucceeds)
		fires += n
		worst = max(worst, late)
	}
	judge(t, pulse, fmt.Sprintf("the latest of %d fires", fires), worst, latest)
	if fires < 20*10 {
		t.Errorf("only %d fire times were tried", fires)
	}
}

// A scheduler is frozen in the middle of a second, while it holds rows, and continues long after. The other scheduler serves every fire time
// in time. The first one does not fire again the runs that it still believes to be due.
func TestPromiseSchedulerFrozen(t *testing.T) {
	needsQuiet(t)
	c := newCluster(t)
	pulse := promise(t, c)
	c.dispatcher()
	c.executor("i1")
	schedulers := [2]*process{c.scheduler(), c.scheduler()}
	var jobs []domain.Job
	for i := range 10 {
		jobs = append(jobs, c.job(fmt.Sprintf("tick-%d", i), func(s *domain.JobSpec) {
			s.Schedule, s.Misfire = domain.Schedule{Kind: domain.ScheduleCron, Expr: "* * * * * *"}, domain.MisfireFireAll
			if i%2 == 0 {
				s.Block = domain.BlockParallel
			}
		}))
	}
	for i := range 4 {
		// Between two freezes both run for a while. If one froze just when the other one resumed, no scheduler would run throughout
		// the five seconds in which a fire time must be served.
		every(3300*time.Millisecond, 1, func(int) {})
		schedulers[i%2].signal(syscall.SIGSTOP)
		every(6700*time.Millisecond, 1, func(int) {})
		schedulers[i%2].signal(syscall.SIGCONT)
	}
	until := c.now()
	settles(t, c.db, until, patience)
	worst := time.Duration(0)
	for _, job := range jobs {
		_, late := firesExactly(t, c.db, job, until, eachSucceeds)
		worst = max(worst, late)
	}
	judge(t, pulse, "the latest fire", worst, latest)
}

// Each process of a fleet with two of each role is stopped in order and started again, one after the other, under load. No run starts more
// than 250 ms late.
func TestPromiseRollingRestart(t *testing.T) {
	needsQuiet(t)
	unlessStalled(t, "a rolling restart", rollingRestart)
}

// unlessStalled runs a test that judges nothing if the machine stalled for more than a second, up to three times. judge returns the longest stall.
func unlessStalled(t *testing.T, during string, judge func(t *testing.T) (stall time.Duration)) {
	t.Helper()
	stall := time.Duration(0)
	for try := range 3 {
		t.Run(fmt.Sprintf("try %d", try+1), func(t *testing.T) { stall = judge(t) })
		if t.Failed() || stall <= time.Second {
			return
		}
	}
	t.Skipf("NOT COVERED: on this system at this time, lateness during %s: the machine stalled three times, at last for %v, so that offers and heartbeats expired", during, stall)
}

// rollingRestart restarts each process once and judges the lateness. If the machine stalled for more than a second, it judges nothing.
// It returns the longest stall.
func rollingRestart(t *testing.T) (stall time.Duration) {
	t.Helper()
	c := newCluster(t)
	pulse := promise(t, c)
	f := newPairs(c)
	everySecond := func(s *domain.JobSpec) {
		s.Schedule, s.Misfire = domain.Schedule{Kind: domain.ScheduleCron, Expr: "* * * * * *"}, domain.MisfireFireAll
	}
	parallel := func(s *domain.JobSpec) { s.Block = domain.BlockParallel }
	child := c.job("child", parallel)
	var jobs, triggered []domain.Job
	for i := range 30 {
		edits := []func(*domain.JobSpec){everySecond}
		if i%2 == 0 { // the others are serial
			edits = append(edits, parallel)
		}
		switch i % 5 {
		case 1:
			edits = append(edits, func(s *domain.JobSpec) { s.Schedule.Jitter = domain.Duration(900 * time.Millisecond) })
		case 2:
			edits = append(edits, handler("sleep", "300ms"))
		case 3:
			edits = append(edits, func(s *domain.JobSpec) { s.Children = []domain.Child{{JobID: child.ID, On: domain.OnSuccess}} })
		}
		jobs = append(jobs, c.job(fmt.Sprintf("tick-%02d", i), edits...))
	}
	c.job("retried", everySecond, parallel, handler("http", `{"url": "http://127.0.0.1:`+rig.FreePort(t)+`/"}`), retries(1))
	for i := range 3 {
		triggered = append(triggered, c.job(fmt.Sprintf("called-%d", i), parallel))
	}
	from := c.now()
	rounds := 1
	if os.Getenv("BELFRY_TEST_LONG") != "" {
		rounds = 4
	}
	calls := f.underTriggers(triggered, func() {
		for range rounds {
			f.restart()
		}
	})
	until := c.now()
	settles(t, c.db, until, patience)
	for _, line := range f.log {
		t.Log(line)
	}
	if stall = pulse.Worst(); stall > time.Second {
		t.Logf("nothing is judged, because the machine stalled for %v", stall)
		return stall
	}
	for _, job := range jobs {
		firesExactly(t, c.db, job, until, eachSucceeds)
	}
	if calls < 50 {
		t.Errorf("only %d runs were triggered", calls)
	}
	worst := f.report(t, "starts", pulse, f.lateness(from, until))
	next := f.report(t, "retries and children", pulse, f.followUps(from, until))
	judge(t, pulse, "the latest start", worst, replaced)
	judge(t, pulse, "the latest retry or child", next, soon)
	return stall
}

// Each of two gateways is stopped in order and started again, one after the other, while jobs run at executors of XXL-JOB. No run starts more than 250 ms late.
func TestPromiseGatewayRestart(t *testing.T) {
	needsQuiet(t)
	if os.Getenv("BELFRY_TEST_LONG") == "" {
		t.Skip("NOT COVERED: lateness during a restart of gateways; `.ci/long promises` runs it")
	}
	unlessStalled(t, "a restart of gateways", gatewayRestart)
}

// gatewayRestart restarts each gateway five times and judges the lateness, unless the machine stalled for more than a second. It returns the longest stall.
func gatewayRestart(t *testing.T) (stall time.Duration) {
	t.Helper()
	c := newCluster(t)
	pulse := promise(t, c)
	c.scheduler()
	c.dispatcher()
	openXXL(t, c.api)
	f := &pairs{cluster: c}
	var gateways []string
	for i := range 2 {
		address := "127.0.0.1:" + rig.FreePort(t)
		gateways = append(gateways, "http://"+address)
		f.add("gateway", func() *process {
			return c.role("gateway", nil, "--http", address, "--spool-dir", filepath.Join(c.dir, fmt.Sprint("callbacks-", i)))
		})
	}
	const executors = 3
	for range executors {
		newStubExecutor(t, gateways...)
	}
	eventually(t, patience, "the executors are listed", func() bool {
		list, err := c.api.Instances(t.Context(), xxlGroup)
		return err == nil && len(list) == executors
	})
	from := c.now()
	for i := range 20 {
		create(t, c.api, xxlJob(fmt.Sprintf("tick-%02d", i), "demo", "", func(s *domain.JobSpec) {
			s.Schedule, s.Misfire = domain.Schedule{Kind: domain.ScheduleCron, Expr: "* * * * * *"}, domain.MisfireFireAll
		}))
	}
	for range 5 {
		f.restart()
	}
	until := c.now()
	settles(t, c.db, until, patience)
	for _, line := range f.log {
		t.Log(line)
	}
	if stall = pulse.Worst(); stall > time.Second {
		t.Logf("nothing is judged, because the machine stalled for %v", stall)
		return stall
	}
	worst := f.report(t, "starts", pulse, f.lateness(from, until))
	if n := queryOne[int64](t, c.db, `SELECT count(*) FROM (SELECT FROM gateway_sends WHERE NOT unstarted GROUP BY run_id, attempt HAVING count(*) > 1) x`); n > 0 {
		t.Errorf("%d attempts were sent twice", n)
	}
	judge(t, pulse, "the latest start", worst, replaced)
	return stall
}

// A retry with a backoff of 1 s starts within 4.5 s, even if the leader of River dies between the attempts.
func TestPromiseRetryWithinTwoSeconds(t *testing.T) {
	needsQuiet(t)
	c := newCluster(t)
	pulse := promise(t, c)
	leader := c.dispatcher()
	c.scheduler()
	c.executor("i1")
	job := c.job("unreachable", handler("http", `{"url": "http://127.0.0.1:`+rig.FreePort(t)+`/"}`), retries(1))
	check := func(what string, id domain.RunID) {
		t.Helper()
		r := c.finishes(id, patience)
		if len(r.Attempts) != 2 || r.State != domain.Failed || r.Reason != domain.ReasonHandlerError {
			t.Fatalf("%s: the run ended %s/%s after %d attempts", what, r.State, r.Reason, len(r.Attempts))
		}
		between := r.Attempts[1].StartedAt.Sub(r.Attempts[0].FinishedAt.Time)
		if between < 900*time.Millisecond {
			t.Errorf("%s: %v between the attempts by the database's clock, want about 1 s", what, between)
		}
		judge(t, pulse, what+", between the attempts", between, soon)
	}
	check("the first one, after the workers of follow-ups have rested", c.trigger(job.ID))

	eventually(t, patience, "River has a leader", func() bool {
		return queryOne[int](t, c.db, `SELECT count(*) FROM river_leader WHERE expires_at > now()`) == 1
	})
	elected := queryOne[string](t, c.db, `SELECT leader_id FROM river_leader`)
	c.dispatcher()
	id := c.trigger(job.ID)
	c.reaches(id, patience, "is retrying", func(r domain.Run) bool { return r.State == domain.Retrying })
	if now := queryOne[string](t, c.db, `SELECT leader_id FROM river_leader`); now != elected {
		t.Fatalf("the leader is %s, want the first dispatcher, %s", now, elected)
	}
	leader.kill()
	check("with the leader killed", id)
}

// A serial job has hundreds of held runs. They do not delay another job that fires every second. Then the executor of the running run
// is killed: only that run is declared lost, and no run that had not started.
func TestPromiseHeldFiresDelayNobody(t *testing.T) {
	needsQuiet(t)
	const held = 500
	c := newCluster(t)
	pulse := promise(t, c)
	c.dispatcher()
	scheduler := c.scheduler()
	dying := c.executor("i1")
	c.executor("i2")
	file := filepath.Join(c.dir, "starts")
	slow := c.job("slow", shell("echo $BELFRY_RUN_ID/$BELFRY_ATTEMPT >> "+file+"; exec sleep 10"), first)
	brisk := c.job("brisk", handler("echo", ""), func(s *domain.JobSpec) {
		s.Schedule = domain.Schedule{Kind: domain.ScheduleCron, Expr: "* * * * * *"}
		s.Misfire, s.Route = domain.MisfireFireAll, domain.RouteLast // not on the executor that the test kills
	})
	var triggering sync.WaitGroup
	for range 4 {
		triggering.Go(func() {
			for range held / 4 {
				c.trigger(slow.ID)
			}
		})
	}
	triggering.Wait()
	eventually(t, patience, "almost all runs are held", func() bool { // some end before the others are triggered
		return queryOne[int](t, c.db, `SELECT count(*) FROM runs_live WHERE job_id = $1 AND held`, slow.ID) >= held-held/10 && len(linesOf(t, file)) > 0
	})
	every(10*time.Second, 1, func(int) {})
	scheduler.kill() // held runs stay, and a new scheduler fires the brisk job
	c.scheduler()
	every(time.Second, 1, func(int) {})
	dying.kill()
	killed := c.now()
	eventually(t, patience, "the next run is running on the other executor", func() bool {
		return queryOne[int](t, c.db, `SELECT count(*) FROM runs_live WHERE job_id = $1 AND state = 'running' AND instance = 'i2'`, slow.ID) == 1
	})
	lost := query(t, c.db, pgx.RowTo[string], `SELECT id::text FROM runs_history WHERE job_id = $1 AND reason = 'lost'`, slow.ID)
	if len(lost) != 1 {
		t.Errorf("%d runs were declared lost, want only the one that was running", len(lost))
	}
	for _, id := range lost {
		if !slices.Contains(linesOf(t, file), id+"/1") {
			t.Errorf("the run %s was declared lost and had not started", id)
		}
	}
	if odd := query(t, c.db, pgx.RowTo[string], `
		SELECT format('%s/%s x%s', state, reason, count(*)) FROM runs_history
		 WHERE job_id = $1 AND NOT (state = 'succeeded' OR state = 'failed' AND reason = 'lost') GROUP BY state, reason`, slow.ID); len(odd) > 0 {
		t.Errorf("runs of the slow job ended %s", strings.Join(odd, ", "))
	}
	until := c.now()
	settlesJob(t, c, brisk, until)
	n, worst := firesExactly(t, c.db, brisk, until, eachSucceeds)
	t.Logf("the kill was at %s", killed.Format("15:04:05.000"))
	judge(t, pulse, fmt.Sprintf("the latest of %d fires of the brisk job", n), worst, latest)
}

// settlesJob waits until all runs of a job with a fire time up to until have ended.
func settlesJob(t *testing.T, c *cluster, job domain.Job, until time.Time) {
	t.Helper()
	eventually(t, patience, fmt.Sprintf("the runs of %s that are due have ended", job.Name), func() bool {
		return c.now().After(until.Add(latest)) &&
			queryOne[int](t, c.db, `SELECT count(*) FROM runs_live WHERE job_id = $1 AND fire_time <= $2`, job.ID, until) == 0
	})
}

// After NATS was away for four lease times, the death of an executor is still detected within 15 s.
func TestPromiseLostAfterNATSWasAway(t *testing.T) {
	needsQuiet(t)
	if os.Getenv("BELFRY_TEST_LONG") == "" {
		t.Skip("NOT COVERED: how soon a death is detected after a long outage of NATS; `.ci/long promises` runs it")
	}
	c := newCluster(t)
	pulse := promise(t, c)
	judge(t, pulse, "from the death of the executor to the last verdict", natsAwayForFourLeases(t, c), lostWithin)
}

// The primary of Postgres dies, and a standby that has not received its last commits is promoted. Executors have run attempts that
// the standby does not know. Every job runs again within 5 s of the promotion.
func TestPromiseFailover(t *testing.T) {
	needsQuiet(t)
	if os.Getenv("BELFRY_TEST_LONG") == "" {
		t.Skip("NOT COVERED: a failover of Postgres that loses commits; `.ci/long promises` runs it")
	}
	servers := newPair(t)
	c := newClusterOn(t, servers.url)
	pulse := promise(t, c)
	c.dispatcher()
	c.dispatcher()
	c.scheduler()
	c.scheduler()
	c.executor("i1")
	c.executor("i2")
	var jobs []domain.Job
	for i := range 90 {
		jobs = append(jobs, c.job(fmt.Sprintf("tick-%02d", i), handler("sleep", "300ms"), func(s *domain.JobSpec) {
			s.Schedule = domain.Schedule{Kind: domain.ScheduleCron, Expr: "* * * * * *"}
			switch i % 3 {
			case 1:
				s.Block = domain.BlockParallel
			case 2:
				s.Misfire = domain.MisfireFireAll
			}
		}))
	}
	// A job whose misfire policy is fire_all first runs the fire times that it missed.
	started := func(job domain.Job, after time.Time) []time.Time {
		return query(t, c.db, pgx.RowTo[time.Time], `
			SELECT started_at FROM runs_history WHERE job_id = $1 AND state = 'succeeded' AND started_at > $2 ORDER BY started_at LIMIT 1`, job.ID, after)
	}
	begin := c.now()
	for _, job := range jobs {
		eventually(t, patience, job.Name+" runs", func() bool { return len(started(job, begin)) > 0 })
	}
	sender := servers.cutOff()
	every(4*time.Second, 1, func(int) {})
	before := queryOne[int](t, c.db, `SELECT count(*) FROM runs_history`)
	servers.failOver(sender)
	promoted := c.now()
	after := queryOne[int](t, c.db, `SELECT count(*) FROM runs_history`)
	if t.Logf("%d finished runs before the failover, %d after it", before, after); after > before-len(jobs) {
		t.Error("the failover lost too few commits to test anything")
	}
	worst := time.Duration(0)
	for _, job := range jobs {
		eventually(t, patience, job.Name+" runs after the failover", func() bool { return len(started(job, promoted)) > 0 })
		worst = max(worst, started(job, promoted)[0].Sub(promoted))
	}
	judge(t, pulse, "from the promotion to the first start of the last job", worst, latest)
	if n := queryOne[int](t, c.db, `SELECT count(*) FROM runs_history WHERE message LIKE 'output lost%'`); n == 0 {
		t.Error("no instance was offered an attempt that it had ended before the failover")
	}
	settles(t, c.db, promoted, patience)
}
