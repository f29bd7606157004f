package plan

import (
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/belfryhq/belfry/internal/domain"
	"github.com/belfryhq/belfry/internal/schedule"
)

// drawnSchedule draws a schedule of kind cron, fixed_rate or once, and its jitter.
func drawnSchedule(t *rapid.T) (*schedule.Schedule, time.Duration) {
	s := domain.Schedule{}
	gap := time.Second
	switch rapid.SampledFrom([]string{"rate", "second", "minutes", "once"}).Draw(t, "kind") {
	case "rate":
		s.Kind = domain.ScheduleFixedRate
		gap = time.Duration(rapid.Int64Range(1000, 90_000).Draw(t, "every_ms")) * time.Millisecond
		s.Every = domain.Duration(gap)
	case "second":
		s.Kind, s.Expr = domain.ScheduleCron, "* * * * * *"
	case "minutes":
		s.Kind, s.Expr, gap = domain.ScheduleCron, "*/7 * * * *", time.Minute
		s.TimeZone = "America/New_York"
	case "once":
		s.Kind, gap = domain.ScheduleOnce, time.Hour
		at := domain.At(noon.Add(time.Duration(rapid.Int64Range(-10_000, 100_000).Draw(t, "at_ms")) * time.Millisecond))
		s.At = &at
	}
	jitter := time.Duration(rapid.Int64Range(0, gap.Milliseconds()-1).Draw(t, "jitter_ms")) * time.Millisecond
	if rapid.Bool().Draw(t, "without jitter") {
		jitter = 0
	}
	s.Jitter = domain.Duration(jitter)
	if rapid.IntRange(0, 3).Draw(t, "ends") == 0 {
		end := domain.At(noon.Add(time.Duration(rapid.Int64Range(0, 40_000_000).Draw(t, "end_ms")) * time.Millisecond))
		s.EndAt = &end
	}
	return compile(t, s), jitter
}

// world is the history of a job in a slow model: its fire times, and what was decided about each.
type world struct {
	set     Settings
	job     Job
	jitter  time.Duration
	fires   []time.Time // of the model: those decided so far and those up to the horizon
	fate    map[int64]string
	pending []Stranded // planned but not admitted
}

// TestEveryFireTimeIsDecidedOnce plans a job through outages. After each pass, each fire time must have exactly one
// decision, and it must be that of the slow model.
func TestEveryFireTimeIsDecidedOnce(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := &world{set: DefaultSettings(), fate: make(map[int64]string)}
		w.set.FireAllMax = rapid.SampledFrom([]int{1, 3, 100}).Draw(t, "fire_all_max")
		w.job.ID = domain.JobID(rapid.Int64Range(1, 1000).Draw(t, "job"))
		w.job.Misfire = rapid.SampledFrom([]domain.Misfire{domain.MisfireSkip, domain.MisfireFireOnce, domain.MisfireFireAll}).Draw(t, "misfire")
		w.job.Schedule, w.jitter = drawnSchedule(t)
		now := noon
		fire, due := First(w.job.ID, w.job.Schedule, w.jitter, time.Time{}, now)
		w.checkFirst(t, fire, due, time.Time{}, now)
		w.job.NextFire = fire
		all := w.set
		for range rapid.IntRange(1, 12).Draw(t, "passes") {
			w.job.Stranded = nil
			gap := rapid.SampledFrom([]int64{1, 300, 1000, 4900, 8000, 60_000, 3_600_000, 12_000_000, 25_000_000}).Draw(t, "gap")
			now = now.Add(time.Duration(rapid.Int64Range(0, gap).Draw(t, "gap_ms")) * time.Millisecond)
			w.ring(rapid.Bool().Draw(t, "the ring lives"), now)
			if w.set = all; rapid.Bool().Draw(t, "near") {
				w.set = all.Nearby()
			}
			w.pass(t, now)
		}
	})
}

// ring admits the planned runs that are due by now. If the scheduler is dead, runs that are late by more than the
// tolerance become stranded instead.
func (w *world) ring(lives bool, now time.Time) {
	var left []Stranded
	for _, p := range w.pending {
		due := w.job.Schedule.Due(w.job.ID, p.FireTime)
		switch {
		case due.After(now.Add(-w.set.Tolerance)) && !lives, due.After(now):
			left = append(left, p)
		case !lives:
			w.job.Stranded = append(w.job.Stranded, p)
		}
	}
	w.pending = left
}

