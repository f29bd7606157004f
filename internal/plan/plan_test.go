package plan

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/belfryhq/belfry/internal/domain"
	"github.com/belfryhq/belfry/internal/explain"
	"github.com/belfryhq/belfry/internal/schedule"
)

var noon = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

type fataler interface {
	Helper()
	Fatalf(format string, args ...any)
}

func compile(t fataler, s domain.Schedule) *schedule.Schedule {
	t.Helper()
	c, err := schedule.Compile(s, schedule.Options{CreatedAt: noon})
	if err != nil {
		t.Fatalf("compile %+v: %v", s, err)
	}
	return c
}

func everySecond(t fataler) *schedule.Schedule {
	return compile(t, domain.Schedule{Kind: domain.ScheduleFixedRate, Every: domain.Duration(time.Second)})
}

// Jobs that fire every second are planned further ahead than the horizon, so that they are not planned again every
// second. Jobs that begin together are not all planned in the same second.
func TestDecideAhead(t *testing.T) {
	set := DefaultSettings()
	job := Job{Schedule: everySecond(t)}
	looks := make(map[int]int) // by second after noon
	const jobs, seconds, every = 50, 60, 5
	for job.ID = 1; job.ID <= jobs; job.ID++ {
		job.NextFire = noon.Add(time.Second)
		planned := 0
		for s := range seconds {
			now := noon.Add(time.Duration(s)*time.Second + 500*time.Millisecond)
			if job.NextFire.After(now.Add(set.Horizon)) {
				continue
			}
			d := Decide(job, now, set)
			last := d.Runs[len(d.Runs)-1].DueAt
			if last.Before(now.Add(set.Horizon)) || last.After(now.Add(set.Ahead)) {
				t.Errorf("job %d is planned up to %s at %s", job.ID, last, now)
			}
			looks[s]++
			planned += len(d.Runs)
			job.NextFire, job.Decided = d.NextFire, d.DecidedThrough
		}
		if planned < seconds-1+int(set.Horizon/time.Second) { // the last planning was in the middle of the last second
			t.Errorf("%d runs of job %d in %d s", planned, job.ID, seconds)
		}
	}
	for s := 2 * every; s < seconds; s++ {
		if n := looks[s]; n != jobs/every {
			t.Errorf("%d jobs are planned in second %d, want %d", n, s, jobs/every)
		}
	}
}

