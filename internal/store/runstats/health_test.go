package runstats_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/belfryhq/belfry/internal/domain"
	"github.com/belfryhq/belfry/internal/pgtest"
	"github.com/belfryhq/belfry/internal/store/jobhealth"
	statstore "github.com/belfryhq/belfry/internal/store/runstats"
	"github.com/belfryhq/belfry/internal/store/view"
)

// jobs creates the jobs 1 to n of group a.
func (f *fixture) jobs(n int) {
	f.t.Helper()
	f.exec(`INSERT INTO groups (name, token_sha256) VALUES ('a', 'a')`)
	f.exec(`INSERT INTO jobs (id, group_name, name, enabled, kind, spec, version, created_at, updated_at)
		SELECT i, 'a', i, true, 'none', '{}', 1, now(), now() FROM generate_series(1, $1::int) i`, n)
}

// ended writes a run of a job that began at an instant and took a time. The roll-up has not seen it yet.
func (f *fixture) ended(job, version int, state string, began time.Time, took time.Duration) domain.RunID {
	f.t.Helper()
	id := domain.NewRunID(began)
	f.exec(`INSERT INTO runs_history (id, job_id, job_version, group_name, cause, state, reason, message, output, attempt,
		due_at, created_at, started_at, finished_at, last_line, route, settled_at)
		VALUES ($1, $2, $3, 'a', 'schedule', $4, CASE $4 WHEN 'failed' THEN 'handler_error' ELSE '' END, repeat('x', 2000), '', 1, $5, $5, $5, $6, 0, '', now() - interval '40 seconds')`,
		id, job, version, state, began, began.Add(took))
	return id
}

// endedOn is ended on a process of an executor; empty: none.
func (f *fixture) endedOn(job int, state string, began time.Time, instance, boot string) {
	f.t.Helper()
	id := f.ended(job, 1, state, began, time.Second)
	f.exec(`UPDATE runs_history SET instance = NULLIF($2, ''), boot_id = NULLIF($3, '') WHERE id = $1`, id, instance, boot)
}

// rollUpNew rolls up the runs that were written since the last call.
func (f *fixture) rollUpNew() {
	f.t.Helper()
	f.exec(`UPDATE run_stats_mark SET through = now() - interval '1 minute', health_through = now() - interval '1 minute'`)
	f.rollUp()
	f.exec(`UPDATE runs_history SET settled_at = now() - interval '1 hour'`)
}

func (f *fixture) health(job int) domain.JobHealth {
	f.t.Helper()
	jobs := []domain.Job{{ID: domain.JobID(job)}}
	if err := view.New(f.pool).AddHealth(f.t.Context(), jobs); err != nil {
		f.t.Fatal(err)
	}
	return *jobs[0].Health
}

