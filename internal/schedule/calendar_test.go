package schedule

import (
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/belfryhq/belfry/internal/domain"
)

// daysOff reads dates.
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

// Without its days off, a schedule with a calendar is the schedule without it; by zones whose clocks change at midnight,
// back into the day before, or past a whole date.
func TestCalendarTakesFiresAway(t *testing.T) {
	changes := []struct{ zone, at string }{
		{"America/Havana", "2026-03-08T05:00:00Z"}, {"America/Havana", "2026-11-01T05:00:00Z"},
		{"Asia/Beirut", "2026-03-28T22:00:00Z"}, {"Asia/Beirut", "2026-10-24T21:00:00Z"},
		{"Africa/Cairo", "2026-04-23T22:00:00Z"}, {"Africa/Cairo", "2026-10-29T21:00:00Z"},
		{"America/Asuncion", "2023-10-01T04:00:00Z"}, {"America/Asuncion", "2024-03-24T03:00:00Z"},
		{"Asia/Amman", "2021-10-28T22:00:00Z"}, {"Pacific/Apia", "2011-12-30T10:00:00Z"},
		{"Australia/Lord_Howe", "2026-04-04T15:00:00Z"}, {"UTC", "2026-02-28T12:00:00Z"},
	}
	schedules := []domain.Schedule{
		{Kind: "cron", Expr: "*/17 * * * *"}, {Kind: "cron", Expr: "30 */20 0,23 * * *"}, {Kind: "cron", Expr: "0 0 * * *"},
		{Kind: "cron", Expr: "59 59 23 * * *"}, {Kind: "cron", Expr: "30 0,1,23 * * *"}, {Kind: "cron", Expr: "0 15 0 ? * SUN-SAT", Dialect: domain.DialectQuartz},
		{Kind: "fixed_rate", Every: 37 * minute}, {Kind: "fixed_rate", Every: 11 * hour}, {Kind: "fixed_rate", Every: 86399 * second / 2},
	}
	fewer := 0
	rapid.Check(t, func(t *rapid.T) {
		change := rapid.SampledFrom(changes).Draw(t, "change")
		in := rapid.SampledFrom(schedules).Draw(t, "schedule")
		at, err := time.Parse(time.RFC3339, change.at)
		if err != nil {
			t.Fatal(err)
		}
		in.TimeZone = change.zone
		from := at.Add(-time.Duration(rapid.Int64Range(0, 60*3600*1000).Draw(t, "before")) * time.Millisecond)
		o := Options{CreatedAt: from.Add(-240 * time.Hour)}
		plain, err := Compile(in, o)
		if err != nil {
			t.Fatal(err)
		}
		off := map[string]bool{}
		days := &domain.DaysOff{}
		for n := -3; n <= 3; n++ {
			if rapid.Bool().Draw(t, "off") {
				date := domain.DateOf(at.AddDate(0, 0, n))
				days.Dates = append(days.Dates, date)
				off[date.String()] = true
			}
		}
		if rapid.IntRange(0, 3).Draw(t, "weekdays") == 0 {
			days.Weekdays = rapid.SliceOfNDistinct(rapid.SampledFrom(domain.Weekdays), 1, 3, rapid.ID).Draw(t, "days of the week")
		}
		for _, w := range days.Weekdays {
			off[string(w)] = true
		}
		days.Normalize()
		in.Calendar, in.DaysOff = "holidays", days
		with, err := Compile(in, o)
		if err != nil {
			t.Fatal(err)
		}
		// The sort of what is off is of the test's own making: by the text of a date.
		isOff := func(f time.Time) bool {
			local := f.In(plain.Zone())
			return off[local.Format("2006-01-02")] || off[[]string{"sunday", "monday", "tuesday", "wednesday", "thursday", "friday", "saturday"}[local.Weekday()]]
		}
		var want, got []time.Time
		until := from.Add(120 * time.Hour)
		for f, ok := plain.Next(from); ok && f.Before(until); f, ok = plain.Next(f) {
			if !isOff(f) {
				want = append(want, f)
			} else {
				fewer++
			}
			if with.TakenOff(f) != isOff(f) {
				t.Fatalf("%s is taken off: %v", f.In(plain.Zone()), with.TakenOff(f))
			}
		}
		for f, ok := with.Next(from); ok && f.Before(until); f, ok = with.Next(f) {
			got = append(got, f)
		}
		if !slices.Equal(got, want) {
			t.Fatalf("%s in %s but on %v and %v, from %s: %d fire times, want %d\n got %v\nwant %v",
				in.Expr, in.TimeZone, days.Dates, days.Weekdays, from, len(got), len(want), got, want)
		}
	})
	if fewer == 0 {
		t.Error("no day off took anything away")
	}
}

func TestCalendarOfManyDays(t *testing.T) {
	// Dates are jumped over, not walked through: a second at a time this would be 86 million fire times.
	days := &domain.DaysOff{Weekdays: []domain.Weekday{}}
	for i := range domain.MaxCalendarDates {
		days.Dates = append(days.Dates, domain.DateOf(time.Date(2026, 1, 1+i, 0, 0, 0, 0, time.UTC)))
	}
	s := mustCompile(t, domain.Schedule{Kind: "cron", Expr: "* * * * * *", Calendar: "closed", DaysOff: days}, Options{})
	if next, ok := s.Next(instant(t, "2025-12-31T23:59:59Z")); !ok || !next.Equal(instant(t, "2028-09-27T00:00:00Z")) {
		t.Errorf("next: %s", next)
	}

	// Nothing is left.
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
