package store_test

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/belfryhq/belfry/internal/domain"
	"github.com/belfryhq/belfry/internal/engine"
	"github.com/belfryhq/belfry/internal/event"
	"github.com/belfryhq/belfry/internal/store"
	"github.com/belfryhq/belfry/migrations"
)

// limit sets limits of group g, as JSON.
func limit(t testing.TB, s *store.Store, limits string) {
	t.Helper()
	exec(t, s, `UPDATE groups SET limits = limits || $1::jsonb WHERE name = 'g'`, limits)
}

// refused checks that err is a conflict with a text that contains all words.
func refused(t testing.TB, what string, err error, words ...string) {
	t.Helper()
	if domain.CodeOf(err) != domain.Conflict || err == nil {
		t.Fatalf("%s: %v", what, err)
	}
	for _, w := range words {
		if !strings.Contains(err.Error(), w) {
			t.Errorf("%s: the error lacks %q: %v", what, w, err)
		}
	}
}

func allowed(t testing.TB, what string, err error) {
	t.Helper()
	if err != nil {
		t.Fatalf("%s: %v", what, err)
	}
}

func renamed(name string) func(*domain.JobSpec) error {
	return func(s *domain.JobSpec) error { s.Description = name; return nil }
}

func TestJobsAreLimited(t *testing.T) {
	s, _ := open(t)
	exec(t, s, `INSERT INTO groups (name, token_sha256) VALUES ('other', 'y')`)
	limit(t, s, `{"max_jobs": 3}`)
	var jobs []domain.Job
	for i := range 3 {
		jobs = append(jobs, create(t, s, fmt.Sprint("j", i)))
	}
	_, err := s.CreateJob(t.Context(), spec("one-too-many"), "test")
	refused(t, "a fourth job", err, `"g"`, "max_jobs is 3", "would have 4 jobs", "belfry group set g --max-jobs N")
	if n := query[int](t, s, `SELECT count(*) FROM job_versions`); n != 3 {
		t.Errorf("%d versions are stored", n)
	}

	_, err = s.DeleteJob(t.Context(), jobs[0].ID, 0, "test")
	allowed(t, "a deletion", err)
	create(t, s, "instead")

	elsewhere := create(t, s, "elsewhere", func(s *domain.JobSpec) { s.Group = "other" })
	move := func(group string) func(*domain.JobSpec) error {
		return func(s *domain.JobSpec) error { s.Group = group; return nil }
	}
	_, _, err = s.EditJob(t.Context(), elsewhere.ID, 0, "test", move("g"))
	refused(t, "a job that moves into the group", err, "max_jobs is 3")
	_, _, err = s.EditJob(t.Context(), jobs[1].ID, 0, "test", move("other"))
	allowed(t, "a job that leaves the group", err)
	_, _, err = s.EditJob(t.Context(), elsewhere.ID, 0, "test", move("g"))
	allowed(t, "a job that takes its place", err)

	limit(t, s, `{"max_jobs": 1}`)
	_, _, err = s.EditJob(t.Context(), jobs[2].ID, 0, "test", renamed("above the limit"))
	allowed(t, "an edit in a group that is beyond a lowered limit", err)
}

