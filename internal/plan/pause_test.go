package plan

import (
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/belfryhq/belfry/internal/domain"
	"github.com/belfryhq/belfry/internal/explain"
)

func paused(from, to time.Duration) domain.Pause {
	p := domain.Pause{Group: "g", From: noon.Add(from), Reason: "the disks are changed", By: "ann"}
	if to != 0 {
		p.To = noon.Add(to)
	}
	return p
}

// everySecondOf returns a job of one-second fires whose next fire time is noon.
func everySecondOf(t *testing.T, m domain.Misfire, pauses ...domain.Pause) Job {
	t.Helper()
	return Job{
		ID: 7, Misfire: m, NextFire: noon, Paused: pauses,
		Schedule: compile(t, domain.Schedule{Kind: domain.ScheduleCron, Expr: "* * * * * *"}),
	}
}

func TestPauseHoldsUp(t *testing.T) {
	set := DefaultSettings()
	for name, c := range map[string]struct {
		pauses   []domain.Pause
		now      time.Duration
		runs     int
		next     time.Duration
		look     time.Duration // when the job is planned again
		stranded bool
	}{
		"it lasts":                        {[]domain.Pause{paused(-time.Minute, 0)}, 0, 0, 0, lookAgain + set.Horizon, false},
		"it lasts, and more was missed":   {[]domain.Pause{paused(20*time.Second, 0)}, 30 * time.Second, 0, 0, 30*time.Second + lookAgain + set.Horizon, false},
		"it ends in a minute":             {[]domain.Pause{paused(-time.Minute, time.Minute)}, 0, 0, 0, time.Minute + set.Horizon, false},
		"it begins in three seconds":      {[]domain.Pause{paused(3*time.Second, 0)}, 0, 3, 3 * time.Second, lookAgain + set.Horizon, false},
		"one is over and the next is not": {[]domain.Pause{paused(-time.Minute, 4*time.Second), paused(5*time.Second, 0)}, 6 * time.Second, 0, 0, 6*time.Second + lookAgain + set.Horizon, false},
		"what was stranded is taken back": {[]domain.Pause{paused(-time.Minute, 0)}, 0, 0, -30 * time.Second, lookAgain + set.Horizon, true},
	} {
		t.Run(name, func(t *testing.T) {
			j := everySecondOf(t, domain.MisfireFireAll, c.pauses...)
			if c.stranded {
				for i := -30; i < -20; i++ {
					at := noon.Add(time.Duration(i) * time.Second)
					j.Stranded = append(j.Stranded, Stranded{domain.ScheduledRunID(7, at, 0), at})
				}
			}
			now := noon.Add(c.now)
			d := Decide(j, now, set)
			if len(d.Runs) != c.runs || d.Missed != nil || d.ParkedBy == nil || !d.NextFire.Equal(noon.Add(c.next)) || !d.NextDue.Equal(noon.Add(c.look)) {
				t.Errorf("%d runs, missed %+v, next %s, planned again at %s", len(d.Runs), d.Missed, d.NextFire, d.NextDue)
			}
			if len(d.Drop) != len(j.Stranded) || len(d.Revive) > 0 || !d.DecidedThrough.Before(d.NextFire) {
				t.Errorf("%d of %d stranded runs are dropped, decided through %s", len(d.Drop), len(j.Stranded), d.DecidedThrough)
			}
		})
	}
}

// After a pause, its fire times are misfires, even if they are late by less than the tolerance.
func TestPauseIsOver(t *testing.T) {
	for m, want := range map[domain.Misfire]struct{ misfires, missed int }{
		domain.MisfireSkip: {0, 4}, domain.MisfireFireOnce: {1, 3}, domain.MisfireFireAll: {4, 0},
	} {
		j := everySecondOf(t, m, paused(-time.Minute, 3500*time.Millisecond))
		now := noon.Add(4 * time.Second)
		d := Decide(j, now, DefaultSettings())
		misfires := 0
		for _, r := range d.Runs {
			switch {
			case r.Cause == domain.CauseMisfire && r.FireTime.Before(j.Paused[0].To) && r.DueAt.Equal(now):
				misfires++
			case r.Cause != domain.CauseSchedule || j.Paused[0].Covers(r.FireTime):
				t.Errorf("%s: %+v", m, r)
			}
		}
		missed := 0
		if d.Missed != nil {
			missed = d.Missed.Count
			const said = "group g was paused from 2026-03-01T11:59:00.000Z to 2026-03-01T12:00:03.500Z by ann (the disks are changed); "
			if !strings.HasPrefix(d.Missed.Why.Text, said) || !strings.Contains(d.Missed.Why.Text, string(m)) {
				t.Errorf("%s: %s", m, d.Missed.Why.Text)
			}
		}
		if misfires != want.misfires || missed != want.missed || d.ParkedBy != nil {
			t.Errorf("%s: %d misfires and %d dropped, want %+v", m, misfires, missed, want)
		}
	}
}

// An edit during a pause drops the fire times of the old version that the pause has held up, under every policy.
func TestPauseAndTheEndOfAVersion(t *testing.T) {
	j := everySecondOf(t, domain.MisfireFireAll, paused(-time.Minute, 0))
	j.Closing = true
	d := Decide(j, noon.Add(2500*time.Millisecond), DefaultSettings())
	if len(d.Runs) > 0 || d.Missed == nil || d.Missed.Count != 3 || !d.NextFire.Equal(noon.Add(3*time.Second)) {
		t.Fatalf("%+v, missed %+v", d, d.Missed)
	}
	if !strings.Contains(d.Missed.Why.Text, "has been paused since") || !strings.HasSuffix(d.Missed.Why.Text, "the job was changed meanwhile") {
		t.Error(d.Missed.Why.Text)
	}
}

