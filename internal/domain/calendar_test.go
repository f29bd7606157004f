package domain

import (
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"
)

func TestCalendarsAreChecked(t *testing.T) {
	many := make([]Date, MaxCalendarDates+1)
	for i := range many {
		many[i] = DateOf(time.Date(2026, 1, 1+i, 0, 0, 0, 0, time.UTC))
	}
	for name, row := range map[string]struct {
		spec CalendarSpec
		want string // locations
	}{
		"empty":         {CalendarSpec{Name: "a"}, ""},
		"twice the day": {CalendarSpec{Name: "a", DaysOff: DaysOff{[]Weekday{"sunday", "sunday"}, []Date{20261225, 20261225}}}, ""},
		"the most":      {CalendarSpec{Name: "a", DaysOff: DaysOff{Weekdays[:6], many[1:]}}, ""},
		"one date more": {CalendarSpec{Name: "a", DaysOff: DaysOff{nil, many}}, "dates"},
		"all weekdays":  {CalendarSpec{Name: "a", DaysOff: DaysOff{Weekdays, nil}}, "weekdays"},
		"all and more":  {CalendarSpec{Name: "a", DaysOff: DaysOff{append(Weekdays[:7:7], "sunday"), nil}}, "weekdays"},
		"everything":    {CalendarSpec{Name: "No", Description: strings.Repeat("x", 1025), DaysOff: DaysOff{[]Weekday{"sunday", "Sat"}, []Date{20260101, 22000101, 0}}}, "name description weekdays[1] dates[1] dates[2]"},
	} {
		err := row.spec.Validate()
		var e *Error
		var got []string
		if errors.As(err, &e) {
			for _, f := range e.Fields {
				got = append(got, f.Location)
			}
		}
		if strings.Join(got, " ") != row.want {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestDaysOff(t *testing.T) {
	d := DaysOff{[]Weekday{"sunday", "saturday", "sunday"}, []Date{20270101, 20261225, 20270101}}
	d.Normalize()
	if got, err := json.Marshal(d); err != nil || string(got) != `{"weekdays":["saturday","sunday"],"dates":["2026-12-25","2027-01-01"]}` {
		t.Errorf("%s (%v)", got, err)
	}
	berlin, err := time.LoadLocation("Europe/Berlin")
	if err != nil {
		t.Fatal(err)
	}
	for text, off := range map[string]bool{
		"2026-12-24T22:59:59Z": false, "2026-12-24T23:00:00Z": true, "2026-12-25T22:59:59Z": true, "2026-12-27T12:00:00Z": true, "2026-12-28T12:00:00Z": false,
	} {
		at, err := time.Parse(time.RFC3339, text)
		if err != nil || d.Has(at.In(berlin)) != off {
			t.Errorf("%s: %v", text, d.Has(at.In(berlin)))
		}
	}
	for _, text := range []string{"", "2026-13-01", "2026-02-29", "25.12.2026", "2026-12-25T00:00:00Z", strings.Repeat("x", 100)} {
		var date Date
		if err := json.Unmarshal([]byte(fmt.Sprintf("%q", text)), &date); err == nil || !strings.Contains(err.Error(), "is no date; write it like 2026-12-25") || len(err.Error()) > 100 {
			t.Errorf("%q: %v", text, err)
		}
	}
}

// The stored form of a job has a copy of the calendar's days; the form for clients does not.
func TestStoredDaysOff(t *testing.T) {
	spec := DefaultJobSpec()
	spec.Group, spec.Name = "g", "n"
	spec.Schedule = Schedule{Kind: ScheduleCron, Expr: "* * * * *", Dialect: DialectStandard, TimeZone: "Asia/Tokyo"}
	plain, err := EncodeSpec(&spec)
	shown, err2 := json.Marshal(spec)
	if err != nil || err2 != nil || string(plain) != string(shown) {
		t.Errorf("without a calendar: %s, not %s", plain, shown)
	}
	spec.Schedule.Calendar, spec.Schedule.DaysOff = "c", &DaysOff{[]Weekday{"sunday"}, []Date{20261225}}
	stored, err := EncodeSpec(&spec)
	if err != nil {
		t.Fatal(err)
	}
	if shown, err := json.Marshal(spec); err != nil || strings.Contains(string(shown), "2026") {
		t.Errorf("shown: %s (%v)", shown, err)
	}
	read := DefaultJobSpec()
	if err := DecodeSpec(stored, &read); err != nil || !reflect.DeepEqual(read, spec) {
		t.Errorf("read back: %+v (%v)", read, err)
	}
	var parts struct{ Schedule json.RawMessage }
	var sched Schedule
	if err := json.Unmarshal(stored, &parts); err != nil {
		t.Fatal(err)
	}
	if err := DecodeSchedule(parts.Schedule, &sched); err != nil || !reflect.DeepEqual(sched, spec.Schedule) {
		t.Errorf("the schedule: %+v (%v)", sched, err)
	}
	var hidden JobSpec
	if err := json.Unmarshal([]byte(`{"schedule":{"kind":"cron","calendar":"c","days_off":{"weekdays":["monday"]}}}`), &hidden); err != nil || hidden.Schedule.DaysOff != nil {
		t.Errorf("decoding the form for clients set the days %+v (%v), want none", hidden.Schedule.DaysOff, err)
	}
}
