package firecheck

import (
	"strings"
	"testing"
	"time"

	"github.com/belfryhq/belfry/internal/domain"
	"github.com/belfryhq/belfry/internal/explain"
	"github.com/belfryhq/belfry/internal/schedule"
)

func compile(t *testing.T, s domain.Schedule) *schedule.Schedule {
	t.Helper()
	if s.Kind == domain.ScheduleCron {
		s.Dialect = domain.DialectStandard
	}
	compiled, err := schedule.Compile(s, schedule.Options{CreatedAt: noon})
	if err != nil {
		t.Fatal(err)
	}
	return compiled
}

func instant(t *testing.T, s string) time.Time {
	t.Helper()
	at, err := time.Parse(time.RFC3339, s)
	if err != nil {
		t.Fatal(err)
	}
	return at.UTC()
}

// everySecond returns the facts of a job that has fired every second since noon.
func everySecond(t *testing.T) *Facts {
	t.Helper()
	s := compile(t, domain.Schedule{Kind: domain.ScheduleCron, Expr: "* * * * * *"})
	return &Facts{
		Job: &Job{ID: jobID, Name: "tick", Group: "g", NextFire: noon.Add(2 * time.Hour), Versions: []Version{
			{Number: 1, Group: "g", From: noon, Enabled: true, Schedule: s, Misfire: domain.MisfireSkip, Change: "created", By: "ann"},
		}},
		Runs: make(map[domain.RunID][]Run), Kept: func(time.Time) bool { return true },
		Now: noon.Add(time.Hour), Tolerance: 5 * time.Second,
	}
}

// at is the fire time that tests with everySecond explain.
var at = noon.Add(10 * time.Second)

func (f *Facts) one(claim Claim) Finding { return f.Explain(Fire{Time: at, Due: at, Claim: claim}) }

func ms(n int64) *int64 { return &n }

