//go:build unix

package e2e

import (
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/nats-io/nats.go"

	"github.com/belfryhq/belfry/executor/wire"
	"github.com/belfryhq/belfry/internal/domain"
)

// A process is frozen after an instance has refused its offer, and before it processes the refusal. Another process offers the attempt
// again, and the instance accepts. When the first process resumes, the old refusal has no effect: the attempt starts once. The test
// tries both processes that offer, the scheduler and the dispatcher.
func TestScenarioDispatcherFrozenWithARefusal(t *testing.T) {
	t.Parallel()
	t.Run("firing", func(t *testing.T) {
		t.Parallel()
		c := newCluster(t)
		refusing := c.refuseFirst("a-fickle")
		c.executor("b-steady")
		frozen := c.scheduler(envFreezeAt + "=offered:1")
		job, file := c.noted()
		var id domain.RunID
		eventually(t, patience, "the scheduler offers and freezes", func() bool {
			id = c.trigger(job.ID)
			fired := c.reaches(id, patience, "is fired", func(r domain.Run) bool { return r.State != domain.Pending })
			if fired.Waiting == nil {
				return true
			}
			// The scheduler does not know the instances yet. This run would wait for a dispatcher and disturb the next one.
			if err := c.api.KillRun(t.Context(), id); err != nil {
				t.Fatal(err)
			}
			return false
		})
		frozen.logs("freezing itself")
		c.dispatcher()
		c.startsOnceThough(frozen, refusing, id, file)
	})
	t.Run("assigning", func(t *testing.T) {
		t.Parallel()
		c := newCluster(t)
		c.scheduler()
		job, file := c.noted()
		id := c.trigger(job.ID)
		c.reaches(id, patience, "waits", func(r domain.Run) bool { return r.State == domain.Queued && r.Waiting != nil })
		refusing := c.refuseFirst("a-fickle")
		c.executor("b-steady")
		frozen := c.dispatcher(envFreezeAt + "=offered:1")
		frozen.logs("freezing itself")
		c.dispatcher()
		c.startsOnceThough(frozen, refusing, id, file)
	})
}

// noted creates a job that writes each start to a file and prefers the instance with the first name.
func (c *cluster) noted() (domain.Job, string) {
	c.t.Helper()
	file := filepath.Join(c.dir, "starts")
	note := shell("echo $BELFRY_RUN_ID/$BELFRY_ATTEMPT >> " + file)
	return c.job("noted", note, first, func(s *domain.JobSpec) { s.Block = domain.BlockParallel }), file
}

// startsOnceThough resumes the frozen process after the run was accepted in another round, and checks that the process does not change
// the run.
func (c *cluster) startsOnceThough(frozen *process, refusing *fickle, id domain.RunID, file string) {
	t := c.t
	t.Helper()
	eventually(t, patience, "the attempt is accepted in another round", func() bool { return refusing.has(id.String()) })
	// Without delay, because within a second the run becomes running, and then every refusal is ignored.
	frozen.signal(syscall.SIGCONT)
	// The resumed process acts within some seconds. If its old refusal had an effect, the other instance would start the attempt,
	// because the refusing one has no free slot.
	every(5*time.Second, 1, func(int) {})
	refusing.succeed(id.String())
	if r := c.finishes(id, patience); r.State != domain.Succeeded || r.Attempt != 1 || r.Instance != "a-fickle" {
		t.Errorf("the run ended %s/%s at attempt %d on %s", r.State, r.Reason, r.Attempt, r.Instance)
	}
	if starts := linesOf(t, file); slices.Contains(starts, id.String()+"/1") {
		t.Errorf("the attempt was accepted by one instance and started by another: %v", starts)
	}
	refusing.mu.Lock()
	defer refusing.mu.Unlock()
	if !slices.Equal(refusing.binds, []int{1, 2}) {
		t.Errorf("the refusing instance was offered the rounds %v, want 1 and 2", refusing.binds)
	}
}

