package store_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/belfryhq/belfry/internal/domain"
	"github.com/belfryhq/belfry/internal/explain"
	"github.com/belfryhq/belfry/internal/firecheck"
	"github.com/belfryhq/belfry/internal/pgtest"
	"github.com/belfryhq/belfry/internal/store"
)

// calendar makes an empty calendar.
func calendar(t testing.TB, s *store.Store, name string) {
	t.Helper()
	if _, err := s.CreateCalendar(t.Context(), domain.CalendarSpec{Name: name}, "test"); err != nil {
		t.Fatal(err)
	}
}

// inCalendar returns an edit that makes a job use a calendar.
func inCalendar(name string) func(*domain.JobSpec) {
	return func(sp *domain.JobSpec) { sp.Schedule.Calendar = name }
}

// setDates gives a calendar other dates.
func setDates(t testing.TB, s *store.Store, name string, dates ...domain.Date) domain.Calendar {
	t.Helper()
	_, c, err := s.EditCalendar(t.Context(), name, 0, "ann", func(c *domain.CalendarSpec) error {
		c.Dates = dates
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func TestCalendarEditsTakeEffectAtOnce(t *testing.T) {
	s, _ := open(t)
	calendar(t, s, "c")
	job := create(t, s, "a", everySecond, parallel, inCalendar("c"))
	create(t, s, "another", everySecond)
	ahead := func() int64 {
		return query[int64](t, s, `SELECT count(*) FROM runs_live WHERE job_id = $1 AND due_at > now() + interval '1 s'`, job.ID)
	}
	planDue(t, s)
	if ahead() == 0 {
		t.Fatal("nothing was planned ahead")
	}
	now := s.Now()
	today, tomorrow := domain.DateOf(now), domain.DateOf(now.AddDate(0, 0, 1))
	c := setDates(t, s, "c", tomorrow, today, tomorrow)
	if c.Version != 2 || c.UpdatedBy != "ann" || c.Jobs != 1 || fmt.Sprint(c.Dates) != fmt.Sprint([]domain.Date{today, tomorrow}) {
		t.Errorf("the calendar: %+v", c)
	}
	planDue(t, s)
	exec(t, s, `DELETE FROM runs_live WHERE due_at <= now()`) // as if they had run: they were due before the edit
	off, err := s.Job(t.Context(), job.ID)
	if err != nil {
		t.Fatal(err)
	}
	if next := off.NextFireTime; off.Version != 2 || next == nil || !next.Equal(now.Truncate(24*time.Hour).AddDate(0, 0, 2)) || ahead() != 0 {
		t.Errorf("on a day off: version %d, next %v, %d runs ahead", off.Version, next, ahead())
	}
	if change := query[string](t, s, `SELECT change || ' by ' || changed_by FROM job_versions WHERE job_id = $1 AND version = 2`, job.ID); change != "calendar by ann" {
		t.Errorf("the version: %s", change)
	}

	// An edit that changes no day changes no job, and an edit without changes has no effect.
	for range 2 {
		_, c, err = s.EditCalendar(t.Context(), "c", 0, "test", func(c *domain.CalendarSpec) error {
			c.Description, c.Dates = "days", []domain.Date{tomorrow, today}
			return nil
		})
		if err != nil || c.Version != 3 || c.Description != "days" {
			t.Fatalf("a new description: %+v (%v)", c, err)
		}
	}
	_, same, err := s.EditJob(t.Context(), job.ID, 2, "test", func(sp *domain.JobSpec) error {
		sp.Schedule.DaysOff = nil // like a client that sends back the job that it has read
		return nil
	})
	if err != nil || same.Version != 2 {
		t.Errorf("an edit of nothing: version %d (%v)", same.Version, err)
	}

	setDates(t, s, "c")
	planDue(t, s)
	if on, err := s.Job(t.Context(), job.ID); err != nil || on.Version != 3 || ahead() == 0 {
		t.Errorf("on a day that is off no more: version %d, %d runs ahead (%v)", on.Version, ahead(), err)
	}
	if n := query[int64](t, s, `SELECT max(version) FROM jobs WHERE name = 'another'`); n != 1 {
		t.Errorf("a job without the calendar has version %d", n)
	}
	if n := query[int64](t, s, `SELECT count(*) FROM missed`); n != 0 {
		t.Errorf("%d ledger entries", n)
	}
	if _, _, err := s.EditCalendar(t.Context(), "c", 3, "test", func(*domain.CalendarSpec) error { return nil }); domain.CodeOf(err) != domain.Conflict {
		t.Errorf("a stale version: %v", err)
	}
}

// Each version has its own copy of the days off, so a change of the calendar does not change past fire times.
func TestCalendarVersionsAreAudited(t *testing.T) {
	s, _ := open(t)
	calendar(t, s, "c")
	end := aMinuteAgo(s)
	job, fires := past(t, s, "a", end, 100, inCalendar("c"))
	now := s.Now()
	tomorrow := now.AddDate(0, 0, 1)
	setDates(t, s, "c", domain.DateOf(end.Add(-time.Hour)), domain.DateOf(now), domain.DateOf(tomorrow))
	if got := counts(checked(t, s, job.ID, end)); got != "ran 100" {
		t.Errorf("before the change: %s", got)
	}
	exec(t, s, `DELETE FROM runs_history WHERE id = $1`, domain.ScheduledRunID(job.ID, fires[50], 0))
	if got := counts(checked(t, s, job.ID, end)); got != "unexplained 1, ran 99" {
		t.Errorf("without one of its runs: %s", got)
	}
	why := func(at time.Time) firecheck.Why {
		w, err := fireCheck(s).Why(t.Context(), job.ID, domain.At(at).String(), explain.English)
		if err != nil {
			t.Fatal(err)
		}
		return w
	}
	off := domain.DateOf(tomorrow).String() + ", a " + tomorrow.Weekday().String() + ", is a day off of calendar c"
	if w := why(tomorrow.Truncate(time.Second)); w.IsFireTime || w.Version != 2 || !strings.Contains(w.Answer, off+"; without the calendar, this would be a fire time.") {
		t.Errorf("why not on a day off: %+v", w)
	}
	if w := why(tomorrow.Truncate(time.Second).Add(time.Millisecond)); w.IsFireTime || !strings.Contains(w.Answer, off+".") {
		t.Errorf("why not between fire times: %+v", w)
	}
	if w := why(fires[10]); !w.IsFireTime || w.Fate != firecheck.FateRan {
		t.Errorf("why before the change: %+v", w)
	}
}

func TestCalendarsAreUsedByName(t *testing.T) {
	s, _ := open(t)
	calendar(t, s, "c")
	says := func(err error, code domain.Code, words ...string) {
		t.Helper()
		for _, w := range words {
			if domain.CodeOf(err) != code || !strings.Contains(err.Error(), w) {
				t.Errorf("%v, want %s and %q", err, code, w)
			}
		}
	}
	_, err := s.CreateCalendar(t.Context(), domain.CalendarSpec{Name: "c"}, "test")
	says(err, domain.Conflict, "name: a calendar of this name exists")
	_, err = s.CreateJob(t.Context(), spec("lost", everySecond, inCalendar("nix"), func(sp *domain.JobSpec) { sp.Group = "nowhere" }), "test")
	says(err, domain.Invalid, `schedule.calendar: there is no calendar "nix"; make it first, with belfry calendar create`, "group: there is no group")
	_, err = s.CreateJob(t.Context(), spec("by hand", inCalendar("c")), "test")
	says(err, domain.Invalid, "schedule.calendar: belongs to kinds cron and fixed_rate")
	for i := range 4 {
		create(t, s, fmt.Sprint("j", i), everySecond, inCalendar("c"))
	}
	_, err = s.DeleteCalendar(t.Context(), "c", 0)
	says(err, domain.Conflict, "jobs use the calendar; take it out of them first: g/j0 (1), g/j1 (2), g/j2 (3), and 1 more")

	// The number of jobs of a calendar is bounded. A job that already uses the calendar can still be edited.
	exec(t, s, `INSERT INTO jobs (group_name, name, enabled, kind, tags, spec, version, created_at, updated_at, calendar)
		SELECT 'g', 'x' || i, true, 'none', '{}', '{}', 1, now(), now(), 'c' FROM generate_series(5, $1) i`, domain.MaxCalendarJobs)
	_, err = s.CreateJob(t.Context(), spec("one more", everySecond, inCalendar("c")), "test")
	says(err, domain.Invalid, `calendar "c" is used by 1000 jobs, the most that may use one`)
	if _, after, err := s.SetEnabled(t.Context(), 1, false, 0, "test"); err != nil || after.Version != 2 {
		t.Errorf("an edit of a job that uses the calendar: %v", err)
	}
	exec(t, s, `DELETE FROM jobs WHERE name LIKE 'x%'`)

	for id := range domain.JobID(4) {
		_, _, err := s.EditJob(t.Context(), id+1, 0, "test", func(sp *domain.JobSpec) error {
			sp.Schedule.Calendar = ""
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	_, err = s.DeleteCalendar(t.Context(), "c", 7)
	says(err, domain.Conflict, "the calendar is at version 1, not 7")
	if _, err := s.DeleteCalendar(t.Context(), "c", 1); err != nil {
		t.Error(err)
	}
	_, err = s.DeleteCalendar(t.Context(), "c", 0)
	says(err, domain.NotFound, "there is no calendar of this name")
}

// Jobs begin and cease to use a calendar while it is edited repeatedly. At the end, all its jobs have its current days.
func TestCalendarEditsAgainstJobs(t *testing.T) {
	s, _ := open(t)
	calendar(t, s, "c")
	calendar(t, s, "d")
	var ids []domain.JobID
	for i := range 12 {
		ids = append(ids, create(t, s, fmt.Sprint("j", i), everySecond, inCalendar([]string{"", "c", "d"}[i%3])).ID)
	}
	var g errgroup.Group
	for _, name := range []string{"c", "d"} {
		g.Go(func() error {
			for i := range 15 {
				_, _, err := s.EditCalendar(t.Context(), name, 0, "test", func(c *domain.CalendarSpec) error {
					c.Dates = []domain.Date{domain.Date(20300101 + i)}
					return nil
				})
				if err != nil && domain.CodeOf(err) != domain.Conflict {
					return fmt.Errorf("edit %s: %w", name, err)
				}
			}
			return nil
		})
	}
	for worker := range 3 {
		g.Go(func() error {
			for i := range 20 {
				id := ids[(i*5+worker*4)%len(ids)]
				_, _, err := s.EditJob(t.Context(), id, 0, "test", func(sp *domain.JobSpec) error {
					sp.Schedule.Calendar = []string{"c", "d", ""}[(i+worker)%3]
					return nil
				})
				if err != nil {
					return fmt.Errorf("edit job %d: %w", id, err)
				}
				if i%5 == 0 {
					if _, err := s.CreateJob(t.Context(), spec(fmt.Sprintf("new %d %d", worker, i), everySecond, inCalendar("c")), "test"); err != nil {
						return err
					}
				}
			}
			return nil
		})
	}
	if err := g.Wait(); err != nil {
		t.Fatal(err)
	}
	if n := query[int64](t, s, `SELECT count(*) FROM jobs WHERE calendar IS DISTINCT FROM spec -> 'schedule' ->> 'calendar'`); n != 0 {
		t.Errorf("of %d jobs the column is not what the spec says", n)
	}
	if n := query[int64](t, s, `SELECT count(*) FROM jobs j JOIN calendars c ON c.name = j.calendar
		WHERE j.spec -> 'schedule' -> 'days_off' IS DISTINCT FROM c.days_off`); n != 0 {
		t.Errorf("%d jobs have other days than their calendar", n)
	}
	if n := query[int64](t, s, `SELECT count(*) FROM jobs j JOIN job_versions v ON v.job_id = j.id AND v.version = j.version
		WHERE v.spec -> 'schedule' IS DISTINCT FROM j.spec -> 'schedule' OR v.valid_to IS NOT NULL`); n != 0 {
		t.Errorf("%d jobs have another schedule than their version", n)
	}
	if n := query[int64](t, s, `SELECT min(version) FROM calendars`); n < 5 {
		t.Errorf("a calendar is at version %d: its edits were refused", n)
	}
}

// An edit of a job waits for a concurrent edit of its calendar and uses the new days.
func TestJobsWaitForTheirCalendar(t *testing.T) {
	s, _ := open(t)
	calendar(t, s, "c")
	job := create(t, s, "a", everySecond, inCalendar("c"))
	for n, write := range []func() error{
		func() error {
			_, err := s.CreateJob(t.Context(), spec("b", everySecond, inCalendar("c")), "test")
			return err
		},
		func() error {
			_, _, err := s.EditJob(t.Context(), job.ID, 0, "test", func(sp *domain.JobSpec) error {
				sp.Param = "x"
				return nil
			})
			return err
		},
	} {
		tx := pgtest.Begin(t, s.Pool())
		t.Cleanup(func() { _ = tx.Rollback(context.Background()) }) // an open transaction would block the closing of the store
		days := fmt.Sprintf(`{"weekdays": [], "dates": ["2030-05-0%d"]}`, n+1)
		if _, err := tx.Exec(t.Context(), `UPDATE calendars SET days_off = $1`, days); err != nil {
			t.Fatal(err)
		}
		written := make(chan error, 1)
		go func() { written <- write() }()
		waitUntil(t, func() bool {
			return query[int64](t, s, `SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'`) > 0
		})
		if err := tx.Commit(t.Context()); err != nil {
			t.Fatal(err)
		}
		if err := <-written; err != nil {
			t.Fatal(err)
		}
		if got := query[string](t, s, `SELECT (spec -> 'schedule' -> 'days_off')::text FROM jobs ORDER BY updated_at DESC LIMIT 1`); !strings.Contains(got, fmt.Sprintf("2030-05-0%d", n+1)) {
			t.Errorf("written meanwhile, job %d has the days %s", n, got)
		}
	}
}
