package store_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/belfryhq/belfry/internal/domain"
	"github.com/belfryhq/belfry/internal/store"
)

// fates returns how many of a job's fire times have a run and how many are in the ledger, without those of the last minute.
func fates(t *testing.T, s *store.Store, job domain.JobID) (runs, ledgered int64) {
	t.Helper()
	return query[int64](t, s, `SELECT count(*) FROM runs WHERE job_id = $1 AND fire_time < now() - interval '1 minute'`, job),
		query[int64](t, s, `SELECT COALESCE(sum(count), 0)::bigint FROM missed WHERE job_id = $1`, job)
}

func TestStrandedAndUnplannedAreJudgedTogether(t *testing.T) {
	for name, plan := range map[string]func(*store.Store) (store.Planned, error){
		"by the pre-read":    func(s *store.Store) (store.Planned, error) { return s.PlanDue(t.Context(), 10, false) },
		"by the stranded":    func(s *store.Store) (store.Planned, error) { return s.PlanStranded(t.Context(), 10) },
		"by an edit of them": func(s *store.Store) (store.Planned, error) { return store.Planned{}, edit(t, s, "edited") },
	} {
		t.Run(name, func(t *testing.T) {
			s, _ := open(t)
			// One fire time is near enough to be planned, and none becomes late while the test runs.
			const every = 2 * time.Minute
			job := create(t, s, "a", func(sp *domain.JobSpec) {
				begin := domain.At(s.Now().Truncate(time.Second).Add(4*time.Second - 30*every))
				sp.Schedule = domain.Schedule{Kind: domain.ScheduleFixedRate, Every: domain.Duration(every), StartAt: &begin}
				sp.Misfire = domain.MisfireFireOnce
			})
			planned, err := s.PlanDue(t.Context(), 10, false)
			if err != nil {
				t.Fatal(err)
			}
			rewind(t, s, job.ID, 10*time.Minute)
			if _, err := plan(s); err != nil {
				t.Fatal(err)
			}
			for range 2 { // the next planner has nothing left to decide
				if _, err := s.PlanDue(t.Context(), 10, false); err != nil {
					t.Fatal(err)
				}
				if _, err := s.PlanStranded(t.Context(), 10); err != nil {
					t.Fatal(err)
				}
			}
			misfires := query[int64](t, s, `SELECT count(*) FROM runs_live WHERE cause = 'misfire'`)
			missed := query[int64](t, s, `SELECT sum(m.count)::bigint FROM missed m JOIN jobs j ON j.id = m.job_id AND j.group_name = m.group_name`)
			runs := query[int64](t, s, `SELECT count(*) FROM runs_live`)
			first, next := planned.Runs[0].DueAt.Add(-10*time.Minute), query[time.Time](t, s, `SELECT next_fire_time FROM job_due`)
			if misfires != 1 {
				t.Errorf("fire_once fired %d times", misfires)
			}
			if all := int64(next.Sub(first) / every); runs+missed != all || all != 6 {
				t.Errorf("of %d fire times, %d have a run and %d are in the ledger", all, runs, missed)
			}
		})
	}
}

// edit changes the description of job 1.
func edit(t *testing.T, s *store.Store, description string) error {
	t.Helper()
	_, _, err := s.EditJob(t.Context(), 1, 0, "test", func(sp *domain.JobSpec) error {
		sp.Description = description
		return nil
	})
	return err
}

// One decision covers a bounded number of fire times. An edit after a long outage must make as many decisions as
// necessary. Otherwise, some missed fire times would not be recorded in the ledger.
func TestEditAfterALongOutageLosesNothing(t *testing.T) {
	for _, change := range []string{"edit", "disable", "delete"} {
		t.Run(change, func(t *testing.T) {
			s, _ := open(t)
			job := create(t, s, "a", everySecond)
			from := job.NextFireTime.Add(-7 * time.Hour)
			rewind(t, s, job.ID, 7*time.Hour)
			var err error
			switch change {
			case "edit":
				err = edit(t, s, "edited")
			case "disable":
				_, _, err = s.SetEnabled(t.Context(), job.ID, false, 0, "test")
			case "delete":
				_, err = s.DeleteJob(t.Context(), job.ID, 0, "test")
			}
			if err != nil {
				t.Fatal(err)
			}
			_, missed := fates(t, s, job.ID)
			runs := query[int64](t, s, `SELECT count(*) FROM runs WHERE cause = 'schedule'`)
			changed := query[time.Time](t, s, `SELECT max(valid_from) FROM job_versions`)
			if all := int64(changed.Sub(from)/time.Second) + 1; missed+runs != all {
				t.Errorf("of %d fire times before the change, %d are in the ledger and %d have a run", all, missed, runs)
			}
		})
	}
}

