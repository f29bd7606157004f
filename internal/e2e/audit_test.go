//go:build unix

package e2e

import (
	"bytes"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/belfryhq/belfry/internal/cli"
	"github.com/belfryhq/belfry/internal/domain"
	"github.com/belfryhq/belfry/internal/explain"
)

// command runs a client command of the belfry command line against the cluster's console.
func (c *cluster) command(args ...string) (code int, stdout, stderr string) {
	c.t.Helper()
	var out, errs bytes.Buffer
	args = append(args, "--server", c.server, "--token", c.token)
	code = cli.Main(c.t.Context(), args, strings.NewReader(""), &out, &errs, nil)
	return code, out.String(), errs.String()
}

// The only scheduler is killed and stays away for eight seconds. Afterwards `belfry job why` explains each fire time that did not run
// in time: the period without a scheduler, and the effect of the misfire policy. If a user deletes a run by SQL, the fire check finds
// that its fire time is unexplained.
func TestWhyDidItNotRun(t *testing.T) {
	if testing.Short() {
		t.Skip("NOT COVERED: the fire check, which waits a minute before it checks a fire time")
	}
	t.Parallel()
	c := newCluster(t)
	c.dispatcher()
	c.executor("i1")
	dying := c.scheduler()
	tick := func(name string, policy domain.Misfire) domain.Job {
		return c.job(name, func(s *domain.JobSpec) {
			s.Schedule = domain.Schedule{Kind: domain.ScheduleCron, Expr: "* * * * * *", TimeZone: "Asia/Shanghai"}
			s.Misfire, s.Block = policy, domain.BlockParallel
		})
	}
	skips, makesUp := tick("skips", domain.MisfireSkip), tick("makes-up", domain.MisfireFireAll)
	ran := func(job domain.Job) int {
		return queryOne[int](t, c.db, `SELECT count(*) FROM runs_history WHERE job_id = $1 AND state = 'succeeded'`, job.ID)
	}
	eventually(t, patience, "the jobs fire", func() bool { return ran(skips) >= 6 && ran(makesUp) >= 6 })
	dying.kill()
	killed := c.now()
	eventually(t, patience, "eight seconds pass", func() bool { return c.now().Sub(killed) >= 8*time.Second })
	before := ran(skips)
	c.scheduler()
	eventually(t, patience, "the jobs fire again", func() bool { return ran(skips) >= before+4 })
	settles(t, c.db, c.now(), patience)
	end := c.now()

	// The first fire time in the ledger is the first one that had not been planned ahead.
	dropped := ledger(t, c.db, skips.ID)
	if len(dropped) == 0 {
		t.Fatal("nothing was dropped in eight seconds")
	}
	missed := domain.At(dropped[0].First)
	ask := func(job domain.Job, at domain.Instant, want ...string) {
		t.Helper()
		code, out, errs := c.command("job", "why", fmt.Sprintf("%s/%s", group, job.Name), "--at", at.String())
		for _, w := range append(want, "is a fire time of version 1 (created by admin at", "): Every second, Asia/Shanghai.") {
			if !strings.Contains(out, w) {
				t.Errorf("why %s at %s: %q is missing in:\n%s%s", job.Name, at, w, out, errs)
			}
		}
		if code != 0 {
			t.Errorf("exit code %d: %s", code, errs)
		}
	}
	ask(skips, missed, "It is in the missed ledger", "the policy is skip", "no scheduler was at work from", "+08:00")
	ask(makesUp, missed, "late: no scheduler was at work from", "the misfire policy made up for it", "See: belfry run get ")

	since := end.Sub(skips.CreatedAt.Time) + time.Second
	audit := func() (int, string) {
		code, out, _ := c.command("audit", "--since", since.String(), "--until", domain.At(end.Add(-time.Second)).String())
		return code, out
	}
	code, out := audit()
	if code != 0 || strings.Contains(out, "unexplained") || strings.Contains(out, "doubled") ||
		!strings.Contains(out, "missed") || !strings.Contains(out, "late") || !strings.Contains(out, "ran") {
		t.Errorf("belfry audit ended with code %d:\n%s", code, out)
	}

	// A user deletes a run by SQL.
	lost := domain.At(queryOne[time.Time](t, c.db, `DELETE FROM runs_history WHERE id = (SELECT id FROM runs_history
		WHERE job_id = $1 AND fire_time < $2 ORDER BY id LIMIT 1) RETURNING fire_time`, skips.ID, missed.Time))
	// Shortly after its due instant, a fire time may still get its run.
	eventually(t, patience, "the fire time is decided", func() bool { return c.now().Sub(lost.Time) > 31*time.Second })
	ask(skips, lost, "It has neither a run nor an entry in the missed ledger")
	since += 31 * time.Second
	if code, out := audit(); code != 1 || !strings.Contains(out, "unexplained") {
		t.Errorf("after the deletion of a run, belfry audit ended with code %d:\n%s", code, out)
	}
	// The dispatcher's fire check finds the fire time and enters it into the missed ledger.
	eventually(t, patience, "the fire check enters the fire time", func() bool {
		for _, d := range ledger(t, c.db, skips.ID) {
			if d.Why.Code() == explain.Unexplained && d.First.Equal(lost.Time) && d.Count == 1 {
				return true
			}
		}
		return false
	})
	ask(skips, lost, "It is in the missed ledger: unexplained")
	if code, out := audit(); code != 0 {
		t.Errorf("after the fire check entered the fire time, belfry audit ended with code %d:\n%s", code, out)
	}
}