func TestDecide(t *testing.T) {
	second := everySecond(t)
	at := func(seconds int) time.Time { return noon.Add(time.Duration(seconds) * time.Second) }
	stranded := func(seconds ...int) []Stranded {
		var out []Stranded
		for _, s := range seconds {
			out = append(out, Stranded{domain.ScheduledRunID(7, at(s), 0), at(s)})
		}
		return out
	}
	set := DefaultSettings()
	set.Ahead = set.Horizon // for short tables
	tests := []struct {
		name     string
		misfire  domain.Misfire
		next     int // seconds after noon
		stranded []Stranded
		now      int
		near     bool

		misfired, onTime        []int
		revived, dropped        []int
		missedFirst, missedLast int
		missed                  int
		wantNext                int
	}{
		{name: "up to the horizon", next: 1, now: 0, onTime: []int{1, 2, 3, 4, 5}, wantNext: 6},
		{name: "nothing due", next: 6, now: 0, wantNext: 6},
		{name: "late within the tolerance", next: 1, now: 6, onTime: []int{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11}, wantNext: 12},
		{name: "skip", misfire: domain.MisfireSkip, next: 1, now: 9, onTime: []int{4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14},
			missedFirst: 1, missedLast: 3, missed: 3, wantNext: 15},
		{name: "fire_once takes the latest", misfire: domain.MisfireFireOnce, next: 1, now: 9, misfired: []int{3},
			onTime: []int{4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14}, missedFirst: 1, missedLast: 2, missed: 2, wantNext: 15},
		{name: "fire_all in order", misfire: domain.MisfireFireAll, next: 1, now: 9, misfired: []int{1, 2, 3},
			onTime: []int{4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14}, wantNext: 15},
		{name: "skip drops stranded runs", misfire: domain.MisfireSkip, next: 20, stranded: stranded(1, 2), now: 9,
			dropped: []int{1, 2}, missedFirst: 1, missedLast: 2, missed: 2, wantNext: 20},
		{name: "fire_once revives the latest stranded", misfire: domain.MisfireFireOnce, next: 20, stranded: stranded(1, 2), now: 9,
			dropped: []int{1}, revived: []int{2}, missedFirst: 1, missedLast: 1, missed: 1, wantNext: 20},
		{name: "stranded and unplanned are judged together", misfire: domain.MisfireFireOnce, next: 3, stranded: stranded(1, 2), now: 9,
			dropped: []int{1, 2}, misfired: []int{3}, onTime: []int{4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14},
			missedFirst: 1, missedLast: 2, missed: 2, wantNext: 15},
		{name: "fire_all revives the stranded", misfire: domain.MisfireFireAll, next: 3, stranded: stranded(1, 2), now: 9,
			revived: []int{1, 2}, misfired: []int{3}, onTime: []int{4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14}, wantNext: 15},
		{name: "near: no further ahead", next: 1, now: 0, near: true, onTime: []int{1, 2}, wantNext: 3},
		{name: "near: due now is not late", next: 6, now: 6, near: true, onTime: []int{6, 7, 8}, wantNext: 9},
		{name: "near: late by a step", next: 1, now: 6, near: true, onTime: []int{1, 2}, wantNext: 3},
		{name: "near: one step past the missed fire times", misfire: domain.MisfireSkip, next: 1, now: 9, near: true, onTime: []int{4, 5},
			missedFirst: 1, missedLast: 3, missed: 3, wantNext: 6},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			set := set
			if tt.near {
				set = set.Nearby()
			}
			d := Decide(Job{ID: 7, Schedule: second, Misfire: tt.misfire, NextFire: at(tt.next), Decided: at(tt.next - 1), Stranded: tt.stranded},
				at(tt.now), set)
			var want []Run
			for _, s := range tt.misfired {
				want = append(want, Run{domain.ScheduledRunID(7, at(s), 0), at(s), at(tt.now), domain.CauseMisfire})
			}
			for _, s := range tt.onTime {
				want = append(want, Run{domain.ScheduledRunID(7, at(s), 0), at(s), at(s), domain.CauseSchedule})
			}
			equal(t, "runs", d.Runs, want)
			var revived, dropped []domain.RunID
			for _, s := range tt.revived {
				revived = append(revived, domain.ScheduledRunID(7, at(s), 0))
			}
			for _, s := range tt.dropped {
				dropped = append(dropped, domain.ScheduledRunID(7, at(s), 0))
			}
			equal(t, "revived", d.Revive, revived)
			equal(t, "dropped", d.Drop, dropped)
			switch {
			case tt.missed == 0 && d.Missed != nil:
				t.Errorf("ledger entry %+v", d.Missed)
			case tt.missed > 0 && (d.Missed == nil || d.Missed.Count != tt.missed || !d.Missed.First.Equal(at(tt.missedFirst)) ||
				!d.Missed.Last.Equal(at(tt.missedLast)) || d.Missed.Policy != tt.misfire || d.Missed.Why.Text == ""):
				t.Errorf("ledger entry %+v; want %d from %d to %d", d.Missed, tt.missed, tt.missedFirst, tt.missedLast)
			}
			if !d.NextFire.Equal(at(tt.wantNext)) || !d.NextDue.Equal(at(tt.wantNext)) || !d.DecidedThrough.Equal(at(tt.wantNext-1)) {
				t.Errorf("next %s due %s decided %s; want next %s", d.NextFire, d.NextDue, d.DecidedThrough, at(tt.wantNext))
			}
		})
	}
}

func equal[T comparable](t *testing.T, what string, got, want []T) {
	t.Helper()
	if len(got) != len(want) {
		t.Errorf("%s: %v; want %v", what, got, want)
		return
	}
	for i := range got {
		if got[i] != want[i] {
			t.Errorf("%s[%d]: %v; want %v", what, i, got[i], want[i])
		}
	}
}