func TestDueJobsAreShared(t *testing.T) {
	s, _ := open(t)
	for i := range 10 {
		create(t, s, string(rune('a'+i)), everySecond)
	}
	seen := make(map[domain.RunID]bool)
	for range 3 {
		planned, err := s.PlanDue(t.Context(), 4, false)
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range planned.Runs {
			if seen[r.RunID] {
				t.Errorf("run %s was planned twice", r.RunID)
			}
			seen[r.RunID] = true
		}
	}
	if n := query[int64](t, s, `SELECT count(DISTINCT job_id) FROM runs_live`); n != 10 {
		t.Errorf("%d of 10 jobs were planned in batches of 4", n)
	}
	if again := claim(t, s); len(again) != 0 {
		t.Errorf("runs that are in a ring were claimed: %+v", again)
	}
}

// If the scheduler of a planned run dies, another one takes the run over once, after StrandedAfter and within the tolerance.
func TestClaimNearTakesOver(t *testing.T) {
	s, _ := open(t)
	job := create(t, s, "a", everySecond)
	if _, err := s.PlanDue(t.Context(), 10, false); err != nil {
		t.Fatal(err)
	}
	exec(t, s, `DELETE FROM runs_live WHERE fire_time > (SELECT min(fire_time) FROM runs_live)`)
	exec(t, s, `UPDATE runs_live SET due_at = now() - interval '1 s', rung_at = now() - interval '4 s'`)
	if got := claim(t, s); len(got) != 0 {
		t.Errorf("claimed %+v, 1 s after due", got)
	}
	exec(t, s, `UPDATE runs_live SET due_at = date_trunc('ms', now()) - interval '3.5 s'`)
	got, stranded, err := s.ClaimNear(t.Context(), 10)
	if err != nil || len(got) != 1 || stranded != 1 || got[0].JobID != job.ID {
		t.Fatalf("claimed %+v, %d stranded, %v", got, stranded, err)
	}
	if again := claim(t, s); len(again) != 0 {
		t.Errorf("claimed again: %+v", again)
	}
	exec(t, s, `UPDATE runs_live SET due_at = date_trunc('ms', now()) - interval '6 s', rung_at = now() - interval '4 s'`)
	if late := claim(t, s); len(late) != 0 {
		t.Errorf("claimed %+v, which is the misfire policy's", late)
	}
	if out := admit(t, s, got); len(out.Bound)+len(out.Held)+len(out.Waiting) != 0 {
		t.Errorf("admitted past the tolerance: %+v", out)
	}
}

// A ring entry acts only on exactly the run that it was made for.
func TestStaleRingEntry(t *testing.T) {
	s, _ := open(t)
	create(t, s, "a", everySecond, parallel)
	planned, err := s.PlanDue(t.Context(), 10, false)
	if err != nil {
		t.Fatal(err)
	}
	last := planned.Runs[len(planned.Runs)-1:]
	if err := edit(t, s, "new"); err != nil {
		t.Fatal(err)
	}
	if out := admit(t, s, last); len(out.Bound) != 0 {
		t.Errorf("an entry of the old version was admitted before the new one was planned: %+v", out)
	}
	if _, err := s.PlanDue(t.Context(), 10, false); err != nil {
		t.Fatal(err)
	}
	if out := admit(t, s, last); len(out.Bound) != 0 {
		t.Errorf("an entry of the old version was admitted: %+v", out)
	}
	if n := query[int64](t, s, `SELECT count(*) FROM runs_live WHERE id = $1 AND job_version = 2`, last[0].RunID); n != 1 {
		t.Errorf("%d runs of the new version", n)
	}
}

// An unreadable version stops its own job and no other.
func TestUnreadableVersion(t *testing.T) {
	s, _ := open(t)
	for name, spec := range map[string]string{
		"odd type": `{"schedule": 7}`, "odd instant": `{"schedule": {"kind": "none", "end_at": "10000-01-01T00:59:59.000Z"}}`,
		"odd zone": `{"schedule": {"kind": "cron", "expr": "* * * * *", "time_zone": "Nowhere/Land"}}`,
	} {
		bad := create(t, s, name, everySecond)
		exec(t, s, `UPDATE job_versions SET spec = $2::jsonb WHERE job_id = $1`, bad.ID, spec)
	}
	gone := create(t, s, "gone", everySecond)
	exec(t, s, `DELETE FROM job_versions WHERE job_id = $1`, gone.ID)
	good := create(t, s, "good", everySecond)
	planned, err := s.PlanDue(t.Context(), 10, false)
	if err != nil || len(planned.Runs) == 0 {
		t.Fatalf("%+v, %v", planned, err)
	}
	for _, r := range planned.Runs {
		if r.JobID != good.ID {
			t.Errorf("a run of job %d", r.JobID)
		}
	}
	if again, err := s.PlanDue(t.Context(), 10, false); err != nil || again.Jobs != 0 {
		t.Errorf("it is planned again and again: %+v, %v", again, err)
	}
}

