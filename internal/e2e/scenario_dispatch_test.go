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

// A dispatcher is frozen after an offer whose answer says refused, and before it has acted on that. Another one offers
// the attempt again, and it is accepted. When the first one wakes, its old refusal takes nothing away: one start. Both
// processes that offer are tried, the scheduler and the dispatcher.
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
		eventually(t, patience, "the scheduler offers, and freezes", func() bool {
			id = c.trigger(job.ID)
			fired := c.reaches(id, patience, "is fired", func(r domain.Run) bool { return r.State != domain.Pending })
			if fired.Waiting == nil {
				return true
			}
			// It does not know the instances yet. This run waits for a dispatcher; it must not be in the next one's way.
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

// noted makes a job that notes each start in a file, and prefers the instance whose name comes first.
func (c *cluster) noted() (domain.Job, string) {
	c.t.Helper()
	file := filepath.Join(c.dir, "starts")
	note := shell("echo $BELFRY_RUN_ID/$BELFRY_ATTEMPT >> " + file)
	return c.job("noted", note, first, func(s *domain.JobSpec) { s.Block = domain.BlockParallel }), file
}

// startsOnceThough wakes the frozen process once the run was accepted in another round, and checks that this changes
// nothing.
func (c *cluster) startsOnceThough(frozen *process, refusing *fickle, id domain.RunID, file string) {
	t := c.t
	t.Helper()
	eventually(t, patience, "the attempt is accepted in another round", func() bool { return refusing.has(id.String()) })
	// At once: within a second the run is marked as running, and then no refusal at all would be believed.
	frozen.signal(syscall.SIGCONT)
	// Whatever the woken one does of its own accord, it does within some seconds: its old refusal would have the other
	// instance start the attempt, as the refusing one has no slot left.
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

// A job of 0.9 s that fires every second and discards what comes while it runs has nothing discarded, also where
// thousands of other runs are due soon after it, so that firing begins well before due, when the run before still goes on.
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
	var last time.Time // when the end of the latest one that ran was told, which is after its commit
	for _, r := range runs {
		switch {
		case r.State == domain.Succeeded:
			ran++
			last = ended(r.ID)
		case r.State == domain.Skipped && last.After(r.DueAt):
			excused++ // the machine was too slow for a job that leaves it a tenth of a second
			t.Logf("%s was discarded: the end of the run before was settled at %s", at(r.DueAt), at(last))
		default:
			t.Errorf("the run of %s is %s; the end of the one before was settled at %s", at(r.DueAt), r.State, at(last))
		}
	}
	t.Logf("%d ran, %d were discarded because the one before did end too late", ran, excused)
	if ran == 0 || len(runs) < seconds {
		t.Errorf("%d of %d fires ran", ran, len(runs))
	}
}

// ends listens from now on, and returns what tells when it heard that a run of the job is final.
func (c *cluster) ends(job domain.JobID) func(id string) time.Time {
	c.t.Helper()
	nc, err := nats.Connect(c.natsURL, nats.Timeout(patience))
	if err != nil {
		c.t.Fatal(err)
	}
	c.t.Cleanup(nc.Close)
	var mu sync.Mutex
	heard := make(map[string]time.Time) // guarded by mu
	if _, err := nc.Subscribe(wire.RunSubject(group), func(m *nats.Msg) {
		now := time.Now()
		var changes wire.RunChanges
		if err := wire.Decode(m.Data, &changes); err != nil {
			c.t.Errorf("changes of runs cannot be read: %v", err)
		}
		mu.Lock()
		defer mu.Unlock()
		for _, r := range changes.Runs {
			if r.JobID == int64(job) && domain.State(r.State).Final() {
				heard[r.RunID] = now
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
		return heard[id]
	}
}

// plant plans n runs of a job for one instant, past the API, which plans for now alone.
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