// With the largest FireAllMax that the configuration allows, Decide used the index -1 in an earlier version.
func TestDecideLongOutageWithLargestFireAll(t *testing.T) {
	set := DefaultSettings()
	set.FireAllMax = scanMax
	j := Job{ID: 7, Schedule: everySecond(t), Misfire: domain.MisfireFireAll, NextFire: noon}
	now := noon.Add(3 * scanMax * time.Second)
	dropped, passes := 0, 0
	for ; j.NextFire.Before(now); passes++ {
		if passes > 10 {
			t.Fatal("planning does not end")
		}
		d := Decide(j, now, set)
		if !d.NextFire.After(j.NextFire) {
			t.Fatalf("pass %d moves the next fire time from %s to %s", passes, j.NextFire, d.NextFire)
		}
		j.NextFire, j.Decided = d.NextFire, d.DecidedThrough
		if d.Missed != nil {
			dropped += d.Missed.Count
		}
	}
	if want := 2*scanMax - 5; dropped != want {
		t.Errorf("dropped %d fire times, want %d", dropped, want)
	}
}

func TestFixedDelay(t *testing.T) {
	hour := domain.Schedule{Kind: domain.ScheduleFixedDelay, Delay: domain.Duration(time.Hour)}
	end := domain.At(noon.Add(90 * time.Minute))
	ending := hour
	ending.EndAt = &end
	start := domain.At(noon.Add(3 * time.Hour))
	starting := hour
	starting.StartAt = &start
	t.Run("a served fire waits for its run's end", func(t *testing.T) {
		d := Decide(Job{ID: 7, Schedule: compile(t, hour), NextFire: noon}, noon, DefaultSettings())
		if len(d.Runs) != 1 || !d.NextFire.IsZero() || !d.NextDue.IsZero() || !d.DecidedThrough.Equal(noon) {
			t.Errorf("%+v", d)
		}
	})
	t.Run("a dropped fire goes on by itself", func(t *testing.T) {
		d := Decide(Job{ID: 7, Schedule: compile(t, hour), NextFire: noon}, noon.Add(time.Minute), DefaultSettings())
		if len(d.Runs) != 0 || d.Missed == nil || !d.NextFire.Equal(noon.Add(61*time.Minute)) {
			t.Errorf("%+v", d)
		}
	})
	t.Run("a made-up fire does not", func(t *testing.T) {
		d := Decide(Job{ID: 7, Schedule: compile(t, hour), Misfire: domain.MisfireFireOnce, NextFire: noon}, noon.Add(time.Minute), DefaultSettings())
		if len(d.Runs) != 1 || d.Missed != nil || !d.NextFire.IsZero() {
			t.Errorf("%+v", d)
		}
	})
	t.Run("no dropped fire goes on past the end", func(t *testing.T) {
		d := Decide(Job{ID: 7, Schedule: compile(t, ending), NextFire: noon}, noon.Add(time.Hour), DefaultSettings())
		if d.Missed == nil || !d.NextFire.IsZero() {
			t.Errorf("next %s after end_at %s", d.NextFire, end)
		}
	})
	t.Run("After", func(t *testing.T) {
		if got := After(compile(t, hour), noon.Add(time.Microsecond)); !got.Equal(noon.Add(time.Hour)) {
			t.Errorf("open: %s", got)
		}
		if got := After(compile(t, ending), noon.Add(time.Hour)); !got.IsZero() {
			t.Errorf("past the end: %s", got)
		}
		if got := After(compile(t, starting), noon); !got.Equal(start.Time) {
			t.Errorf("before the start: %s", got)
		}
	})
	t.Run("First", func(t *testing.T) {
		if fire, due := First(7, compile(t, hour), 0, time.Time{}, noon); !fire.Equal(noon) || !due.Equal(noon) {
			t.Errorf("open: %s, %s", fire, due)
		}
		if fire, _ := First(7, compile(t, starting), 0, time.Time{}, noon); !fire.Equal(start.Time) {
			t.Errorf("before the start: %s", fire)
		}
		if fire, _ := First(7, compile(t, ending), 0, time.Time{}, noon.Add(2*time.Hour)); !fire.IsZero() {
			t.Errorf("past the end: %s", fire)
		}
	})
}

