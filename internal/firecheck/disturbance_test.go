package firecheck

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/belfryhq/belfry/internal/domain"
	"github.com/belfryhq/belfry/internal/explain"
)

func second(n int) time.Time { return noon.Add(time.Duration(n) * time.Second) }

func step(from, to, seconds int) domain.Disturbance {
	return domain.Disturbance{Kind: domain.ClockStep, From: second(from), To: second(to), Step: time.Duration(seconds) * time.Second}
}

func postgresAway(from, to int) domain.Disturbance {
	return domain.Disturbance{Kind: domain.PostgresAway, From: second(from), To: second(to)}
}

func TestGapsWithDisturbances(t *testing.T) {
	for name, c := range map[string]struct {
		present   []Gap
		disturbed []domain.Disturbance
		want      string
	}{
		"a step forward":                {[]Gap{{From: second(0), To: second(10)}, {From: second(42), To: second(100)}}, []domain.Disturbance{step(11, 41, 30)}, "11-41 clock_step, 10-42 clock_step"},
		"a step shorter than a gap":     {[]Gap{{From: second(0), To: second(100)}}, []domain.Disturbance{step(11, 15, 4)}, "11-15 clock_step"},
		"a step back":                   {[]Gap{{From: second(0), To: second(100)}}, []domain.Disturbance{step(40, 10, -30)}, ""},
		"Postgres away":                 {[]Gap{{From: second(0), To: second(10)}, {From: second(72), To: second(100)}}, []domain.Disturbance{postgresAway(9, 70)}, "10-72 postgres_away"},
		"away for one scheduler":        {[]Gap{{From: second(0), To: second(100)}}, []domain.Disturbance{postgresAway(9, 70)}, ""},
		"also no scheduler":             {[]Gap{{From: second(0), To: second(10)}, {From: second(90), To: second(100)}}, []domain.Disturbance{postgresAway(30, 50)}, "10-30, 30-50 postgres_away, 50-90"},
		"two absences":                  {[]Gap{{From: second(0), To: second(10)}, {From: second(90), To: second(100)}}, []domain.Disturbance{postgresAway(10, 50), postgresAway(60, 90)}, "10-50 postgres_away, 50-60, 60-90 postgres_away"},
		"nothing about the disturbance": {[]Gap{{From: second(0), To: second(10)}, {From: second(90), To: second(100)}}, nil, "10-90"},
	} {
		var got []string
		for _, g := range Gaps(c.present, c.disturbed, second(100)) {
			s := fmt.Sprintf("%d-%d", int(g.From.Sub(noon).Seconds()), int(g.To.Sub(noon).Seconds()))
			if g.Fault != nil {
				s += " " + string(g.Fault.Kind)
			}
			got = append(got, s)
		}
		if strings.Join(got, ", ") != c.want {
			t.Errorf("%s: got %v, want %s", name, got, c.want)
		}
	}
}

// Disturbances never hide a gap: each instant of a gap in the presence of schedulers is in a gap, whatever its cause.
func TestDisturbancesHideNoGap(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		present := []Gap{{From: second(0), To: second(10)}, {From: second(60), To: second(70)}, {From: second(150), To: second(200)}}
		var disturbed []domain.Disturbance
		for range rapid.IntRange(0, 4).Draw(t, "disturbances") {
			from, long := rapid.IntRange(0, 180).Draw(t, "from"), rapid.IntRange(0, 60).Draw(t, "long")
			disturbed = append(disturbed, rapid.SampledFrom([]domain.Disturbance{postgresAway(from, from+long), step(from, from+long, long), step(from, from-long, -long)}).Draw(t, "kind"))
		}
		slices.SortFunc(disturbed, func(a, b domain.Disturbance) int { return a.From.Compare(b.From) })
		f := Facts{Away: Gaps(present, disturbed, second(200))}
		for s := 0; s < 200; s++ {
			gap, away := f.away(second(s))
			there := s <= 10 || s >= 60 && s <= 70 || s >= 150
			if !there && !away {
				t.Fatalf("second %d lies in no gap: %+v", s, f.Away)
			}
			if away && gap.Fault == nil && there && s != 10 && s != 60 && s != 70 && s != 150 {
				t.Fatalf("at second %d a scheduler was running, but it lies in the gap %+v", s, gap)
			}
		}
	})
}

