package store_test

import (
	"strings"
	"testing"
	"time"

	"github.com/belfryhq/belfry/internal/domain"
	"github.com/belfryhq/belfry/internal/explain"
	"github.com/belfryhq/belfry/internal/firecheck"
	"github.com/belfryhq/belfry/internal/pgtest"
	"github.com/belfryhq/belfry/internal/store"
)

// standingClock stops the database's clock half a second before a whole second. Only ahead moves it forward, so the number
// of fire times in a pause does not depend on when the test begins or how long it takes.
func standingClock(t *testing.T, s *store.Store) {
	t.Helper()
	ownClock(t, s)
	exec(t, s, `CREATE TABLE belfry.test_start AS SELECT date_trunc('second', pg_catalog.clock_timestamp()) - interval '0.5 s' AS at`)
	for _, name := range []string{"clock_timestamp", "statement_timestamp"} {
		exec(t, s, `CREATE OR REPLACE FUNCTION belfry.`+name+`() RETURNS timestamptz LANGUAGE sql STABLE AS
			$$ SELECT at + ahead FROM belfry.test_start, belfry.test_clock $$`)
	}
}

// clockOf returns the time of the database's clock, or of the test's clock that replaces it.
func clockOf(t testing.TB, s *store.Store) time.Time {
	t.Helper()
	return query[time.Time](t, s, `SELECT clock_timestamp()`).UTC()
}

// ahead moves the clock of a store with ownClock forward.
func ahead(t testing.TB, s *store.Store, d time.Duration) {
	t.Helper()
	exec(t, s, `UPDATE belfry.test_clock SET ahead = ahead + $1::interval`, d)
	if err := s.SyncClock(t.Context()); err != nil {
		t.Fatal(err)
	}
}

