package schedule

import (
	"fmt"
	"math/bits"
	"time"

	"github.com/belfryhq/belfry/internal/domain"
)

// The bounds of a schedule's durations.
const (
	MinEvery    = time.Second
	MaxDuration = 366 * 24 * time.Hour // of every and delay
	// MaxFreeJitter bounds the jitter of kinds that have no gap between fires: none and once.
	MaxFreeJitter = 24 * time.Hour
)

// firstSecond and endSecond are the Unix seconds within which schedules fire: [1970, 2200).
const (
	firstSecond = 0
	endSecond   = 7258118400
)

// Options holds the inputs of Compile that are not part of the schedule.
type Options struct {
	DefaultZone *time.Location // used where time_zone is ""; nil means UTC
	CreatedAt   time.Time      // anchors a fixed_rate without start_at; zero means the Unix epoch
}

// Schedule is a compiled schedule. It is immutable and safe for concurrent use.
type Schedule struct {
	kind       domain.ScheduleKind
	zone       *time.Location
	start, end time.Time // zero where open
	jitter     time.Duration
	cron       *cron         // of cron
	every      time.Duration // of fixed_rate
	anchor     time.Time     // of fixed_rate
	delay      time.Duration // of fixed_delay
	at         time.Time     // of once

	calendar string          // "" for none
	off      *domain.DaysOff // the calendar's days; nil if there are none or they are unknown
}

// Compile validates and compiles s. It reads the zone's rules from disk, so compile each version of a job's schedule
// only once. The error is a *domain.Error of code Invalid that names every faulty field, such as "schedule.expr". The
// errors of a cron expression are reported field by field, with columns.
func Compile(s domain.Schedule, o Options) (*Schedule, error) {
	var f domain.Faults
	c := &Schedule{kind: s.Kind, zone: o.DefaultZone}
	if c.zone == nil {
		c.zone = time.UTC
	}
	if s.TimeZone != "" {
		z, err := loadZone(s.TimeZone)
		if err != nil {
			f.Add("schedule.time_zone", err.Error())
		} else {
			c.zone = z
		}
	}
	c.compileWindow(s, &f)
	checkForeign(s, &f)
	c.compileKind(s, o, &f)
	c.compileCalendar(s, &f)
	c.compileJitter(s, o, &f)
	if err := f.Err("the schedule is not valid"); err != nil {
		return nil, err
	}
	return c, nil
}

func (s *Schedule) compileWindow(in domain.Schedule, f *domain.Faults) {
	if in.StartAt != nil {
		s.start = domain.At(in.StartAt.Time).Time
		if s.start.Unix() >= endSecond {
			f.Add("schedule.start_at", "must lie before the year 2200")
		}
	}
	if in.EndAt != nil {
		s.end = domain.At(in.EndAt.Time).Time
	}
	if in.StartAt != nil && in.EndAt != nil && s.end.Before(s.start) {
		f.Add("schedule.end_at", "must not be before start_at")
	}
}

// checkForeign refuses fields that belong to another kind, because they would have no effect.
func checkForeign(s domain.Schedule, f *domain.Faults) {
	foreign := func(field string, set bool, kind domain.ScheduleKind) {
		if set && s.Kind != kind {
			f.Add("schedule."+field, fmt.Sprintf("belongs to kind %s; remove it or change the kind", kind))
		}
	}
	if !known(s.Kind) {
		return
	}
	foreign("expr", s.Expr != "", domain.ScheduleCron)
	foreign("dialect", s.Dialect != "", domain.ScheduleCron)
	foreign("every", s.Every != 0, domain.ScheduleFixedRate)
	foreign("delay", s.Delay != 0, domain.ScheduleFixedDelay)
	foreign("at", s.At != nil, domain.ScheduleOnce)
}

// compileCalendar sets the days of a calendar. If the caller does not pass them, the schedule fires as without a
// calendar.
func (s *Schedule) compileCalendar(in domain.Schedule, f *domain.Faults) {
	if in.Calendar == "" {
		return
	}
	const field = "schedule.calendar"
	if known(in.Kind) && in.Kind != domain.ScheduleCron && in.Kind != domain.ScheduleFixedRate {
		f.Add(field, "belongs to kinds cron and fixed_rate; remove it or change the kind")
	}
	if !domain.ValidCalendarName(in.Calendar) {
		f.Add(field, domain.CalendarNameRule)
	}
	s.calendar = in.Calendar
	if d := in.DaysOff; d != nil && len(d.Weekdays)+len(d.Dates) > 0 {
		s.off = d
	}
}

