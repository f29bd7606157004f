//go:build unix

package e2e

import (
	"fmt"
	"math/rand/v2"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/belfryhq/belfry/internal/domain"
	"github.com/belfryhq/belfry/internal/schedule"
)

// freeze is the time before the due instant in which a change may come too late, by the contract.
const freeze = 250 * time.Millisecond

// The test edits, disables and enables jobs at random, between 5 s before and 1 s after fire times, with two schedulers. Each fire
// time at which the job was enabled has one run, with the param that was in force at that moment. Other fire times have none.
func TestEditsAreExact(t *testing.T) {
	t.Parallel()
	const (
		jobs   = 10
		period = 3 * time.Second
		length = 36 * time.Second
	)
	seed := seedOf(t)
	c := newCluster(t)
	c.dispatcher()
	c.executor("i1")
	c.scheduler()
	c.scheduler()
	var made []domain.Job
	for i := range jobs {
		made = append(made, c.job(fmt.Sprintf("edited-%d", i), func(s *domain.JobSpec) {
			s.Schedule = domain.Schedule{Kind: domain.ScheduleCron, Expr: "*/3 * * * * *"}
			s.Param = "1"
			switch i % 3 {
			case 1:
				s.Block = domain.BlockParallel
			case 2:
				s.Schedule.Jitter = domain.Duration(2 * time.Second)
			}
		}))
	}
	end := c.now().Add(length)
	var editing sync.WaitGroup
	for i, job := range made {
		e := &editor{c: c, job: job, spec: job.JobSpec, random: rand.New(rand.NewPCG(seed, uint64(i)))}
		editing.Go(func() { e.edit(end, period) })
	}
	editing.Wait()
	if t.Failed() {
		t.FailNow()
	}
	until := c.now()
	settles(t, c.db, until, patience)
	var total tally
	for _, job := range made {
		total.add(c.matchesVersions(job, until))
	}
	t.Logf("%d edits; %d fire times with a run, %d without, %d too close to an edit to decide", total.edits, total.ran, total.none, total.either)
	if total.edits < 50 || total.ran < 20 || total.none < 10 {
		t.Error("too few edits or fire times")
	}
}

// editor changes one job at random.
type editor struct {
	c      *cluster
	job    domain.Job
	spec   domain.JobSpec
	random *rand.Rand
}

// edit changes the job at instants between 5 s before and 1 s after a future fire time.
func (e *editor) edit(end time.Time, period time.Duration) {
	for n := 2; ; n++ {
		// The second next fire time is at most 6 s away, so the wait is short.
		fire := time.Now().Truncate(period).Add(2 * period)
		at := fire.Add(-5*time.Second + time.Duration(e.random.Int64N(int64(6*time.Second))))
		if at.After(end) {
			return
		}
		<-time.After(time.Until(at))
		var err error
		switch ctx := e.c.t.Context(); e.random.IntN(5) {
		case 0, 1:
			e.spec.Enabled = false
			err = e.c.api.SetJobEnabled(ctx, e.job.ID, false)
		case 2, 3:
			e.spec.Enabled = true
			err = e.c.api.SetJobEnabled(ctx, e.job.ID, true)
		default:
			e.spec.Param = strconv.Itoa(n)
			e.spec.Enabled = e.random.IntN(3) > 0
			_, err = e.c.api.ReplaceJob(ctx, e.job.ID, e.spec)
		}
		if err != nil {
			e.c.t.Errorf("%s: %v", e.job.Name, err)
			return
		}
	}
}

// tally counts edits, and fire times by their result.
type tally struct{ edits, ran, none, either int }

func (a *tally) add(b tally) {
	a.edits, a.ran, a.none, a.either = a.edits+b.edits, a.ran+b.ran, a.none+b.none, a.either+b.either
}

// version is a version of a job and the period during which it was in force.
type version struct {
	From    time.Time
	To      *time.Time
	Enabled bool
	Param   string
}

// matchesVersions compares the runs of a job with its versions, whose schedules are the same.
func (c *cluster) matchesVersions(job domain.Job, until time.Time) (n tally) {
	t := c.t
	t.Helper()
	compiled, err := schedule.Compile(job.Schedule, schedule.Options{CreatedAt: job.CreatedAt.Time})
	if err != nil {
		t.Fatal(err)
	}
	versions := query(t, c.db, pgx.RowToStructByPos[version], `
		SELECT valid_from, valid_to, (spec->>'enabled')::boolean, spec->>'param' FROM job_versions WHERE job_id = $1 ORDER BY version`, job.ID)
	n.edits = len(versions) - 1
	runs := make(map[int64][]fired)
	for _, r := range firedBy(t, c.db, job.ID, until) {
		runs[r.FireTime.UnixMilli()] = append(runs[r.FireTime.UnixMilli()], r)
	}
	for _, f := range fireTimes(job, compiled, until) {
		got := runs[f.UnixMilli()]
		delete(runs, f.UnixMilli())
		n.add(c.matches(job, f, compiled.Due(job.ID, f), versions, got))
	}
	for f := range runs {
		t.Errorf("%s: a run at %v, which is not a fire time", job.Name, time.UnixMilli(f).UTC())
	}
	if dropped := ledger(t, c.db, job.ID); len(dropped) > 0 {
		t.Errorf("%s: in the missed ledger: %+v", job.Name, dropped)
	}
	return n
}

// matches checks one fire time: the version at the due instant decides, or one that was in force up to 250 ms before.
func (c *cluster) matches(job domain.Job, fire, due time.Time, versions []version, got []fired) (n tally) {
	c.t.Helper()
	mayRun, mayNot := make(map[string]bool), false
	for _, v := range versions {
		if v.From.After(due) || v.To != nil && v.To.Before(due.Add(-freeze)) {
			continue
		}
		if v.Enabled {
			mayRun[v.Param] = true
		} else {
			mayNot = true
		}
	}
	wrong := func(what string) {
		c.t.Helper()
		c.t.Errorf("%s: fire time %s, due %s: %s; its versions: %+v", job.Name, fire.UTC().Format("15:04:05.000"), due.UTC().Format("15:04:05.000"), what, versions)
	}
	switch {
	case len(mayRun) > 0 && mayNot:
		n.either++
	case mayNot:
		n.none++
	default:
		n.ran++
	}
	switch {
	case len(got) > 1:
		wrong("more than one run")
	case len(got) == 0:
		if !mayNot {
			wrong("no run, though the job was enabled")
		}
	case len(mayRun) == 0:
		wrong("a run, though the job was disabled")
	case got[0].Param == nil || !mayRun[*got[0].Param]:
		wrong("it ran with another version's param: " + deref(got[0].Param))
	case got[0].State != domain.Succeeded || got[0].LatenessMS == nil:
		wrong(fmt.Sprintf("the run is not as it should be: %+v", got[0]))
	}
	return n
}

func deref(s *string) string {
	if s == nil {
		return "none"
	}
	return *s
}
