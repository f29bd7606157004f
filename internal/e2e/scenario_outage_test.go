//go:build unix

package e2e

import (
	"fmt"
	"net"
	"net/url"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/belfryhq/belfry/internal/client"
	"github.com/belfryhq/belfry/internal/domain"
	"github.com/belfryhq/belfry/internal/e2e/rig"
)

// away is the length of the outages in these tests.
const away = time.Minute

// throughNATS returns the setting that makes a role connect to NATS through a proxy.
func (c *cluster) throughNATS(p *rig.Proxy) string {
	return "BELFRY_NATS_URL=nats://belfry:" + natsPassword + "@" + p.Addr()
}

// natsLink returns a proxy to the cluster's NATS server.
func (c *cluster) natsLink() *rig.Proxy {
	c.t.Helper()
	_, host, _ := strings.Cut(c.natsFor, "//")
	return rig.NewProxy(c.t, host)
}

// postgresLink returns a proxy to Postgres, and the setting that makes a role connect through it.
func (c *cluster) postgresLink() (*rig.Proxy, string) {
	c.t.Helper()
	u, err := url.Parse(c.dbURL)
	if err != nil {
		c.t.Fatal(err)
	}
	q := u.Query()
	target := u.Host
	if dir := q.Get("host"); dir != "" {
		port := q.Get("port")
		if port == "" {
			port = "5432"
		}
		target = filepath.Join(dir, ".s.PGSQL."+port)
	}
	p := rig.NewProxy(c.t, target)
	host, port, err := net.SplitHostPort(p.Addr())
	if err != nil {
		c.t.Fatal(err)
	}
	q.Del("host")
	q.Del("port")
	q.Set("sslmode", "disable")
	u.Host, u.RawQuery = net.JoinHostPort(host, port), q.Encode()
	return p, "BELFRY_DATABASE_URL=" + u.String()
}

// A dispatcher's own link to NATS is black-holed for a minute, so that this dispatcher receives nothing. Neither it nor the other
// dispatcher declares a run lost, and all running runs end normally.
func TestScenarioDispatcherCutOffFromNATS(t *testing.T) {
	long(t)
	for _, alone := range []bool{false, true} {
		t.Run(map[bool]string{false: "with another dispatcher", true: "alone"}[alone], func(t *testing.T) {
			t.Parallel()
			c := newCluster(t)
			link := c.natsLink()
			c.dispatcher(c.throughNATS(link))
			if !alone {
				c.dispatcher()
			}
			c.scheduler()
			c.executor("i1")
			c.executor("i2")
			file := filepath.Join(c.dir, "starts")
			job := c.job("work", handler("command", ""), func(s *domain.JobSpec) { s.Block, s.Route = domain.BlockParallel, domain.RouteRoundRobin }, retries(1))
			var runs []domain.RunID
			for n := range 24 { // some end before the black hole, most during it, some after it
				param := fmt.Sprintf(`["sh", "-c", "echo $BELFRY_RUN_ID/$BELFRY_ATTEMPT >> %s; exec sleep %d"]`, file, 3*n)
				ids, err := c.api.TriggerJob(t.Context(), job.ID, client.Trigger{Param: &param})
				if err != nil {
					t.Fatal(err)
				}
				runs = append(runs, ids...)
			}
			eventually(t, patience, "all handlers have started", func() bool { return len(linesOf(t, file)) == len(runs) })
			link.Blackhole()
			every(away, 1, func(int) {})
			link.Heal()
			for _, id := range runs {
				if r := c.finishes(id, patience); r.State != domain.Succeeded || r.Attempt != 1 {
					t.Errorf("a run ended %s/%s at attempt %d", r.State, r.Reason, r.Attempt)
				}
			}
			c.startedOnce(file)
		})
	}
}

// NATS is away for a minute. The only effect is a delay.
func TestScenarioNATSAwayForAMinute(t *testing.T) {
	long(t)
	natsAway(t, away, false)
}