// The fire time is late or missed because of the disturbance, and no text says that no scheduler was at work.
func TestExplainDisturbances(t *testing.T) {
	forward, away := step(5, 40, 30), postgresAway(5, 40)
	const stepped = "the database's clock stepped forward by 30s (last reading before the step: 2026-03-28 12:00:05Z, first one after it: 2026-03-28 12:00:40Z)"
	const unreachable = "Postgres was unavailable from 2026-03-28 12:00:05Z to 2026-03-28 12:00:40Z"
	ledger := func(why explain.Note) []Missed {
		return []Missed{{ID: 3, Missed: domain.Missed{First: domain.At(noon), Last: domain.At(at), Why: why.Explanation()}}}
	}
	misfire := Run{
		State: domain.Succeeded, Cause: domain.CauseMisfire, Attempt: 1, Version: 1, Instance: "i1", FireTime: at,
		DueAt: second(40), DispatchedAt: second(40), StartedAt: second(40), FinishedAt: second(41), LatenessMS: ms(0),
	}
	misfire.ID = domain.ScheduledRunID(jobID, at, 0)
	waited := misfire
	waited.Cause, waited.DueAt = domain.CauseSchedule, at
	for name, c := range map[string]struct {
		fault domain.Disturbance
		runs  []Run
		entry []Missed
		fate  Fate
		cause string
		text  string
	}{
		"a step, made up for":                   {forward, []Run{misfire}, nil, FateLate, "clock_step", "30s late: " + stepped + ", and the misfire policy made up for it"},
		"a step, late":                          {forward, []Run{waited}, nil, FateLate, "clock_step", "30s late: " + stepped},
		"a step, missed":                        {forward, nil, ledger(explain.Of(explain.NoScheduler, explain.OutcomeSkip, 0, 5000, 30_000)), FateMissed, "3", "the policy is skip; " + stepped},
		"a step, missed and named":              {forward, nil, ledger(explain.Of(explain.ClockStepped, explain.OutcomeSkip, 0, 30_000, "a", "b")), FateMissed, "3", "stepped forward by 30s (last reading before the step: a, first one after it: b); the policy is skip"},
		"Postgres away, made up for":            {away, []Run{misfire}, nil, FateLate, "postgres_away", "30s late: " + unreachable + ", and the misfire policy made up for it"},
		"Postgres away, missed":                 {away, nil, ledger(explain.Of(explain.NoScheduler, explain.OutcomeSkip, 0, 5000, 30_000)), FateMissed, "3", unreachable},
		"Postgres away, missed and named":       {away, nil, ledger(explain.Of(explain.PostgresAway, explain.OutcomeSkip, 0, "a", "b")), FateMissed, "3", "Postgres was unavailable from a to b; the policy is skip"},
		"a step back, which makes nothing late": {step(40, 10, -30), nil, ledger(explain.Of(explain.NoScheduler, explain.OutcomeSkip, 0, 5000, 30_000)), FateMissed, "3", "the policy is skip"},
	} {
		t.Run(name, func(t *testing.T) {
			f := everySecond(t)
			f.Disturbed = []domain.Disturbance{c.fault}
			f.Away = Gaps([]Gap{{From: second(-60), To: second(5)}, {From: second(41), To: second(600)}}, f.Disturbed, second(600))
			if c.fault.Back() {
				f.Away = Gaps([]Gap{{From: second(-60), To: second(600)}}, f.Disturbed, second(600))
			}
			if c.runs != nil {
				f.Runs[c.runs[0].ID] = c.runs
			}
			f.Missed = c.entry
			got := f.one(Owned)
			if got.Fate != c.fate || got.Cause != c.cause || !strings.Contains(got.Text, c.text) || strings.Contains(got.Text, "at work") {
				t.Errorf("%s (%s): %q, want %s (%s): %q", got.Fate, got.Cause, got.Text, c.fate, c.cause, c.text)
			}
			if strings.Count(got.Text, "stepped")+strings.Count(got.Text, "reached") > 1 {
				t.Errorf("it names the cause twice: %s", got.Text)
			}
			f.Language = explain.Chinese
			if c.entry == nil {
				checkChinese(t, f.one(Owned).Text)
			}
		})
	}
}

// If the clock stepped back, the answer about a fire time in the repeated period says so.
func TestWhyRepeated(t *testing.T) {
	f := everySecond(t)
	r := Run{
		ID: domain.ScheduledRunID(jobID, at, 0), State: domain.Succeeded, Cause: domain.CauseSchedule, Attempt: 1, Version: 1, Instance: "i1",
		FireTime: at, DueAt: at, DispatchedAt: at, StartedAt: at, FinishedAt: at, LatenessMS: ms(0),
	}
	f.Runs[r.ID] = []Run{r}
	const said = "The database's clock stepped back by 30s (last reading before the step: 2026-03-28 12:00:40Z, first one after it: 2026-03-28 12:00:10Z). It showed this instant twice, and a fire time has one run."
	for _, repeated := range []bool{false, true} {
		if repeated {
			f.Disturbed = []domain.Disturbance{step(40, 10, -30)}
		}
		why := f.Why(at, "", Chain{})
		if why.Fate != FateRan || strings.Contains(why.Answer, said) != repeated {
			t.Errorf("%s: %s", why.Fate, why.Answer)
		}
	}
	f.Language = explain.Chinese
	if answer := f.Why(at, "", Chain{}).Answer; !strings.Contains(answer, "数据库时钟向后跳变了 30 秒") {
		t.Error(answer)
	}
}