func TestScriptVersionsAreLimited(t *testing.T) {
	s, _ := open(t)
	limit(t, s, `{"max_script_versions": 3}`)
	script := func(code string) *domain.Script { return &domain.Script{Language: "bash", Code: code} }
	first := create(t, s, "first", func(s *domain.JobSpec) { s.Handler, s.Script = "", script("echo 1") })
	second := create(t, s, "second", func(s *domain.JobSpec) { s.Handler, s.Script = "", script("echo 2") })
	edit := func(code string) error {
		_, _, err := s.EditJob(t.Context(), first.ID, 0, "test", func(s *domain.JobSpec) error { s.Script = script(code); return nil })
		return err
	}
	allowed(t, "the third version", edit("echo 3"))
	refused(t, "the fourth version", edit("echo 4"), `"g"`, "max_script_versions is 3", "would have 4", "--max-script-versions N")
	if n := query[int](t, s, `SELECT count(*) FROM scripts`); n != 3 {
		t.Errorf("%d versions are stored", n)
	}
	_, err := s.CreateJob(t.Context(), spec("third", func(s *domain.JobSpec) { s.Handler, s.Script = "", script("echo 5") }), "test")
	refused(t, "a job with a script", err, "max_script_versions")
	create(t, s, "without a script")
	_, _, err = s.EditJob(t.Context(), first.ID, 0, "test", renamed("the same script"))
	allowed(t, "an edit that keeps the script", err)

	// The versions of a deleted job stay stored, so they count.
	_, err = s.DeleteJob(t.Context(), second.ID, 0, "test")
	allowed(t, "a deletion", err)
	refused(t, "a version after a deletion", edit("echo 6"), "max_script_versions")
}

func TestFiresPerMinuteAreLimited(t *testing.T) {
	s, _ := open(t)
	exec(t, s, `INSERT INTO groups (name, token_sha256) VALUES ('other', 'y')`)
	usage := func() int {
		return query[int](t, s, `SELECT sum(fires) FROM group_usage WHERE group_name = 'g'`)
	}
	limit(t, s, `{"max_fires_per_minute": 180}`)
	first, second := create(t, s, "first", everySecond), create(t, s, "second", everySecond)
	create(t, s, "without a schedule")
	hourly := create(t, s, "hourly", func(s *domain.JobSpec) {
		s.Schedule = domain.Schedule{Kind: domain.ScheduleCron, Expr: "0 * * * *"}
	})
	if n := usage(); n != 121 {
		t.Fatalf("the usage is %d", n)
	}
	_, err := s.CreateJob(t.Context(), spec("third", everySecond), "test")
	refused(t, "a third job", err, `"g"`, "up to 181 fires per minute", "max_fires_per_minute is 180", "disable jobs", "--max-fires-per-minute N")

	off := create(t, s, "off", everySecond, func(s *domain.JobSpec) { s.Enabled = false })
	_, _, err = s.SetEnabled(t.Context(), off.ID, true, 0, "test")
	refused(t, "enabling a job", err, "max_fires_per_minute is 180")
	_, _, err = s.EditJob(t.Context(), hourly.ID, 0, "test", func(s *domain.JobSpec) error { everySecond(s); return nil })
	allowed(t, "an edit up to the limit", err)
	_, _, err = s.EditJob(t.Context(), hourly.ID, 0, "test", func(s *domain.JobSpec) error {
		s.Schedule = domain.Schedule{Kind: domain.ScheduleFixedDelay, Delay: domain.Duration(time.Millisecond)}
		return nil
	})
	refused(t, "an edit beyond the limit", err, "up to 60120 fires per minute")
	_, err = s.CreateJob(t.Context(), spec("broadcast", func(s *domain.JobSpec) {
		s.Schedule = domain.Schedule{Kind: domain.ScheduleCron, Expr: "0 * * * *"}
		s.Route, s.Shards = domain.RouteBroadcast, 1000
	}), "test")
	refused(t, "a broadcast", err, "up to 1180 fires per minute")
	elsewhere := create(t, s, "elsewhere", everySecond, func(s *domain.JobSpec) { s.Group = "other" })
	_, _, err = s.EditJob(t.Context(), elsewhere.ID, 0, "test", func(s *domain.JobSpec) error { s.Group = "g"; return nil })
	refused(t, "a job that moves into the group", err, "max_fires_per_minute is 180")

	// A lowered limit stops no job. Jobs can still be changed, but not so that they fire more often.
	limit(t, s, `{"max_fires_per_minute": 30}`)
	_, _, err = s.EditJob(t.Context(), first.ID, 0, "test", renamed("above the limit"))
	allowed(t, "an edit that keeps the schedule", err)
	_, _, err = s.EditJob(t.Context(), first.ID, 0, "test", func(s *domain.JobSpec) error {
		s.Schedule.Every = domain.Duration(2 * time.Second)
		return nil
	})
	allowed(t, "an edit that lowers the usage, but not below the limit", err)
	_, _, err = s.EditJob(t.Context(), first.ID, 0, "test", func(s *domain.JobSpec) error { everySecond(s); return nil })
	refused(t, "an edit that raises the usage", err, "max_fires_per_minute is 30")
	planned, err := s.PlanDue(t.Context(), 10, false)
	if err != nil || len(planned.Runs) == 0 {
		t.Errorf("jobs of a group beyond its limit plan %d runs: %v", len(planned.Runs), err)
	}
	for _, id := range []domain.JobID{second.ID, hourly.ID} {
		_, _, err = s.SetEnabled(t.Context(), id, false, 0, "test")
		allowed(t, "disabling a job", err)
	}
	if n := usage(); n != 30 {
		t.Errorf("in the end, the usage is %d", n)
	}
}