func TestHealthFollowsTheNewestRuns(t *testing.T) {
	f := newFixture(t)
	f.jobs(3)
	begin := time.Now().UTC().Add(-time.Hour).Truncate(time.Second)
	at := func(second int) time.Time { return begin.Add(time.Duration(second) * time.Second) }
	check := func(when, want string) {
		t.Helper()
		f.rollUpNew()
		h := f.health(1)
		got := fmt.Sprint(h.State, " ", h.Streak)
		if h.FailingSince != nil {
			got += fmt.Sprint(" since ", h.FailingSince.Sub(begin))
		}
		got += fmt.Sprintf(", %d+%d", h.LastDay.Succeeded, h.LastDay.Failed)
		if got != want {
			t.Errorf("%s: %s, want %s", when, got, want)
		}
	}
	check("without runs", "unknown 0, 0+0")
	f.ended(1, 1, "skipped", at(1), 0)
	check("skipped", "unknown 0, 0+0")
	good := f.ended(1, 3, "succeeded", at(10), 2*time.Second)
	f.ended(1, 1, "failed", at(5), time.Second)
	check("a success, and an older failure", "ok 0, 1+1")
	f.ended(1, 1, "failed", at(20), time.Second)
	check("a failure", "failing 1 since 21s, 1+2")
	f.ended(1, 1, "failed", at(40), 30*time.Second)
	bad := f.ended(1, 4, "failed", at(50), time.Second)
	f.ended(1, 1, "cancelled", at(55), 0)
	check("two more", "failing 3 since 21s, 1+4")
	f.ended(1, 1, "succeeded", at(45), time.Second)
	check("an older success", "failing 3 since 21s, 2+4")
	f.exec(`DELETE FROM runs_history`) // as retention does
	h := f.health(1)
	if s := h.LastSuccess; s.RunID == good || s.Version != 1 || !s.At.Equal(at(46)) {
		t.Errorf("the last success is %+v", s)
	}
	if l := h.LastFailure; l.RunID != bad || l.Version != 4 || l.Reason != "handler_error" || len(l.Message) != 1024 || !l.At.Equal(at(51)) {
		t.Errorf("the last failure is %+v", l)
	}
	if *h.P50MS < 950 || *h.P50MS > 1050 || *h.P95MS < 1900 || *h.P95MS > 2100 {
		t.Errorf("p50 %d ms, p95 %d ms", *h.P50MS, *h.P95MS)
	}
	f.ended(1, 1, "succeeded", at(60), time.Second)
	f.ended(1, 1, "failed", at(58), time.Second)
	check("a newer success", "ok 0, 3+5")
	if l := f.health(1).LastFailure; !l.At.Equal(at(59)) {
		t.Errorf("the last failure is %+v", l)
	}
	f.ended(1, 1, "failed", at(70), time.Second)
	f.ended(1, 1, "succeeded", at(65), time.Second)
	check("a success and a newer failure at once", "failing 1 since 1m11s, 4+6")
	shard := f.ended(1, 1, "failed", at(80), time.Second)
	other := shard
	other[15]++
	f.exec(`INSERT INTO runs_history SELECT (jsonb_populate_record(h, jsonb_build_object('id', $2::uuid, 'state', 'succeeded'))).* FROM runs_history h WHERE id = $1`, shard, other)
	check("one of two shards failed", "failing 2 since 1m11s, 5+7")
	f.ended(2, 1, "succeeded", at(1), time.Second)
	f.rollUpNew()
	f.exec(`DELETE FROM jobs WHERE id = 2`)
	f.ended(2, 1, "succeeded", at(2), time.Second)
	f.ended(2, 1, "failed", at(3), time.Second)
	f.rollUpNew()
	if f.health(2).State != domain.HealthUnknown || f.health(3).State != domain.HealthUnknown {
		t.Error("a deleted job, or one without runs, has a health")
	}
}

// The health names where the newest runs ran. It keeps that when retention has deleted the runs and the processes.
func TestHealthNamesTheExecutor(t *testing.T) {
	f := newFixture(t)
	f.jobs(3)
	f.exec(`INSERT INTO executor_boots (group_name, boot_id, instance, version, host)
		VALUES ('a', 'boot-1', 'one', '1.4', ''), ('a', 'boot-2', 'two', '1.5', ''), ('b', 'boot-3', 'three', '9', '')`)
	begin := time.Now().UTC().Add(-time.Hour).Truncate(time.Second)
	at := func(second int) time.Time { return begin.Add(time.Duration(second) * time.Second) }
	check := func(when, success, failure string) {
		t.Helper()
		f.rollUpNew()
		h := f.health(1)
		gotSuccess, gotFailure := "", ""
		if s := h.LastSuccess; s != nil {
			gotSuccess = s.Instance + " " + s.ExecutorVersion
		}
		if l := h.LastFailure; l != nil {
			gotFailure = l.Instance + " " + l.ExecutorVersion
		}
		if gotSuccess != success || gotFailure != failure {
			t.Errorf("%s: success on %q, want %q; failure on %q, want %q", when, gotSuccess, success, gotFailure, failure)
		}
	}
	f.endedOn(1, "succeeded", at(10), "one", "boot-1")
	f.endedOn(1, "succeeded", at(5), "two", "boot-2")
	f.endedOn(2, "failed", at(5), "two", "boot-2")
	check("a success, and an older one", "one 1.4", "")
	f.endedOn(1, "succeeded", at(7), "two", "boot-2")
	check("an older success later", "one 1.4", "")
	f.endedOn(1, "failed", at(20), "two", "boot-2")
	check("a failure", "one 1.4", "two 1.5")
	f.endedOn(1, "failed", at(15), "one", "boot-1")
	check("an older failure", "one 1.4", "two 1.5")
	f.exec(`DELETE FROM runs_history`)
	f.exec(`DELETE FROM executor_boots WHERE boot_id = 'boot-2'`)
	check("after retention", "one 1.4", "two 1.5")
	f.endedOn(1, "failed", at(30), "three", "boot-3")
	check("a process of another group with this boot id", "one 1.4", "three ")
	f.endedOn(1, "failed", at(40), "", "")
	f.endedOn(1, "succeeded", at(41), "two", "boot-2")
	check("no instance, and an unknown process", "two ", " ")
}