func planDue(t testing.TB, s *store.Store) store.Planned {
	t.Helper()
	out, err := s.PlanDue(t.Context(), 1000, false)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func tend(t testing.TB, s *store.Store) {
	t.Helper()
	for more := true; more; {
		var err error
		if more, err = s.TendPauses(t.Context(), 2); err != nil {
			t.Fatal(err)
		}
	}
}

func pauseGroup(t testing.TB, s *store.Store, until time.Duration) domain.Pause {
	t.Helper()
	var end *time.Time
	if until != 0 {
		at := clockOf(t, s).Add(until)
		end = &at
	}
	p, err := s.PauseGroup(t.Context(), "g", "new disks", end, "ann")
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// A pause deletes planned runs and causes no work while it lasts. After it, the misfire policy decides.
func TestPauseOfAGroup(t *testing.T) {
	s, _ := open(t)
	standingClock(t, s)
	skip := create(t, s, "skip", everySecond)
	once := create(t, s, "once", everySecond, func(sp *domain.JobSpec) { sp.Misfire = domain.MisfireFireOnce })
	all := create(t, s, "all", everySecond, func(sp *domain.JobSpec) { sp.Misfire = domain.MisfireFireAll })
	exec(t, s, `INSERT INTO groups (name, token_sha256) VALUES ('other', 'y')`)
	other := create(t, s, "other", everySecond, func(sp *domain.JobSpec) { sp.Group = "other" })
	planned := planDue(t, s).Runs
	if n := len(planned); n < 4*5 { // the horizon's five seconds of each job
		t.Fatalf("%d runs were planned", n)
	}
	p := pauseGroup(t, s, 0)
	if n := query[int64](t, s, `SELECT count(*) FROM runs_live WHERE group_name = 'g' AND due_at >= $1`, p.From); n != 0 {
		t.Fatalf("%d planned runs are due in the pause", n)
	}
	exec(t, s, `DELETE FROM runs_live WHERE group_name = 'g'`) // as if they had run
	left := 0
	for _, r := range planned {
		if r.JobID == other.ID {
			left++
		}
	}
	if n := query[int64](t, s, `SELECT count(*) FROM runs_live WHERE job_id = $1`, other.ID); n != int64(left) {
		t.Fatalf("%d of %d runs are left of the group that is not paused", n, left)
	}
	ahead(t, s, 20*time.Second)
	if got := planDue(t, s); len(got.Runs) == 0 || got.Runs[0].JobID != other.ID {
		t.Fatalf("planned in the pause: %+v", got.Runs)
	}
	if got := planDue(t, s); got.Jobs > 1 {
		t.Fatalf("%d jobs were visited, although three are parked", got.Jobs)
	}
	ids, err := s.Trigger(t.Context(), skip.ID, domain.Trigger{Cause: domain.CauseManual})
	if err != nil || len(ids) != 1 {
		t.Fatalf("a trigger in the pause: %v %v", ids, err)
	}
	ended, err := s.ResumeGroup(t.Context(), "g", "bob")
	if err != nil {
		t.Fatal(err)
	}
	tend(t, s)
	planDue(t, s)
	expected := ended.To.Unix() - p.From.Unix() // fire times are whole seconds
	for job, made := range map[domain.JobID]int64{skip.ID: 0, once.ID: 1, all.ID: expected} {
		misfires := query[int64](t, s, `SELECT count(*) FROM runs_live WHERE job_id = $1 AND cause = 'misfire' AND fire_time BETWEEN $2 AND $3`, job, p.From, ended.To)
		missed := query[int64](t, s, `SELECT COALESCE(sum(count), 0)::bigint FROM missed WHERE job_id = $1 AND why LIKE 'group g was paused from % by ann (new disks)%'`, job)
		if misfires != made || misfires+missed != expected {
			t.Errorf("job %d: %d misfires and %d missed, want %d and %d", job, misfires, missed, made, expected-made)
		}
		if n := query[int64](t, s, `SELECT count(*) FROM runs_live WHERE job_id = $1 AND cause = 'schedule' AND due_at >= $2`, job, ended.To); n < 5 {
			t.Errorf("job %d: %d runs are planned after the pause", job, n)
		}
	}
	if _, err := s.ResumeGroup(t.Context(), "g", "bob"); domain.CodeOf(err) != domain.Conflict {
		t.Errorf("resumed twice: %v", err)
	}
	if n := query[int64](t, s, `SELECT count(*) FROM group_pauses WHERE NOT released`); n != 0 {
		t.Errorf("%d pauses are not released", n)
	}
}

// A pause with an end ends by itself, at the end that it was given last.
func TestPauseUntil(t *testing.T) {
	s, _ := open(t)
	standingClock(t, s)
	job := create(t, s, "j", everySecond)
	pauseGroup(t, s, 30*time.Second)
	ahead(t, s, 10*time.Second)
	planDue(t, s)
	p := pauseGroup(t, s, 5*time.Second) // it shortens the pause that lasts
	if n := query[int64](t, s, `SELECT count(*) FROM group_pauses`); n != 1 {
		t.Fatalf("%d pauses", n)
	}
	planDue(t, s)
	if n := query[int64](t, s, `SELECT count(*) FROM runs_live`); n != 0 {
		t.Fatalf("%d runs in the pause", n)
	}
	ahead(t, s, 5*time.Second)
	tend(t, s)
	planDue(t, s)
	if n := query[int64](t, s, `SELECT count(*) FROM runs_live WHERE job_id = $1 AND due_at >= $2 AND cause = 'schedule'`, job.ID, p.To); n < 5 {
		t.Errorf("%d runs are planned after the end", n)
	}
	if n := query[int64](t, s, `SELECT count(*) FROM runs_live WHERE job_id = $1 AND due_at < $2`, job.ID, p.To); n != 0 {
		t.Errorf("%d runs of the pause", n)
	}
}

// A run that was killed before it was due does not come back when its pause is extended and then ended at once: only
// fire times that were planned long after the pause began are planned again.
func TestKilledBesideAPause(t *testing.T) {
	s, _ := open(t)
	standingClock(t, s)
	begin := domain.At(clockOf(t, s).Add(time.Minute).Truncate(time.Second))
	job := create(t, s, "j", everySecond, func(sp *domain.JobSpec) { sp.Schedule.StartAt = &begin })
	until := begin.Sub(clockOf(t, s)) - 500*time.Millisecond
	pauseGroup(t, s, until)
	ahead(t, s, until-2*time.Second)
	if n := len(planDue(t, s).Runs); n < 3 {
		t.Fatalf("%d runs are planned for the time after the pause, want at least 3", n)
	}
	second := query[domain.RunID](t, s, `SELECT id FROM runs_live WHERE job_id = $1 ORDER BY due_at OFFSET 1 LIMIT 1`, job.ID)
	if _, err := s.RequestKill(t.Context(), second, domain.ReasonKilled, "ann"); err != nil {
		t.Fatal(err)
	}
	pauseGroup(t, s, begin.Sub(clockOf(t, s))+500*time.Millisecond) // the first run, and not the second
	if _, err := s.ResumeGroup(t.Context(), "g", "ann"); err != nil {
		t.Fatal(err)
	}
	tend(t, s)
	planDue(t, s)
	if n := query[int64](t, s, `SELECT count(*) FROM runs_live WHERE job_id = $1 AND due_at <= $2`, job.ID, begin.Add(2*time.Second)); n != 2 {
		t.Errorf("%d of the runs are planned, want the first and the third", n)
	}
	if n := query[int64](t, s, `SELECT count(*) FROM runs_live WHERE id = $1`, second); n != 0 {
		t.Error("the run that was killed is planned again")
	}
}

// An edit leaves runs that are already due to the previous version. A pause that began before the edit and is tended
// after it does not take these runs back, because they would not be planned again.
func TestEditBeforeAPauseIsTended(t *testing.T) {
	s, _ := open(t)
	standingClock(t, s)
	job := create(t, s, "j", everySecond)
	planDue(t, s)
	ahead(t, s, 3*time.Second)
	exec(t, s, `INSERT INTO group_pauses (group_name, from_at, reason, paused_by) VALUES ('g', $1, 'new disks', 'ann')`, clockOf(t, s).Add(-2*time.Second))
	if _, _, err := s.EditJob(t.Context(), job.ID, 0, "ann", func(sp *domain.JobSpec) error { sp.Param = "new"; return nil }); err != nil {
		t.Fatal(err)
	}
	before := query[int64](t, s, `SELECT count(*) FROM runs_live WHERE job_id = $1`, job.ID)
	tend(t, s)
	if after := query[int64](t, s, `SELECT count(*) FROM runs_live WHERE job_id = $1`, job.ID); before < 2 || after != before {
		t.Errorf("of %d runs that were due at the edit %d are left", before, after)
	}
}

// If a job is edited, disabled or deleted during a pause, its version ends. The fire times of that version in the pause
// are recorded in the ledger.
func TestEditInAPause(t *testing.T) {
	s, _ := open(t)
	standingClock(t, s)
	edited := create(t, s, "edited", everySecond, func(sp *domain.JobSpec) { sp.Misfire = domain.MisfireFireAll })
	disabled := create(t, s, "disabled", everySecond)
	deleted := create(t, s, "deleted", everySecond)
	p := pauseGroup(t, s, 0)
	ahead(t, s, 10*time.Second)
	planDue(t, s)
	if _, _, err := s.EditJob(t.Context(), edited.ID, 0, "ann", func(sp *domain.JobSpec) error { sp.Param = "new"; return nil }); err != nil {
		t.Fatal(err)
	}
	if _, _, err := s.SetEnabled(t.Context(), disabled.ID, false, 0, "ann"); err != nil {
		t.Fatal(err)
	}
	if _, err := s.DeleteJob(t.Context(), deleted.ID, 0, "ann"); err != nil {
		t.Fatal(err)
	}
	held := clockOf(t, s).Unix() - p.From.Unix()
	for _, job := range []domain.JobID{edited.ID, disabled.ID, deleted.ID} {
		if n := query[int64](t, s, `SELECT COALESCE(sum(count), 0)::bigint FROM missed WHERE job_id = $1 AND why LIKE '%changed meanwhile'`, job); n < held-1 || n > held+1 { // the fire time just before the pause is delayed like the others
			t.Errorf("job %d: %d fire times are in the ledger, want %d", job, n, held)
		}
	}
	if n := query[int64](t, s, `SELECT count(*) FROM runs_live WHERE due_at >= $1`, p.From); n != 0 {
		t.Errorf("%d runs in the pause", n)
	}
	ahead(t, s, 10*time.Second)
	planDue(t, s)
	if _, err := s.ResumeGroup(t.Context(), "g", "ann"); err != nil {
		t.Fatal(err)
	}
	tend(t, s)
	planDue(t, s)
	if n := query[int64](t, s, `SELECT count(*) FROM runs_live WHERE job_id = $1 AND cause = 'misfire'`, edited.ID); n < 9 || n > 11 {
		t.Errorf("%d misfires of the edited job, want those of the ten seconds after the edit", n)
	}
	if n := query[int64](t, s, `SELECT count(*) FROM runs_live WHERE job_id = $1`, disabled.ID); n != 0 {
		t.Errorf("%d runs of the disabled job", n)
	}
}

// A planner that began before a pause does not plan with the old state afterwards, because the pause waits for its transaction.
func TestPauseWaitsForPlanners(t *testing.T) {
	s, _ := open(t)
	create(t, s, "j", everySecond)
	tx := pgtest.Begin(t, s.Pool())
	defer tx.Rollback(t.Context()) //nolint:errcheck // it only holds a lock
	if _, err := tx.Exec(t.Context(), `SELECT * FROM pauses_for_planning(now())`); err != nil {
		t.Fatal(err)
	}
	paused := make(chan error, 1)
	go func() {
		_, err := s.PauseGroup(t.Context(), "g", "new disks", nil, "ann")
		paused <- err
	}()
	for query[int64](t, s, `SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted`) == 0 {
		select {
		case err := <-paused:
			t.Fatalf("paused although a planner holds the lock: %v", err)
		default:
		}
	}
	if err := tx.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := <-paused; err != nil {
		t.Fatal(err)
	}
}

func TestPauseRefuses(t *testing.T) {
	s, _ := open(t)
	past := clockOf(t, s).Add(-time.Minute)
	_, err := s.PauseGroup(t.Context(), "g", " ", &past, "ann")
	if domain.CodeOf(err) != domain.Invalid || !strings.Contains(err.Error(), "not valid") {
		t.Errorf("%v", err)
	}
	if _, err := s.PauseGroup(t.Context(), "nobody", "x", nil, "ann"); domain.CodeOf(err) != domain.NotFound {
		t.Errorf("%v", err)
	}
	if _, err := s.ResumeGroup(t.Context(), "nobody", "ann"); domain.CodeOf(err) != domain.NotFound {
		t.Errorf("%v", err)
	}
}

// A pause of a job takes its planned runs back in its own transaction, and removes the job from the index of due jobs. So a scheduler of
// an earlier release, which does not know pauses of jobs, does not plan it either. The fire check explains the fire times of the pause.
func TestPauseOfAJob(t *testing.T) {
	s, _ := open(t)
	standingClock(t, s)
	job, other := create(t, s, "paused", everySecond), create(t, s, "other", everySecond)
	planDue(t, s)
	ahead(t, s, 2*time.Second)
	p, err := s.PauseJob(t.Context(), job.ID, "new disks", nil, "ann")
	if err != nil {
		t.Fatal(err)
	}
	if n := query[int64](t, s, `SELECT count(*) FROM runs_live WHERE job_id = $1 AND due_at >= $2`, job.ID, p.From); n != 0 {
		t.Fatalf("%d planned runs are due in the pause", n)
	}
	if n := query[int64](t, s, `SELECT count(*) FROM runs_live WHERE job_id = $1 AND due_at >= $2`, other.ID, p.From); n < 3 {
		t.Fatalf("%d planned runs are left of the other job", n)
	}
	if next := query[time.Time](t, s, `SELECT next_due_at FROM job_due WHERE job_id = $1`, job.ID); next.Sub(p.From) < time.Hour {
		t.Errorf("schedulers would plan the job at %s", next)
	}
	ahead(t, s, 20*time.Second)
	why := func(at time.Time, fate firecheck.Fate, text string) {
		t.Helper()
		w, err := fireCheck(s).Why(t.Context(), job.ID, domain.At(at).String(), explain.English)
		if err != nil || w.Fate != fate || !strings.Contains(w.Answer, text) {
			t.Errorf("%s: %s, %q, %v", at, w.Fate, w.Answer, err)
		}
	}
	first := p.From.Truncate(time.Second).Add(time.Second)
	why(first, firecheck.FatePaused, "job has been paused since ")
	if _, _, err := s.EditJob(t.Context(), job.ID, 0, "ann", func(sp *domain.JobSpec) error { sp.Param = "new"; return nil }); err != nil {
		t.Fatal(err)
	}
	why(first, firecheck.FateMissed, "job has been paused since ")
	ahead(t, s, 10*time.Second)
	if got := planDue(t, s); len(got.Runs) == 0 || got.Runs[0].JobID != other.ID { // it visits the edited job and parks it again
		t.Fatalf("planned in the pause: %+v", got.Runs)
	}
	last := clockOf(t, s).Truncate(time.Second)
	if _, err := s.ResumeJob(t.Context(), job.ID, "bob"); err != nil {
		t.Fatal(err)
	}
	planDue(t, s)
	why(last, firecheck.FateMissed, "the job was paused from ")
	if n := query[int64](t, s, `SELECT count(*) FROM runs_live WHERE job_id = $1 AND due_at >= $2`, job.ID, last.Add(time.Second)); n < 5 {
		t.Errorf("%d runs are planned after the pause", n)
	}
	if n := query[int64](t, s, `SELECT count(*) FROM job_due WHERE parked IS NOT NULL`); n != 0 {
		t.Error("the job is parked after the pause")
	}
	page := checked(t, s, job.ID, clockOf(t, s))
	if n := page.Counts[firecheck.FateUnexplained]; n > 0 {
		t.Errorf("the fire check does not explain %d fire times: %s", n, counts(page))
	}
}