func TestExplainRuns(t *testing.T) {
	other := domain.ScheduledRunID(99, noon, 0)
	good := Run{
		State: domain.Succeeded, Cause: domain.CauseSchedule, Attempt: 1, Version: 1, Instance: "i1", DueAt: at,
		DispatchedAt: at.Add(-time.Second), StartedAt: at, FinishedAt: at.Add(time.Second), LatenessMS: ms(0),
	}
	for _, c := range []struct {
		name string
		edit func(*Run)
		away bool // no scheduler was running around noon
		fate Fate
		text string
	}{
		{"in time", func(*Run) {}, false, FateRan, "succeeded"},
		{"a little late", func(r *Run) { r.StartedAt = at.Add(5 * time.Second) }, false, FateRan, "succeeded"},
		{"running", func(r *Run) { r.State = domain.Running }, false, FateRan, "running on instance i1"},
		{"retrying", func(r *Run) { r.State, r.StartedAt = domain.Retrying, time.Time{} }, false, FateRan, "waits for attempt 2"},
		{"started slowly", func(r *Run) { r.StartedAt = at.Add(6 * time.Second) }, false, FateLate, "6s late: instance i1 started it only at"},
		{"waited for an executor", func(r *Run) {
			r.DispatchedAt, r.StartedAt = at.Add(20*time.Second), at.Add(20*time.Second)
		}, false, FateLate, "20s late: no executor could take it before"},
		{"waited for a scheduler", func(r *Run) {
			r.DispatchedAt, r.StartedAt = at.Add(20*time.Second), at.Add(20*time.Second)
		}, true, FateLate, "20s late: no scheduler was at work from"},
		{"held", func(r *Run) {
			r.DueAt, r.DispatchedAt, r.StartedAt = at.Add(9*time.Second), at.Add(9*time.Second), at.Add(9*time.Second)
		}, false, FateLate, "9s late: the job's block policy held it back until"},
		{"made up for", func(r *Run) {
			r.Cause, r.DueAt, r.StartedAt = domain.CauseMisfire, at.Add(time.Minute), at.Add(time.Minute)
		}, true, FateLate, "1m0s late: no scheduler was at work from 2026-03-28 12:00:00Z to 2026-03-28 12:01:00Z, and the misfire policy made up for it"},
		{"made up for after a pause", func(r *Run) {
			r.Cause, r.DueAt, r.StartedAt = domain.CauseMisfire, at.Add(time.Minute), at.Add(time.Minute)
		}, false, FateLate, "1m0s late: group g was paused from 2026-03-28 12:00:00Z to"},
		{"a late first attempt", func(r *Run) { r.Attempt, r.LatenessMS = 3, ms(7000) }, false, FateLate, "7s late"},
		{"held still", func(r *Run) {
			r.State, r.StartedAt, r.LatenessMS, r.HeldBy = domain.Pending, time.Time{}, nil, &other
		}, false, FateHeld, other.String()},
		{"discarded", func(r *Run) {
			r.State, r.Reason, r.StartedAt, r.LatenessMS, r.Message = domain.Skipped, domain.ReasonDiscarded, time.Time{}, nil, "run x was unfinished"
		}, false, FateNotStarted, "discard_later, and run x was unfinished"},
		{"no executor", func(r *Run) {
			r.State, r.Reason, r.StartedAt, r.LatenessMS, r.Message = domain.Failed, domain.ReasonNoExecutor, time.Time{}, nil, "no instance of group g"
		}, false, FateNotStarted, "failed (no_executor) without a start: no instance of group g"},
		{"waits", func(r *Run) {
			r.State, r.StartedAt, r.LatenessMS, r.Instance, r.Waiting = domain.Queued, time.Time{}, nil, "", explain.Sentence("all are full")
		}, false, FateWaiting, "all are full"},
		{"offered", func(r *Run) { r.State, r.StartedAt, r.LatenessMS = domain.Queued, time.Time{}, nil }, false, FateWaiting, "given to instance i1"},
		{"nobody fires it", func(r *Run) { r.State, r.StartedAt, r.LatenessMS = domain.Pending, time.Time{}, nil }, false, FateLate, "no scheduler has fired it"},
		{"a shard is gone", func(r *Run) { r.Shards, r.Missing = 4, 1 }, false, FateUnexplained, "1 of the 4 shards of its run are missing"},
	} {
		t.Run(c.name, func(t *testing.T) {
			f := everySecond(t)
			if c.away {
				f.Away = []Gap{{From: noon, To: noon.Add(time.Minute)}}
			}
			if strings.Contains(c.name, "pause") {
				f.Paused = []domain.Pause{{Group: "g", From: noon, To: noon.Add(time.Minute), By: "ann"}}
			}
			r := good
			r.ID, r.FireTime = domain.ScheduledRunID(jobID, at, 0), at
			c.edit(&r)
			f.Runs[r.ID] = []Run{r}
			if got := f.one(Owned); got.Fate != c.fate || !strings.Contains(got.Text, c.text) || got.RunID != r.ID {
				t.Errorf("%s: %q, want %s: %q", got.Fate, got.Text, c.fate, c.text)
			}
			f.Runs[r.ID] = []Run{r, r}
			if got := f.one(Owned); got.Fate != FateDoubled {
				t.Errorf("with two runs, the fate is %s", got.Fate)
			}
		})
	}
}