// If a pause holds up the fire time of a fixed_delay job, the chain continues at the end of the pause.
func TestPauseOfAChain(t *testing.T) {
	j := Job{ID: 7, NextFire: noon, Paused: []domain.Pause{paused(-time.Minute, time.Minute)},
		Schedule: compile(t, domain.Schedule{Kind: domain.ScheduleFixedDelay, Delay: domain.Duration(30 * time.Second)})}
	if d := Decide(j, noon, DefaultSettings()); d.ParkedBy == nil || !d.NextFire.Equal(noon) {
		t.Fatalf("in the pause: %+v", d)
	}
	now := noon.Add(time.Minute)
	d := Decide(j, now, DefaultSettings())
	if d.Missed == nil || d.Missed.Count != 1 || !d.NextFire.Equal(now.Add(30*time.Second)) {
		t.Fatalf("after it: %+v", d)
	}
}

// For any pauses, each fire time becomes one run or is counted once in the ledger, and no run is due during a pause.
func TestPausesLoseNothing(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		set := DefaultSettings()
		set.FireAllMax = rapid.SampledFrom([]int{1, 5, 100}).Draw(t, "fire_all_max")
		j := Job{ID: 7, NextFire: noon, Misfire: rapid.SampledFrom([]domain.Misfire{domain.MisfireSkip, domain.MisfireFireOnce, domain.MisfireFireAll}).Draw(t, "misfire")}
		j.Schedule, _ = drawnSchedule(t)
		j.NextFire, _ = First(j.ID, j.Schedule, 0, time.Time{}, noon)
		first := j.NextFire
		at := noon
		for range rapid.IntRange(0, 4).Draw(t, "pauses") {
			p := domain.Pause{From: at.Add(time.Duration(rapid.IntRange(0, 40_000).Draw(t, "until_ms")) * time.Millisecond)}
			p.To = p.From.Add(time.Duration(rapid.IntRange(1, 200_000).Draw(t, "lasts_ms")) * time.Millisecond)
			at = p.To
			j.Paused = append(j.Paused, p)
		}
		fate := make(map[int64]int)
		dropped := 0
		now := noon
		for done := false; !done; {
			now = now.Add(time.Duration(rapid.SampledFrom([]int{500, 1000, 4000, 30_000}).Draw(t, "pass_ms")) * time.Millisecond)
			done = now.After(at.Add(time.Minute))
			if j.NextFire.IsZero() {
				continue
			}
			d := Decide(j, now, set)
			for _, r := range d.Runs {
				fate[r.FireTime.UnixMilli()]++
				if domain.PauseAt(j.Paused, r.DueAt) != nil {
					t.Fatalf("at %s a run of %s is planned that is due at %s, in a pause", now, r.FireTime, r.DueAt)
				}
			}
			if d.Missed != nil {
				dropped += d.Missed.Count
			}
			j.NextFire, j.Decided = d.NextFire, d.DecidedThrough
		}
		expected := 0
		for f := first; !f.IsZero() && !f.After(j.Decided); f = next(j.Schedule, f) {
			expected++
			if fate[f.UnixMilli()] > 1 {
				t.Fatalf("%s has %d runs", f, fate[f.UnixMilli()])
			}
		}
		if len(fate)+dropped != expected {
			t.Fatalf("%d runs and %d dropped of %d fire times", len(fate), dropped, expected)
		}
	})
}

// Of two pauses, the one that lasts holds the job up, and the ledger names both. The code is that of the pause in which the first fire
// time was due, the group's if it was due in both.
func TestPausesOfJobAndGroup(t *testing.T) {
	own := func(from, to time.Duration) domain.Pause {
		p := paused(from, to)
		p.Group, p.JobID, p.By = "", 7, "bob"
		return p
	}
	for name, c := range map[string]struct {
		group, job domain.Pause
		parked     domain.JobID
		code       explain.Code
	}{
		"the group's lasts":     {paused(time.Second, 0), own(-time.Minute, 2*time.Second), 0, explain.JobPaused},
		"the job's lasts":       {paused(-time.Minute, 2*time.Second), own(time.Second, 0), 7, explain.GroupPaused},
		"the job's, throughout": {paused(-time.Minute, 2*time.Second), own(-time.Minute, 0), 7, explain.GroupPaused},
	} {
		t.Run(name, func(t *testing.T) {
			now := noon.Add(4500 * time.Millisecond)
			j := everySecondOf(t, domain.MisfireSkip, c.group, c.job)
			d := Decide(j, now, DefaultSettings())
			if d.ParkedBy == nil || d.ParkedBy.JobID != c.parked || !d.NextFire.Equal(noon) || len(d.Runs) > 0 || d.Missed != nil {
				t.Fatalf("while one lasts: %+v", d)
			}
			for i := range j.Paused {
				if j.Paused[i].To.IsZero() {
					j.Paused[i].To = now
				}
			}
			d = Decide(j, now, DefaultSettings())
			if d.ParkedBy != nil || d.Missed == nil || d.Missed.Count != 5 || d.Missed.Why.Code != c.code ||
				!strings.Contains(d.Missed.Why.Text, "group g was paused from ") || !strings.Contains(d.Missed.Why.Text, "; the job was paused from ") {
				t.Errorf("after both: %+v", d.Missed)
			}
		})
	}
}