func known(k domain.ScheduleKind) bool {
	switch k {
	case domain.ScheduleNone, domain.ScheduleCron, domain.ScheduleFixedRate, domain.ScheduleFixedDelay, domain.ScheduleOnce:
		return true
	}
	return false
}

func (s *Schedule) compileKind(in domain.Schedule, o Options, f *domain.Faults) {
	switch in.Kind {
	case domain.ScheduleNone:
	case domain.ScheduleCron:
		if !knownDialect(in.Dialect) {
			f.Add("schedule.dialect", fmt.Sprintf("%q is not known; use standard or quartz", in.Dialect))
			return
		}
		var faults []string
		s.cron, faults = parseCron(in.Expr, in.Dialect)
		for _, message := range faults {
			f.Add("schedule.expr", message)
		}
	case domain.ScheduleFixedRate:
		s.every = in.Every.Std()
		checkDuration(f, "schedule.every", s.every, MinEvery, MaxDuration)
		if in.StartAt == nil && !o.CreatedAt.IsZero() {
			s.anchor = domain.At(o.CreatedAt).Time
		} else if in.StartAt != nil {
			s.anchor = s.start
		} else {
			s.anchor = time.Unix(0, 0).UTC()
		}
	case domain.ScheduleFixedDelay:
		s.delay = in.Delay.Std()
		checkDuration(f, "schedule.delay", s.delay, time.Millisecond, MaxDuration)
	case domain.ScheduleOnce:
		switch {
		case in.At == nil:
			f.Add("schedule.at", "is required for kind once: the instant to fire at, such as \"2026-03-29T01:30:00Z\"")
		case in.At.Unix() < firstSecond || in.At.Unix() >= endSecond:
			f.Add("schedule.at", "must lie in the years 1970 to 2199")
		default:
			s.at = domain.At(in.At.Time).Time
		}
	case "":
		f.Add("schedule.kind", "is required: none, cron, fixed_rate, fixed_delay or once")
	default:
		f.Add("schedule.kind", fmt.Sprintf("%q is not known; use none, cron, fixed_rate, fixed_delay or once", in.Kind))
	}
}

func checkDuration(f *domain.Faults, field string, d, lo, hi time.Duration) {
	switch {
	case d == 0:
		f.Add(field, "is required, such as \"90s\"")
	case d < lo || d > hi:
		f.Add(field, fmt.Sprintf("is %s; it must be between %s and %s", d, lo, hi))
	case d%time.Millisecond != 0:
		f.Add(field, fmt.Sprintf("is %s; use whole milliseconds", d))
	}
}

// Kind returns the kind.
func (s *Schedule) Kind() domain.ScheduleKind { return s.kind }

// Zone returns the zone of a cron expression's local times. It is never nil.
func (s *Schedule) Zone() *time.Location { return s.zone }

// Delay returns the time between the end of a run and the next due instant for fixed_delay, otherwise 0.
func (s *Schedule) Delay() time.Duration { return s.delay }

// Window returns start_at and end_at, both inside the window; zero means open.
func (s *Schedule) Window() (start, end time.Time) { return s.start, s.end }

// InWindow reports whether t is neither before start_at nor after end_at.
func (s *Schedule) InWindow(t time.Time) bool {
	return (s.start.IsZero() || !t.Before(s.start)) && (s.end.IsZero() || !t.After(s.end))
}

// Next returns the first fire time strictly after t, in UTC, or false if there is none. It reads no clock. Kinds none
// and fixed_delay have none, because their fire times do not follow from the schedule alone.
func (s *Schedule) Next(t time.Time) (time.Time, bool) {
	if !s.start.IsZero() && t.Before(s.start) {
		t = s.start.Add(-1) // so that a fire time at start_at itself is found
	}
	if t.Unix() >= endSecond {
		return time.Time{}, false
	}
	for {
		next, ok := s.nextUnbounded(t)
		if !ok || !s.InWindow(next) || next.Unix() >= endSecond {
			return time.Time{}, false
		}
		if !s.DayOff(next) {
			return next, true
		}
		t = s.endOfDay(next)
	}
}

