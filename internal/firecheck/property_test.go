package firecheck

import (
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/belfryhq/belfry/internal/domain"
	"github.com/belfryhq/belfry/internal/explain"
	"github.com/belfryhq/belfry/internal/plan"
	"github.com/belfryhq/belfry/internal/schedule"
)

var noon = time.Date(2026, 3, 28, 12, 0, 0, 0, time.UTC)

const jobID domain.JobID = 7

// history contains the runs and ledger entries that a correct engine creates for a job with random edits.
type history struct {
	job      *Job
	runs     map[int64]Run // by fire time in Unix milliseconds
	missed   []Missed
	passed   map[int64]bool // fire times that an edit skipped
	admitted time.Duration  // how far ahead of due runs are admitted
}

// drawHistory plans each version with package plan: from First on, all fire times that are due while the version is in force.
func drawHistory(t *rapid.T) *history {
	h := &history{
		job: &Job{ID: jobID}, runs: make(map[int64]Run), passed: make(map[int64]bool),
		admitted: time.Duration(rapid.IntRange(0, 250).Draw(t, "admitted_ms")) * time.Millisecond,
	}
	created := noon.Add(time.Duration(rapid.IntRange(0, 5000).Draw(t, "created_ms")) * time.Millisecond)
	from := created
	var decided time.Time
	versions := rapid.IntRange(1, 6).Draw(t, "versions")
	for i := range versions {
		v := drawVersion(t, created)
		v.Number, v.From = i+1, from
		end := from.Add(time.Duration(rapid.IntRange(1, 90_000).Draw(t, "held_ms")) * time.Millisecond)
		if i < versions-1 {
			v.To = end
		}
		h.job.Versions = append(h.job.Versions, v)
		if v.Enabled {
			decided = h.plan(t, i, decided, end)
		}
		from = end
	}
	h.job.Versions[versions-1].To = from // a last edit, which ends the history
	h.job.Versions = append(h.job.Versions, Version{Number: versions + 1, From: from, Change: "disabled", Schedule: h.job.Versions[0].Schedule})
	return h
}

func drawVersion(t *rapid.T, created time.Time) Version {
	s := domain.Schedule{Kind: domain.ScheduleFixedRate}
	gap := time.Duration(rapid.SampledFrom([]int{1000, 1300, 5000, 20_000}).Draw(t, "every_ms")) * time.Millisecond
	s.Every = domain.Duration(gap)
	if rapid.Bool().Draw(t, "cron") {
		s = domain.Schedule{Kind: domain.ScheduleCron, Expr: "*/5 * * * * *", Dialect: domain.DialectStandard}
		gap = 5 * time.Second
	}
	if rapid.Bool().Draw(t, "jitter") {
		s.Jitter = domain.Duration(time.Duration(rapid.Int64Range(1, gap.Milliseconds()-1).Draw(t, "jitter_ms")) * time.Millisecond)
	}
	compiled, err := schedule.Compile(s, schedule.Options{CreatedAt: created})
	if err != nil {
		t.Fatal(err)
	}
	return Version{
		Enabled: rapid.IntRange(0, 4).Draw(t, "enabled") > 0, Schedule: compiled, Jitter: s.Jitter.Std(), Misfire: domain.MisfireSkip, Change: "edited",
	}
}