// Few failing jobs are found by one walk. If more jobs fail than have succeeded in the window, each of these is looked up.
func TestRecoveriesAmongManyFailures(t *testing.T) {
	f := newFixture(t)
	f.jobs(40)
	begin := time.Now().UTC().Add(-time.Hour)
	for job := 1; job <= 40; job++ {
		f.ended(job, 1, "failed", begin, time.Second)
	}
	f.rollUpNew()
	for _, job := range []int{3, 17, 30} {
		f.ended(job, 1, "succeeded", begin.Add(time.Minute), time.Second)
	}
	f.rollUpNew()
	for job := 4; job <= 40; job++ {
		f.ended(job, 1, "succeeded", begin.Add(2*time.Minute), time.Second)
	}
	states := func() (failing []int) {
		for job := 1; job <= 40; job++ {
			if f.health(job).State == domain.HealthFailing {
				failing = append(failing, job)
			}
		}
		return failing
	}
	if got := states(); len(got) != 37 || slices.Contains(got, 3) || slices.Contains(got, 17) || slices.Contains(got, 30) {
		t.Errorf("after three successes, %v are failing", got)
	}
	f.rollUpNew()
	if got := states(); !slices.Equal(got, []int{1, 2}) {
		t.Errorf("after the others' successes, %v are failing", got)
	}
}

// The numbers of failing and paused jobs follow jobs to other groups, and leave out deleted jobs and pauses that are over.
func TestStatesOfGroups(t *testing.T) {
	f := newFixture(t)
	f.jobs(6)
	f.exec(`INSERT INTO groups (name, token_sha256) VALUES ('b', 'b')`)
	f.exec(`INSERT INTO job_pauses (job_id, group_name, from_at, to_at, reason, paused_by)
		SELECT i, 'a', now(), CASE i WHEN 3 THEN now() WHEN 4 THEN now() + interval '1 hour' END, '', '' FROM generate_series(1, 4) i`)
	for job := 1; job <= 3; job++ {
		f.ended(job, 1, "failed", time.Now().Add(-time.Hour), time.Second)
	}
	f.rollUpNew()
	check := func(when, want string) {
		t.Helper()
		states, err := statstore.New(f.pool).GroupStates(t.Context(), []string{"a", "b", "none"})
		if got := fmt.Sprint(states["a"], states["b"], states["none"]); err != nil || got != want {
			t.Errorf("%s: %s, %v, want %s", when, got, err, want)
		}
	}
	check("at first", "{3 3 false} {0 0 false} {0 0 false}")
	f.exec(`UPDATE jobs SET group_name = 'b' WHERE id IN (1, 3)`)
	check("in another group", "{1 2 false} {2 1 false} {0 0 false}")
	f.ended(1, 1, "succeeded", time.Now().Add(-time.Minute), time.Second)
	f.rollUpNew()
	check("one has recovered", "{1 2 false} {1 1 false} {0 0 false}")
	f.exec(`DELETE FROM jobs WHERE id IN (1, 2)`)
	check("deleted", "{0 1 false} {1 0 false} {0 0 false}")
}

