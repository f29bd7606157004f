package store_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	"golang.org/x/sync/errgroup"

	"github.com/belfryhq/belfry/internal/domain"
	"github.com/belfryhq/belfry/internal/engine"
	"github.com/belfryhq/belfry/internal/pgtest"
	"github.com/belfryhq/belfry/internal/schedule"
	"github.com/belfryhq/belfry/internal/store"
)

// slack is how long before its due instant a fire may already be admitted.
const slack = 250 * time.Millisecond

// TestEditsAgainstPlanning edits, disables, enables, deletes and reschedules jobs that fire every second or two, while two
// schedulers plan and fire them and some attempts fail. An edit must be in force when its call returns. So the versions
// determine which fire times must have a run, and of which version.
func TestEditsAgainstPlanning(t *testing.T) {
	const seconds, jobs = 6, 40
	url := pgtest.Database(t, store.Migrate)
	stores := make([]*store.Store, 3)
	for i := range stores {
		stores[i], _ = openAt(t, url)
	}
	s := stores[2]
	exec(t, s, `INSERT INTO groups (name, token_sha256) VALUES ('g', 'x')`)
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	var ids []domain.JobID
	for i := range jobs {
		ids = append(ids, create(t, s, fmt.Sprint("j", i), everySecond, func(sp *domain.JobSpec) {
			sp.Enabled = i%4 > 0
			if i%2 == 0 {
				parallel(sp)
			}
			sp.Misfire = []domain.Misfire{domain.MisfireSkip, domain.MisfireFireOnce, domain.MisfireFireAll}[i%3]
			if i%3 == 0 {
				sp.Schedule.Jitter = domain.Duration(700 * time.Millisecond)
			}
			if i%2 == 0 {
				sp.Retries, sp.RetryBackoff.Initial = 1, domain.Duration(2*time.Second)
			}
		}).ID)
	}
	var g errgroup.Group
	schedulers, stop := context.WithCancel(t.Context())
	t.Cleanup(func() { stop(); _ = g.Wait() })
	for _, s := range stores[:2] {
		g.Go(func() error {
			err := scheduler(schedulers, s, seed)
			if err != nil { // report it now: the test waits for the effects of the scheduler
				t.Errorf("a scheduler has ended: %v", err)
			}
			return err
		})
	}
	var editors errgroup.Group
	editing, cancel := context.WithTimeout(t.Context(), seconds*time.Second)
	defer cancel()
	for i := range 3 {
		rng := rand.New(rand.NewPCG(seed, uint64(i+1)))
		editors.Go(func() error { return editAtRandom(editing, s, rng, ids) })
	}
	if err := editors.Wait(); err != nil {
		t.Fatal(err)
	}
	disableAll(t, s, ids) // so that the last fire times are known
	quiet(t, s)
	stop()
	if err := g.Wait(); err != nil {
		var pe *pgconn.PgError
		if errors.As(err, &pe) {
			t.Log(pe.Detail, pe.Where)
		}
		t.Fatal(err)
	}
	fires := 0
	for _, id := range ids {
		fires += checkFires(t, s, id)
	}
	t.Logf("%d fires of %d versions", fires, query[int64](t, s, `SELECT count(*) FROM job_versions`))
	if fires < jobs*seconds/4 {
		t.Errorf("only %d fires", fires)
	}
}

// quiet waits until no run is unfinished.
func quiet(t *testing.T, s *store.Store) {
	t.Helper()
	defer func() {
		if t.Failed() {
			t.Logf("live: %s", query[string](t, s, `SELECT coalesce(json_agg(r), '[]')::text FROM (SELECT * FROM runs_live LIMIT 20) r`))
		}
	}()
	waitUntil(t, func() bool { return query[int64](t, s, `SELECT count(*) FROM runs_live`) == 0 })
}

// patience is the time limit of waits, long enough for a busy machine.
const patience = 5 * time.Minute

// waitUntil polls a condition.
func waitUntil(t *testing.T, done func() bool) {
	t.Helper()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for end := time.Now().Add(patience); !done(); <-tick.C {
		if time.Now().After(end) {
			t.Fatal("the condition did not become true in time")
		}
	}
}

// scheduler plans and fires runs, and settles each at once. One run in three fails first. Like real schedulers, it retries after a
// deadlock; deadlocks must be rare.
func scheduler(ctx context.Context, s *store.Store, seed uint64) error {
	rng := rand.New(rand.NewPCG(seed, 99))
	var ring []engine.Due
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for deadlocks := 0; ; {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
		var err error
		if ring, err = turn(context.WithoutCancel(ctx), s, rng, ring); err == nil || stalled(err) {
			continue
		}
		var pe *pgconn.PgError
		if deadlocks++; deadlocks > 2 || !errors.As(err, &pe) || pe.Code != "40P01" {
			return err
		}
	}
}