// PerMinute returns the most fire times in any minute, whatever the window and the calendar are. The fire times of
// fixed_delay are at least the delay apart. A minute in which the clocks change by a part of a minute may have more; the
// last such change of any zone was in 1972.
func (s *Schedule) PerMinute() int {
	switch s.kind {
	case domain.ScheduleCron:
		return bits.OnesCount64(s.cron.seconds)
	case domain.ScheduleFixedRate:
		return fit(time.Minute, s.every)
	case domain.ScheduleFixedDelay:
		return fit(time.Minute, s.delay)
	case domain.ScheduleOnce:
		return 1
	case domain.ScheduleNone:
	}
	return 0
}

// fit returns how many instants that are at least gap apart fit into a period.
func fit(period, gap time.Duration) int { return int((period + gap - 1) / gap) }

// DayOff reports whether t lies on a day off of the schedule's calendar.
func (s *Schedule) DayOff(t time.Time) bool { return s.off != nil && s.off.Has(t.In(s.zone)) }

// TakenOff reports whether t would be a fire time if it were not on a day off of the schedule's calendar.
func (s *Schedule) TakenOff(t time.Time) bool {
	if !s.DayOff(t) || !s.InWindow(t) {
		return false
	}
	next, ok := s.nextUnbounded(t.Add(-time.Millisecond))
	return ok && next.Equal(t)
}

// Calendar returns the name of the calendar whose days off the schedule excludes, or "".
func (s *Schedule) Calendar() string { return s.calendar }

// endOfDay returns an instant at or after t up to which the clocks show the date of t. This usually is the end of the
// day. The clocks may change before that, even back into the previous day, so it also ends where the offset changes.
func (s *Schedule) endOfDay(t time.Time) time.Time {
	offset, _, to := span(s.zone, t.Unix())
	end := min(floorDay(t.Unix()+offset)+86400-offset, to)
	return time.Unix(end, 0).Add(-1)
}

// nextUnbounded is Next without regard to the window and the days off.
func (s *Schedule) nextUnbounded(t time.Time) (time.Time, bool) {
	switch s.kind {
	case domain.ScheduleCron:
		sec, ok := s.cron.next(s.zone, t.Unix())
		if !ok {
			return time.Time{}, false
		}
		return time.Unix(sec, 0).UTC(), true
	case domain.ScheduleFixedRate:
		return s.nextOnGrid(t), true
	case domain.ScheduleOnce:
		return s.at, s.at.After(t)
	case domain.ScheduleNone, domain.ScheduleFixedDelay:
	}
	return time.Time{}, false
}

// nextOnGrid returns the first instant anchor + k*every, k >= 0, after t. It multiplies instead of adding repeatedly,
// so the grid cannot drift. It counts milliseconds, because a time.Duration ends after 292 years.
func (s *Schedule) nextOnGrid(t time.Time) time.Time {
	if t.Before(s.anchor) {
		return s.anchor
	}
	every, anchor := s.every.Milliseconds(), s.anchor.UnixMilli()
	k := (t.UnixMilli()-anchor)/every + 1
	return time.UnixMilli(anchor + k*every).UTC()
}

// Due returns the due instant of a fire time: the fire time plus a delay in [0, jitter) of whole milliseconds. The
// delay depends only on the job and the fire time, so that every scheduler computes the same one.
func (s *Schedule) Due(job domain.JobID, fire time.Time) time.Time {
	width := uint64(s.jitter.Milliseconds())
	if width == 0 {
		return fire
	}
	hash := mix(mix(uint64(job)) ^ uint64(fire.UnixMilli()))
	return fire.Add(time.Duration(hash%width) * time.Millisecond)
}

// mix is the finalizer of SplitMix64. It must never change, because due instants must not change between versions.
func mix(x uint64) uint64 {
	x += 0x9e3779b97f4a7c15
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}