// pass plans until no fire times are due within the horizon, like the batches of PlanDue.
func (w *world) pass(t *rapid.T, now time.Time) {
	missed, planned := w.expected(now)
	fires := 0
	switch w.job.Misfire {
	case domain.MisfireFireOnce:
		fires = 1
	case domain.MisfireFireAll:
		fires = w.set.FireAllMax
	}
	drop := missed[:max(len(missed)-fires, 0)]
	revive := missed[len(drop):]
	got := make(map[int64]string)
	note := func(at time.Time, what string) {
		if before := got[at.UnixMilli()]; before != "" {
			t.Fatalf("%s is %s and %s", at, before, what)
		}
		got[at.UnixMilli()] = what
	}
	stranded := make(map[domain.RunID]time.Time)
	for _, s := range w.job.Stranded {
		stranded[s.RunID] = s.FireTime
	}
	ledgered := 0
	for passes := 0; ; passes++ {
		if passes > 8 {
			t.Fatalf("%d passes, and planning does not end", passes)
		}
		d := Decide(w.job, now, w.set)
		if d.DecidedThrough.Before(w.job.Decided) {
			t.Fatalf("decided through %s, before that %s", d.DecidedThrough, w.job.Decided)
		}
		last := time.Time{}
		for _, r := range d.Runs {
			if r.ID != domain.ScheduledRunID(w.job.ID, r.FireTime, 0) || !r.FireTime.After(last) {
				t.Fatalf("run %+v after %s", r, last)
			}
			if r.Cause == domain.CauseMisfire && !r.DueAt.Equal(now) {
				t.Fatalf("misfire run %+v is not due now", r)
			}
			if r.Cause == domain.CauseSchedule {
				w.pending = append(w.pending, Stranded{r.ID, r.FireTime})
			}
			last = r.FireTime
			note(r.FireTime, string(r.Cause))
		}
		for _, id := range d.Revive {
			note(stranded[id], "misfire")
		}
		for _, id := range d.Drop {
			if stranded[id].IsZero() {
				t.Fatalf("drops %s, which is not stranded", id)
			}
		}
		if d.Missed != nil {
			ledgered += d.Missed.Count
			for _, f := range drop {
				if !f.Before(d.Missed.First.Time) && !f.After(d.Missed.Last.Time) {
					note(f, "ledger")
				}
			}
		}
		w.job.NextFire, w.job.Decided, w.job.Stranded = d.NextFire, d.DecidedThrough, nil
		if d.NextFire.IsZero() || d.NextDue.After(now.Add(w.set.Horizon)) {
			break
		}
	}
	w.compare(t, got, drop, revive, planned)
	if ledgered != len(drop) {
		t.Fatalf("the ledger counts %d, dropped were %d", ledgered, len(drop))
	}
	for at, what := range got {
		if before := w.fate[at]; before != "" && before != "schedule" { // a planned run may become stranded
			t.Fatalf("%s was %s and becomes %s", time.UnixMilli(at).UTC(), before, what)
		}
		w.fate[at] = what
	}
}

func (w *world) compare(t *rapid.T, got map[int64]string, drop, revive, planned []time.Time) {
	want := make(map[int64]string)
	for _, f := range drop {
		want[f.UnixMilli()] = "ledger"
	}
	for _, f := range revive {
		want[f.UnixMilli()] = "misfire"
	}
	for _, f := range planned {
		want[f.UnixMilli()] = "schedule"
	}
	for at, what := range want {
		if got[at] != what {
			t.Fatalf("%s is %q, want %q", time.UnixMilli(at).UTC(), got[at], what)
		}
	}
	if len(got) != len(want) {
		t.Fatalf("%d fire times decided, want %d", len(got), len(want))
	}
}

// expected walks the schedule from noon and returns the fire times that are missed at now, including those of stranded
// runs, and the fire times to plan.
func (w *world) expected(now time.Time) (missed, planned []time.Time) {
	for _, s := range w.job.Stranded {
		missed = append(missed, s.FireTime)
	}
	from := noon.Add(-w.jitter - time.Millisecond)
	if n := len(w.fires); n > 0 {
		from = w.fires[n-1]
	}
	for {
		f, ok := w.job.Schedule.Next(from)
		due := w.job.Schedule.Due(w.job.ID, f)
		if !ok || due.After(w.set.until(w.job.ID, now)) {
			return missed, planned
		}
		from = f
		if !due.After(noon) {
			continue // before the job existed
		}
		w.fires = append(w.fires, f)
		if due.Before(now.Add(-w.set.Tolerance)) {
			missed = append(missed, f)
		} else {
			planned = append(planned, f)
		}
	}
}

// TestFirst compares First with a walk over all fire times around now.
func TestFirst(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := &world{job: Job{ID: domain.JobID(rapid.Int64Range(1, 1000).Draw(t, "job"))}}
		w.job.Schedule, w.jitter = drawnSchedule(t)
		now := noon.Add(time.Duration(rapid.Int64Range(0, 50_000_000).Draw(t, "now_ms")) * time.Millisecond)
		var decided time.Time
		if rapid.Bool().Draw(t, "some decided") {
			decided = now.Add(time.Duration(rapid.Int64Range(-10_000, 10_000).Draw(t, "decided_ms")) * time.Millisecond)
		}
		fire, due := First(w.job.ID, w.job.Schedule, w.jitter, decided, now)
		w.checkFirst(t, fire, due, decided, now)
	})
}

func (w *world) checkFirst(t *rapid.T, fire, due, decided, now time.Time) {
	var candidates []time.Time
	for f, ok := w.job.Schedule.Next(now.Add(-3 * time.Hour)); ok && f.Before(now.Add(3*time.Hour)); f, ok = w.job.Schedule.Next(f) {
		candidates = append(candidates, f)
	}
	at := slices.IndexFunc(candidates, func(f time.Time) bool {
		return f.After(decided) && w.job.Schedule.Due(w.job.ID, f).After(now)
	})
	switch {
	case at < 0 && !fire.IsZero():
		t.Fatalf("first is %s, want none", fire)
	case at >= 0 && (!fire.Equal(candidates[at]) || !due.Equal(w.job.Schedule.Due(w.job.ID, fire))):
		t.Fatalf("first %s due %s; want %s", fire, due, candidates[at])
	}
}