// An older release that runs beside this one stores and edits jobs without their fires per minute.
func TestFiresOfAnOlderRelease(t *testing.T) {
	s, _ := open(t)
	usage := func() int { return query[int](t, s, `SELECT sum(fires) FROM group_usage`) }
	jobs := []domain.Job{create(t, s, "a", everySecond), create(t, s, "b", everySecond)}
	calendar(t, s, "c")
	create(t, s, "c", everySecond, inCalendar("c"))
	exec(t, s, `UPDATE jobs SET fires_per_minute = 0, fires_version = 0 WHERE id = $1`, jobs[0].ID)
	exec(t, s, `UPDATE jobs SET version = version + 1, spec = jsonb_set(spec, '{schedule,every}', '"30s"') WHERE id = $1`, jobs[1].ID)
	setDates(t, s, "c", domain.Date(20301224))
	if n := usage(); n != 120 {
		t.Fatalf("before, the usage is %d", n)
	}
	unknown := `SELECT count(*) FROM jobs WHERE fires_version <> version`
	if n := query[int](t, s, unknown); n != 2 {
		t.Fatalf("the fires of %d jobs are not known", n)
	}
	allowed(t, "TendUsage", s.TendUsage(t.Context()))
	if n, left := usage(), query[int](t, s, unknown); n != 122 || left != 0 {
		t.Errorf("the usage is %d, and the fires of %d jobs are not known", n, left)
	}
}

// countLive counts the live runs of all groups now.
func countLive(t testing.TB, s *store.Store) {
	t.Helper()
	exec(t, s, `UPDATE group_live_mark SET next_at = 'epoch'`)
	allowed(t, "CountLiveRuns", s.CountLiveRuns(t.Context()))
}