// A job fires every second, takes 0.9 s, and has the policy discard_later. No run is discarded, even if thousands of other runs are due
// soon after it. Then the scheduler begins to fire well before the due instant, while the previous run is still running.
func TestScenarioDiscardLaterBarelyFits(t *testing.T) {
	t.Parallel()
	const (
		seconds = 20
		crowd   = 3000 // due in one instant: firing begins 200 ms ahead
	)
	c := newCluster(t)
	c.dispatcher()
	c.scheduler()
	c.executor("i1", "--capacity", strconv.Itoa(2*crowd))
	other := c.job("crowd", func(s *domain.JobSpec) { s.Block = domain.BlockParallel })
	job := c.job("fits", handler("sleep", "900ms"), func(s *domain.JobSpec) {
		s.Block = domain.BlockDiscardLater
		s.Schedule = domain.Schedule{Kind: domain.ScheduleCron, Expr: "* * * * * *"}
	})
	ended := c.ends(job.ID)
	for _, in := range []time.Duration{6, 12} {
		c.plant(other, crowd, c.now().Truncate(time.Second).Add(in*time.Second+50*time.Millisecond))
	}
	until := c.now().Add(seconds * time.Second)
	settles(t, c.db, until, patience)
	type run struct {
		ID              string
		FireTime, DueAt time.Time
		State           domain.State
	}
	runs := query(t, c.db, pgx.RowToStructByPos[run], `
		SELECT id::text, fire_time, due_at, state FROM runs_history WHERE job_id = $1 AND fire_time <= $2 ORDER BY fire_time`, job.ID, until)
	at := func(t time.Time) string { return t.UTC().Format("05.000") }
	ran, excused := 0, 0
	var last time.Time // when the test was notified of the latest end, which is after its commit
	for _, r := range runs {
		switch {
		case r.State == domain.Succeeded:
			ran++
			last = ended(r.ID)
		case r.State == domain.Skipped && last.After(r.DueAt):
			excused++ // the machine needed more than the 0.1 s that the job leaves
			t.Logf("%s was discarded: the end of the previous run was settled at %s", at(r.DueAt), at(last))
		default:
			t.Errorf("the run of %s is %s; the end of the previous run was settled at %s", at(r.DueAt), r.State, at(last))
		}
	}
	t.Logf("%d ran, %d were discarded because the previous run ended too late", ran, excused)
	if ran == 0 || len(runs) < seconds {
		t.Errorf("%d of %d fires ran", ran, len(runs))
	}
}

// ends subscribes to changes of runs. The returned function reports when the test was notified that a run of the job is final.
func (c *cluster) ends(job domain.JobID) func(id string) time.Time {
	c.t.Helper()
	nc, err := nats.Connect(c.natsURL, nats.Timeout(patience))
	if err != nil {
		c.t.Fatal(err)
	}
	c.t.Cleanup(nc.Close)
	var mu sync.Mutex
	notified := make(map[string]time.Time) // guarded by mu
	if _, err := nc.Subscribe(wire.RunSubject(group), func(m *nats.Msg) {
		now := time.Now()
		var changes wire.RunChanges
		if err := wire.Decode(m.Data, &changes); err != nil {
			c.t.Errorf("decode changes of runs: %v", err)
		}
		mu.Lock()
		defer mu.Unlock()
		for _, r := range changes.Runs {
			if r.JobID == int64(job) && domain.State(r.State).Final() {
				notified[r.RunID] = now
			}
		}
	}); err != nil {
		c.t.Fatal(err)
	}
	if err := nc.Flush(); err != nil {
		c.t.Fatal(err)
	}
	return func(id string) time.Time {
		mu.Lock()
		defer mu.Unlock()
		return notified[id]
	}
}

// plant inserts n planned runs of a job for one instant into the database. The API can only trigger runs that are due now.
func (c *cluster) plant(job domain.Job, n int, due time.Time) {
	c.t.Helper()
	planted := queryOne[int](c.t, c.db, `
		WITH planted AS (
			INSERT INTO runs_live (id, job_id, job_version, group_name, cause, fire_time, due_at)
			SELECT encode(set_byte(set_byte(substring(int8send((extract(epoch FROM $3::timestamptz) * 1000)::bigint) FROM 3) || uuid_send(gen_random_uuid()),
			       6, 112 + n % 16), 8, 128 + n % 64), 'hex')::varchar(32)::uuid, $1, $2, $4, 'manual', $3, $3
			  FROM generate_series(1, $5) n RETURNING 1)
		SELECT count(*) FROM planted`, job.ID, job.Version, due, group, n)
	if planted != n {
		c.t.Fatalf("planted %d of %d runs", planted, n)
	}
}