// stalled reports whether a transaction was aborted because the machine was stalled for a second. Real schedulers then retry.
// It reports false for a deadlock.
func stalled(err error) bool {
	var pe *pgconn.PgError
	if errors.As(err, &pe) {
		return pe.Code == "25P03" || pe.Code == "25P04"
	}
	return domain.CodeOf(err) == domain.Unavailable
}

// turn sometimes plans, and fires due runs. It returns the new ring, or nil with an error.
func turn(ctx context.Context, s *store.Store, rng *rand.Rand, ring []engine.Due) ([]engine.Due, error) {
	if rng.IntN(10) == 0 {
		planned, err := s.PlanDue(ctx, 1+rng.IntN(10), false)
		if err != nil {
			return nil, err
		}
		near, _, err := s.ClaimNear(ctx, 100)
		if err != nil {
			return nil, err
		}
		stranded, err := s.PlanStranded(ctx, 100)
		if err != nil {
			return nil, err
		}
		if _, err := s.ReplanOverdue(ctx, 100); err != nil {
			return nil, err
		}
		// A stall can lose the answer of a transaction that has released a held run.
		released, err := s.ReleaseOrphans(ctx, 100)
		if err != nil {
			return nil, err
		}
		ring = slices.Concat(ring, planned.Runs, near, stranded.Runs, released)
	}
	if rng.IntN(400) == 0 {
		ring = nil // the scheduler dies, and another one replaces it
	}
	now := s.Now()
	var due []engine.Due
	ring = slices.DeleteFunc(ring, func(d engine.Due) bool {
		ahead := 200 * time.Millisecond
		if d.AtDue {
			ahead = 0
		}
		if d.DueAt.After(now.Add(ahead)) {
			return false
		}
		due = append(due, d)
		return true
	})
	again, err := fireAndSettle(ctx, s, rng, due)
	if err != nil {
		return nil, err
	}
	return append(ring, again...), nil
}

func fireAndSettle(ctx context.Context, s *store.Store, rng *rand.Rand, due []engine.Due) (again []engine.Due, err error) {
	if len(due) == 0 {
		return nil, nil
	}
	defs, err := s.Definitions(ctx, due)
	if err != nil {
		return nil, err
	}
	var in []store.Admission
	for _, d := range due {
		in = append(in, store.Admission{Due: d, Def: defs.Of(d.JobID, d.JobVersion), Binding: engine.Binding{Instance: "i1", BootID: "b1"}})
	}
	out, err := s.Admit(ctx, in)
	if err != nil {
		return nil, err
	}
	var ended []engine.Ended
	for _, r := range out.Bound {
		outcome := domain.OutcomeSucceeded
		if r.Attempt == 1 && rng.IntN(3) == 0 {
			outcome = domain.OutcomeFailed
		}
		ended = append(ended, result(s, r, outcome))
	}
	if len(ended) == 0 {
		return out.Later, nil
	}
	for try := 1; ; try++ { // retried, because JetStream redelivers a result that is not settled
		res, err := s.Settle(ctx, ended)
		if err == nil || !stalled(err) || try == 50 {
			return append(out.Later, res.Released...), err
		}
	}
}

func editAtRandom(ctx context.Context, s *store.Store, rng *rand.Rand, ids []domain.JobID) error {
	for n := 0; ctx.Err() == nil; n++ {
		id := ids[rng.IntN(len(ids))]
		var after domain.Job
		var err error
		work := context.WithoutCancel(ctx)
		switch dice := rng.IntN(20); {
		case dice < 6:
			_, after, err = s.EditJob(work, id, 0, "test", func(sp *domain.JobSpec) error {
				sp.Param = fmt.Sprint(n)
				return nil
			})
		case dice < 10:
			_, after, err = s.SetEnabled(work, id, false, 0, "test")
		case dice < 15:
			_, after, err = s.SetEnabled(work, id, true, 0, "test")
		case dice == 15 && rng.IntN(10) == 0:
			_, err = s.DeleteJob(work, id, 0, "test")
		default:
			_, after, err = s.EditJob(work, id, 0, "test", func(sp *domain.JobSpec) error {
				everySecond(sp)
				sp.Schedule.Every = domain.Duration(time.Duration(1+rng.IntN(2)) * time.Second)
				begin := domain.At(sp.Schedule.StartAt.Add(time.Duration(rng.IntN(4)) * 250 * time.Millisecond))
				sp.Schedule.StartAt = &begin
				sp.Schedule.Jitter = domain.Duration(time.Duration(rng.IntN(2)) * 700 * time.Millisecond)
				return nil
			})
		}
		if err != nil && domain.CodeOf(err) != domain.NotFound && !stalled(err) {
			return err
		}
		// An edit takes effect after runs that were fired slightly before they are due. Retries, due in two seconds, must not
		// delay it.
		if answered := s.Now(); err == nil && after.UpdatedAt.After(answered.Add(time.Second)) {
			return fmt.Errorf("version %d of job %d is in force from %v, but the edit was answered at %v", after.Version, id, after.UpdatedAt, answered)
		}
		select {
		case <-ctx.Done():
		case <-time.After(time.Duration(rng.IntN(150)) * time.Millisecond):
		}
	}
	return nil
}

