package schedule

import (
	"fmt"
	"math/bits"
	"strconv"
	"strings"
	"time"

	"github.com/belfryhq/belfry/internal/domain"
)

// DescribeChinese returns a description of when the schedule fires in simplified Chinese, such as "每天 02:00，Asia/Shanghai". It
// has the same content as the result of Describe.
func (s *Schedule) DescribeChinese() string {
	text := s.kindInChinese()
	write := func(t time.Time) string { return t.In(s.zone).Format(instantLayout) }
	switch {
	case !s.start.IsZero() && !s.end.IsZero():
		text += "，自 " + write(s.start) + " 起至 " + write(s.end) + " 止"
	case !s.start.IsZero():
		text += "，自 " + write(s.start) + " 起"
	case !s.end.IsZero():
		text += "，至 " + write(s.end) + " 止"
	}
	if s.jitter > 0 {
		text += "，最多延迟 " + chineseDuration(s.jitter)
	}
	if s.calendar != "" {
		text += "，日历 " + s.calendar + " 的休息日除外"
	}
	return text
}

func (s *Schedule) kindInChinese() string {
	switch s.kind {
	case domain.ScheduleCron:
		return s.cron.describeChinese() + "，" + s.zone.String()
	case domain.ScheduleFixedRate:
		return every(chineseDuration(s.every))
	case domain.ScheduleFixedDelay:
		return "前一次运行结束 " + chineseDuration(s.delay) + "后"
	case domain.ScheduleOnce:
		return "仅一次，" + s.at.In(s.zone).Format("2006-01-02 15:04:05.999") + "，" + s.zone.String()
	case domain.ScheduleNone:
	}
	return "仅由手动、API、事件或父任务触发"
}

func chineseDuration(d time.Duration) string {
	switch {
	case d%time.Hour == 0:
		return strconv.FormatInt(int64(d/time.Hour), 10) + " 小时"
	case d%time.Minute == 0:
		return strconv.FormatInt(int64(d/time.Minute), 10) + " 分钟"
	}
	return strconv.FormatFloat(d.Seconds(), 'f', -1, 64) + " 秒"
}

// every writes 每小时 for 1 小时, and 每 2 小时 otherwise.
func every(n string) string {
	if one, ok := strings.CutPrefix(n, "1 "); ok {
		return "每" + one
	}
	return "每 " + n
}

// describeChinese puts dates before times, as Chinese does: years, months and days, hours, minutes and seconds.
func (c *cron) describeChinese() string {
	text, wholeDay := c.timeInChinese()
	years, date := c.yearsInChinese(), c.dateInChinese()
	switch {
	case date == "" && years == "" && wholeDay:
		return text
	case date == "" && !wholeDay:
		date = "每天"
	case years != "" && date != "" && date[0] <= '9':
		years += " "
	}
	date = years + date
	if strings.HasPrefix(text, "每") {
		return date + "，" + text
	}
	if strings.HasSuffix(date, "）") {
		return date + text
	}
	return date + " " + text
}

// timeInChinese returns at which times of a day it fires, and whether these cover the whole day.
func (c *cron) timeInChinese() (text string, wholeDay bool) {
	hours, minutes, seconds := bits.OnesCount64(c.hours), bits.OnesCount64(c.minutes), bits.OnesCount64(c.seconds)
	hourStep := stepOf(c.hours, 24)
	if hours*minutes*seconds <= maxTimesSpelled && (c.fixed || hours <= 3 || hourStep == 0) {
		return joinChinese(c.timesOfDay()), false
	}
	switch {
	case hours == 24:
		return c.rateInChinese("每小时"), true
	case c.minutes == 1 && c.seconds == 1 && hourStep > 1:
		return every(strconv.Itoa(hourStep) + " 小时"), true
	case hourStep > 1 && hours > 1:
		return "从 00 点起每 " + strconv.Itoa(hourStep) + " 小时" + c.within(), true
	}
	if from, to, ok := runOf(c.hours, 24); ok {
		first, _ := c.timeAt(from * 3600)
		return clock(first) + " 至 " + clock(c.lastIn(to)) + "，" + c.rateInChinese(""), false
	}
	return spellChinese(c.hours, twoDigits) + " 点" + c.within(), false
}

// within describes the minutes and seconds of hours that were named before.
func (c *cron) within() string {
	text := c.rateInChinese("")
	if strings.HasPrefix(text, "每") {
		return "，" + text
	}
	return "的" + text
}

// rateInChinese describes the minutes and seconds within hours; hours is "" if the caller names them.
func (c *cron) rateInChinese(hours string) string {
	of := hours
	if of != "" {
		of += "的"
	}
	minute, minutesEven := unitInChinese(c.minutes, "分钟", "分")
	second, secondsEven := unitInChinese(c.seconds, "秒", "秒")
	switch {
	case c.seconds == 1 && c.minutes == 1:
		return "每小时"
	case c.seconds == 1 && minutesEven:
		return minute
	case c.seconds == 1:
		return of + minute
	case minutesEven && stepOf(c.minutes, 60) == 1 && secondsEven:
		return second
	case minutesEven && stepOf(c.minutes, 60) == 1:
		return "每分钟的" + second
	case minutesEven:
		return hours + "从第 0 分起每逢第 " + strconv.Itoa(stepOf(c.minutes, 60)) + " 分钟" + comma(secondsEven) + second
	}
	return of + minute + comma(secondsEven) + second
}