// Postgres is away for a minute, for every role. The only effect is a delay: handlers continue and their results arrive later, and the
// missed fire times are fired afterwards.
func TestScenarioPostgresAwayForAMinute(t *testing.T) {
	long(t)
	c := newCluster(t)
	link, through := c.postgresLink()
	c.dispatcher(through)
	c.dispatcher(through)
	c.scheduler(through)
	c.scheduler(through)
	c.executor("i1")
	file := filepath.Join(c.dir, "starts")
	note := shell("echo $BELFRY_RUN_ID/$BELFRY_ATTEMPT >> " + file)
	var ticks []domain.Job
	for i := range 4 {
		ticks = append(ticks, c.job(fmt.Sprintf("tick-%d", i), note, func(s *domain.JobSpec) {
			s.Schedule = domain.Schedule{Kind: domain.ScheduleCron, Expr: "* * * * * *"}
			s.Misfire = domain.MisfireFireAll
			if i%2 == 0 {
				s.Block = domain.BlockParallel
			}
		}))
	}
	work := c.job("work", handler("command", ""), func(s *domain.JobSpec) { s.Block = domain.BlockParallel }, retries(1))
	var runs []domain.RunID
	for n := range 10 {
		param := fmt.Sprintf(`["sh", "-c", "echo $BELFRY_RUN_ID/$BELFRY_ATTEMPT >> %s; exec sleep %d"]`, file, 8*n)
		ids, err := c.api.TriggerJob(t.Context(), work.ID, client.Trigger{Param: &param})
		if err != nil {
			t.Fatal(err)
		}
		runs = append(runs, ids...)
	}
	eventually(t, patience, "all handlers have started", func() bool {
		lines := linesOf(t, file) // including lines of the ticks
		return !slices.ContainsFunc(runs, func(id domain.RunID) bool { return !slices.Contains(lines, id.String()+"/1") })
	})
	link.Cut()
	every(away, 1, func(int) {})
	link.Heal()
	for _, id := range runs {
		if r := c.finishes(id, patience); r.State != domain.Succeeded || r.Attempt != 1 {
			t.Errorf("a run ended %s/%s at attempt %d", r.State, r.Reason, r.Attempt)
		}
	}
	until := c.now()
	settles(t, c.db, until, patience)
	for _, job := range ticks {
		n, worst := firesExactly(t, c.db, job, until, eachSucceeds)
		t.Logf("%s: %d fires, the latest %v late", job.Name, n, worst)
	}
	if n := queryOne[int](t, c.db, `SELECT count(*) FROM runs WHERE reason <> ''`); n > 0 {
		t.Errorf("%d runs have a reason, want none", n)
	}
	c.startedOnce(file)

	// The fire check names the absence of Postgres, not of schedulers, which were running.
	begun, ended := queryOne[time.Time](t, c.db, `SELECT min(from_at) FROM disturbances`), queryOne[time.Time](t, c.db, `SELECT max(to_at) FROM disturbances`)
	if n := queryOne[string](t, c.db, `SELECT string_agg(kind, ' ') FROM disturbances`); n != "postgres_away" || ended.Sub(begun) < away {
		t.Errorf("these disturbances are recorded: %s, from %s to %s", n, begun, ended)
	}
	_, out, errs := c.command("job", "why", group+"/"+ticks[0].Name, "--at", domain.At(begun.Add(away/2).Truncate(time.Second)).String())
	if !strings.Contains(out, "Postgres was unavailable from") || strings.Contains(out, "at work") {
		t.Errorf("belfry job why does not name the absence of Postgres:\n%s%s", out, errs)
	}
}

// The host of Postgres vanishes without closing its connections, while every loop of every role waits for an answer. No data passes
// through these connections any more. The roles give up their pending statements. When a host answers at the address again, every role
// continues on new connections.
func TestScenarioPostgresHostVanishes(t *testing.T) {
	long(t)
	c := newCluster(t)
	link, through := c.postgresLink()
	c.dispatcher(through)
	c.scheduler(through)
	dying := c.executor("i1")
	c.executor("i2")
	tick := c.job("tick", func(s *domain.JobSpec) {
		s.Schedule = domain.Schedule{Kind: domain.ScheduleCron, Expr: "* * * * * *"}
		s.Misfire, s.Block, s.Route = domain.MisfireFireAll, domain.BlockParallel, domain.RouteLast
	})
	id := c.trigger(c.job("work", handler("sleep", "600s"), first).ID)
	c.reaches(id, patience, "runs", func(r domain.Run) bool { return r.State == domain.Running })
	eventually(t, patience, "the tick fires", func() bool {
		return queryOne[int](t, c.db, `SELECT count(*) FROM runs_history WHERE job_id = $1`, tick.ID) > 0
	})

	// With the live runs locked, each loop soon waits for a statement.
	tx, err := c.db.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := tx.Exec(t.Context(), `LOCK runs_live, runs_waiting IN ACCESS EXCLUSIVE MODE`); err != nil {
		t.Fatal(err)
	}
	every(6*time.Second, 1, func(int) {}) // the slowest loop has a period of 5 s
	link.Vanish()
	if err := tx.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	link.Heal()

	// Belfry fires, settles, and detects a dead executor.
	dying.kill()
	if r := c.finishes(id, patience); r.Reason != domain.ReasonLost {
		t.Errorf("the run of a dead executor ended %s/%s", r.State, r.Reason)
	}
	until := c.now()
	settles(t, c.db, until, patience)
	n, worst := firesExactly(t, c.db, tick, until, eachSucceeds)
	t.Logf("%d fires, the latest %v late", n, worst)
}