// disableAll disables jobs that exist, and tries again after a stall.
func disableAll(t *testing.T, s *store.Store, ids []domain.JobID) {
	t.Helper()
	for _, id := range ids {
		waitUntil(t, func() bool {
			_, _, err := s.SetEnabled(t.Context(), id, false, 0, "test")
			if err != nil && domain.CodeOf(err) != domain.NotFound && !stalled(err) {
				t.Fatal(err)
			}
			return err == nil || !stalled(err)
		})
	}
}

// held is a version of a job with the period in which it was current.
type held struct {
	version  int
	from, to time.Time
	dues     map[int64]time.Time // due instants by fire time in Unix milliseconds; empty if disabled or deleted
}

// checkFires compares a job's runs with the fire times of its versions, and returns how many fire times must have a run.
func checkFires(t *testing.T, s *store.Store, job domain.JobID) (fires int) {
	t.Helper()
	versions := versionsOf(t, s, job)
	rows, err := s.Pool().Query(t.Context(), `SELECT fire_time, job_version, 1 FROM runs WHERE job_id = $1
		UNION ALL SELECT f, 0, 0 FROM missed, generate_series(first_fire_time, last_fire_time, interval '1 ms') f
		 WHERE job_id = $1`, job)
	if err != nil {
		t.Fatal(err)
	}
	defer rows.Close()
	runs := make(map[int64][]int)
	missed := make(map[int64]bool)
	for rows.Next() {
		var fire time.Time
		var version, isRun int
		if err := rows.Scan(&fire, &version, &isRun); err != nil {
			t.Fatal(err)
		}
		if isRun == 1 {
			runs[fire.UnixMilli()] = append(runs[fire.UnixMilli()], version)
		} else {
			missed[fire.UnixMilli()] = true
		}
	}
	if err := rows.Err(); err != nil {
		t.Fatal(err)
	}
	seen := make(map[int64]bool)
	for _, v := range versions {
		for fire, due := range v.dues {
			if !seen[fire] && !due.Before(v.from) && due.Before(v.to) {
				seen[fire] = true
				// With jitter, the due instant may belong to a version that began after the fire time. Such a fire time has no
				// run if a later fire time got its run from an earlier version, because fire times are decided in order.
				overtaken := false
				for later, of := range runs {
					overtaken = overtaken || fire < v.from.UnixMilli() && later > fire && slices.Min(of) < v.version
				}
				fires += checkFire(t, job, fire, due, versions, runs[fire], missed[fire] || overtaken)
			}
		}
	}
	checkLedger(t, s, job, versions, runs)
	for fire, got := range runs {
		if !seen[fire] { // an edit within the slack may have replaced the run's version
			if len(got) > 1 || !ownFire(versions, fire, got[0]) {
				t.Errorf("job %d at %s: runs of versions %v, but the fire time belongs to none of them", job, time.UnixMilli(fire).UTC(), got)
			}
		}
	}
	return fires
}

// checkLedger checks that no fire time has a run and is counted in the missed ledger. An entry may span fire times with runs: if two
// schedulers share a job's fire times and one of them stops, the entry spans all that the stopped one did not fire.
func checkLedger(t *testing.T, s *store.Store, job domain.JobID, versions []held, runs map[int64][]int) {
	t.Helper()
	for _, e := range column[string](t, s, `SELECT json_build_object('first', first_fire_time, 'last', last_fire_time, 'count', count)::text FROM missed WHERE job_id = $1`, job) {
		var entry struct {
			First, Last time.Time
			Count       int
		}
		if err := json.Unmarshal([]byte(e), &entry); err != nil {
			t.Fatal(err)
		}
		within := func(fire int64) bool { return fire >= entry.First.UnixMilli() && fire <= entry.Last.UnixMilli() }
		times, ran := make(map[int64]bool), 0
		for _, v := range versions {
			for fire := range v.dues {
				if within(fire) {
					times[fire] = true
				}
			}
		}
		for fire := range runs {
			if within(fire) {
				times[fire] = true
				ran++
			}
		}
		if ran+entry.Count > len(times) {
			t.Errorf("job %d: the ledger entry %s spans %d fire times, of which %d have runs", job, e, len(times), ran)
		}
	}
}

