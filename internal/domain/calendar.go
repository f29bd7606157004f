package domain

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"
)

// Calendar is a named set of days off, as stored in Postgres.
type Calendar struct {
	CalendarSpec
	Jobs      int     `json:"jobs"` // number of jobs that use it
	Version   int     `json:"version"`
	CreatedAt Instant `json:"created_at"`
	UpdatedAt Instant `json:"updated_at"`
	UpdatedBy string  `json:"updated_by"`
}

// CalendarSpec is the part of a calendar that users set.
type CalendarSpec struct {
	Name        string `json:"name"`
	Description string `json:"description"`
	DaysOff
}

// DaysOff are days on which schedules do not fire: days of the week and dates, each in the schedule's time zone. Jobs share the
// slices with their calendar. Do not change them in place.
type DaysOff struct {
	Weekdays []Weekday `json:"weekdays"`
	Dates    []Date    `json:"dates"`
}

// The bounds of calendars.
const (
	MaxCalendarDates = 1000
	MaxCalendarJobs  = 1000 // jobs per calendar: an edit of a calendar creates a new version of each job in one transaction
)

// CalendarNameRule states the form of calendar names.
const CalendarNameRule = "the name of a calendar is 1 to 63 characters, a-z, 0-9, _ or -, and starts with a letter or digit"

// ValidCalendarName reports whether s is a valid calendar name.
func ValidCalendarName(s string) bool { return groupName.MatchString(s) }

// Validate returns an Invalid error that names every faulty field, with indexes into the lists as the caller gave them.
func (c *CalendarSpec) Validate() error {
	var f Faults
	if !ValidCalendarName(c.Name) {
		f.Add("name", CalendarNameRule)
	}
	f.text("description", c.Description, 0, 1024)
	c.DaysOff.validate(&f)
	return f.Err("the calendar is not valid")
}

func (d *DaysOff) validate(f *Faults) {
	if len(d.Weekdays) > len(Weekdays) {
		f.Add("weekdays", fmt.Sprintf("has %d days; a week has seven", len(d.Weekdays)))
	} else {
		for i, w := range d.Weekdays {
			oneOf(f, fmt.Sprintf("weekdays[%d]", i), w, Weekdays...)
		}
		if !slices.ContainsFunc(Weekdays, func(w Weekday) bool { return !slices.Contains(d.Weekdays, w) }) {
			f.Add("weekdays", "are all seven, so no job would ever fire; leave at least one out, or disable the jobs")
		}
	}
	all := DaysOff{Dates: d.Dates}
	all.Normalize()
	if len(all.Dates) > MaxCalendarDates {
		f.Add("dates", fmt.Sprintf("has %d dates; at most %d are allowed: remove past dates", len(all.Dates), MaxCalendarDates))
		return
	}
	for i, date := range d.Dates {
		if y := date.year(); y < 1970 || y > 2199 {
			f.Add(fmt.Sprintf("dates[%d]", i), "must lie in the years 1970 to 2199; write it like 2026-12-25")
		}
	}
}

// Normalize sorts the days and removes duplicates, so that equal sets of days have equal stored forms.
func (d *DaysOff) Normalize() {
	d.Weekdays = merged(d.Weekdays, func(a, b Weekday) int { return slices.Index(Weekdays, a) - slices.Index(Weekdays, b) })
	d.Dates = merged(d.Dates, func(a, b Date) int { return int(a) - int(b) })
}

func merged[T comparable](days []T, order func(a, b T) int) []T {
	if len(days) == 0 {
		return []T{}
	}
	days = slices.Clone(days)
	slices.SortFunc(days, order)
	return slices.Compact(days)
}

// Equal reports whether d and o are the same days. Both must be normalized.
func (d *DaysOff) Equal(o *DaysOff) bool {
	return slices.Equal(d.Weekdays, o.Weekdays) && slices.Equal(d.Dates, o.Dates)
}

// Has reports whether the local date of t, in the time zone of t, is one of the days. d must be normalized.
func (d *DaysOff) Has(t time.Time) bool {
	if slices.Contains(d.Weekdays, WeekdayOf(t)) {
		return true
	}
	_, found := slices.BinarySearch(d.Dates, DateOf(t))
	return found
}

// Weekday is a day of the week by its English name.
type Weekday string

// Weekdays lists the days of the week, starting with Monday.
var Weekdays = []Weekday{"monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday"}

// WeekdayOf returns the weekday of t in the time zone of t.
func WeekdayOf(t time.Time) Weekday { return Weekdays[(t.Weekday()+6)%7] }

// Date is a calendar date without a time zone: year*10000 + month*100 + day; 0 is no date. Its text form is 2026-12-25.
type Date int32

// DateOf returns the date of t in the time zone of t.
func DateOf(t time.Time) Date {
	y, m, d := t.Date()
	return Date(y*10000 + int(m)*100 + d)
}

func (d Date) year() int { return int(d) / 10000 }

// String writes the date like 2026-12-25.
func (d Date) String() string { return fmt.Sprintf("%04d-%02d-%02d", d/10000, d/100%100, d%100) }

// MarshalText writes the form of String.
func (d Date) MarshalText() ([]byte, error) { return []byte(d.String()), nil }

// UnmarshalText reads a date like 2026-12-25.
func (d *Date) UnmarshalText(b []byte) error {
	t, err := time.Parse(time.DateOnly, string(b))
	if err != nil {
		if len(b) > 32 {
			b = b[:32]
		}
		return fmt.Errorf("%q is no date; write it like 2026-12-25", strings.ToValidUTF8(string(b), "�"))
	}
	*d = DateOf(t)
	return nil
}

// storedSchedule is the form of a schedule in Postgres. It includes a copy of the calendar's days.
type storedSchedule struct {
	Schedule
	DaysOff *DaysOff `json:"days_off,omitempty"`
}

// EncodeSpec returns the form of a job in Postgres. Unlike the API's JSON form, it includes a copy of the calendar's days.
func EncodeSpec(s *JobSpec) ([]byte, error) {
	if s.Schedule.DaysOff == nil {
		return json.Marshal(s)
	}
	return json.Marshal(struct {
		*JobSpec
		Schedule storedSchedule `json:"schedule"`
	}{s, storedSchedule{s.Schedule, s.Schedule.DaysOff}})
}

// DecodeSpec decodes the result of EncodeSpec into s. Fields of s that are missing in data keep their values.
func DecodeSpec(data []byte, s *JobSpec) error {
	if err := json.Unmarshal(data, s); err != nil || s.Schedule.Calendar == "" {
		return err
	}
	var stored struct {
		Schedule struct {
			DaysOff *DaysOff `json:"days_off"`
		} `json:"schedule"`
	}
	err := json.Unmarshal(data, &stored)
	s.Schedule.DaysOff = stored.Schedule.DaysOff
	return err
}

// DecodeSchedule decodes the schedule within the result of EncodeSpec.
func DecodeSchedule(data []byte, s *Schedule) error {
	stored := storedSchedule{Schedule: *s}
	err := json.Unmarshal(data, &stored)
	*s = stored.Schedule
	s.DaysOff = stored.DaysOff
	return err
}
