//go:build unix

package e2e

import (
	"context"
	"fmt"
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

// pairs is two processes of each role.
type pairs struct {
	*cluster
	parts []*part
	to    []*client.Client // one for each console
	log   []string         // what was stopped and started, with the time
}

// part is a process of pairs that can be replaced.
type part struct {
	name  string
	alive *process
	start func() *process // waits until the new process is ready
}

// newPairs starts two schedulers, dispatchers, consoles and executors.
func newPairs(c *cluster) *pairs {
	f := &pairs{cluster: c}
	for range 2 {
		f.add("scheduler", func() *process { return c.scheduler() })
		f.add("dispatcher", func() *process { return c.dispatcher() })
	}
	// A restarted console keeps its address, as behind a load balancer.
	address := strings.TrimPrefix(c.server, "http://")
	f.parts = append(f.parts, &part{"console", c.console, func() *process { return c.role("console", nil, "--http", address) }})
	second := c.role("console", nil, "--http", "127.0.0.1:0")
	server := second.says("console: ")
	other := strings.TrimPrefix(server, "http://")
	f.parts = append(f.parts, &part{"console", second, func() *process { return c.role("console", nil, "--http", other) }})
	api, err := client.New(server, c.token)
	if err != nil {
		c.t.Fatal(err)
	}
	c.t.Cleanup(api.Close)
	f.to = []*client.Client{c.api, api}
	for _, name := range []string{"i1", "i2"} {
		f.add(name, func() *process { return f.agent(name) })
	}
	return f
}

func (f *pairs) add(name string, start func() *process) {
	f.parts = append(f.parts, &part{name, start(), start})
}

// agent starts an executor and waits until the instance that the second console lists is the new process.
func (f *pairs) agent(name string) *process {
	before := f.boot(name)
	p := f.cluster.agent(name)
	eventually(f.t, patience, "the executor "+name+" is listed", func() bool { b := f.boot(name); return b != "" && b != before })
	return p
}

func (f *pairs) boot(name string) string {
	for _, api := range f.to {
		list, err := api.Instances(f.t.Context(), group)
		for _, i := range list {
			if err == nil && i.ID == name && !i.Draining {
				return i.BootID
			}
		}
	}
	return ""
}

// restart stops each process in turn with SIGTERM, and starts its successor after its end.
func (f *pairs) restart() {
	for _, p := range f.parts {
		f.note("stop " + p.name)
		p.alive.signal(syscall.SIGTERM)
		if code := p.alive.exit(); code != 0 {
			f.t.Errorf("%s ended with code %d", p.name, code)
		}
		f.note("start " + p.name)
		p.alive = p.start()
		f.note("ready " + p.name)
		every(1300*time.Millisecond, 1, func(int) {})
	}
}

func (f *pairs) note(what string) { f.log = append(f.log, f.now().Format("15:04:05.000 ")+what) }

// triggerUntil triggers jobs until ctx ends, through the console that answers. It returns the number of runs.
func (f *pairs) triggerUntil(ctx context.Context, jobs []domain.Job) int {
	n := 0
	every := time.NewTicker(100 * time.Millisecond)
	defer every.Stop()
	for i := 0; ; i++ {
		select {
		case <-ctx.Done():
			return n
		case <-every.C:
		}
		for at := range f.to {
			if _, err := f.to[(i+at)%len(f.to)].TriggerJob(ctx, jobs[i%len(jobs)].ID, client.Trigger{}); err == nil {
				n++
				break
			}
		}
	}
}

// startedLate is the first attempt of a run, or a later one, and how long it started after it could have.
type startedLate struct {
	Name       string
	Cause      string
	Attempt    int
	Due        time.Time // a held run: when the run before it ended
	Dispatched *time.Time
	Started    *time.Time
	Late       float64
}

func (s startedLate) String() string {
	at := func(t *time.Time) string {
		if t == nil {
			return "never"
		}
		return t.UTC().Format("15:04:05.000")
	}
	return fmt.Sprintf("%-10s %-8s attempt %d due %s dispatched %s started %s: %.3f s", s.Name, s.Cause, s.Attempt, s.Due.UTC().Format("15:04:05.000"), at(s.Dispatched), at(s.Started), s.Late)
}

// lateness returns the starts of first attempts, latest first.
func (f *pairs) lateness(from, until time.Time) []startedLate {
	return query(f.t, f.db, pgx.RowToStructByPos[startedLate], `
		WITH r AS (
			SELECT h.*, j.name, j.spec->>'block' = 'serial' AS serial, a.dispatched_at AS d1, a.started_at AS s1
			  FROM runs_history h JOIN jobs j ON j.id = h.job_id
			  LEFT JOIN run_attempts a ON a.run_id = h.id AND a.attempt = 1
			 WHERE h.due_at <= $2
		), s AS (
			SELECT name, cause, 1 AS attempt, CASE WHEN attempt > 1 THEN coalesce(fire_time, due_at) ELSE due_at END AS due,
			       CASE WHEN attempt > 1 THEN d1 ELSE dispatched_at END AS dispatched, CASE WHEN attempt > 1 THEN s1 ELSE started_at END AS started,
			       CASE WHEN serial THEN lag(finished_at) OVER (PARTITION BY job_id ORDER BY coalesce(fire_time, due_at)) END AS before
			  FROM r
		)
		SELECT name, cause, attempt, greatest(due, before), dispatched, started, coalesce(extract(epoch FROM started - greatest(due, before)), 1000)::float8
		  FROM s WHERE due >= $1 ORDER BY 7 DESC`, from, until)
}

// followUps returns the starts of retries and children after the ends that caused them, latest first.
func (f *pairs) followUps(from, until time.Time) []startedLate {
	return query(f.t, f.db, pgx.RowToStructByPos[startedLate], `
		SELECT j.name, h.cause, h.attempt, p.finished_at, h.dispatched_at, h.started_at, coalesce(extract(epoch FROM h.started_at - p.finished_at), 1000)::float8
		  FROM runs_history h JOIN jobs j ON j.id = h.job_id JOIN runs_history p ON p.id = h.parent_run_id
		 WHERE h.cause = 'child' AND p.finished_at BETWEEN $1 AND $2
		UNION ALL
		SELECT j.name, h.cause, h.attempt, a.finished_at + interval '1 s', h.dispatched_at, h.started_at, coalesce(extract(epoch FROM h.started_at - a.finished_at) - 1, 1000)::float8
		  FROM runs_history h JOIN jobs j ON j.id = h.job_id JOIN run_attempts a ON a.run_id = h.id AND a.attempt = h.attempt - 1
		 WHERE a.finished_at BETWEEN $1 AND $2 ORDER BY 7 DESC`, from, until)
}

// stall returns the slowest step of the machine shortly before and during the delay.
func (s startedLate) stall(all []rig.Stall) (slowest time.Duration) {
	for _, one := range all {
		if s.Started != nil && one.From.Before(*s.Started) && one.From.Add(one.Took).After(s.Due.Add(-time.Second)) {
			slowest = max(slowest, one.Took)
		}
	}
	return slowest
}

// report logs the distribution of lateness, and the starts that the stalls at their time do not explain.
func (f *pairs) report(t *testing.T, what string, pulse *rig.Pulse, late []startedLate) (worst time.Duration) {
	t.Helper()
	if len(late) == 0 {
		t.Fatalf("%s: nothing was measured", what)
	}
	stalls := pulse.Stalls()
	beyond, logged := 0, 0
	for _, l := range late {
		if l.Late <= .25 {
			break
		}
		beyond++
		if slowest := l.stall(stalls); l.Late > .25+rig.Steps*slowest.Seconds() && logged < 40 {
			logged++
			t.Log(l, "slowest step then", slowest)
		}
	}
	at := func(p int) float64 { return late[len(late)*(100-p)/100].Late }
	t.Logf("%s: %d, of which %d later than 250 ms; 50%% %.3f, 90%% %.3f, 99%% %.3f, max %.3f", what, len(late), beyond, at(50), at(90), at(99), late[0].Late)
	return time.Duration(late[0].Late * float64(time.Second)).Round(time.Millisecond)
}

// underTriggers triggers jobs until do returns, and returns the number of runs.
func (f *pairs) underTriggers(jobs []domain.Job, do func()) int {
	ctx, stop := context.WithCancel(f.t.Context())
	n := 0
	var triggering sync.WaitGroup
	triggering.Go(func() { n = f.triggerUntil(ctx, jobs) })
	do()
	stop()
	triggering.Wait()
	return n
}
