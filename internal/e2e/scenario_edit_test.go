//go:build unix

package e2e

import (
	"fmt"
	"testing"
	"time"

	"github.com/belfryhq/belfry/internal/domain"
	"github.com/belfryhq/belfry/internal/schedule"
)

// Jobs are edited 3 s before and 20 s after a fire time. Jitter delays the due instant by up to 40 s, so it is before or after the
// second edit. Other jobs are edited while no scheduler is running. As long as the edits keep the fire time in the schedule, it has
// exactly one run or one ledger entry.
func TestScenarioEditsAroundAFireTime(t *testing.T) {
	long(t)
	t.Run("with jitter", func(t *testing.T) { t.Parallel(); editAround(t, 40*time.Second, true) })
	t.Run("with the scheduler away", func(t *testing.T) { t.Parallel(); editAround(t, 0, false) })
	t.Run("with jitter and the scheduler away", func(t *testing.T) { t.Parallel(); editAround(t, 40*time.Second, false) })
}

// edits are the changes of a job that keep its fire times.
var edits = map[string]func(*domain.JobSpec){
	"none":          nil,
	"param":         func(s *domain.JobSpec) { s.Param += "x" },
	"no jitter":     func(s *domain.JobSpec) { s.Schedule.Jitter = 0 },
	"more jitter":   func(s *domain.JobSpec) { s.Schedule.Jitter = domain.Duration(55 * time.Second) },
	"other misfire": func(s *domain.JobSpec) { s.Misfire = domain.MisfireFireAll },
	"other block":   func(s *domain.JobSpec) { s.Block = domain.BlockSerial },
}

// editAround edits jobs 3 s before and 20 s after their common fire time.
func editAround(t *testing.T, jitter time.Duration, scheduler bool) {
	c := newCluster(t)
	c.dispatcher()
	c.executor("i1")
	alive := c.scheduler()
	fire := c.now().Add(20 * time.Second).UTC().Truncate(time.Second)
	type edited struct {
		domain.Job
		before, after string // the edits of both moments
	}
	var jobs []edited
	for _, when := range []string{"before", "after", "both"} {
		for what := range edits {
			for _, misfire := range []domain.Misfire{domain.MisfireSkip, domain.MisfireFireOnce} {
				e := edited{before: "none", after: "none"}
				if when != "after" {
					e.before = what
				}
				if when != "before" {
					e.after = what
				}
				e.Job = c.job(fmt.Sprintf("%s, %s, %s", what, when, misfire), func(s *domain.JobSpec) {
					s.Schedule = domain.Schedule{Kind: domain.ScheduleCron, Expr: fmt.Sprintf("%d * * * * *", fire.Second()), Jitter: domain.Duration(jitter)}
					s.Misfire, s.Block = misfire, domain.BlockParallel
				})
				jobs = append(jobs, e)
			}
		}
	}
	apply := func(at time.Time, which func(edited) string) {
		t.Helper()
		<-time.After(at.Sub(c.now()))
		for i, e := range jobs {
			change := edits[which(e)]
			if change == nil {
				continue
			}
			spec := e.JobSpec
			change(&spec)
			after, err := c.api.ReplaceJob(t.Context(), e.ID, spec)
			if err != nil {
				t.Fatalf("%s: %v", e.Name, err)
			}
			jobs[i].Job = after
		}
	}
	for fire.Add(-8 * time.Second).Before(c.now()) { // the creation of the jobs took too long for this fire time
		fire = fire.Add(time.Minute)
	}
	if !scheduler {
		<-time.After(fire.Add(-8 * time.Second).Sub(c.now())) // before the fire time is pre-read
		alive.kill()
	}
	apply(fire.Add(-3*time.Second), func(e edited) string { return e.before })
	apply(fire.Add(20*time.Second), func(e edited) string { return e.after })
	if !scheduler {
		c.scheduler()
	}
	// With the largest jitter, the fire time is due 55 s later.
	<-time.After(fire.Add(57 * time.Second).Sub(c.now()))
	runs, entries := 0, 0
	settled := func() bool {
		return queryOne[int](t, c.db, `SELECT count(*) FROM runs_live WHERE fire_time = $1`, fire) == 0
	}
	eventually(t, patience, "all runs of the fire time have ended", settled)
	for _, e := range jobs {
		ran, dropped := 0, 0
		for _, r := range firedBy(t, c.db, e.ID, fire) {
			if r.FireTime.Equal(fire) {
				ran++
			}
		}
		for _, d := range ledger(t, c.db, e.ID) {
			if !d.First.After(fire) && !d.Last.Before(fire) {
				dropped++
			}
		}
		compiled, err := schedule.Compile(e.Schedule, schedule.Options{CreatedAt: e.CreatedAt.Time})
		if err != nil {
			t.Fatal(err)
		}
		if ran+dropped != 1 {
			t.Errorf("job %q: %d runs and %d ledger entries; by its last version it was due %v after its fire time", e.Name, ran, dropped, compiled.Due(e.ID, fire).Sub(fire))
		}
		runs, entries = runs+ran, entries+dropped
	}
	t.Logf("%d jobs: %d runs, %d ledger entries", len(jobs), runs, entries)
}