func TestLiveRunsAreLimited(t *testing.T) {
	s, _ := open(t)
	overflows := make(map[store.Overflow]int)
	s.OnOverflow(func(_ context.Context, o store.Overflow) { overflows[o]++ })
	job := create(t, s, "j", parallel, func(s *domain.JobSpec) {
		s.Schedule = domain.Schedule{Kind: domain.ScheduleCron, Expr: "* * * * *"}
		s.Enabled = false
	})
	limit(t, s, `{"max_live_runs": 3}`)
	limited := func(what string, err error, words ...string) {
		t.Helper()
		if domain.CodeOf(err) != domain.Limited || err == nil {
			t.Fatalf("%s: %v", what, err)
		}
		for _, w := range words {
			if !strings.Contains(err.Error(), w) {
				t.Errorf("%s: the error lacks %q: %v", what, w, err)
			}
		}
	}
	byHand := func() error {
		_, err := s.Trigger(t.Context(), job.ID, domain.Trigger{Cause: domain.CauseManual})
		return err
	}
	ids := trigger(t, s, job.ID, 3) // the process adds them to the last count
	limited("a fourth run", byHand(), `"g"`, "about 3 unfinished runs", "max_live_runs is 3", "belfry group set g --max-live-runs N")
	countLive(t, s)
	limited("a fourth run after the count", byHand(), "about 3 unfinished runs")

	ended := admit(t, s, claim(t, s)).Bound[0]
	settle(t, s, settled, engine.Ended{
		RunID: ended.ID, Attempt: 1, Instance: ended.Instance, BootID: ended.BootID, Outcome: domain.OutcomeSucceeded, FinishedAt: s.Now(),
	})
	limited("before the next count", byHand(), "about 3")
	countLive(t, s)
	retry := func() error { _, err := s.RetryRun(t.Context(), ended.ID, "test"); return err }
	allowed(t, "a retry", retry())
	limited("another retry", retry(), "about 3")

	exec(t, s, `DELETE FROM runs_live`)
	countLive(t, s)
	exec(t, s, `UPDATE job_versions SET created_at = now() - interval '1 hour'`)
	from := s.Now().Add(-10 * time.Minute)
	backfill := func(most int) error {
		_, err := s.Backfill(t.Context(), job.ID, domain.Backfill{From: from, To: s.Now(), Max: most})
		return err
	}
	limited("a backfill of four runs", backfill(4), "about 0 unfinished runs", "4 more")
	if n := query[int](t, s, `SELECT count(*) FROM runs_live`); n != 0 {
		t.Fatalf("the refused backfill planned %d runs", n)
	}
	allowed(t, "a backfill of three runs", backfill(3))
	limited("a run after the backfill", byHand())
	want := map[store.Overflow]int{
		{Group: "g", Cause: domain.CauseManual, Runs: 1}:   5,
		{Group: "g", Cause: domain.CauseBackfill, Runs: 4}: 1,
	}
	if !maps.Equal(overflows, want) {
		t.Errorf("the overflows were %v", overflows)
	}
	if len(ids) != 3 {
		t.Errorf("%d runs were triggered", len(ids))
	}
}

