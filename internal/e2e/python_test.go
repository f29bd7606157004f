//go:build unix

package e2e

import (
	"fmt"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/belfryhq/belfry/internal/client"
	"github.com/belfryhq/belfry/internal/domain"
	"github.com/belfryhq/belfry/internal/e2e/rig"
)

// python returns an interpreter with the library of docs/examples/executor.py.
func python(t *testing.T) string {
	t.Helper()
	interpreter, why := rig.Python(t)
	if interpreter == "" {
		t.Skip("NOT COVERED: the executor in Python: " + why)
	}
	return interpreter
}

// python starts a file of the repository as an executor of group. The file can import docs/examples/executor.py.
func (c *cluster) python(interpreter, file string, env ...string) *process {
	c.t.Helper()
	root := rig.Root(c.t)
	return start(c.t, "python", exec.Command(interpreter, "-u", filepath.Join(root, file)), c.dir, append([]string{
		"BELFRY_GROUP=" + group, "BELFRY_TOKEN=" + c.join, "BELFRY_NATS_URL=" + c.natsFor,
		"PYTHONPATH=" + filepath.Join(root, "docs", "examples"), "PYTHONDONTWRITEBYTECODE=1",
	}, env...))
}

// docs/wire.md is enough to write an executor in another language: docs/examples/executor.py works with the real server.
func TestPythonExecutor(t *testing.T) {
	t.Parallel()
	interpreter := python(t)
	c := newCluster(t)
	c.dispatcher()
	c.scheduler()
	py := c.python(interpreter, "docs/examples/executor.py")
	name := ""
	eventually(t, patience, "the executor in Python is listed", func() bool {
		list, err := c.api.Instances(t.Context(), group)
		if err == nil && len(list) == 1 && strings.HasPrefix(list[0].ID, "python-") {
			name = list[0].ID
		}
		return name != ""
	})

	greeted := c.finishes(c.trigger(c.job("greet", handler("greet", "Ann")).ID), patience)
	if greeted.State != domain.Succeeded || greeted.Output != "hello Ann, attempt 1, shard 0 of 1" || greeted.Instance != name {
		t.Errorf("it greeted with %s %q on %s: %s", greeted.State, greeted.Output, greeted.Instance, greeted.Message)
	}
	eventually(t, patience, "its log is there", func() bool {
		page, err := c.api.Log(t.Context(), greeted.ID, 1, 10)
		return err == nil && len(page.Lines) == 1 && page.Lines[0].Text == "greeting Ann"
	})
	stumbled := c.finishes(c.trigger(c.job("stumble", handler("stumble", "a stone"), retries(1)).ID), patience)
	if stumbled.State != domain.Failed || stumbled.Reason != domain.ReasonHandlerError || stumbled.Attempt != 2 || !strings.Contains(stumbled.Message, "a stone") {
		t.Errorf("the failing handler ended %s/%s at attempt %d: %s", stumbled.State, stumbled.Reason, stumbled.Attempt, stumbled.Message)
	}
	late := c.finishes(c.trigger(c.job("late", handler("nap", "600"), func(s *domain.JobSpec) { s.Timeout = domain.Duration(time.Second) }).ID), patience)
	if late.State != domain.Failed || late.Reason != domain.ReasonTimeout {
		t.Errorf("after its timeout it ended %s/%s", late.State, late.Reason)
	}
	running := func(r domain.Run) bool { return r.State == domain.Running }
	killed := c.trigger(c.job("killed", handler("nap", "600")).ID)
	c.reaches(killed, patience, "runs", running)
	if err := c.api.KillRun(t.Context(), killed); err != nil {
		t.Fatal(err)
	}
	if r := c.finishes(killed, patience); r.State != domain.Cancelled || r.Reason != domain.ReasonKilled {
		t.Errorf("killed, it ended %s/%s", r.State, r.Reason)
	}
	if left := queryOne[int](t, c.db, `SELECT count(*) FROM late_results`); left != 0 {
		t.Errorf("%d results were late", left)
	}

	last := c.trigger(c.job("last", handler("nap", "2")).ID)
	c.reaches(last, patience, "runs", running)
	py.signal(syscall.SIGTERM)
	if code := py.exit(); code != 0 {
		t.Errorf("it ended with code %d", code)
	}
	if r := c.run(last); r.State != domain.Succeeded {
		t.Errorf("the run during the drain ended %s/%s", r.State, r.Reason)
	}
	eventually(t, patience, "it is not listed any more", func() bool { return !c.listed(name) })
	if said := py.stderr.tail(60); strings.Contains(said, "Traceback") {
		t.Errorf("it logged an error:\n%s", said)
	}
}