// plan decides a version's fire times as the store does, and returns the newest decided one.
func (h *history) plan(t *rapid.T, index int, decided, end time.Time) time.Time {
	v := &h.job.Versions[index]
	var fire, due time.Time
	if index > 0 && h.job.Versions[index-1].Enabled {
		old := &h.job.Versions[index-1]
		if fire, _ := plan.Carried(jobID, old.Schedule, v.Schedule, old.Jitter, time.Time{}, v.From); !fire.IsZero() && !fire.After(decided) {
			h.passed[fire.UnixMilli()] = true
		}
		fire, due = plan.Carried(jobID, old.Schedule, v.Schedule, old.Jitter, decided, v.From)
	}
	for f, ok := v.Schedule.Next(v.From.Add(-v.Jitter - time.Millisecond)); ok && !f.After(decided); f, ok = v.Schedule.Next(f) {
		if v.Schedule.Due(jobID, f).After(v.From) {
			h.passed[f.UnixMilli()] = true
		}
	}
	if fire.IsZero() {
		fire, due = plan.First(jobID, v.Schedule, v.Jitter, decided, v.From)
	}
	for !fire.IsZero() {
		ahead := time.Duration(0)
		if due.After(end) {
			ahead = h.admitted
		}
		if due.After(end.Add(ahead)) {
			break
		}
		decided = fire
		if ahead == 0 && rapid.IntRange(0, 9).Draw(t, "misfires") == 0 {
			h.missed = append(h.missed, Missed{ID: int64(len(h.missed) + 1), Missed: domain.Missed{
				First: domain.At(fire), Last: domain.At(fire), Count: 1, Why: explain.Sentence("late"), At: domain.At(due),
			}})
		} else {
			h.runs[fire.UnixMilli()] = Run{
				ID: domain.ScheduledRunID(jobID, fire, 0), Version: v.Number, Cause: domain.CauseSchedule, State: domain.Succeeded, Attempt: 1,
				FireTime: fire, DueAt: due, DispatchedAt: due, StartedAt: due, FinishedAt: due.Add(time.Millisecond),
			}
		}
		next, ok := v.Schedule.Next(fire)
		if !ok {
			break
		}
		fire, due = next, v.Schedule.Due(jobID, next)
	}
	return decided
}

func (h *history) facts(fires []Fire) *Facts {
	f := &Facts{
		Job: h.job, Runs: make(map[domain.RunID][]Run), Missed: h.missed, Later: make(map[int64]time.Time),
		Kept: func(time.Time) bool { return true }, Now: noon.Add(24 * time.Hour), Tolerance: 5 * time.Second,
	}
	for _, r := range h.runs {
		f.Runs[r.ID] = append(f.Runs[r.ID], r)
	}
	for _, fire := range fires {
		if !f.MayBeOvertaken(&fire) {
			continue
		}
		for _, r := range h.runs {
			if r.FireTime.After(fire.Time) && r.Version < h.job.Versions[fire.Version].Number {
				f.Later[fire.Time.UnixMilli()] = r.FireTime
			}
		}
	}
	return f
}

// nearEdit reports whether a fire time is so close to an edit that the fate of another fire time may depend on its run.
func (h *history) nearEdit(t time.Time) bool {
	return slices.ContainsFunc(h.job.Versions, func(v Version) bool {
		return v.From.Sub(t).Abs() < 25*time.Second
	})
}

// TestPlantedHistories checks three properties for random edits: a correct engine leaves no fire time unexplained; each of its runs
// has an expected fire time; and the check finds exactly the runs that the test then removes or duplicates.
func TestPlantedHistories(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		h := drawHistory(t)
		until := noon.Add(time.Hour)
		fires, through := Expected(h.job, noon.Add(-time.Hour), until, 1<<30)
		if !through.Equal(until) {
			t.Fatalf("through %s of %s", through, until)
		}
		seen := make(map[int64]Fire)
		for _, f := range fires {
			if _, again := seen[f.Time.UnixMilli()]; again {
				t.Fatalf("Expected returned %s twice", f.Time)
			}
			seen[f.Time.UnixMilli()] = f
		}
		want := make(map[int64]Fate)
		for _, ms := range slices.Sorted(maps.Keys(h.runs)) {
			r := h.runs[ms]
			f, ok := seen[ms]
			// A run that was admitted ahead of due may be due after the end of its version.
			v := h.job.Versions[r.Version-1]
			ahead := r.DueAt.After(v.To) || !r.DueAt.After(v.From) && f.Claim != Owned // or it follows a fire time that was carried over
			switch {
			case !ok && ahead:
				continue
			case !ok || !ahead && h.job.Versions[f.Version].Number != r.Version:
				t.Fatalf("the run at %s by version %d has no expected fire time: %+v", r.FireTime, r.Version, f)
			}
			want[ms] = FateRan
			switch mischief := rapid.IntRange(0, 20).Draw(t, "mischief"); {
			case mischief == 0 && f.Claim == Owned && !h.nearEdit(r.FireTime):
				delete(h.runs, ms)
				want[ms] = FateUnexplained
			case mischief == 1:
				want[ms] = FateDoubled
			}
		}
		for _, m := range h.missed {
			want[m.First.UnixMilli()] = FateMissed
		}
		facts := h.facts(fires)
		for ms, fate := range want {
			if fate == FateDoubled {
				r := h.runs[ms]
				facts.Runs[r.ID] = append(facts.Runs[r.ID], r)
			}
		}
		for _, f := range fires {
			got := facts.Explain(f)
			fate, decided := want[f.Time.UnixMilli()]
			switch {
			case !decided && f.Claim == Owned:
				fate = FateEdited
				if !h.passed[f.Time.UnixMilli()] {
					t.Fatalf("%+v is owned, but was neither decided nor skipped by an edit; versions %s", f, h.spans())
				}
			case !decided && f.Claim == Cut:
				fate = FateEdited
			case !decided:
				fate = FateDisabled
			}
			if got.Fate != fate {
				t.Fatalf("%+v: %s (%s), want %s; versions %s", f, got.Fate, got.Text, fate, h.spans())
			}
			if got.Text == "" {
				t.Fatalf("%+v: %s without a text", f, got.Fate)
			}
		}
	})
}