// New runs are written by COPY, which fails if a run exists. If one exists nevertheless, each of the batch's jobs must
// still get its runs, and the existing run must not change.
func TestRunThatNoSchedulerPlanned(t *testing.T) {
	s, _ := open(t)
	jobs := []domain.Job{create(t, s, "a", everySecond), create(t, s, "b", everySecond)}
	exec(t, s, `UPDATE job_versions SET created_at = created_at - interval '1 hour', valid_from = valid_from - interval '1 hour'`)
	exec(t, s, `UPDATE job_due SET next_fire_time = $1, next_due_at = $1`, time.Now().Add(2*time.Second).Truncate(time.Second))
	taken := time.Now().Add(4 * time.Second).Truncate(time.Second)
	exec(t, s, `INSERT INTO runs_live (id, job_id, job_version, group_name, cause, fire_time, due_at, param) VALUES ($1, $2, 1, 'g', 'schedule', $3, $3, 'mine')`,
		domain.ScheduledRunID(jobs[0].ID, taken, 0), jobs[0].ID, taken)
	other, _ := openAt(t, s.Pool().Config().ConnString()) // a second store, whose cache of versions is empty
	planned, err := other.PlanDue(t.Context(), 10, false)
	if err != nil {
		t.Fatal(err)
	}
	if planned.Jobs != 2 || len(planned.Runs) < 6 {
		t.Errorf("%d runs of %d jobs were planned", len(planned.Runs), planned.Jobs)
	}
	for _, j := range jobs {
		first, next := planned.Runs[0].DueAt, query[time.Time](t, s, `SELECT next_fire_time FROM job_due WHERE job_id = $1`, j.ID)
		if n := query[int64](t, s, `SELECT count(*) FROM runs_live WHERE job_id = $1`, j.ID); n != int64(next.Sub(first)/time.Second) {
			t.Errorf("job %s has %d runs, from %s and before %s", j.Name, n, first, next)
		}
	}
	if param := query[string](t, s, `SELECT param FROM runs_live WHERE due_at = $1 AND job_id = $2`, taken, jobs[0].ID); param != "mine" {
		t.Errorf("the run that existed has the param %q now", param)
	}
}

// Runs written by COPY are equal to runs written by INSERT, which is used for a job that was just created.
func TestPlannedRunsByCopy(t *testing.T) {
	s, _ := open(t)
	parallel := func(sp *domain.JobSpec) { sp.Block = domain.BlockParallel }
	create(t, s, "young", everySecond, parallel)
	old := create(t, s, "old", everySecond, parallel)
	exec(t, s, `UPDATE job_versions SET valid_from = valid_from - interval '1 hour' WHERE job_id = $1`, old.ID)
	other, _ := openAt(t, s.Pool().Config().ConnString()) // a second store, whose cache of versions is empty
	if _, err := other.PlanDue(t.Context(), 10, false); err != nil {
		t.Fatal(err)
	}
	const runs = `SELECT concat_ws(' ', job_version, group_name, cause, plain, state, held, admitted, attempt, replanned, bind, fire_time, due_at,
		abs(extract(epoch FROM rung_at - now())) < 60, abs(extract(epoch FROM created_at - now())) < 60, num_nulls(param, instance, route))
		FROM runs_live WHERE (job_id = $1) = $2 AND due_at BETWEEN $3 AND $4 ORDER BY due_at`
	from := time.Now().Add(time.Second) // the common part; jobs are planned up to different seconds
	to := from.Add(3 * time.Second)
	inserted, copied := column[string](t, s, runs, old.ID, false, from, to), column[string](t, s, runs, old.ID, true, from, to)
	if len(copied) == 0 || !slices.Equal(inserted, copied) {
		t.Errorf("inserted:\n%s\ncopied:\n%s", strings.Join(inserted, "\n"), strings.Join(copied, "\n"))
	}
	for _, at := range column[time.Time](t, s, `SELECT fire_time FROM runs_live WHERE job_id = $1`, old.ID) {
		if n := query[int64](t, s, `SELECT count(*) FROM runs_live WHERE id = $1`, domain.ScheduledRunID(old.ID, at, 0)); n != 1 {
			t.Errorf("the run of %s has another id", at)
		}
	}
}
