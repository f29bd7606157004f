package schedule

import (
	"fmt"
	"strconv"
	"strings"
	"unicode"
)

// quartzFields are Quartz's fields. Day-of-week is 1-7, starting at Sunday.
var quartzFields = []field{
	wrapping(secondField), wrapping(minuteField), wrapping(hourField), wrapping(dayOfMonthField), wrapping(monthField),
	{name: "day-of-week", min: 1, max: 7, names: weekdayNames, wraps: true},
	{name: "year", min: minYear, max: maxQuartzYear},
}

func wrapping(f field) field {
	f.wraps = true
	return f
}

func parseQuartz(expr string) (*cron, []string) {
	parts := split(expr)
	if strings.HasPrefix(parts[0].text, "@") {
		return nil, []string{"has a descriptor, which Quartz does not know; set dialect to standard"}
	}
	switch len(parts) {
	case 6:
		parts = append(parts, field{text: "*"})
	case 7:
	default:
		return nil, []string{fmt.Sprintf("has %d fields; write 6 (second minute hour day-of-month month day-of-week) "+
			"or 7 (with the year at the end)", len(parts))}
	}
	fields := place(parts, quartzFields...)
	c := &cron{fixed: isFixed(fields[2].text, fields[1].text)}
	var faults []string
	note := func(f *field, err *errAt) {
		if err != nil {
			faults = append(faults, f.describe(err))
		}
	}
	for i, set := range []*uint64{&c.seconds, &c.minutes, &c.hours, 3: nil, 4: &c.months} {
		if set != nil {
			f := &fields[i]
			note(f, f.spreadInto(func(v int) { *set |= 1 << v }, nil))
		}
	}
	dom, dow := &fields[3], &fields[5]
	note(dom, quartzDaysOfMonth(dom, &c.days.dom))
	note(dow, quartzDaysOfWeek(dow, &c.days.dow))
	note(dow, oneQuestionMark(dom, dow))
	if year := &fields[6]; year.text != "*" {
		c.years = new(yearSet)
		note(year, year.spreadInto(c.years.add, nil))
	}
	if faults != nil {
		return nil, faults
	}
	return c, nil
}

// oneQuestionMark enforces Quartz's rule that exactly one of the two day fields must be `?`.
func oneQuestionMark(dom, dow *field) *errAt {
	switch {
	case dom.text == "?" && dow.text == "?":
		return wrong(0, "write * for one of them", "day-of-month and day-of-week are both ?")
	case dom.text != "?" && dow.text != "?":
		return wrong(0, "Quartz does not combine them: write ? for one",
			"day-of-month and day-of-week are both given")
	}
	return nil
}

// spreadInto reads the field and calls add for each of its values.
func (f *field) spreadInto(add func(int), special func(string, int) (bool, *errAt)) *errAt {
	list, err := f.items(func(text string, offset int) (bool, *errAt) {
		if special != nil {
			if taken, err := special(text, offset); taken || err != nil {
				return taken, err
			}
		}
		if err := f.stepAfterName(text, offset); err != nil {
			return false, err
		}
		if strings.HasPrefix(text, "/") { // Quartz reads /5 as */5
			it, err := f.item("*"+text, offset-1)
			if err != nil {
				return false, err
			}
			return true, f.spread(it, offset, add)
		}
		if strings.Contains(text, "?") {
			return false, wrong(offset, "? must stand alone, in day-of-month or day-of-week", "%s has the invalid value %q", f.name, text)
		}
		return false, nil
	})
	for _, it := range list {
		if err == nil {
			err = f.spread(it, 0, add)
		}
	}
	return err
}