func TestNoFireTimes(t *testing.T) {
	for _, s := range []domain.Schedule{
		{Kind: domain.ScheduleNone},
		{Kind: domain.ScheduleCron, Expr: "0 0 30 2 *"},
	} {
		c := compile(t, s)
		if fire, due := First(7, c, 0, time.Time{}, noon); !fire.IsZero() || !due.IsZero() {
			t.Errorf("%s: first %s due %s", s.Kind, fire, due)
		}
		if d := Decide(Job{ID: 7, Schedule: c}, noon, DefaultSettings()); len(d.Runs) != 0 || d.Missed != nil || !d.DecidedThrough.IsZero() {
			t.Errorf("%s: %+v", s.Kind, d)
		}
	}
}

func TestWhyNamesThePolicy(t *testing.T) {
	for _, m := range []domain.Misfire{domain.MisfireSkip, domain.MisfireFireOnce, domain.MisfireFireAll} {
		j := Job{ID: 7, Misfire: m, Schedule: compile(t, domain.Schedule{Kind: domain.ScheduleCron, Expr: "* * * * *"})}
		if w := j.why(m, noon.Add(-90*time.Second), noon.Add(-90*time.Second), noon, DefaultSettings()); !strings.Contains(w.English(), string(m)) || !strings.Contains(w.English(), "1m30s") {
			t.Errorf("%s: %q", m, w)
		}
	}
}

// An edit that removes jitter must not lose the fire time whose due instant it moves into the past.
func TestCarried(t *testing.T) {
	minute := func(second int, jitter time.Duration) *schedule.Schedule {
		return compile(t, domain.Schedule{
			Kind: domain.ScheduleCron, Expr: fmt.Sprintf("%d * * * * *", second), Jitter: domain.Duration(jitter),
		})
	}
	const jitter = 50 * time.Second
	old := minute(0, jitter)
	due := old.Due(7, noon) // somewhere in the 50 s after noon
	if late := due.Sub(noon); late < 2*time.Second || late > 48*time.Second {
		t.Fatalf("job 7 has a jitter of %v at noon, too little for this test", late)
	}
	mid := noon.Add(due.Sub(noon) / 2)
	none := time.Time{}
	for name, tt := range map[string]struct {
		edited       *schedule.Schedule
		decided, now time.Time
		want         time.Time
	}{
		"no jitter any more":              {minute(0, 0), none, mid, noon},
		"the same jitter: still to come":  {old, none, mid, none},
		"it had been due by the old one":  {minute(0, 0), none, due, none},
		"it has its run":                  {minute(0, 0), noon, mid, none},
		"the new one has it not":          {minute(30, 0), none, mid, none},
		"before the fire time":            {minute(0, 0), none, noon.Add(-time.Second), none},
		"at the fire time":                {minute(0, 0), none, noon, noon},
		"only the old one has a fire now": {minute(1, 0), none, mid, none},
	} {
		fire, at := Carried(7, old, tt.edited, jitter, tt.decided, tt.now)
		if !fire.Equal(tt.want) || !fire.IsZero() && !at.Equal(tt.edited.Due(7, fire)) {
			t.Errorf("%s: %v due %v, want %v", name, fire, at, tt.want)
		}
	}
	chain := compile(t, domain.Schedule{Kind: domain.ScheduleFixedDelay, Delay: domain.Duration(time.Minute)})
	if fire, _ := Carried(7, chain, chain, 0, none, mid); !fire.IsZero() {
		t.Errorf("fixed_delay: %v", fire)
	}
}

// A fire time that was due shortly before the clock stepped, and was not late yet, was missed because of the step.
func TestMissedByAStep(t *testing.T) {
	set := DefaultSettings()
	step := domain.Disturbance{Kind: domain.ClockStep, From: noon, To: noon.Add(time.Minute), Step: time.Minute}
	j := Job{ID: 1, Schedule: everySecond(t), Misfire: domain.MisfireSkip, Disturbed: []domain.Disturbance{step}}
	for first, code := range map[time.Duration]explain.Code{
		-set.Tolerance - time.Second: explain.NoScheduler, -set.Tolerance: explain.ClockStepped, -time.Second: explain.ClockStepped,
		time.Minute: explain.ClockStepped, time.Minute + time.Second: explain.NoScheduler,
	} {
		if why := j.why(j.Misfire, noon.Add(first), noon.Add(time.Minute), noon.Add(time.Minute), set); why.Code() != code {
			t.Errorf("due %s after the step: %s, want %s", first, why, code)
		}
	}
}