func TestExplainWithoutRuns(t *testing.T) {
	for _, c := range []struct {
		name  string
		claim Claim
		edit  func(*Facts)
		fate  Fate
		text  string
	}{
		{"nothing", Owned, func(*Facts) {}, FateUnexplained, "version 1 of the job was in force"},
		{"ledger", Owned, func(f *Facts) {
			f.Missed = []Missed{{ID: 3, Missed: domain.Missed{First: domain.At(noon), Last: domain.At(at), Count: 9, Why: explain.Sentence("no scheduler served them")}}}
		}, FateMissed, "no scheduler served them"},
		{"ledger and no scheduler", Owned, func(f *Facts) {
			f.Missed = []Missed{{ID: 3, Missed: domain.Missed{First: domain.At(noon), Last: domain.At(at), Count: 9, Why: explain.Sentence("late")}}}
			f.Away = []Gap{{From: noon.Add(time.Second), To: at.Add(time.Minute)}}
		}, FateMissed, "late; no scheduler was at work from 2026-03-28 12:00:01Z to 2026-03-28 12:01:10Z"},
		{"the ledger of another time", Owned, func(f *Facts) {
			f.Missed = []Missed{{ID: 3, Missed: domain.Missed{First: domain.At(noon), Last: domain.At(at.Add(-1e6)), Count: 9}}}
		}, FateUnexplained, ""},
		{"not due", Owned, func(f *Facts) { f.Now = at.Add(-time.Second) }, FateNotDue, "due at"},
		{"a moment ago", Owned, func(f *Facts) { f.Now = at.Add(time.Second) }, FateUndecided, "a moment ago"},
		{"undecided", Owned, func(f *Facts) { f.Job.NextFire = at }, FateUndecided, "planning has not decided it"},
		{"undecided, nobody there", Owned, func(f *Facts) {
			f.Job.NextFire, f.Away = at.Add(-time.Minute), []Gap{{From: noon}}
		}, FateSchedulerAway, "no scheduler has been at work since 2026-03-28 12:00:00Z"},
		{"no next fire time", Owned, func(f *Facts) { f.Job.NextFire = time.Time{} }, FateUnexplained, ""},
		{"the group is paused", Owned, func(f *Facts) {
			f.Job.NextFire, f.Paused = at.Add(-time.Minute), []domain.Pause{{Group: "g", From: noon, Reason: "new disks", By: "ann"}}
		}, FatePaused, "group g has been paused since 2026-03-28 12:00:00Z by ann (new disks); after the pause, the misfire policy skip decides"},
		{"missed before the pause", Owned, func(f *Facts) {
			f.Job.NextFire, f.Paused = at.Add(-time.Minute), []domain.Pause{{Group: "g", From: at.Add(time.Second), By: "ann"}}
		}, FatePaused, "group g has been paused since"},
		{"another group is paused", Owned, func(f *Facts) {
			f.Job.NextFire, f.Paused = at, []domain.Pause{{Group: "other", From: noon, By: "ann"}}
		}, FateUndecided, ""},
		{"the job is paused", Owned, func(f *Facts) {
			f.Job.NextFire, f.Paused = at.Add(-time.Minute), []domain.Pause{{JobID: jobID, From: noon, Reason: "new disks", By: "ann"}}
		}, FatePaused, "the job has been paused since 2026-03-28 12:00:00Z by ann (new disks); after the pause, the misfire policy skip decides"},
		{"the job and its group are paused", Owned, func(f *Facts) {
			f.Job.NextFire, f.Paused = at, []domain.Pause{{Group: "g", From: noon, By: "ann"}, {JobID: jobID, From: noon, By: "bob"}}
		}, FatePaused, "group g has been paused since 2026-03-28 12:00:00Z by ann; the job has been paused since 2026-03-28 12:00:00Z by bob; after"},
		{"its group was paused, and now the job is", Owned, func(f *Facts) {
			f.Job.NextFire = at
			f.Paused = []domain.Pause{{Group: "g", From: noon, To: at.Add(time.Second), By: "ann"}, {JobID: jobID, From: at.Add(time.Second), By: "bob"}}
		}, FatePaused, "by ann; the job has been paused since 2026-03-28 12:00:11Z by bob; after"},
		{"another job is paused", Owned, func(f *Facts) {
			f.Job.NextFire, f.Paused = at, []domain.Pause{{JobID: jobID + 1, Group: "", From: noon, By: "ann"}}
		}, FateUndecided, ""},
		{"the group was paused, and the ledger does not say so", Owned, func(f *Facts) {
			f.Missed = []Missed{{ID: 3, Missed: domain.Missed{First: domain.At(noon), Last: domain.At(at), Count: 9, Why: explain.Sentence("late")}}}
			f.Paused = []domain.Pause{{Group: "g", From: noon, To: at.Add(time.Second), By: "ann"}}
		}, FateMissed, "late; group g was paused from 2026-03-28 12:00:00Z to"},
		{"the group was paused, which explains no loss", Owned, func(f *Facts) {
			f.Paused = []domain.Pause{{Group: "g", From: noon, To: at.Add(time.Second), By: "ann"}}
		}, FateUnexplained, ""},
		{"the day is dropped", Owned, func(f *Facts) { f.Kept = func(time.Time) bool { return false } }, FateRetention, "no longer kept"},
		{"the job's retention", Owned, func(f *Facts) { f.Job.Versions[0].Retention = time.Minute }, FateRetention, "1m0s"},
		{"disabled", Disabled, func(f *Facts) {
			f.Job.Versions[0].Change, f.Job.Versions[0].To = "disabled", noon.Add(time.Minute)
		}, FateDisabled, "version 1 (disabled by ann at 2026-03-28 12:00:00Z) was in force until 2026-03-28 12:01:00Z"},
		{"edited", Cut, func(f *Facts) {
			v := f.Job.Versions[0]
			v.Number, v.From, v.Change, v.By = 2, noon.Add(5*time.Second), "edited", "bob"
			f.Job.Versions[0].To = v.From
			f.Job.Versions = append(f.Job.Versions, v)
		}, FateEdited, "ended before that, with version 2 (edited by bob at 2026-03-28 12:00:05Z)"},
		{"passed over", Owned, func(f *Facts) {
			f.Job.Versions[0].From = at.Add(time.Second)
			f.Later = map[int64]time.Time{at.UnixMilli(): at.Add(2 * time.Second)}
		}, FateEdited, "a later fire time, 2026-03-28 12:00:12Z, had been decided"},
	} {
		t.Run(c.name, func(t *testing.T) {
			f := everySecond(t)
			c.edit(f)
			if got := f.one(c.claim); got.Fate != c.fate || !strings.Contains(got.Text, c.text) || !got.RunID.IsZero() {
				t.Errorf("%s: %q, want %s: %q", got.Fate, got.Text, c.fate, c.text)
			}
		})
	}
}

