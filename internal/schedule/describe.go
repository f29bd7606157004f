package schedule

import (
	"fmt"
	"math/bits"
	"strconv"
	"strings"
	"time"

	"github.com/belfryhq/belfry/internal/domain"
	"github.com/belfryhq/belfry/internal/explain"
)

// instantLayout is the format of instants in descriptions.
const instantLayout = "2006-01-02 15:04:05.999Z07:00"

// Describe returns an English description of when the schedule fires, such as "At 02:00 every day, Asia/Shanghai".
func (s *Schedule) Describe() string {
	text := s.describeKind()
	write := func(t time.Time) string { return t.In(s.zone).Format(instantLayout) }
	switch {
	case !s.start.IsZero() && !s.end.IsZero():
		text += ", from " + write(s.start) + " until " + write(s.end)
	case !s.start.IsZero():
		text += ", from " + write(s.start) + " on"
	case !s.end.IsZero():
		text += ", until " + write(s.end)
	}
	if s.jitter > 0 {
		text += ", delayed by up to " + plainDuration(s.jitter)
	}
	if s.calendar != "" {
		text += ", except on days off of calendar " + s.calendar
	}
	return text
}

func (s *Schedule) describeKind() string {
	switch s.kind {
	case domain.ScheduleCron:
		return s.cron.describe() + ", " + s.zone.String()
	case domain.ScheduleFixedRate:
		return "Every " + strings.TrimPrefix(plainDuration(s.every), "1 ")
	case domain.ScheduleFixedDelay:
		return capital(plainDuration(s.delay)) + " after the end of the previous run"
	case domain.ScheduleOnce:
		return "Once, at " + s.at.In(s.zone).Format("2006-01-02 15:04:05.999") + ", " + s.zone.String()
	case domain.ScheduleNone:
	}
	return "Only by hand, API, event or parent"
}

// Note explains why the schedule has no fire time after now. It returns "" if there is one, or if the kind is none or
// fixed_delay, which need none.
func (s *Schedule) Note(now time.Time) string { return s.NoteIn(explain.English, now) }