// The health of a job is deleted with the job, also if the roll-up creates it while the job is being deleted.
func TestDeletedJobsLeaveNoHealth(t *testing.T) {
	f := newFixture(t)
	f.jobs(3)
	began := time.Now().Add(-time.Hour)
	left := func() (rows int) {
		t.Helper()
		if err := f.pool.QueryRow(t.Context(), `SELECT (SELECT count(*) FROM job_health) + (SELECT count(*) FROM job_failures)`).Scan(&rows); err != nil {
			t.Fatal(err)
		}
		return rows
	}
	f.ended(1, 1, "succeeded", began, time.Second)
	f.ended(1, 1, "failed", began.Add(time.Minute), time.Second)
	f.rollUpNew()
	if n := left(); n != 2 {
		t.Fatalf("the health of a job has %d rows", n)
	}
	f.exec(`DELETE FROM jobs WHERE id = 1`)
	if n := left(); n != 0 {
		t.Errorf("%d rows are left of a deleted job", n)
	}
	for job, state := range map[int]string{2: "succeeded", 3: "failed"} {
		f.ended(job, 1, state, began, time.Second)
		f.exec(`UPDATE run_stats_mark SET through = now() - interval '1 minute', health_through = now() - interval '1 minute'`)
		deletion := pgtest.Begin(t, f.pool)
		if _, err := deletion.Exec(t.Context(), `DELETE FROM jobs WHERE id = $1`, job); err != nil {
			t.Fatal(err)
		}
		done := make(chan error, 1)
		go func() {
			runs, _, _, _, err := f.reports.RollUp(t.Context(), time.Minute)
			if err == nil && runs != 1 {
				err = fmt.Errorf("%d runs were counted, want 1", runs)
			}
			done <- err
		}()
		f.lockAwaited(done)
		if err := deletion.Commit(t.Context()); err != nil {
			t.Fatal(err)
		}
		if err := <-done; err != nil {
			t.Fatal(err)
		}
		if n := left(); n != 0 {
			t.Errorf("%d rows are left of a job that was deleted after its run had %s", n, state)
		}
		f.exec(`DELETE FROM runs_history`)
	}
}

// lockAwaited returns when a session of the database waits for a row that another one has locked, or when done has a result.
func (f *fixture) lockAwaited(done <-chan error) {
	f.t.Helper()
	for waiting := 0; waiting == 0 && len(done) == 0; {
		if err := f.pool.QueryRow(f.t.Context(), `SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'`).Scan(&waiting); err != nil {
			f.t.Fatal(err)
		}
	}
}

// The statement for successes computes p95 only if it can have changed. It must always be that of the stored durations, and the row must
// usually be updated in place.
func TestP95IsThatOfTheLastTwenty(t *testing.T) {
	f := fixtureOf(t, 1) // one connection, because the test reads its counters
	f.jobs(8)
	random := rand.New(rand.NewPCG(1, 2))
	begin := time.Now().UTC().Add(-time.Hour)
	for i := range 60 {
		for job := 1; job <= 8; job++ {
			for range 1 + random.IntN(4)/3 {
				begin = begin.Add(time.Millisecond)
				f.ended(job, 1, "succeeded", begin, time.Duration(float64(time.Second)*(1+0.1*random.NormFloat64())))
			}
		}
		f.rollUpNew()
		rows, err := f.pool.Query(t.Context(), `SELECT durations, p95 FROM job_health`)
		if err != nil {
			t.Fatal(err)
		}
		for rows.Next() {
			var durations []byte
			var p95 int16
			if err := rows.Scan(&durations, &p95); err != nil {
				t.Fatal(err)
			}
			if want := jobhealth.Quantile(durations, 0.95); p95 != int16(want) || len(durations) > 20 || i > 20 && len(durations) != 20 {
				t.Fatalf("round %d: p95 is %d, want %d of %v", i, p95, want, durations)
			}
		}
	}
	f.exec(`SELECT pg_stat_force_next_flush()`)
	var updates, inPlace int
	if err := f.pool.QueryRow(t.Context(), `SELECT n_tup_upd, n_tup_hot_upd FROM pg_stat_user_tables WHERE relname = 'job_health'`).Scan(&updates, &inPlace); err != nil {
		t.Fatal(err)
	}
	if t.Logf("%d updates, %d in place", updates, inPlace); updates < 400 || inPlace < updates*7/10 {
		t.Errorf("%d of %d updates were in place", inPlace, updates)
	}
}

// The binary of the previous release counts runs without adding them to the health of their jobs. This one adds them later, and counts none twice.
func TestHealthCatchesUp(t *testing.T) {
	f := newFixture(t)
	f.jobs(1)
	f.ended(1, 1, "succeeded", time.Now().Add(-time.Hour), time.Second)
	f.exec(`UPDATE run_stats_mark SET through = now(), health_through = now() - interval '90 seconds'`)
	if n := f.rollUp(); n != 0 || f.health(1).State != domain.HealthOK {
		t.Errorf("%d runs were counted, the health is %+v", n, f.health(1))
	}
	var behind bool
	if err := f.pool.QueryRow(t.Context(), `SELECT health_through < through FROM run_stats_mark`).Scan(&behind); err != nil || behind {
		t.Error("the health stays behind", err)
	}
}
