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
)

// command runs a client command of the belfry command line against the cluster's console.
func (c *cluster) command(args ...string) (code int, stdout, stderr string) {
	c.t.Helper()
	var out, errs bytes.Buffer
	args = append(args, "--server", c.server, "--token", c.token)
	code = cli.Main(c.t.Context(), args, strings.NewReader(""), &out, &errs, nil)
	return code, out.String(), errs.String()
}

// The only scheduler is killed for eight seconds. Afterwards everything that did not run in time has an answer in
// words: from when to when no scheduler was at work, and what the misfire policy made of it. A run that somebody deletes
// is found, and has none.
func TestWhyDidItNotRun(t *testing.T) {
	if testing.Short() {
		t.Skip("NOT COVERED: the periodic audit, which looks at what is a minute past")
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

	// The first fire time after the last that had been planned ahead, as the ledger has it.
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
		t.Errorf("the audit ended with code %d:\n%s", code, out)
	}

	// Somebody's SQL.
	lost := domain.At(queryOne[time.Time](t, c.db, `DELETE FROM runs_history WHERE id = (SELECT id FROM runs_history
		WHERE job_id = $1 AND fire_time < $2 ORDER BY id LIMIT 1) RETURNING fire_time`, skips.ID, missed.Time))
	// What is a moment past due may still be about to come.
	eventually(t, patience, "the fire time counts as decided", func() bool { return c.now().Sub(lost.Time) > 31*time.Second })
	ask(skips, lost, "It has neither a run nor an entry in the missed ledger")
	since += 31 * time.Second
	if code, out := audit(); code != 1 || !strings.Contains(out, "unexplained") {
		t.Errorf("with a run gone the audit ended with code %d:\n%s", code, out)
	}
	// The dispatcher finds it by itself, and from then on it is on record.
	eventually(t, patience, "the periodic audit enters it", func() bool {
		for _, d := range ledger(t, c.db, skips.ID) {
			if strings.HasPrefix(d.Why, "unexplained") && d.First.Equal(lost.Time) && d.Count == 1 {
				return true
			}
		}
		return false
	})
	ask(skips, lost, "It is in the missed ledger: unexplained")
	if code, out := audit(); code != 0 {
		t.Errorf("with the loss on record the audit ended with code %d:\n%s", code, out)
	}
}