// cronFacts returns the facts of a job that was created long ago and has one version.
func cronFacts(t *testing.T, s domain.Schedule) *Facts {
	t.Helper()
	f := everySecond(t)
	f.Job.Versions[0].Schedule = compile(t, s)
	f.Job.Versions[0].From = noon.AddDate(-1, 0, 0)
	f.Now, f.Job.NextFire = noon.AddDate(1, 0, 0), noon.AddDate(2, 0, 0)
	return f
}

func TestWhyAndTheClocks(t *testing.T) {
	berlin := domain.Schedule{Kind: domain.ScheduleCron, Expr: "30 2 * * *", TimeZone: "Europe/Berlin"}
	for _, c := range []struct {
		name, at string
		isFire   bool
		want     []string
	}{
		{"an ordinary day", "2026-03-27T02:30", true, []string{"2026-03-27 02:30:00+01:00 is a fire time of version 1 (created by ann at 2025-03-28 13:00:00+01:00): At 02:30 every day, Europe/Berlin."}},
		{"no fire time", "2026-03-27T02:31", false, []string{"is no fire time", "The nearest fire times are 2026-03-27 02:30:00+01:00 and 2026-03-28 02:30:00+01:00."}},
		{"skipped", "2026-03-29 02:30", true, []string{"The clocks of Europe/Berlin skipped 2026-03-29 02:30:00", "went forward by 1h0m0s", "2026-03-29 03:00:00+02:00 is a fire time"}},
		{"the end of the gap", "2026-03-29T01:00:00Z", true, []string{"went forward by 1h0m0s"}},
		{"twice, the first", "2026-10-25T02:30", true, []string{"showed 2026-10-25 02:30:00 twice; this answer is about the first time", "2026-10-25 02:30:00+02:00 is a fire time"}},
		{"twice, the second", "2026-10-25T01:30:00Z", false, []string{"The clocks had gone back by 1h0m0s", "is no fire time"}},
		{"before the job", "2020-01-01T02:30", false, []string{"did not exist yet: version 1 (created by ann"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			f := cronFacts(t, berlin)
			at, heard, err := ParseAt(c.at, f.Job, explain.English)
			if err != nil {
				t.Fatal(err)
			}
			w := f.Why(at, heard, Chain{})
			for _, want := range c.want {
				if !strings.Contains(w.Answer, want) {
					t.Errorf("%q is missing in: %s", want, w.Answer)
				}
			}
			if w.IsFireTime != c.isFire || w.TimeZone != "Europe/Berlin" {
				t.Errorf("%+v", w)
			}
			if c.isFire && w.Fate != FateUnexplained {
				t.Errorf("without a run, the fate is %s", w.Fate)
			}
		})
	}
}

