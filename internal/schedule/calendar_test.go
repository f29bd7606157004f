package schedule

import (
	"math/rand/v2"
	"strconv"
	"testing"
	"time"

	"github.com/belfryhq/belfry/internal/domain"
)

// daysOff returns days off with the given dates and weekdays.
func daysOff(t testing.TB, weekdays []domain.Weekday, dates ...string) *domain.DaysOff {
	t.Helper()
	d := &domain.DaysOff{Weekdays: weekdays, Dates: make([]domain.Date, len(dates))}
	for i, text := range dates {
		if err := d.Dates[i].UnmarshalText([]byte(text)); err != nil {
			t.Fatal(err)
		}
	}
	d.Normalize()
	return d
}

// A schedule with a calendar has the same fire times as the schedule without it, except those on days off. The test uses
// zones whose clocks change at midnight, back into the day before, in the middle of a day, or past a whole date.
func TestCalendarTakesFiresAway(t *testing.T) {
	changes := []struct{ zone, at string }{
		{"America/Havana", "2026-03-08T05:00:00Z"}, {"America/Havana", "2026-11-01T05:00:00Z"},
		{"Asia/Beirut", "2026-03-28T22:00:00Z"}, {"Asia/Beirut", "2026-10-24T21:00:00Z"},
		{"Africa/Cairo", "2026-04-23T22:00:00Z"}, {"Africa/Cairo", "2026-10-29T21:00:00Z"},
		{"America/Asuncion", "2023-10-01T04:00:00Z"}, {"America/Asuncion", "2024-03-24T03:00:00Z"},
		{"Asia/Amman", "2021-10-28T22:00:00Z"}, {"Pacific/Apia", "2011-12-30T10:00:00Z"},
		{"Australia/Lord_Howe", "2026-04-04T15:00:00Z"}, {"Europe/Berlin", "2026-03-29T01:00:00Z"}, {"UTC", "2026-02-28T12:00:00Z"},
	}
	schedules := []domain.Schedule{
		{Kind: "cron", Expr: "*/17 * * * *"}, {Kind: "cron", Expr: "30 */20 0,23 * * *"}, {Kind: "cron", Expr: "0 0 * * *"},
		{Kind: "cron", Expr: "59 59 23 * * *"}, {Kind: "cron", Expr: "30 0,1,23 * * *"}, {Kind: "cron", Expr: "0 15 0 ? * SUN-SAT", Dialect: domain.DialectQuartz},
		{Kind: "fixed_rate", Every: 37 * minute}, {Kind: "fixed_rate", Every: 11 * hour}, {Kind: "fixed_rate", Every: 86399 * second / 2},
	}
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 0))
	var off, on int
	for _, change := range changes {
		for _, in := range schedules {
			in.TimeZone = change.zone
			for range 6 {
				at := instant(t, change.at)
				away, kept := takesAway(t, rng, in, at, at.Add(-time.Duration(rng.Int64N(60*3600*1000))*time.Millisecond))
				off, on = off+away, on+kept
			}
		}
	}
	if off < 1000 || on < 1000 {
		t.Errorf("%d fire times were removed, %d were not", off, on)
	}
}

// takesAway draws days off around a change of the clocks, and compares the fire times of five days from an instant on.
func takesAway(t *testing.T, rng *rand.Rand, in domain.Schedule, change, from time.Time) (away, kept int) {
	t.Helper()
	o := Options{CreatedAt: from.Add(-240 * time.Hour)}
	plain := mustCompile(t, in, o)
	off := map[string]bool{} // by the text of a date or the number of a weekday, independently of package domain
	in.Calendar, in.DaysOff = "holidays", &domain.DaysOff{Weekdays: []domain.Weekday{}}
	for n := -3; n <= 3; n++ {
		if date := change.AddDate(0, 0, n); rng.IntN(2) == 0 {
			in.DaysOff.Dates = append(in.DaysOff.Dates, domain.DateOf(date))
			off[date.Format("2006-01-02")] = true
		}
	}
	if rng.IntN(4) == 0 {
		in.DaysOff.Weekdays = []domain.Weekday{"sunday", "wednesday"}
		off["0"], off["3"] = true, true
	}
	in.DaysOff.Normalize()
	with := mustCompile(t, in, o)
	last, until := from, from.Add(120*time.Hour)
	for f, ok := plain.Next(from); ok && f.Before(until); f, ok = plain.Next(f) {
		local := f.In(plain.Zone())
		isOff := off[local.Format("2006-01-02")] || off[strconv.Itoa(int(local.Weekday()))]
		if with.TakenOff(f) != isOff {
			t.Fatalf("%s %s: TakenOff at %s is %v", in.Expr, in.Every, local, !isOff)
		}
		if isOff {
			away++
			continue
		}
		if got, ok := with.Next(last); !ok || !got.Equal(f) {
			t.Fatalf("%s %s but on %v and %v: after %s comes %s, want %s", in.Expr, in.Every, in.DaysOff.Dates, in.DaysOff.Weekdays, last.In(plain.Zone()), got.In(plain.Zone()), local)
		}
		last = f
		kept++
	}
	return away, kept
}

func TestCalendarOfManyDays(t *testing.T) {
	// Next skips whole dates. A search by seconds would visit 86 million fire times.
	days := &domain.DaysOff{Weekdays: []domain.Weekday{}}
	for i := range domain.MaxCalendarDates {
		days.Dates = append(days.Dates, domain.DateOf(time.Date(2026, 1, 1+i, 0, 0, 0, 0, time.UTC)))
	}
	s := mustCompile(t, domain.Schedule{Kind: "cron", Expr: "* * * * * *", Calendar: "closed", DaysOff: days}, Options{})
	if next, ok := s.Next(instant(t, "2025-12-31T23:59:59Z")); !ok || !next.Equal(instant(t, "2028-09-27T00:00:00Z")) {
		t.Errorf("next: %s", next)
	}

	// No fire time is left.
	s = mustCompile(t, domain.Schedule{Kind: "cron", Expr: "0 2 * * 6", Calendar: "weekends", DaysOff: daysOff(t, []domain.Weekday{"saturday"})}, Options{})
	now := instant(t, "2026-01-01T00:00:00Z")
	if next, ok := s.Next(now); ok {
		t.Errorf("next: %s", next)
	}
	if want := "No next fire time: all that are left fall on days off of calendar weekends."; s.Note(now) != want {
		t.Errorf("note: %s", s.Note(now))
	}
	if want := "At 02:00 on Saturday, UTC, except on days off of calendar weekends"; s.Describe() != want {
		t.Errorf("described as %s", s.Describe())
	}
}

func TestCalendarOfAKind(t *testing.T) {
	for kind, in := range map[string]domain.Schedule{
		"none": {Kind: "none"}, "once": {Kind: "once", At: domain.AtPtr(time.Unix(0, 0))}, "fixed_delay": {Kind: "fixed_delay", Delay: minute},
		"a bad name": {Kind: "fixed_rate", Every: minute},
	} {
		in.Calendar = "holidays"
		if kind == "a bad name" {
			in.Calendar = "Holy Days"
		}
		_, err := Compile(in, Options{})
		if e, ok := err.(*domain.Error); !ok || len(e.Fields) != 1 || e.Fields[0].Location != "schedule.calendar" {
			t.Errorf("%s: %v", kind, err)
		}
	}
}
