package schedule

import (
	"math/bits"
	"time"
)

// cron is a compiled cron expression of either dialect. Sets are bit sets indexed by value.
type cron struct {
	seconds, minutes, hours, months uint64
	days                            dayRule
	years                           *yearSet // nil if every year matches
	fixed                           bool     // hour and minute are single values or lists of single values
}

// The years that can fire. Quartz's year field ends at 2099.
const (
	minYear       = 1970
	maxYear       = 2199
	maxQuartzYear = 2099
)

// yearSet holds the years, starting at minYear.
type yearSet [(maxQuartzYear-minYear)/64 + 1]uint64

func (y *yearSet) add(year int) { y[(year-minYear)/64] |= 1 << ((year - minYear) % 64) }

func (y *yearSet) has(year int) bool {
	return y == nil ||
		year >= minYear && year <= maxQuartzYear && y[(year-minYear)/64]&(1<<((year-minYear)%64)) != 0
}

// dayRule determines which days of a month fire: the union or the intersection of the days of dom and dow.
type dayRule struct {
	dom    domSet
	dow    dowSet
	either bool // union: a day that is in one of the two sets fires
}

// domSet selects days by their number.
type domSet struct {
	days            uint64 // 1-31
	weekdays        uint64 // the weekday nearest to day 1-31 within its month
	fromEnd         uint64 // 0-30 days before the last
	fromEndWeekdays uint64 // the weekday nearest to that day
}

// dowSet selects days by their weekday, 0 = Sunday.
type dowSet struct {
	every uint64
	last  uint64    // the last such weekday of the month
	nth   [6]uint64 // the first one to the fifth one, indexed from 1
}

// in returns the days of the month that fire, as a bit set from 1 to 31.
func (r *dayRule) in(year int, month time.Month) uint64 {
	first := time.Date(year, month, 1, 0, 0, 0, 0, time.UTC)
	length := daysIn(year, month)
	weekday := int(first.Weekday())
	dom, dow := r.dom.in(length, weekday), r.dow.in(length, weekday)
	if r.either {
		return dom | dow
	}
	return dom & dow
}

func (s *domSet) in(length, firstWeekday int) uint64 {
	set := s.days & monthMask(length)
	if s.weekdays|s.fromEnd|s.fromEndWeekdays == 0 {
		return set
	}
	for day := 1; day <= length; day++ {
		before := length - day
		if s.fromEnd&(1<<before) != 0 {
			set |= 1 << day
		}
		if s.weekdays&(1<<day) != 0 || s.fromEndWeekdays&(1<<before) != 0 {
			set |= 1 << nearestWeekday(day, length, firstWeekday)
		}
	}
	return set
}

// nearestWeekday returns the day from Monday to Friday that is nearest to day and in the same month.
func nearestWeekday(day, length, firstWeekday int) int {
	switch time.Weekday((firstWeekday + day - 1) % 7) {
	case time.Saturday:
		if day == 1 {
			return 3
		}
		return day - 1
	case time.Sunday:
		if day == length {
			return day - 2
		}
		return day + 1
	}
	return day
}

const everyWeekday = 1<<7 - 1

// sevenApart has the bits 1, 8, 15, 22 and 29: the days of a month with the weekday of its first.
const sevenApart = 1<<1 | 1<<8 | 1<<15 | 1<<22 | 1<<29

func (s *dowSet) in(length, firstWeekday int) uint64 {
	mask := monthMask(length)
	if s.every == everyWeekday {
		return mask
	}
	var set uint64
	for weekday := range 7 {
		first := (weekday - firstWeekday + 7) % 7 // the first such weekday, counted from the first day of the month
		days := uint64(sevenApart) << first & mask
		bit := uint64(1) << weekday
		if s.every&bit != 0 {
			set |= days
		}
		if s.last&bit != 0 {
			set |= 1 << (bits.Len64(days) - 1)
		}
		for n := 1; n <= 5; n++ {
			if s.nth[n]&bit != 0 {
				set |= 1 << (first + 1 + 7*(n-1)) & mask
			}
		}
	}
	return set
}

// monthMask has the bits 1 to length.
func monthMask(length int) uint64 { return 1<<(length+1) - 2 }