// ownFire reports whether the version had the fire time, and was current at its due instant. An edit that changes the jitter
// gives each fire time a new due instant, but a fire time that has a run gets no second one.
func ownFire(versions []held, fire int64, version int) bool {
	for i, v := range versions {
		due, ok := v.dues[fire]
		if !ok || v.version != version {
			continue
		}
		if due.Before(v.to.Add(slack)) && !due.Before(v.from) {
			return true
		}
		// The edit reduced the jitter: the due instant is now before the edit, and was after it in the previous version.
		if i > 0 && due.Before(v.from) {
			before, ok := versions[i-1].dues[fire]
			return ok && before.After(v.from)
		}
	}
	return false
}

// checkFire checks one fire time against the versions that were current at its due instant or within slack before it.
func checkFire(t *testing.T, job domain.JobID, fire int64, due time.Time, versions []held, got []int, excused bool) int {
	t.Helper()
	var may []int
	sure := true // all versions have this fire time, with the same due instant
	for _, v := range versions {
		if v.from.After(due) || !v.to.After(due.Add(-slack)) {
			continue
		}
		if d, ok := v.dues[fire]; ok && d.Equal(due) {
			may = append(may, v.version)
		} else {
			sure = false
		}
		if v.version == 1 && !due.After(v.from) {
			sure = false // the job was created in that millisecond
		}
	}
	at := time.UnixMilli(fire).UTC()
	switch {
	case len(got) > 1:
		t.Errorf("job %d at %s: runs of versions %v", job, at, got)
	case len(got) == 1 && !sure && len(may) > 0: // an edit within the slack also changed the due instant
	case len(got) == 1 && !slices.Contains(may, got[0]) && !ownFire(versions, fire, got[0]):
		t.Errorf("job %d at %s: a run of version %d, want one of %v", job, at, got[0], may)
	case len(got) == 0 && sure && !excused:
		t.Errorf("job %d at %s, due %s: no run; versions %v of %+v", job, at, due, may, spans(versions))
	}
	if sure {
		return 1
	}
	return 0
}

// spans formats the periods in which versions were current.
func spans(versions []held) (out []string) {
	for _, v := range versions {
		out = append(out, fmt.Sprintf("%d: %s to %s", v.version, v.from.Format("05.000"), v.to.Format("05.000")))
	}
	return out
}

func versionsOf(t *testing.T, s *store.Store, job domain.JobID) []held {
	t.Helper()
	rows, err := s.Pool().Query(t.Context(), `SELECT version, spec, created_at, valid_from, COALESCE(valid_to, now()), change
		FROM job_versions WHERE job_id = $1 ORDER BY version`, job)
	if err != nil {
		t.Fatal(err)
	}
	defer rows.Close()
	var out []held
	for rows.Next() {
		v := held{dues: make(map[int64]time.Time)}
		var body []byte
		var created time.Time
		var change string
		if err := rows.Scan(&v.version, &body, &created, &v.from, &v.to, &change); err != nil {
			t.Fatal(err)
		}
		sp := domain.DefaultJobSpec()
		if err := json.Unmarshal(body, &sp); err != nil {
			t.Fatal(err)
		}
		if n := len(out); n > 0 && !out[n-1].to.Equal(v.from) {
			t.Errorf("job %d: version %d holds from %s, the one before to %s", job, v.version, v.from, out[n-1].to)
		}
		compiled, err := schedule.Compile(sp.Schedule, schedule.Options{CreatedAt: created})
		if err != nil {
			t.Fatal(err)
		}
		if sp.Enabled && change != "deleted" {
			begin := v.from.Add(-2 * time.Second)
			for f, ok := compiled.Next(begin); ok && f.Before(v.to.Add(2*time.Second)); f, ok = compiled.Next(f) {
				v.dues[f.UnixMilli()] = compiled.Due(job, f)
			}
		}
		out = append(out, v)
	}
	if err := rows.Err(); err != nil {
		t.Fatal(err)
	}
	return out
}