// Runs of events and children that a group has no room for are in the history.
func TestRunsBeyondTheLimitAreSkipped(t *testing.T) {
	s, ups := open(t)
	overflows := make(map[store.Overflow]int)
	s.OnOverflow(func(_ context.Context, o store.Overflow) { overflows[o]++ })
	limit(t, s, `{"max_live_runs": 2}`)
	exec(t, s, `INSERT INTO groups (name, token_sha256) VALUES ('other', 'y')`)
	after := create(t, s, "after")
	delayed := create(t, s, "delayed", func(s *domain.JobSpec) {
		s.Schedule = domain.Schedule{Kind: domain.ScheduleFixedDelay, Delay: domain.Duration(time.Hour)}
		s.Children = []domain.Child{{JobID: after.ID, On: domain.OnAlways}}
	})
	free := create(t, s, "free", func(s *domain.JobSpec) { s.Group = "other" })
	trigger(t, s, after.ID, 1)
	countLive(t, s)

	id := domain.NewRunID(s.Now())
	var runs []event.Run
	for i, job := range []domain.JobID{delayed.ID, delayed.ID, free.ID} {
		runs = append(runs, event.Run{RunID: domain.NewRunID(s.Now().Add(time.Duration(i) * time.Millisecond)), JobID: job, EventID: id})
	}
	plan := func() (ended []engine.Change) {
		t.Helper()
		err := s.Tx(t.Context(), func(tx pgx.Tx) (err error) {
			_, ended, err = s.PlanEventRunsTx(t.Context(), tx, runs)
			return err
		})
		allowed(t, "plan the runs of an event", err)
		return ended
	}
	isSkipped := func(what string, ended []engine.Change, cause domain.Cause) {
		t.Helper()
		if len(ended) != 1 || ended[0].JobID != delayed.ID || ended[0].Group != "g" || ended[0].Cause != cause ||
			ended[0].State != domain.Skipped || ended[0].Reason != domain.ReasonQueueFull {
			t.Errorf("%s: the ended runs are %+v", what, ended)
		}
	}
	isSkipped("runs of an event", plan(), domain.CauseEvent)
	const states = `SELECT string_agg(state || '/' || reason, ' ' ORDER BY id) FROM runs WHERE cause = $1`
	if got := query[string](t, s, states, "event"); got != "pending/ skipped/queue_full pending/" {
		t.Errorf("the event's runs are %s", got)
	}
	message := query[string](t, s, `SELECT message FROM runs_history`)
	if !strings.Contains(message, "max_live_runs is 2") {
		t.Errorf("the message is %q", message)
	}
	if len(ups.ups) != 1 || ups.ups[0].ChildJob != after.ID {
		t.Errorf("the follow-ups are %+v", ups.ups)
	}
	if ended := plan(); len(ended) != 0 {
		t.Errorf("a repeat of the same events has ended %+v", ended)
	}
	if n := query[int](t, s, `SELECT count(*) FROM runs_live`); n != 3 {
		t.Errorf("after a repeat, there are %d live runs", n)
	}

	child := func(parent domain.RunID, job domain.JobID) (ended []engine.Change) {
		t.Helper()
		err := s.Tx(t.Context(), func(tx pgx.Tx) (err error) {
			ended, err = s.PlanChildTx(t.Context(), tx, parent, job, s.Now().Truncate(24*time.Hour))
			return err
		})
		allowed(t, "plan a child", err)
		return ended
	}
	isSkipped("a child", child(runs[0].RunID, delayed.ID), domain.CauseChild)
	if ended := child(runs[0].RunID, delayed.ID); len(ended) != 0 {
		t.Errorf("a repeat of the same child has ended %+v", ended)
	}
	if got := query[string](t, s, states, "child"); got != "skipped/queue_full" {
		t.Errorf("the child's runs are %s", got)
	}
	exec(t, s, `DELETE FROM runs_live WHERE group_name = 'g'`)
	countLive(t, s)
	if ended := child(runs[1].RunID, after.ID); len(ended) != 0 {
		t.Errorf("with room, a child has ended %+v", ended)
	}
	if n := query[int](t, s, `SELECT count(*) FROM runs_live WHERE cause = 'child'`); n != 1 {
		t.Errorf("with room, %d runs of children are live", n)
	}
	want := map[store.Overflow]int{
		{Group: "g", Cause: domain.CauseEvent, Runs: 1}: 1,
		{Group: "g", Cause: domain.CauseChild, Runs: 1}: 1,
	}
	if !maps.Equal(overflows, want) {
		t.Errorf("the overflows were %v", overflows)
	}
}

// Several processes share the count, and none counts before its time.
func TestLiveRunsAreCountedOnce(t *testing.T) {
	s, _ := open(t)
	job := create(t, s, "j", parallel)
	trigger(t, s, job.ID, 2)
	countLive(t, s)
	at := query[time.Time](t, s, `SELECT counted_at FROM group_live_mark`)
	trigger(t, s, job.ID, 1)
	exec(t, s, `UPDATE group_live_mark SET next_at = now() + interval '1 hour'`)
	allowed(t, "CountLiveRuns", s.CountLiveRuns(t.Context()))
	if again := query[time.Time](t, s, `SELECT counted_at FROM group_live_mark`); !again.Equal(at) {
		t.Errorf("counted again at %s, after %s", again, at)
	}
	check := func(want int64) {
		t.Helper()
		if n := query[int64](t, s, `SELECT coalesce(sum(runs), 0)::bigint FROM group_live_runs WHERE group_name = 'g'`); n != want {
			t.Errorf("%d live runs were counted, not %d", n, want)
		}
	}
	check(2)
	countLive(t, s)
	check(3)
	exec(t, s, `DELETE FROM runs_live`)
	countLive(t, s)
	check(0)
	if left := query[time.Duration](t, s, `SELECT next_at - now() FROM group_live_mark`); left <= 0 {
		t.Errorf("the next count is in %s", left)
	}
}