// nats-py closes a connection when its log-in has expired, and does not connect again. The example connects again until its log-in is
// accepted.
func TestPythonLogsInAgain(t *testing.T) {
	t.Parallel()
	interpreter := python(t)
	c := newCluster(t)
	c.dispatcher().kill() // so that only the console answers log-ins; a dispatcher has created the streams
	py := c.python(interpreter, "internal/e2e/testdata/slow_executor.py", "BELFRY_INSTANCE=again", "MARKS="+filepath.Join(c.dir, "marks"))
	seen := func() time.Time {
		list, err := c.api.Instances(t.Context(), group)
		if err != nil || len(list) != 1 {
			return time.Time{}
		}
		return list[0].SeenAt.Time
	}
	eventually(t, patience, "it is listed", func() bool { return !seen().IsZero() })

	py.signal(syscall.SIGUSR1)
	expired := time.Now()
	eventually(t, patience, "it sends heartbeats after its log-in has expired", func() bool { return seen().After(expired.Add(time.Second)) })

	c.console.kill()
	c.nats.kill()
	c.startNATS()
	c.nats.logs("authentication error")
	c.console = c.role("console", nil, "--http", strings.TrimPrefix(c.server, "http://"))
	again := time.Now()
	eventually(t, patience, "it is listed again", func() bool { return seen().After(again) })
}

