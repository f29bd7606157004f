package firecheck

import (
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/belfryhq/belfry/internal/domain"
	"github.com/belfryhq/belfry/internal/explain"
)

// allowed matches what may stay in Latin letters: instants, ids of runs, the names in the tests, and the names of zones, policies
// and schedule fields.
var allowed = regexp.MustCompile(`\d{4}-\d\d-\d\d( \d\d:\d\d:\d\d(\.\d+)?(Z|[+-]\d\d:\d\d)?|T[\d:.]+Z)?|` +
	`[0-9a-f]{8}-[0-9a-f-]{27}|\b(i1|ann|bob|g|skip|fire_once|fire_all|discard_later|cover_early|start_at|end_at|` +
	`UTC|Europe/Berlin|NATS|python|weekends|disks|API)\b`)

var latin = regexp.MustCompile(`[A-Za-z]|[,;:.] |%!`)

func checkChinese(t *testing.T, text string) {
	t.Helper()
	if text == "" || latin.MatchString(allowed.ReplaceAllString(text, "")) {
		t.Errorf("not Chinese: %q", text)
	}
}

// Each fate has a Chinese text without English words.
func TestFindingsInChinese(t *testing.T) {
	pauses := []domain.Pause{
		{Group: "g", From: noon, To: at.Add(time.Second), Reason: "disks", By: "ann"},
		{JobID: jobID, From: noon, To: at.Add(time.Second), Reason: "disks", By: "ann"},
	}
	gap := []Gap{{From: noon, To: noon.Add(time.Minute)}}
	ledger := []Missed{{ID: 3, Missed: domain.Missed{First: domain.At(noon), Last: domain.At(at), Why: explain.Of(explain.NoScheduler,
		explain.OutcomeFireAll, int64(100), int64(5000), int64(61500), nil).Explanation()}}}
	unfinished := func(s domain.State) func(*Facts, *Run) {
		return func(_ *Facts, r *Run) { r.State, r.StartedAt, r.LatenessMS = s, time.Time{}, nil }
	}
	unstarted := func(reason domain.Reason) func(*Facts, *Run) {
		return func(_ *Facts, r *Run) {
			r.State, r.Reason, r.StartedAt, r.LatenessMS, r.Message = domain.Skipped, reason, time.Time{}, nil, "an English message"
		}
	}
	late := func(dispatched, started time.Duration) func(*Facts, *Run) {
		return func(_ *Facts, r *Run) { r.DispatchedAt, r.StartedAt = at.Add(dispatched), at.Add(started) }
	}
	restored := []Missed{{ID: 3, Missed: domain.Missed{First: domain.At(noon), Last: domain.At(at), Why: explain.Of(explain.Restored, "12:00", "12:01").Explanation()}}}
	seen := map[Fate]bool{}
	runs := map[string]func(*Facts, *Run){
		"in time":         func(*Facts, *Run) {},
		"running":         func(_ *Facts, r *Run) { r.State = domain.Running },
		"failed":          func(_ *Facts, r *Run) { r.State, r.Reason = domain.Failed, domain.ReasonTimeout },
		"retrying":        func(_ *Facts, r *Run) { r.State, r.StartedAt = domain.Retrying, time.Time{} },
		"slow":            late(0, 6*time.Second),
		"waited":          late(20*time.Second, 20*time.Second),
		"unknown":         func(_ *Facts, r *Run) { r.Attempt, r.LatenessMS = 3, ms(7000) },
		"away":            func(f *Facts, r *Run) { f.Away = gap; late(20*time.Second, 20*time.Second)(f, r) },
		"held back":       func(f *Facts, r *Run) { r.DueAt = at.Add(9 * time.Second); late(9*time.Second, 9*time.Second)(f, r) },
		"made up":         func(f *Facts, r *Run) { r.Cause = domain.CauseMisfire; late(0, time.Minute)(f, r) },
		"made up, away":   func(f *Facts, r *Run) { r.Cause, f.Away = domain.CauseMisfire, gap; late(0, time.Minute)(f, r) },
		"made up, paused": func(f *Facts, r *Run) { r.Cause, f.Paused = domain.CauseMisfire, pauses; late(0, time.Minute)(f, r) },
		"held":            func(f *Facts, r *Run) { unfinished(domain.Pending)(f, r); r.HeldBy = &r.ID },
		"unfired":         unfinished(domain.Pending),
		"unfired, away":   func(f *Facts, r *Run) { unfinished(domain.Pending)(f, r); f.Away = []Gap{{From: noon}} },
		"about to fire":   func(f *Facts, r *Run) { unfinished(domain.Pending)(f, r); f.Now = at.Add(time.Second) },
		"planned":         func(f *Facts, r *Run) { unfinished(domain.Pending)(f, r); r.DueAt = f.Now.Add(time.Second) },
		"offered":         unfinished(domain.Queued),
		"waits":           func(f *Facts, r *Run) { unfinished(domain.Queued)(f, r); r.Instance = "" },
		"waits, explained": func(f *Facts, r *Run) {
			unfinished(domain.Queued)(f, r)
			r.Instance, r.Waiting = "", explain.Of(explain.NoHandler, "python").Explanation()
		},
		"a shard is missing": func(_ *Facts, r *Run) { r.Shards, r.Missing = 4, 1 },
	}
	for _, reason := range []domain.Reason{
		domain.ReasonDiscarded, domain.ReasonCovered, domain.ReasonNoExecutor, domain.ReasonQueueFull, domain.ReasonKilled, domain.ReasonJobDeleted,
		domain.ReasonLost, domain.ReasonDrained, domain.ReasonHandlerError, domain.ReasonHandlerPanic, domain.ReasonHandlerNotFound,
		domain.ReasonTimeout, domain.ReasonBadScript, domain.ReasonUnsupported,
	} {
		runs["not started: "+string(reason)] = unstarted(reason)
	}
	for name, edit := range runs {
		t.Run(name, func(t *testing.T) {
			f := everySecond(t)
			f.Language = explain.Chinese
			r := Run{
				ID: domain.ScheduledRunID(jobID, at, 0), State: domain.Succeeded, Cause: domain.CauseSchedule, Attempt: 1, Version: 1, Instance: "i1",
				FireTime: at, DueAt: at, DispatchedAt: at.Add(-time.Second), StartedAt: at, FinishedAt: at.Add(time.Second), LatenessMS: ms(0),
			}
			edit(f, &r)
			f.Runs[r.ID] = []Run{r}
			finding := f.one(Owned)
			seen[finding.Fate] = true
			checkChinese(t, finding.Text)
			f.Runs[r.ID] = []Run{r, r}
			finding = f.one(Owned)
			seen[finding.Fate] = true
			checkChinese(t, finding.Text)
		})
	}
	for name, c := range map[string]struct {
		claim Claim
		edit  func(*Facts)
	}{
		"nothing":           {Owned, func(*Facts) {}},
		"ledger":            {Owned, func(f *Facts) { f.Missed = ledger }},
		"ledger, paused":    {Owned, func(f *Facts) { f.Missed, f.Paused, f.Away = ledger, pauses, gap }},
		"restored":          {Owned, func(f *Facts) { f.Missed = restored }},
		"not due":           {Owned, func(f *Facts) { f.Now = at.Add(-time.Second) }},
		"a moment ago":      {Owned, func(f *Facts) { f.Now = at.Add(time.Second) }},
		"undecided":         {Owned, func(f *Facts) { f.Job.NextFire = at }},
		"undecided, away":   {Owned, func(f *Facts) { f.Job.NextFire, f.Away = at, []Gap{{From: noon}} }},
		"undecided, paused": {Owned, func(f *Facts) { f.Job.NextFire, f.Paused = at, pauses }},
		"not kept":          {Owned, func(f *Facts) { f.Kept = func(time.Time) bool { return false } }},
		"retention":         {Owned, func(f *Facts) { f.Job.Versions[0].Retention = 90 * time.Second }},
		"disabled":          {Disabled, func(f *Facts) { f.Job.Versions[0].Change = "disabled" }},
		"edited": {Cut, func(f *Facts) {
			v := f.Job.Versions[0]
			v.Number, v.From, v.Change, v.By = 2, noon.Add(5*time.Second), "edited", "bob"
			f.Job.Versions = append(f.Job.Versions, v)
		}},
		"overtaken": {Owned, func(f *Facts) {
			f.Job.Versions[0].From, f.Later = at.Add(time.Second), map[int64]time.Time{at.UnixMilli(): at.Add(2 * time.Second)}
		}},
	} {
		t.Run(name, func(t *testing.T) {
			f := everySecond(t)
			f.Language = explain.Chinese
			c.edit(f)
			finding := f.one(c.claim)
			seen[finding.Fate] = true
			checkChinese(t, finding.Text)
		})
	}
	for _, fate := range Fates {
		if !seen[fate] {
			t.Errorf("no case has the fate %s", fate)
		}
	}
}