func TestLogBytes(t *testing.T) {
	s, _ := open(t)
	exec(t, s, `INSERT INTO groups (name, token_sha256, limits) VALUES ('small', 'y', '{"max_log_bytes_per_day": 100}'), ('huge', 'z', '{}')`)
	chunk := func(run domain.RunID, first int64, group string, bytes int64) store.LogChunk {
		return store.LogChunk{RunID: run, Attempt: 1, First: first, Last: first, Lines: []byte("x"), Group: group, TextBytes: bytes}
	}
	check := func(what, bytes string, over ...string) {
		t.Helper()
		if got := query[string](t, s, `SELECT coalesce(string_agg(group_name || ' ' || bytes, ',' ORDER BY group_name), '') FROM group_log_bytes`); got != bytes {
			t.Errorf("%s: the log bytes are %q, not %q", what, got, bytes)
		}
		if got, err := s.GroupsOverLogLimit(t.Context()); err != nil || !slices.Equal(got, over) {
			t.Errorf("%s: beyond the limit are %v, not %v: %v", what, got, over, err)
		}
	}
	a, b := domain.NewRunID(s.Now()), domain.NewRunID(s.Now())
	batch := []store.LogChunk{
		chunk(a, 1, "small", 60), chunk(a, 2, "small", 39), chunk(b, 1, "g", 1000), chunk(b, 2, "", 7),
	}
	check("before", "")
	allowed(t, "StoreLogs", s.StoreLogs(t.Context(), batch))
	check("below", "g 1000,small 99")
	allowed(t, "StoreLogs", s.StoreLogs(t.Context(), append(batch, chunk(a, 3, "small", 1))))
	check("at the limit, after a repeated delivery", "g 1000,small 100", "small")
	const gib = 1 << 30
	allowed(t, "StoreLogs", s.StoreLogs(t.Context(), []store.LogChunk{chunk(b, 3, "huge", 50*gib)}))
	check("at the default", fmt.Sprint("g 1000,huge ", 50*gib, ",small 100"), "huge", "small")
	if n := query[int](t, s, `SELECT count(*) FROM run_logs`); n != 6 {
		t.Errorf("%d chunks are stored", n)
	}
	exec(t, s, `UPDATE group_log_bytes SET day = day - 1`)
	if got, err := s.GroupsOverLogLimit(t.Context()); len(got) != 0 || err != nil {
		t.Errorf("the day after, %v are beyond the limit: %v", got, err)
	}
	exec(t, s, `UPDATE group_log_bytes SET day = day - 7 WHERE group_name = 'huge'`)
	allowed(t, "TendUsage", s.TendUsage(t.Context()))
	check("after a week", "g 1000,small 100")
}