func TestWhyElse(t *testing.T) {
	start, end := domain.At(noon), domain.At(noon.Add(time.Hour))
	minutely := domain.Schedule{Kind: domain.ScheduleCron, Expr: "* * * * *", StartAt: &start, EndAt: &end}
	for _, c := range []struct {
		name     string
		schedule domain.Schedule
		at       time.Time
		edit     func(*Facts)
		want     []string
	}{
		{"before the window", minutely, noon.Add(-time.Minute), nil, []string{"is no fire time", "Its start_at is 2026-03-28 12:00:00Z.", "The first fire time is 2026-03-28 12:00:00Z."}},
		{"after the window", minutely, noon.Add(2 * time.Hour), nil, []string{"Its end_at is 2026-03-28 13:00:00Z.", "The last fire time was 2026-03-28 13:00:00Z."}},
		{"no schedule", domain.Schedule{Kind: domain.ScheduleNone}, noon, nil, []string{"The job has no schedule"}},
		{"never", domain.Schedule{Kind: domain.ScheduleCron, Expr: "0 0 30 2 *"}, noon, nil, []string{"It has no fire times."}},
		{"deleted", minutely, noon.Add(time.Minute), func(f *Facts) {
			f.Job.Versions[0].To = noon
			f.Job.Versions = append(f.Job.Versions, Version{Number: 2, From: noon, Deleted: true, Change: "deleted", By: "bob"})
		}, []string{"did not exist any more: version 2 (deleted by bob at 2026-03-28 12:00:00Z)"}},
		{"disabled", minutely, noon.Add(time.Minute), func(f *Facts) { f.Job.Versions[0].Enabled = false }, []string{"is a fire time", "The job was disabled: version 1"}},
		{"does not compile", minutely, noon.Add(time.Minute), func(f *Facts) {
			f.Job.Versions[0].Schedule, f.Job.Versions[0].Fault = nil, "no such zone"
		}, []string{"no longer compiles: no such zone"}},
		{"jitter", domain.Schedule{Kind: domain.ScheduleCron, Expr: "* * * * *", Jitter: domain.Duration(50 * time.Second)}, noon.Add(time.Minute), nil,
			[]string{"Its jitter makes it due at 2026-03-28 12:01:"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			f := cronFacts(t, c.schedule)
			if c.edit != nil {
				c.edit(f)
			}
			w := f.Why(c.at, "", Chain{})
			for _, want := range c.want {
				if !strings.Contains(w.Answer, want) {
					t.Errorf("%q is missing in: %s", want, w.Answer)
				}
			}
		})
	}
}

func TestWhyOfAChain(t *testing.T) {
	f := cronFacts(t, domain.Schedule{Kind: domain.ScheduleFixedDelay, Delay: domain.Duration(time.Minute)})
	before := &Run{ID: domain.ScheduledRunID(jobID, noon, 0), State: domain.Succeeded, FireTime: noon, FinishedAt: noon.Add(30 * time.Second)}
	after := &Run{ID: domain.ScheduledRunID(jobID, noon.Add(90*time.Second), 0), State: domain.Succeeded, FireTime: noon.Add(90 * time.Second)}
	for _, c := range []struct {
		at    time.Time
		chain Chain
		want  string
	}{
		{noon.Add(10 * time.Second), Chain{before, after}, "lasted until 2026-03-28 12:00:30Z. The next fire time was 2026-03-28 12:01:30Z."},
		{noon.Add(time.Minute), Chain{before, after}, "had ended at 2026-03-28 12:00:30Z, so the next one was due 1m0s later. The next fire time was"},
		{noon.Add(time.Minute), Chain{&Run{ID: before.ID, State: domain.Running, FireTime: noon}, nil}, "is still running: the next fire time follows from its end."},
		{noon.Add(time.Minute), Chain{}, "Fire times of fixed_delay follow from the ends of runs"},
	} {
		if w := f.Why(c.at, "", c.chain); !strings.Contains(w.Answer, c.want) {
			t.Errorf("%q is missing in: %s", c.want, w.Answer)
		}
	}
	f.Runs[before.ID] = []Run{*before}
	f.Runs[before.ID][0].StartedAt = noon
	if w := f.Why(noon, "", Chain{}); !w.IsFireTime || w.Fate != FateRan {
		t.Errorf("a fire time of the chain: got %+v", w)
	}
}

func TestParseAt(t *testing.T) {
	f := cronFacts(t, domain.Schedule{Kind: domain.ScheduleCron, Expr: "* * * * *", TimeZone: "Asia/Shanghai"})
	for _, c := range []struct{ in, want string }{
		{"2026-03-29T01:30:00Z", "2026-03-29T01:30:00Z"},
		{"2026-03-29T01:30:00.25+02:00", "2026-03-28T23:30:00.25Z"},
		{"2026-03-29T09:30", "2026-03-29T01:30:00Z"},
		{"2026-03-29 09:30:15", "2026-03-29T01:30:15Z"},
	} {
		if got, heard, err := ParseAt(c.in, f.Job, explain.English); err != nil || heard != "" || !got.Equal(instant(t, c.want)) {
			t.Errorf("ParseAt(%s): got %s (%q, %v), want %s", c.in, got, heard, err, c.want)
		}
	}
	for _, bad := range []string{"", "yesterday", "2026-02-30T10:00", "10:00", "2026-03-29", strings.Repeat("9", 200)} {
		if got, _, err := ParseAt(bad, f.Job, explain.English); err == nil || !strings.Contains(err.Error(), "Asia/Shanghai") || len(err.Error()) > 300 {
			t.Errorf("ParseAt(%q): got %s (%v), want an error", bad, got, err)
		}
	}
}