func daysIn(year int, month time.Month) int {
	switch month {
	case time.April, time.June, time.September, time.November:
		return 30
	case time.February:
		if year%4 == 0 && (year%100 != 0 || year%400 == 0) {
			return 29
		}
		return 28
	}
	return 31
}

// next returns the first Unix second after sec that fires, or false if there is none before the year 2200.
func (c *cron) next(zone *time.Location, sec int64) (int64, bool) {
	sec = max(sec, firstSecond-1)
	if c.fixed {
		return c.nextFixed(zone, sec)
	}
	return c.nextElapsed(zone, sec)
}

// nextFixed implements the rule of fixed expressions. The instant of a local second is the first one at which the
// clocks show that second or a later one; it increases with the local second. So the first fire after sec is the
// instant of the first match after the latest local second that the clocks have shown up to sec.
func (c *cron) nextFixed(zone *time.Location, sec int64) (int64, bool) {
	local, ok := c.nextLocal(highestLocal(zone, sec) + 1)
	for ok {
		at := firstAtOrPast(zone, local)
		if offset, _, _ := span(zone, at); at+offset == local || dateShown(zone, local) {
			return at, true
		}
		local, ok = c.nextLocal(floorDay(local) + 86400)
	}
	return 0, false
}

// nextElapsed implements the rule of all other expressions: it searches one span of constant offset after another.
func (c *cron) nextElapsed(zone *time.Location, sec int64) (int64, bool) {
	sec++
	for {
		offset, _, to := span(zone, sec)
		local, ok := c.nextLocal(sec + offset)
		if ok && local-offset < to {
			return local - offset, true
		}
		if to >= endSecond {
			return 0, false
		}
		// No local second between sec's and the match fires, but clocks that are set back may show earlier ones again,
		// within widestTurn of sec. After that, spans that end well before the match can be skipped.
		if to <= sec+widestTurn {
			sec = to
			continue
		}
		if !ok {
			return 0, false
		}
		sec = max(to, local-2*widestTurn)
	}
}

// nextLocal returns the first local second at or after local that matches, whether or not clocks show it.
func (c *cron) nextLocal(local int64) (int64, bool) {
	local = max(local, firstSecond)
	day := floorDay(local)
	year, month, dom := time.Unix(day, 0).UTC().Date()
	if c.daysOf(year, month)&(1<<dom) != 0 {
		if second, ok := c.timeAt(int(local - day)); ok {
			return day + int64(second), true
		}
	}
	first, _ := c.timeAt(0)
	for ; year <= maxYear; year, month, dom = year+1, time.January, 0 {
		if !c.years.has(year) {
			continue
		}
		for ; month <= time.December; month, dom = month+1, 0 {
			if later := c.daysOf(year, month) &^ (1<<(dom+1) - 1); later != 0 {
				match := bits.TrailingZeros64(later)
				return time.Date(year, month, match, 0, 0, first, 0, time.UTC).Unix(), true
			}
		}
	}
	return 0, false
}

// daysOf returns the days of a month that match, as a bit set from 1 to 31.
func (c *cron) daysOf(year int, month time.Month) uint64 {
	if c.months&(1<<month) == 0 || !c.years.has(year) {
		return 0
	}
	return c.days.in(year, month)
}

// timeAt returns the first matching second of a day at or after second, or false if there is none. For second 0 there
// always is one, because no field is empty.
func (c *cron) timeAt(second int) (int, bool) {
	h, m, s := second/3600, second/60%60, second%60
	if hour, ok := bitFrom(c.hours, h); !ok {
		return 0, false
	} else if hour > h {
		h, m, s = hour, 0, 0
	}
	if minute, ok := bitFrom(c.minutes, m); !ok {
		return c.timeAt((h + 1) * 3600)
	} else if minute > m {
		m, s = minute, 0
	}
	if sec, ok := bitFrom(c.seconds, s); ok {
		return h*3600 + m*60 + sec, true
	}
	return c.timeAt(h*3600 + (m+1)*60)
}

// bitFrom returns the lowest bit of set that is at least n.
func bitFrom(set uint64, n int) (int, bool) {
	if n > 63 {
		return 0, false
	}
	set &^= 1<<n - 1
	return bits.TrailingZeros64(set), set != 0
}