// stepAfterName refuses a step after a name. Quartz ignores such a step silently, so the expression would not do what it says.
func (f *field) stepAfterName(text string, offset int) *errAt {
	base, step, stepped := strings.Cut(text, "/")
	if !stepped || f.names == nil || !strings.ContainsFunc(base, unicode.IsLetter) {
		return nil
	}
	from, to, ranged := strings.Cut(base, "-")
	hint := "Quartz ignores the step; remove it, or write numbers"
	lo, err := f.value(from, offset)
	if hi, toErr := f.value(to, offset); err == nil && (!ranged || toErr == nil) {
		numbers := strconv.Itoa(lo)
		if ranged {
			numbers += "-" + strconv.Itoa(hi)
		}
		hint = fmt.Sprintf("Quartz ignores the step; write %s without it, or %s/%s with it", base, numbers, step)
	}
	return wrong(offset+len(base), hint, "%s has a step after a name", f.name)
}

// spread calls add for each value of an item. A range that wraps around continues counting steps past the end.
func (f *field) spread(it item, offset int, add func(int)) *errAt {
	size := f.max - f.min + 1
	if it.step > size {
		return wrong(offset, "", "%s has a step of %d, longer than its range", f.name, it.step)
	}
	end := it.hi
	if end < it.lo {
		end += size
	}
	for v := it.lo; v <= end; v += max(it.step, 1) {
		add(f.min + (v-f.min)%size)
	}
	return nil
}

// quartzDaysOfMonth reads L, L-3, LW, L-3W, 15W and plain items.
func quartzDaysOfMonth(f *field, set *domSet) *errAt {
	if f.text == "?" {
		set.days = monthMask(31)
		return nil
	}
	return f.spreadInto(func(v int) { set.days |= 1 << v }, func(text string, offset int) (bool, *errAt) {
		base, weekday := strings.CutSuffix(strings.ToUpper(text), "W")
		rest, fromEnd := strings.CutPrefix(base, "L")
		switch {
		case fromEnd:
			before := 0
			if rest != "" {
				var err *errAt
				if before, err = f.digits(strings.TrimPrefix(rest, "-"), offset+2); err != nil || rest[0] != '-' || rest == "-" || before > 30 {
					return false, wrong(offset, "write L or L-1 to L-30, with or without W", "day-of-month has the invalid value %q", text)
				}
			}
			if weekday {
				set.fromEndWeekdays |= 1 << before
			} else {
				set.fromEnd |= 1 << before
			}
			return true, nil
		case weekday:
			day, err := f.value(base, offset)
			if err != nil || base == "" {
				return false, wrong(offset, "write one day and W, such as 15W, or LW", "day-of-month has the invalid value %q", text)
			}
			set.weekdays |= 1 << day
			return true, nil
		}
		return false, nil
	})
}

// quartzDaysOfWeek reads L, 6L, FRIL, 6#3, FRI#3 and plain items.
func quartzDaysOfWeek(f *field, set *dowSet) *errAt {
	if f.text == "?" {
		set.every = everyWeekday
		return nil
	}
	return f.spreadInto(func(v int) { set.every |= 1 << (v - 1) }, func(text string, offset int) (bool, *errAt) {
		upper := strings.ToUpper(text)
		if upper == "L" { // a single L is the last day of the week
			set.every |= 1 << 6
			return true, nil
		}
		if day, nth, ok := strings.Cut(upper, "#"); ok {
			v, err := f.value(day, offset)
			if err != nil {
				return false, err
			}
			if len(nth) != 1 || nth[0] < '1' || nth[0] > '5' {
				return false, wrong(offset+len(day)+1, "write 1 to 5 after #", "day-of-week has %q for the week of the month", nth)
			}
			set.nth[nth[0]-'0'] |= 1 << (v - 1)
			return true, nil
		}
		if day, ok := strings.CutSuffix(upper, "L"); ok {
			v, err := f.value(day, offset)
			if err != nil {
				return false, wrong(offset, "write one day and L, such as 6L or FRIL", "day-of-week has the invalid value %q", text)
			}
			set.last |= 1 << (v - 1)
			return true, nil
		}
		return false, nil
	})
}
