// Package quartztest draws cron expressions, and asks releases of Quartz about them. Only tests import it.
package quartztest

import (
	"fmt"
	"math/rand/v2"
	"strings"
)

// Zones are the zones of the questions. Shanghai has no daylight saving time, like the zones of most users of XXL-JOB.
var Zones = []string{"Asia/Shanghai", "Asia/Shanghai", "UTC", "America/New_York", "Europe/Berlin", "Australia/Lord_Howe"}

// Draw returns a random expression of Quartz. Most are usual, some have the forms in which Quartz is known to be unusual, and a few
// are invalid.
func Draw(r *rand.Rand) string {
	second, minute, hour := "0", list(r, 0, 59, nil), list(r, 0, 23, nil)
	if r.IntN(4) == 0 {
		second = list(r, 0, 59, nil)
	}
	if r.IntN(3) == 0 {
		minute = "0"
	}
	dom, dow := "*", "?"
	switch r.IntN(5) {
	case 0, 1:
		dom, dow = "?", weekdays(r)
	case 2, 3:
		dom = days(r)
	case 4:
	}
	mon := "*"
	if r.IntN(3) == 0 {
		mon = list(r, 1, 12, months)
	}
	expr := strings.Join([]string{second, minute, hour, dom, mon, dow}, " ")
	switch r.IntN(12) {
	case 0:
		expr += " " + list(r, 2024, 2060, nil)
	case 1:
		expr += " " + pick(r, "*", "2100", "2026-2110", "2030/5", "2099,2105", "*/3")
	}
	if r.IntN(8) == 0 {
		expr = odd(r, expr)
	}
	return expr
}

var (
	months   = []string{"JAN", "FEB", "MAR", "APR", "MAY", "JUN", "JUL", "AUG", "SEP", "OCT", "NOV", "DEC"}
	weekday3 = []string{"SUN", "MON", "TUE", "WED", "THU", "FRI", "SAT"}
)

func pick(r *rand.Rand, from ...string) string { return from[r.IntN(len(from))] }

// list returns a list of one to three items.
func list(r *rand.Rand, lo, hi int, names []string) string {
	items := make([]string, 1+max(0, r.IntN(6)-3))
	for i := range items {
		items[i] = item(r, lo, hi, names)
	}
	return strings.Join(items, ",")
}

func item(r *rand.Rand, lo, hi int, names []string) string {
	n := func() int { return lo + r.IntN(hi-lo+1) }
	spell := func(v int) string {
		if names != nil && r.IntN(2) == 0 {
			return names[v-lo]
		}
		return fmt.Sprint(v)
	}
	a, b, step := n(), n(), 1+r.IntN(min(hi-lo+3, 20))
	if a > b && r.IntN(2) == 0 {
		a, b = b, a
	}
	switch r.IntN(9) {
	case 0, 1, 2:
		return spell(a)
	case 3:
		return "*"
	case 4:
		if names != nil && r.IntN(2) == 0 {
			return names[a-lo] + "-" + names[b-lo]
		}
		return fmt.Sprintf("%d-%d", a, b)
	case 5:
		return fmt.Sprintf("*/%d", step)
	case 6:
		return fmt.Sprintf("%d/%d", a, step)
	case 7:
		return fmt.Sprintf("%d-%d/%d", a, b, step)
	}
	return fmt.Sprint(a)
}

func days(r *rand.Rand) string {
	d := 1 + r.IntN(31)
	switch r.IntN(9) {
	case 0:
		return "L"
	case 1:
		return fmt.Sprintf("L-%d", r.IntN(31))
	case 2:
		return pick(r, "LW", fmt.Sprintf("L-%dW", r.IntN(28))) // Quartz 2.3.2 searches without an end for L-30W
	case 3:
		return fmt.Sprintf("%dW", d)
	case 4:
		return pick(r, "29W", "30W", "31W")
	case 5:
		return pick(r, fmt.Sprintf("%dW,%d", d, 1+r.IntN(31)), fmt.Sprintf("%dW,%dW", d, 1+r.IntN(31)), fmt.Sprintf("L,%d", d), fmt.Sprintf("L-2,%d", d), fmt.Sprintf("%dW,LW", d))
	}
	return list(r, 1, 31, nil)
}

func weekdays(r *rand.Rand) string {
	d := r.IntN(7)
	switch r.IntN(8) {
	case 0:
		return pick(r, "L", fmt.Sprintf("%dL", d+1), weekday3[d]+"L")
	case 1, 2:
		return pick(r, fmt.Sprintf("%d#%d", d+1, 1+r.IntN(5)), fmt.Sprintf("%s#%d", weekday3[d], 1+r.IntN(5)))
	case 3:
		return pick(r, fmt.Sprintf("%d,%d#2", 1+r.IntN(7), d+1), fmt.Sprintf("%s,%s#1", weekday3[r.IntN(7)], weekday3[d]))
	case 4:
		return weekday3[d] + "-" + weekday3[r.IntN(7)]
	}
	return list(r, 1, 7, weekday3)
}

// odd replaces a field by a form that Quartz reads in its own way.
func odd(r *rand.Rand, expr string) string {
	fields := strings.Fields(expr)
	byDay := fields[5] == "?"
	switch r.IntN(13) {
	case 0:
		fields[1] = "0/0"
	case 1:
		fields[1] = pick(r, "1,,2", ",5", "5,")
	case 2:
		fields[4] = pick(r, "JANUARY", "MARCH", "JAN,JUNE")
	case 3:
		fields[3], fields[5] = "?", pick(r, "TUES", "THURS", "FRIDAY,MON")
	case 4:
		fields[3], fields[5] = "?", pick(r, "SUN-FRI/2", "MON-FRI/1", "MON/2", "MON-SAT/3")
	case 5:
		fields[4] = pick(r, "JAN-DEC/3", "FEB/2")
	case 6:
		if byDay {
			fields[3] = pick(r, "1-5W", "10-12W", "5MON")
		}
	case 7:
		fields[1] = pick(r, "/10", "*5", "1-5/70", "1-9/0", "*/0")
	case 8:
		fields[1] = pick(r, "99", "60", "5/61", "-1", "x", "5-", "L", "7W")
	case 9:
		expr = strings.Join(fields, " ")
		if len(fields) == 6 {
			expr += " *"
		}
		return expr + " extra"
	case 10:
		if byDay {
			fields[3] = pick(r, "1-0", "5-0", "0", "32", "28-3", "30-2/2")
		}
	case 11:
		fields[2] = pick(r, "22-2", "22-2/3", "23-1,12", "2/12", "0-23/5")
	case 12:
		return strings.ToLower(expr)
	}
	return strings.Join(fields, " ")
}