func comma(even bool) string {
	if even {
		return "内"
	}
	return "的"
}

// unitInChinese describes which seconds or minutes match, and whether they are every one or every n-th.
func unitInChinese(set uint64, span, point string) (text string, even bool) {
	switch step := stepOf(set, 60); {
	case step == 1:
		return "每" + span, true
	case step > 1 && step < 60:
		return "每 " + strconv.Itoa(step) + " " + span, true
	}
	return "第 " + spellChinese(set, strconv.Itoa) + " " + point, false
}

func (c *cron) dateInChinese() string {
	const allMonths = 1<<13 - 2
	month := ""
	if c.months != allMonths {
		month = spellChinese(c.months, strconv.Itoa) + " 月"
	}
	dom := c.days.dom.inChinese(month)
	dow := c.days.dow.inChinese(month)
	if c.days.either && (dom == "" || dow == "") {
		dom, dow = "", ""
	}
	switch {
	case dom == "" && dow == "" && month == "":
		return ""
	case dom == "" && dow == "":
		return month + "每天"
	case dom == "":
		return month + dow
	case dow == "":
		return dom
	case c.days.either && month != "":
		return dom + "或" + month + dow
	case c.days.either:
		return dom + "或" + dow
	}
	return dom + "（仅限" + strings.ReplaceAll(dow, "每周", "周") + "）"
}

// inChinese returns which days of the month fire, or "" for all. month is "" for all months.
func (s *domSet) inChinese(month string) string {
	if s.days == monthMask(31) {
		return ""
	}
	if month == "" {
		month = "每月"
	}
	var parts []string
	if n := bits.OnesCount64(s.days); n == 1 {
		parts = append(parts, strconv.Itoa(bits.TrailingZeros64(s.days))+" 日")
	} else if step := s.step(); step > 1 && n > 5 {
		parts = append(parts, fmt.Sprintf("从 %d 日起每 %d 天", bits.TrailingZeros64(s.days), step))
	} else if n > 1 {
		parts = append(parts, spellChinese(s.days, strconv.Itoa)+" 日")
	}
	each(s.weekdays, func(day int) { parts = append(parts, fmt.Sprintf("最接近 %d 日的工作日", day)) })
	each(s.fromEnd, func(n int) { parts = append(parts, lastDayInChinese(n)) })
	each(s.fromEndWeekdays, func(n int) {
		if n == 0 {
			parts = append(parts, "最后一个工作日")
			return
		}
		parts = append(parts, "最接近"+lastDayInChinese(n)+"的工作日")
	})
	text := joinChinese(parts)
	if text != "" && text[0] >= '0' && text[0] <= '9' {
		return month + " " + text
	}
	return month + text
}

func lastDayInChinese(n int) string {
	if n == 0 {
		return "最后一天"
	}
	return fmt.Sprintf("倒数第 %d 天", n+1)
}

var weekdaysInChinese = [7]string{"周日", "周一", "周二", "周三", "周四", "周五", "周六"}

// inChinese returns which weekdays fire, or "" for all. The caller names the months.
func (s *dowSet) inChinese(month string) string {
	if s.every == everyWeekday {
		return ""
	}
	name := func(d int) string { return weekdaysInChinese[d%7] }
	in := ""
	if month == "" {
		in = "每月"
	}
	var parts []string
	if s.every != 0 {
		if from, to, ok := runOf(s.every, 7); ok && bits.OnesCount64(s.every) > 2 {
			parts = append(parts, "每"+name(from)+"至"+name(to))
		} else {
			var days []string
			each(s.every&^1|s.every&1<<7, func(d int) { days = append(days, name(d)) }) // Sunday last
			parts = append(parts, "每"+joinChinese(days))
		}
	}
	for n := 1; n <= 5; n++ {
		each(s.nth[n], func(d int) { parts = append(parts, fmt.Sprintf("%s第 %d 个%s", in, n, name(d))) })
	}
	each(s.last, func(d int) { parts = append(parts, in+"最后一个"+name(d)) })
	return joinChinese(parts)
}

func (c *cron) yearsInChinese() string {
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
		return fmt.Sprintf("%d 至 %d 年", first, last)
	case len(years) > 6:
		return fmt.Sprintf("%d 至 %d 年间的 %d 年", first, last, len(years))
	}
	texts := make([]string, len(years))
	for i, y := range years {
		texts[i] = strconv.Itoa(y)
	}
	return joinChinese(texts) + " 年"
}

// spellChinese lists the values of set; three or more consecutive values become a range.
func spellChinese(set uint64, name func(int) string) string {
	var parts []string
	for set != 0 {
		from := bits.TrailingZeros64(set)
		to := from + bits.TrailingZeros64(^(set >> from)) - 1
		if to-from >= 2 {
			parts = append(parts, name(from)+" 至 "+name(to))
			set &^= 1<<(to+1) - 1
		} else {
			parts = append(parts, name(from))
			set &^= 1 << from
		}
	}
	return joinChinese(parts)
}

func joinChinese(parts []string) string { return strings.Join(parts, "、") }
