//go:build unix

package e2e

import (
	"io"
	"net/http"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/belfryhq/belfry/internal/domain"
	"github.com/belfryhq/belfry/internal/explain"
	"github.com/belfryhq/belfry/internal/pgtest"
	"github.com/belfryhq/belfry/internal/schedule"
	"github.com/belfryhq/belfry/internal/store"
)

// everySecond returns an edit that makes a job fire every second.
func everySecond(policy domain.Misfire) func(*domain.JobSpec) {
	return func(s *domain.JobSpec) {
		s.Schedule = domain.Schedule{Kind: domain.ScheduleCron, Expr: "* * * * * *"}
		s.Misfire, s.Block = policy, domain.BlockParallel
	}
}

// fires waits until a run of the job with a fire time after the given instant has ended.
func (c *cluster) fires(job domain.Job, after time.Time) {
	c.t.Helper()
	eventually(c.t, patience, "job "+job.Name+" fires after "+after.String(), func() bool {
		return queryOne[int](c.t, c.db, `SELECT count(*) FROM runs_history WHERE job_id = $1 AND fire_time > $2 AND state = 'succeeded'`, job.ID, after) > 0
	})
}

// metric returns the value of a metric without labels, as a role shows it.
func metric(t testing.TB, address, name string) string {
	t.Helper()
	res, err := http.Get(address + "/metrics")
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(body)) {
		if value, found := strings.CutPrefix(line, name+" "); found {
			return strings.TrimSpace(value)
		}
	}
	return ""
}

// The database's clock steps by 30 s, forward or back. Schedulers and dispatchers notice it, and record it once. Each fire time has
// exactly one run, or an entry in the missed ledger that names the step, and no attempt starts twice. The fire check names the step and
// never says that no scheduler was at work.
func TestScenarioDatabaseClockSteps(t *testing.T) {
	for name, step := range map[string]time.Duration{"forward": 30 * time.Second, "back": -30 * time.Second} {
		t.Run(name, func(t *testing.T) {
			long(t)
			url, clock := pgtest.DatabaseWithClock(t, store.Migrate)
			c := newClusterOn(t, url)
			one := c.role("scheduler", nil, "--metrics", "127.0.0.1:0")
			address := one.says("metrics: ")
			roles := []*process{one, c.scheduler(), c.dispatcher(), c.console}
			c.executor("i1")
			file := filepath.Join(c.dir, "starts")
			note := shell("echo $BELFRY_RUN_ID/$BELFRY_ATTEMPT >> " + file)
			skips, makesUp := c.job("skips", note, everySecond(domain.MisfireSkip)), c.job("makes-up", note, everySecond(domain.MisfireFireAll))
			created := c.now()
			c.fires(skips, created.Add(8*time.Second))
			c.fires(makesUp, created.Add(8*time.Second))
			before := c.now()
			clock.Set(step)
			for _, p := range roles {
				p.logs("the database's clock stepped " + name)
			}
			after := c.now()
			if n := metric(t, address, "belfry_clock_steps_total"); n != "1" {
				t.Errorf("belfry_clock_steps_total is %s", n)
			}
			eventually(t, patience, "the step is recorded", func() bool {
				return queryOne[int](t, c.db, `SELECT count(*) FROM disturbances`) > 0
			})

			// The clock passes the step by more than the time in which a fire time may still get its run.
			last := before
			if after.After(before) {
				last = after
			}
			c.fires(skips, last.Add(35*time.Second))
			c.fires(makesUp, last.Add(35*time.Second))
			end := last.Add(3 * time.Second)
			settles(t, c.db, end, patience)
			c.startedOnce(file)
			if n := queryOne[int](t, c.db, `SELECT count(*) FROM disturbances`); n != 1 {
				t.Errorf("%d disturbances are recorded", n)
			}

			s, err := schedule.Compile(makesUp.Schedule, schedule.Options{})
			if err != nil {
				t.Fatal(err)
			}
			expected, ran := fireTimes(makesUp, s, end), firedBy(t, c.db, makesUp.ID, end)
			if len(ran) != len(expected) {
				t.Errorf("%d runs for %d fire times", len(ran), len(expected))
			}
			for i := range min(len(ran), len(expected)) {
				if !ran[i].FireTime.Equal(expected[i]) || ran[i].State != domain.Succeeded {
					t.Fatalf("the run of %s ended %s, want one of %s", ran[i].FireTime, ran[i].State, expected[i])
				}
			}

			code, out, errs := c.command("audit", "--since", c.now().Sub(created).String(), "--until", domain.At(end).String())
			if code != 0 || strings.Contains(out, "unexplained") || strings.Contains(out, "doubled") || strings.Contains(out, "at work") {
				t.Errorf("belfry audit ended with code %d:\n%s%s", code, out, errs)
			}
			why := func(job domain.Job, at time.Time, want string) {
				t.Helper()
				code, out, errs := c.command("job", "why", group+"/"+job.Name, "--at", domain.At(at).String())
				if code != 0 || !strings.Contains(out, want) || strings.Contains(out, "at work") {
					t.Errorf("why %s at %s: code %d, %q is missing in:\n%s%s", job.Name, at, code, want, out, errs)
				}
			}
			if step < 0 {
				// The clock has certainly repeated what was before the last reading, which was at most a few seconds before the step.
				repeated := queryOne[time.Time](t, c.db, `SELECT from_at FROM disturbances`).Truncate(time.Second)
				why(makesUp, repeated, "stepped back by")
				why(skips, repeated, "stepped back by")
				return
			}
			if !strings.Contains(out, "stepped forward by") {
				t.Errorf("belfry audit does not name the step:\n%s", out)
			}
			why(makesUp, before.Add(12*time.Second).Truncate(time.Second), "the misfire policy made up for it")
			why(makesUp, before.Add(12*time.Second).Truncate(time.Second), "stepped forward by")
			entries := query(t, c.db, pgx.RowToStructByPos[drop], `SELECT first_fire_time, last_fire_time, count, coalesce(why_note, '') FROM missed WHERE job_id = $1 AND first_fire_time > $2 AND first_fire_time < $3`, skips.ID, before, after)
			if len(entries) == 0 {
				t.Error("the job with policy skip has missed nothing")
			}
			for _, d := range entries {
				if code := d.Why.Code(); code != explain.ClockStepped {
					t.Errorf("the missed ledger says %s", d.Why)
				}
				why(skips, d.First, "stepped forward by")
			}
		})
	}
}