// Batches with the same groups in another order do not deadlock, and no byte is lost.
func TestLogBytesOfConcurrentBatches(t *testing.T) {
	s, _ := open(t)
	groups := []string{"a", "b", "c", "d"}
	const tasks, batches = 6, 10
	var wait sync.WaitGroup
	for i := range tasks {
		wait.Go(func() {
			for range batches {
				var chunks []store.LogChunk
				for j := range groups {
					chunks = append(chunks, store.LogChunk{
						RunID: domain.NewRunID(s.Now()), Attempt: 1, First: 1, Last: 1, Lines: []byte("x"), Group: groups[(i+j)%len(groups)], TextBytes: 1,
					})
				}
				if err := s.StoreLogs(t.Context(), chunks); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wait.Wait()
	got := column[int64](t, s, `SELECT sum(bytes)::bigint FROM group_log_bytes GROUP BY group_name`)
	if want := slices.Repeat([]int64{tasks * batches}, len(groups)); !slices.Equal(got, want) {
		t.Errorf("the groups have %v bytes, not %v", got, want)
	}
}

// Transactions that run at the same time fill the group exactly up to its limit.
func TestJobLimitIsExact(t *testing.T) {
	s, _ := open(t)
	const limited, tasks, each = 20, 8, 5
	limit(t, s, fmt.Sprintf(`{"max_jobs": %d}`, limited))
	var mu sync.Mutex
	made, full := 0, 0
	var wait sync.WaitGroup
	for i := range tasks {
		wait.Go(func() {
			for j := range each {
				_, err := s.CreateJob(t.Context(), spec(fmt.Sprint(i, "-", j)), "test")
				mu.Lock()
				switch {
				case err == nil:
					made++
				case domain.CodeOf(err) == domain.Conflict:
					full++
				default:
					t.Error(err)
				}
				mu.Unlock()
			}
		})
	}
	wait.Wait()
	if n := query[int](t, s, `SELECT count(*) FROM jobs`); made != limited || n != limited || full != tasks*each-limited {
		t.Errorf("%d jobs were created and %d refused; there are %d", made, full, n)
	}
}

// The usage of a group has few rows, whatever happened before.
func TestUsageStaysSmall(t *testing.T) {
	s, _ := open(t)
	const most = 64 + 1
	var jobs []domain.Job
	for i := range 150 {
		jobs = append(jobs, create(t, s, fmt.Sprint("j", i)))
		if n := query[int](t, s, `SELECT count(*) FROM group_usage`); n > most {
			t.Fatalf("the usage has %d rows after %d jobs", n, i+1)
		}
	}
	for _, j := range jobs[1:] {
		_, err := s.DeleteJob(t.Context(), j.ID, 0, "test")
		allowed(t, "a deletion", err)
	}
	if n := query[int](t, s, `SELECT count(*) FROM group_usage`); n <= most {
		t.Fatalf("the deletions left %d rows, too few for the test", n)
	}
	allowed(t, "TendUsage", s.TendUsage(t.Context()))
	if n := query[int](t, s, `SELECT count(*) FROM group_usage`); n != 1 {
		t.Errorf("the usage has %d rows", n)
	}
	limit(t, s, `{"max_jobs": 2}`)
	create(t, s, "second")
	_, err := s.CreateJob(t.Context(), spec("third"), "test")
	refused(t, "a third job", err, "would have 3 jobs")
}

// The migrations count what an older release has stored.
func TestUsageOfAnOlderRelease(t *testing.T) {
	s, _ := open(t)
	withScript := func(s *domain.JobSpec) { s.Handler, s.Script = "", &domain.Script{Language: "bash", Code: "true"} }
	gone := create(t, s, "gone", withScript)
	_, err := s.DeleteJob(t.Context(), gone.ID, 0, "test")
	allowed(t, "a deletion", err)
	create(t, s, "a", withScript)
	create(t, s, "b")
	usage := `SELECT string_agg(format('%s %s %s', group_name, jobs, script_versions), ',') FROM
		(SELECT group_name, sum(jobs) AS jobs, sum(script_versions) AS script_versions FROM group_usage GROUP BY 1) u`
	const want = "g 2 2"
	if got := query[string](t, s, usage); got != want {
		t.Fatalf("the usage is %s, not %s", got, want)
	}
	files := []string{"00036_group_usage.sql", "00037_group_scripts_runs_logs.sql"}
	var ups [2]string
	for i := len(files) - 1; i >= 0; i-- {
		text, err := migrations.FS.ReadFile(files[i])
		allowed(t, "read a migration", err)
		up, down, _ := strings.Cut(string(text), "-- +goose Down")
		ups[i] = up
		exec(t, s, down)
	}
	for _, up := range ups {
		if _, err := s.Pool().Exec(t.Context(), "BEGIN;"+up+";COMMIT"); err != nil {
			t.Fatal(err)
		}
	}
	if got := query[string](t, s, usage); got != want {
		t.Errorf("after the update, the usage is %s, not %s", got, want)
	}
}