// A process is frozen while accepted attempts wait for its event loop, and later while offers wait for its slow callback. It resumes
// after Belfry has declared those attempts lost, and starts none of them. See docs/wire.md, "The start limit".
func TestPythonFrozen(t *testing.T) {
	if testing.Short() {
		t.Skip("NOT COVERED: a frozen executor in Python, which waits twice for heartbeats to expire")
	}
	t.Parallel()
	interpreter := python(t)
	c := newCluster(t)
	c.dispatcher()
	c.scheduler()
	marks := filepath.Join(c.dir, "marks")
	slow := func(name string) *process {
		p := c.python(interpreter, "internal/e2e/testdata/slow_executor.py", "BELFRY_CAPACITY=256", "BELFRY_INSTANCE="+name, "MARKS="+marks)
		eventually(t, patience, name+" is listed", func() bool { return c.listed(name) })
		return p
	}
	frozen := slow("frozen")
	slow("other")
	// A busy machine may delay a heartbeat of the other instance, or the fires. With this policy neither ends a run or drops a fire time.
	mark := func(s *domain.JobSpec) {
		s.Handler, s.Block, s.Retries, s.Misfire = "mark", domain.BlockParallel, 10, domain.MisfireFireAll
	}
	byHand := c.job("by hand", mark)
	const lost = `SELECT count(*) FROM run_attempts WHERE instance = 'frozen' AND reason = 'lost'`
	const held = `SELECT count(*) FROM runs WHERE instance = 'frozen' AND state IN ('queued', 'running')`

	const each = 100 // half of them for the frozen one
	jobs := 0
	accepted := func() (runs int) {
		at := domain.At(c.now().Add(10 * time.Second).Truncate(time.Second))
		for range each {
			job := c.job(fmt.Sprintf("due-%d", jobs), mark, func(s *domain.JobSpec) { s.Schedule = domain.Schedule{Kind: domain.ScheduleOnce, At: &at} })
			jobs++
			if job.NextFireTime != nil { // on a busy machine, the last jobs may be created after their only fire time
				runs++
			}
		}
		eventually(t, patience, "the first offers are accepted", func() bool { return c.now().Sub(at.Time) > 150*time.Millisecond })
		return runs
	}
	unread := func() (runs int) {
		var wg sync.WaitGroup
		for range 5 { // faster than the callbacks process the offers
			wg.Go(func() {
				for range each / 5 {
					if _, err := c.api.TriggerJob(t.Context(), byHand.ID, client.Trigger{}); err != nil {
						t.Error(err)
					}
				}
			})
		}
		wg.Wait()
		return each
	}
	expected := 0
	// freeze freezes the instance while it holds attempts, and reports whether any are declared lost. On a busy machine it may hold
	// none by then: the jobs were created so slowly that their runs have ended, or no offer has arrived.
	freeze := func(pending func() int) (caught bool) {
		before := queryOne[int](t, c.db, lost)
		expected += pending()
		frozen.signal(syscall.SIGSTOP)
		every(14*time.Second, 1, func(int) {})
		eventually(t, patience, "the frozen instance has no attempts left", func() bool { return queryOne[int](t, c.db, held) == 0 })
		frozen.signal(syscall.SIGCONT)
		n := queryOne[int](t, c.db, lost) - before
		t.Logf("%d attempts were lost", n)
		return n > 0
	}
	for _, pending := range []func() int{accepted, unread} {
		eventually(t, 2*patience, "attempts are declared lost", func() bool { return freeze(pending) })
		states := ""
		t.Cleanup(func() {
			if t.Failed() {
				t.Logf("runs that have not succeeded: %s", states)
			}
		})
		eventually(t, 2*patience, "all runs succeed", func() bool {
			states = queryOne[string](t, c.db, `SELECT coalesce(string_agg(concat_ws(' ', r.id, r.state, r.reason, r.attempt, r.instance, r.waiting, r.message), '; '), 'none')
				FROM (SELECT * FROM runs WHERE state <> 'succeeded' ORDER BY id LIMIT 5) r`)
			// On a busy machine, a job may have fired before the answer about its creation was made. Then the answer names no next fire
			// time, and there are more runs than expected.
			n := queryOne[int](t, c.db, `SELECT count(*) FROM runs WHERE state = 'succeeded'`)
			states += fmt.Sprintf("; %d have succeeded, at least %d are expected", n, expected)
			return strings.HasPrefix(states, "none") && n >= expected
		})
		eventually(t, patience, "the frozen one is listed again", func() bool { return c.listed("frozen") })
		// This offer is the last in the callback's queue, so all others have been judged when its run ends.
		last, err := c.api.TriggerJob(t.Context(), byHand.ID, client.Trigger{Instance: "frozen"})
		if err != nil {
			t.Fatal(err)
		}
		c.finishes(last[0], patience)
		expected++
	}
	c.startsNoLost(marks)
}

// startsNoLost checks the starts that executors have written to a file.
func (c *cluster) startsNoLost(marks string) {
	c.t.Helper()
	type key struct {
		run     domain.RunID
		attempt int
	}
	type attempt struct {
		RunID      domain.RunID
		Attempt    int
		FinishedAt time.Time
	}
	lost := make(map[key]time.Time)
	for _, a := range query(c.t, c.db, pgx.RowToStructByPos[attempt], `SELECT run_id, attempt, finished_at FROM run_attempts WHERE reason = 'lost'`) {
		lost[key{a.RunID, a.Attempt}] = a.FinishedAt
	}
	started := make(map[key]bool)
	for _, line := range linesOf(c.t, marks) {
		f := strings.Split(line, "/") // run, attempt, instance, seconds
		id, err := domain.ParseRunID(f[0])
		if err != nil {
			c.t.Fatal(err)
		}
		n, err := strconv.Atoi(f[1])
		if err != nil {
			c.t.Fatal(err)
		}
		seconds, err := strconv.ParseFloat(f[3], 64)
		if err != nil {
			c.t.Fatal(err)
		}
		k, at := key{id, n}, time.UnixMilli(int64(seconds*1000))
		if started[k] {
			c.t.Errorf("run %s attempt %d started twice", id, n)
		}
		started[k] = true
		if end, ok := lost[k]; ok && at.After(end) {
			c.t.Errorf("run %s attempt %d started on %s %v after it was declared lost", id, n, f[2], at.Sub(end))
		}
	}
}
