package quartz

import "time"

// mostSteps bounds the search, because some expressions make Quartz search without an end.
const mostSteps = 200_000

// Next returns the first fire time after an instant, or false if there is none, or if Quartz does not find one.
func (e *Expression) Next(after time.Time, zone *time.Location) (time.Time, bool) {
	for kind := range e.sets {
		if kind != dayOfMonth && len(e.sets[kind]) == 0 {
			return time.Time{}, false // Quartz throws an exception
		}
	}
	search := search{Expression: e, floor: after.Add(time.Second), cal: newCalendar(after.Add(time.Second), zone)}
	for range mostSteps {
		switch search.step() {
		case found:
			return search.cal.time().UTC(), true
		case exhausted:
			return time.Time{}, false
		case again:
		}
	}
	return time.Time{}, false
}

type search struct {
	*Expression
	floor time.Time // the first instant that may be the answer
	cal   *calendar
}

type outcome int

const (
	again outcome = iota // a field changed: start with the seconds again
	found
	exhausted
)

func (s *search) step() outcome {
	c := s.cal
	if c.read(); c.year > 2999 {
		return exhausted
	}
	sec, ok := s.sets[second].from(c.second)
	if !ok {
		sec = s.sets[second][0]
		c.minute++
	}
	c.second = sec
	c.read()

	if m, ok := s.sets[minute].from(c.minute); !ok || m != c.minute {
		h := c.hour
		if !ok {
			m = s.sets[minute][0]
			h++
		}
		c.second, c.minute = 0, m
		c.setHour(h)
		return again
	}
	if h, ok := s.sets[hour].from(c.hour); !ok || h != c.hour {
		if !ok {
			h = s.sets[hour][0]
			c.day++
		}
		c.second, c.minute = 0, 0
		c.setHour(h)
		return again
	}
	if s.sets[dayOfMonth].has(noValue) {
		if s.byWeekday() {
			return again
		}
	} else if s.byDay() {
		return again
	}
	c.read()
	return s.monthAndYear()
}

func (s *search) monthAndYear() outcome {
	c := s.cal
	if c.year > s.maxYear {
		return exhausted
	}
	m, ok := s.sets[month].from(c.month)
	if !ok {
		m = s.sets[month][0]
		c.year++
	}
	if !ok || m != c.month {
		c.midnight()
		c.month, c.day = m, 1
		return again
	}
	y, ok := s.sets[year].from(c.year)
	switch {
	case !ok:
		return exhausted
	case y != c.year:
		c.midnight()
		c.year, c.month, c.day = y, 1, 1
		return again
	}
	return found
}

// byWeekday sets the day by the day-of-week field. It returns true if it changed the date.
func (s *search) byWeekday() bool {
	c := s.cal
	want := s.sets[dayOfWeek][0]
	now := c.weekday()
	plain := !s.lastWeekday && s.nth == 0
	if later, ok := s.sets[dayOfWeek].from(now); ok && plain {
		want = later
	}
	add := (want - now + 7) % 7
	length := daysIn(c.month, c.year)
	switch {
	case !s.lastWeekday && s.nth != 0:
		day := c.day + add
		more := (s.nth - (day+6)/7) * 7
		if more < 0 || day+more > length {
			return s.nextMonth()
		}
		add += more
	case c.day+add > length:
		return s.nextMonth()
	case s.lastWeekday:
		for c.day+add+7 <= length {
			add += 7
		}
	}
	if add == 0 {
		return false
	}
	c.midnight()
	c.day += add
	return true
}

func (s *search) nextMonth() bool {
	s.cal.midnight()
	s.cal.day = 1
	s.cal.month++
	return true
}

// byDay sets the day by the day-of-month field. It returns true if it changed the date.
func (s *search) byDay() bool {
	c := s.cal
	if s.version != V232 {
		return s.byDaySets()
	}
	today, thisMonth := c.day, c.month
	var day int
	var moved bool
	days := s.sets[dayOfMonth]
	switch {
	case s.fromEnd && !s.nearest:
		if day = daysIn(c.month, c.year) - s.offset; today > day {
			day = 1
			if c.month++; c.month > 12 {
				c.month, moved = 1, true
				c.year++
			}
		}
	case s.fromEnd || s.nearest:
		first := 1
		if s.fromEnd {
			day = daysIn(c.month, c.year) - s.offset
		} else {
			if len(days) == 0 {
				return false
			}
			first = days[0]
			day = first
		}
		var passed bool
		if day, passed = s.nearestWeekday(day); passed {
			day = first
			c.month++
		}
	default:
		next, ok := days.from(today)
		if !ok || next > daysIn(c.month, c.year) {
			next = days[0]
			c.month++
		}
		day = next
		moved = !ok
	}
	if day == today && c.month == thisMonth && !moved {
		return false
	}
	c.midnight()
	c.day = day
	return true
}

// byDaySets is byDay since 2.5.0.
func (s *search) byDaySets() bool {
	c := s.cal
	plain, hasPlain := s.smallest(s.sets[dayOfMonth])
	near, hasNear := s.smallest(s.near)
	day := -1
	if hasNear {
		var passed bool
		if day, passed = s.nearestWeekday(near); passed {
			day = -1
		}
	}
	today, nextMonth := c.day, false
	advance := s.version == V250 // since 2.5.2, a day with W does not reset the time of day
	switch {
	case hasPlain && (day == -1 || plain < day):
		day, advance = plain, true
	case day == -1:
		day, nextMonth, advance = 1, true, true
	}
	if nextMonth {
		c.month++
	}
	changed := day != today || nextMonth
	c.day = day
	if advance && changed {
		c.midnight()
		return true
	}
	return false
}

// smallest returns the first day of the month, today or later, that is in the set.
func (s *search) smallest(days set) (int, bool) {
	c := s.cal
	length := daysIn(c.month, c.year)
	fromEnd, hasEnd := days.from(lastDay - (length - c.day))
	fromEnd -= offsetBase - 1 // as in a month of 31 days
	plain, ok := days.from(c.day)
	if ok && plain < offsetBase && plain <= length && (!hasEnd || plain < fromEnd) {
		return plain, true
	}
	if s.version == V252 { // 2.5.0 takes every month for one of 31 days
		fromEnd += length - 31
	}
	return fromEnd, hasEnd
}

// nearestWeekday returns the weekday next to a day of the current month, and whether it has passed.
func (s *search) nearestWeekday(day int) (int, bool) {
	c := *s.cal
	c.midnight()
	c.day = day
	switch weekday := c.weekday(); {
	case weekday == 7 && day == 1:
		day += 2
	case weekday == 7:
		day--
	case weekday == 1 && day == daysIn(s.cal.month, s.cal.year):
		day -= 2
	case weekday == 1:
		day++
	}
	c = *s.cal
	c.day = day
	return day, c.time().Before(s.floor.Truncate(time.Second))
}