// An edit that waits for the lock of a run that is being fired takes effect after that run: its version does not begin before the
// due instant of a fired run of the old version, and the runs that are due between them stay.
func TestEditsThatWait(t *testing.T) {
	edit := func(sp *domain.JobSpec) error {
		sp.Enabled = false
		return nil
	}
	for name, change := range map[string]func(*store.Store, domain.Job) error{
		"job": func(s *store.Store, job domain.Job) error {
			_, _, err := s.EditJob(t.Context(), job.ID, 0, "test", edit)
			return err
		},
		"deletion": func(s *store.Store, job domain.Job) error {
			_, err := s.DeleteJob(t.Context(), job.ID, 0, "test")
			return err
		},
		"calendar": func(s *store.Store, _ domain.Job) error {
			_, _, err := s.EditCalendar(t.Context(), "c", 0, "test", func(c *domain.CalendarSpec) error {
				c.DaysOff.Weekdays = []domain.Weekday{"sunday"}
				return nil
			})
			return err
		},
	} {
		for _, ended := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s/ended %t", name, ended), func(t *testing.T) {
				s, _ := open(t)
				if _, err := s.CreateCalendar(t.Context(), domain.CalendarSpec{Name: "c"}, "test"); err != nil {
					t.Fatal(err)
				}
				job := create(t, s, "a", everySecond, parallel, func(sp *domain.JobSpec) { sp.Schedule.Calendar = "c" })
				if _, err := s.PlanDue(t.Context(), 10, false); err != nil {
					t.Fatal(err)
				}
				planned := column[time.Time](t, s, `SELECT due_at FROM runs_live ORDER BY due_at`)
				if len(planned) < 5 {
					t.Fatalf("only %d runs are planned", len(planned))
				}
				fired := planned[len(planned)-3]
				tx := pgtest.Begin(t, s.Pool())
				t.Cleanup(func() { _ = tx.Rollback(context.Background()) })
				statements := []string{`UPDATE runs_live SET state = 'queued', admitted = true WHERE due_at = $1`}
				if ended {
					statements = []string{
						`INSERT INTO runs_history (id, job_id, job_version, group_name, cause, state, reason, message, output, route, attempt, last_line, fire_time, due_at, created_at, finished_at)
							SELECT id, job_id, job_version, group_name, cause, 'succeeded', '', '', '', 'any', 1, 0, fire_time, due_at, created_at, due_at FROM runs_live WHERE due_at = $1`,
						`DELETE FROM runs_live WHERE due_at = $1`,
					}
				}
				for _, sql := range statements {
					if _, err := tx.Exec(t.Context(), sql, fired); err != nil {
						t.Fatal(err)
					}
				}
				changed := make(chan error, 1)
				go func() { changed <- change(s, job) }()
				waitUntil(t, func() bool {
					return query[int64](t, s, `SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'`) > 0
				})
				if err := tx.Commit(t.Context()); err != nil {
					t.Fatal(err)
				}
				if err := <-changed; err != nil {
					t.Fatal(err)
				}
				if got := query[time.Time](t, s, `SELECT valid_to FROM job_versions WHERE job_id = $1 AND version = 1`, job.ID); !got.Equal(fired) {
					t.Errorf("the old version ended at %v; its run that was fired was due at %v", got, fired)
				}
				if name == "deletion" {
					return // all its runs ended with it
				}
				kept := column[time.Time](t, s, `SELECT due_at FROM runs WHERE job_version = 1 ORDER BY due_at`)
				if !slices.EqualFunc(kept, planned[:len(planned)-2], time.Time.Equal) {
					t.Errorf("runs of the old version are due at %v, want %v", kept, planned[:len(planned)-2])
				}
			})
		}
	}
}

// A run whose next attempt is due in an hour does not delay an edit until then.
func TestEditsDoNotWaitForRetries(t *testing.T) {
	s, _ := open(t)
	job := create(t, s, "a", everySecond, parallel)
	if _, err := s.PlanDue(t.Context(), 10, false); err != nil {
		t.Fatal(err)
	}
	last := query[time.Time](t, s, `SELECT max(due_at) FROM runs_live`)
	exec(t, s, `UPDATE runs_live SET state = 'retrying', admitted = true, replanned = false, due_at = due_at + interval '1 hour' WHERE due_at = $1`, last)
	if _, _, err := s.SetEnabled(t.Context(), job.ID, false, 0, "test"); err != nil {
		t.Fatal(err)
	}
	if got := query[time.Time](t, s, `SELECT valid_to FROM job_versions WHERE job_id = $1 AND version = 1`, job.ID); got.After(last) {
		t.Errorf("the old version ends at %v; its last run was due at %v", got, last)
	}
}