// Answers about instants that are fire times, and about those that are not, have no English words.
func TestWhyInChinese(t *testing.T) {
	start, end := domain.At(noon), domain.At(noon.Add(time.Hour))
	berlin := domain.Schedule{Kind: domain.ScheduleCron, Expr: "30 2 * * *", TimeZone: "Europe/Berlin"}
	minutely := domain.Schedule{Kind: domain.ScheduleCron, Expr: "* * * * *", StartAt: &start, EndAt: &end}
	off := domain.Schedule{Kind: domain.ScheduleCron, Expr: "0 12 * * *", Calendar: "weekends", DaysOff: &domain.DaysOff{Weekdays: []domain.Weekday{"sat", "sun"}}}
	chain := domain.Schedule{Kind: domain.ScheduleFixedDelay, Delay: domain.Duration(time.Minute)}
	before := &Run{ID: domain.ScheduledRunID(jobID, noon, 0), State: domain.Succeeded, FireTime: noon, FinishedAt: noon.Add(30 * time.Second)}
	for _, c := range []struct {
		schedule domain.Schedule
		at       string
		chain    Chain
		edit     func(*Facts)
	}{
		{berlin, "2026-03-27T02:30", Chain{}, nil},
		{berlin, "2026-03-27T02:31", Chain{}, nil},
		{berlin, "2026-03-29 02:30", Chain{}, nil},
		{berlin, "2026-03-29T01:00:00Z", Chain{}, nil},
		{berlin, "2026-10-25T02:30", Chain{}, nil},
		{berlin, "2026-10-25T01:30:00Z", Chain{}, nil},
		{berlin, "2020-01-01T02:30", Chain{}, nil},
		{berlin, "2026-03-27T02:31", Chain{}, func(f *Facts) { f.Job.Versions[0].Enabled = false }},
		{minutely, "2026-03-28T11:59:00Z", Chain{}, nil},
		{minutely, "2026-03-28T14:00:00Z", Chain{}, nil},
		{minutely, "2026-03-28T12:01:00Z", Chain{}, func(f *Facts) {
			f.Job.Versions[0].To = noon
			f.Job.Versions = append(f.Job.Versions, Version{Number: 2, From: noon, Deleted: true, Change: "deleted", By: "bob"})
		}},
		{off, "2026-03-28T12:00:00Z", Chain{}, nil},
		{domain.Schedule{Kind: domain.ScheduleNone}, "2026-03-28T12:01:00Z", Chain{}, nil},
		{domain.Schedule{Kind: domain.ScheduleCron, Expr: "0 0 30 2 *"}, "2026-03-28T12:01:00Z", Chain{}, nil},
		{domain.Schedule{Kind: domain.ScheduleCron, Expr: "* * * * *", Jitter: domain.Duration(50 * time.Second)}, "2026-03-28T12:01:00Z", Chain{}, nil},
		{chain, "2026-03-28T12:00:10Z", Chain{before, before}, nil},
		{chain, "2026-03-28T12:01:00Z", Chain{before, nil}, func(f *Facts) { f.Away = []Gap{{From: noon}} }},
		{chain, "2026-03-28T12:01:00Z", Chain{&Run{ID: before.ID, State: domain.Running, FireTime: noon}, nil}, nil},
		{chain, "2026-03-28T12:01:00Z", Chain{}, func(f *Facts) { f.Job.Versions[0].Enabled = false }},
	} {
		f := cronFacts(t, c.schedule)
		f.Language = explain.Chinese
		if c.edit != nil {
			c.edit(f)
		}
		at, heard, err := ParseAt(c.at, f.Job, f.Language)
		if err != nil {
			t.Fatal(err)
		}
		answer := f.Why(at, heard, c.chain).Answer
		checkChinese(t, answer)
		if !strings.HasSuffix(answer, "。") {
			t.Errorf("no sentence: %s", answer)
		}
	}
}