func (h *history) spans() (out string) {
	for _, v := range h.job.Versions {
		out += fmt.Sprintf("%d: %s to %s, jitter %s; ", v.Number, v.From.Format("05.000"), v.To.Format("05.000"), v.Jitter)
	}
	return out
}

// TestExpectedInPieces checks that calls with any limit together return all fire times in order.
func TestExpectedInPieces(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		h := drawHistory(t)
		since, until := noon.Add(-time.Minute), noon.Add(time.Duration(rapid.IntRange(0, 400).Draw(t, "until_s"))*time.Second)
		whole, _ := Expected(h.job, since, until, 1<<30)
		limit := rapid.IntRange(1, 50).Draw(t, "limit")
		var pieces []Fire
		for from, rounds := since, 0; from.Before(until); rounds++ {
			piece, through := Expected(h.job, from, until, limit)
			if len(piece) > 3*limit+10 || rounds > len(whole)+1 || !through.After(from) {
				t.Fatalf("from %s %d fire times through %s, limit %d", from, len(piece), through, limit)
			}
			pieces = append(pieces, piece...)
			from = through
		}
		if !slices.Equal(pieces, whole) {
			t.Fatalf("%d in pieces of %d, %d in whole", len(pieces), limit, len(whole))
		}
	})
}

// TestNeighbours compares Neighbours with a search through all fire times.
func TestNeighbours(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		v := drawVersion(t, noon)
		at := noon.Add(time.Duration(rapid.IntRange(-60_000, 60_000).Draw(t, "at_ms")) * time.Millisecond)
		before, after := Neighbours(v.Schedule, at)
		var wantBefore, wantAfter time.Time
		for f, ok := v.Schedule.Next(noon.Add(-2 * time.Hour)); ok; f, ok = v.Schedule.Next(f) {
			if f.Before(at) {
				wantBefore = f
			}
			if f.After(at) {
				wantAfter = f
				break
			}
		}
		if !after.Equal(wantAfter) || !before.Equal(wantBefore) {
			t.Fatalf("neighbours of %s: got %s and %s, want %s and %s", at, before, after, wantBefore, wantAfter)
		}
	})
}

// TestGaps compares Gaps with a check of each second.
func TestGaps(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var present []Gap
		for range rapid.IntRange(1, 8).Draw(t, "spans") {
			from := noon.Add(time.Duration(rapid.IntRange(0, 100).Draw(t, "from")) * time.Second)
			present = append(present, Gap{From: from, To: from.Add(time.Duration(rapid.IntRange(0, 40).Draw(t, "long")) * time.Second)})
		}
		slices.SortFunc(present, func(a, b Gap) int { return a.From.Compare(b.From) })
		now := noon.Add(200 * time.Second)
		f := Facts{Away: Gaps(present, nil, now)}
		for s := present[0].From; s.Before(now); s = s.Add(500 * time.Millisecond) {
			there := slices.ContainsFunc(present, func(p Gap) bool { return !s.Before(p.From) && !s.After(p.To) })
			gap, away := f.away(s)
			if there && away && !s.Equal(gap.From) && !s.Equal(gap.To) {
				t.Fatalf("at %s a scheduler was running, but it lies in the gap %+v", s, gap)
			}
			if !there && !away { // a gap too short to count
				near := slices.ContainsFunc(present, func(p Gap) bool { return s.Sub(p.To).Abs() <= shortGap || p.From.Sub(s).Abs() <= shortGap })
				if !near {
					t.Fatalf("at %s no scheduler was running; gaps %+v", s, f.Away)
				}
			}
		}
	})
}