// NoteIn is Note in a language.
func (s *Schedule) NoteIn(language explain.Language, now time.Time) string {
	_, ok := s.Next(now)
	ended := !s.end.IsZero() && !now.Before(s.end)
	switch {
	case ok || s.kind == domain.ScheduleNone || s.kind == domain.ScheduleFixedDelay && !ended:
		return ""
	case s.kind == domain.ScheduleOnce && !s.InWindow(s.at):
		return language.Text("No next fire time: at lies outside start_at and end_at.", "没有下一个触发时间：at 不在 start_at 与 end_at 之间。")
	case s.kind == domain.ScheduleOnce:
		return language.Format("No next fire time: it fires once, and %s has passed.", "没有下一个触发时间：只触发一次，而 %s 已过。", domain.At(s.at))
	case ended:
		return language.Format("No next fire time: the schedule ended at %s.", "没有下一个触发时间：调度已于 %s 结束。", domain.At(s.end))
	}
	if _, ever := s.nextUnbounded(time.Unix(firstSecond-1, 0)); !ever {
		return language.Text("No next fire time: no date ever matches the expression.", "没有下一个触发时间：没有日期符合表达式。")
	}
	if next, ok := s.nextUnbounded(later(now, s.start.Add(-1))); ok && s.InWindow(next) && s.DayOff(next) {
		return language.Format("No next fire time: all that are left fall on days off of calendar %s.",
			"没有下一个触发时间：其余的都在日历 %s 的休息日。", s.calendar)
	}
	if next, ok := s.nextUnbounded(later(now, s.start.Add(-1))); ok && !s.end.IsZero() {
		return language.Format("No next fire time: the next one, %s, would lie past end_at.", "没有下一个触发时间：下一个 %s 晚于 end_at。", domain.At(next))
	}
	return language.Text("No next fire time: the last one has passed.", "没有下一个触发时间：最后一个已过。")
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// plainDuration writes a duration in the largest unit, up to hours, of which it is a whole number.
func plainDuration(d time.Duration) string {
	switch {
	case d%time.Hour == 0:
		return count(int64(d/time.Hour), "hour")
	case d%time.Minute == 0:
		return count(int64(d/time.Minute), "minute")
	case d%time.Second == 0:
		return count(int64(d/time.Second), "second")
	}
	return strconv.FormatFloat(d.Seconds(), 'f', -1, 64) + " seconds"
}

func count(n int64, unit string) string {
	if n == 1 {
		return "1 " + unit
	}
	return strconv.FormatInt(n, 10) + " " + unit + "s"
}

func capital(s string) string { return strings.ToUpper(s[:1]) + s[1:] }

// maxTimesSpelled is the largest number of times of day that are listed individually.
const maxTimesSpelled = 6

func (c *cron) describe() string {
	text, wholeDay := c.describeTime()
	date := c.describeDate()
	if date == "" && !wholeDay {
		date = " every day"
	}
	return capital(text) + date + c.describeYears()
}

// describeTime returns at which times of a day it fires, and whether these cover the whole day.
func (c *cron) describeTime() (text string, wholeDay bool) {
	hours, minutes, seconds := bits.OnesCount64(c.hours), bits.OnesCount64(c.minutes), bits.OnesCount64(c.seconds)
	hourStep := stepOf(c.hours, 24)
	if hours*minutes*seconds <= maxTimesSpelled && (c.fixed || hours <= 3 || hourStep == 0) {
		return "at " + join(c.timesOfDay()), false
	}
	switch {
	case hours == 24:
		return c.describeRate("every hour"), true
	case c.minutes == 1 && c.seconds == 1 && hourStep > 1:
		return "every " + count(int64(hourStep), "hour"), true
	case hourStep > 1 && hours > 1:
		return c.describeRate("every " + ordinal(hourStep) + " hour from 00 on"), true
	}
	if from, to, ok := runOf(c.hours, 24); ok {
		first, _ := c.timeAt(from * 3600)
		return fmt.Sprintf("%s from %s to %s", c.describeRate(""), clock(first), clock(c.lastIn(to))), false
	}
	return c.describeRate("the hours " + spell(c.hours, twoDigits)), false
}

// timesOfDay lists the matching times of a day.
func (c *cron) timesOfDay() []string {
	var times []string
	for t, ok := c.timeAt(0); ok; t, ok = c.timeAt(t + 1) {
		times = append(times, clock(t))
	}
	return times
}

// lastIn returns the last matching time within an hour.
func (c *cron) lastIn(hour int) int {
	return hour*3600 + (bits.Len64(c.minutes)-1)*60 + bits.Len64(c.seconds) - 1
}

// describeRate describes the fires within the named hours; hours is "" if the caller names them afterwards.
func (c *cron) describeRate(hours string) string {
	of := ""
	if hours != "" {
		of = " of " + hours
	}
	inHours := of // "every minute of every hour" is the same as "every minute"
	if hours == "every hour" {
		inHours = ""
	}
	minute, second := rate(c.minutes, "minute"), rate(c.seconds, "second")
	if c.seconds == 1 {
		switch {
		case c.minutes == 1 && (hours == "" || hours == "every hour"):
			return "every hour"
		case strings.HasPrefix(minute, "at "):
			return minute + of
		}
		return minute + inHours
	}
	step := stepOf(c.minutes, 60)
	switch {
	case step == 1 && strings.HasPrefix(second, "at "):
		return second + " of every minute" + inHours
	case step == 1:
		return second + inHours
	case step > 1 && step < 60:
		return second + " of every " + ordinal(step) + " minute from 0 on" + inHours
	}
	return second + " of " + strings.TrimPrefix(minute, "at ") + of
}

// rate describes which seconds or minutes match: every one, every n-th, or those listed.
func rate(set uint64, unit string) string {
	switch step := stepOf(set, 60); {
	case step == 1:
		return "every " + unit
	case step > 1 && step < 60:
		return "every " + count(int64(step), unit)
	case bits.OnesCount64(set) == 1:
		return "at " + unit + " " + spell(set, strconv.Itoa)
	}
	return "at " + unit + "s " + spell(set, strconv.Itoa)
}

func (c *cron) describeDate() string {
	const allMonths = 1<<13 - 2
	month := ""
	if c.months != allMonths {
		month = spell(c.months, func(m int) string { return time.Month(m).String() })
	}
	dom := c.days.dom.describe(month)
	dow := c.days.dow.describe()
	if c.days.either && (dom == "" || dow == "") {
		dom, dow = "", "" // one of the two already lets every day fire
	}
	within := ""
	if month != "" {
		within = " in " + month
	}
	switch {
	case dom == "" && dow == "" && month == "":
		return ""
	case dom == "" && dow == "":
		return " every day" + within
	case dom == "" && strings.Contains(dow, " to "):
		return ", " + dow + within
	case dom == "":
		return " on " + dow + within
	case dow == "":
		return dom
	case c.days.either:
		return dom + " or on " + dow + within
	}
	return dom + ", only on " + dow
}

// describe returns which days of the month fire, or "" for all. month is "" for all months.
func (s *domSet) describe(month string) string {
	if s.days == monthMask(31) {
		return ""
	}
	single := s.weekdays|s.fromEnd|s.fromEndWeekdays == 0 && bits.OnesCount64(s.days) == 1
	if single && month != "" && !strings.ContainsAny(month, " ") {
		return fmt.Sprintf(" on %d %s", bits.TrailingZeros64(s.days), month)
	}
	if month == "" {
		month = "every month"
	}
	var parts []string
	if n := bits.OnesCount64(s.days); n == 1 {
		parts = append(parts, "day "+strconv.Itoa(bits.TrailingZeros64(s.days)))
	} else if step := s.step(); step > 1 && n > 5 {
		parts = append(parts, fmt.Sprintf("every %s day from day %d on", ordinal(step), bits.TrailingZeros64(s.days)))
	} else if n > 1 {
		parts = append(parts, "days "+spell(s.days, strconv.Itoa))
	}
	each(s.weekdays, func(day int) { parts = append(parts, fmt.Sprintf("the working day nearest to day %d", day)) })
	each(s.fromEnd, func(n int) { parts = append(parts, "the "+beforeLast(n)+"last day") })
	each(s.fromEndWeekdays, func(n int) {
		if n == 0 {
			parts = append(parts, "the last working day")
			return
		}
		parts = append(parts, "the working day nearest to the "+beforeLast(n)+"last day")
	})
	return " on " + join(parts) + " of " + month
}

// step returns n if the days are every n-th one from the first of them to the end of the month, otherwise 0.
func (s *domSet) step() int {
	first := bits.TrailingZeros64(s.days)
	step := bits.TrailingZeros64(s.days&^(1<<first)) - first
	var even uint64
	for day := first; day <= 31; day += step {
		even |= 1 << day
	}
	if even != s.days {
		return 0
	}
	return step
}

func beforeLast(n int) string {
	if n == 0 {
		return ""
	}
	return ordinal(n+1) + "-to-"
}

// describe returns which weekdays fire, or "" for all.
func (s *dowSet) describe() string {
	if s.every == everyWeekday {
		return ""
	}
	name := func(d int) string { return time.Weekday(d % 7).String() }
	var parts []string
	if s.every != 0 {
		if from, to, ok := runOf(s.every, 7); ok && bits.OnesCount64(s.every) > 2 {
			parts = append(parts, name(from)+" to "+name(to))
		} else {
			var days []string
			each(s.every&^1|s.every&1<<7, func(d int) { days = append(days, name(d)) }) // Sunday last
			parts = append(parts, days...)
		}
	}
	for n := 1; n <= 5; n++ {
		each(s.nth[n], func(d int) { parts = append(parts, "the "+ordinal(n)+" "+name(d)+" of the month") })
	}
	each(s.last, func(d int) { parts = append(parts, "the last "+name(d)+" of the month") })
	return join(parts)
}

func (c *cron) describeYears() string {
	if c.years == nil {
		return ""
	}
	var years []int
	for y := minYear; y <= maxQuartzYear; y++ {
		if c.years.has(y) {
			years = append(years, y)
		}
	}
	first, last := years[0], years[len(years)-1]
	switch {
	case len(years) > 2 && last-first == len(years)-1:
		return fmt.Sprintf(" from %d to %d", first, last)
	case len(years) > 6:
		return fmt.Sprintf(" in %d years from %d to %d", len(years), first, last)
	}
	texts := make([]string, len(years))
	for i, y := range years {
		texts[i] = strconv.Itoa(y)
	}
	return " in " + join(texts)
}

// stepOf returns n if set is {0, n, 2n, …} below size and n divides size, so that the steps are regular across the
// wrap-around; otherwise 0.
func stepOf(set uint64, size int) int {
	n := size / bits.OnesCount64(set)
	var even uint64
	for v := 0; v < size; v += n {
		even |= 1 << v
	}
	if size%n != 0 || set != even {
		return 0
	}
	return n
}

// runOf returns the ends of set if its values are consecutive, possibly around the end of size.
func runOf(set uint64, size int) (from, to int, ok bool) {
	n := bits.OnesCount64(set)
	for from = range size {
		run := true
		for i := range n {
			run = run && set&(1<<((from+i)%size)) != 0
		}
		if run {
			return from, (from + n - 1) % size, true
		}
	}
	return 0, 0, false
}

// spell lists the values of set; three or more consecutive values become a range.
func spell(set uint64, name func(int) string) string {
	var parts []string
	for set != 0 {
		from := bits.TrailingZeros64(set)
		to := from + bits.TrailingZeros64(^(set >> from)) - 1
		switch {
		case to-from >= 2:
			parts = append(parts, name(from)+" to "+name(to))
			set &^= 1<<(to+1) - 1
		default:
			parts = append(parts, name(from))
			set &^= 1 << from
		}
	}
	return join(parts)
}

func each(set uint64, f func(int)) {
	for ; set != 0; set &= set - 1 {
		f(bits.TrailingZeros64(set))
	}
}

func join(parts []string) string {
	if len(parts) < 2 {
		return strings.Join(parts, "")
	}
	return strings.Join(parts[:len(parts)-1], ", ") + " and " + parts[len(parts)-1]
}

func clock(second int) string {
	text := twoDigits(second/3600) + ":" + twoDigits(second/60%60)
	if second%60 != 0 {
		text += ":" + twoDigits(second%60)
	}
	return text
}

func twoDigits(n int) string { return fmt.Sprintf("%02d", n) }

func ordinal(n int) string {
	switch n {
	case 1:
		return "first"
	case 2:
		return "second"
	case 3:
		return "third"
	case 4:
		return "fourth"
	case 5:
		return "fifth"
	}
	suffix := "th"
	if n/10%10 != 1 && n%10 >= 1 && n%10 <= 3 {
		suffix = []string{"st", "nd", "rd"}[n%10-1]
	}
	return strconv.Itoa(n) + suffix
}
