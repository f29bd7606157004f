package quartz

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// Version is a release of Quartz.
type Version string

// The releases whose behaviour differs. XXL-JOB evaluates as V232 up to 3.0, as V250 from 3.1.0 to 3.3.2, and as V252 from 3.4.0.
const (
	V232 Version = "2.3.2"
	V250 Version = "2.5.0"
	V252 Version = "2.5.2"
)

// The kinds of fields, in the order of an expression.
const (
	second = iota
	minute
	hour
	dayOfMonth
	month
	dayOfWeek
	year
)

// Markers in the sets of values, as Quartz stores them.
const (
	allValues = 99
	noValue   = 98
)

// Days from the end of a month, as 2.5.0 and later store them beside days of the month: lastDay is L, lastDay-1 is L-1.
const (
	offsetBase = 32
	maxOffset  = 30
	lastDay    = offsetBase + maxOffset
)

// Expression is a parsed expression.
type Expression struct {
	version Version
	maxYear int
	sets    [7]set
	near    set // days with W, from 2.5.0 on

	lastWeekday bool // 6L
	nth         int  // 6#3
	// Only 2.3.2 has these: it keeps one day with W, and one day from the end.
	nearest, fromEnd bool
	offset           int
}

// set holds values in ascending order.
type set []int

func (s *set) add(v int) {
	if i, found := slices.BinarySearch(*s, v); !found {
		*s = slices.Insert(*s, i, v)
	}
}

func (s set) has(v int) bool {
	_, found := slices.BinarySearch(s, v)
	return found
}

// from returns the first value that is at least v.
func (s set) from(v int) (int, bool) {
	i, _ := slices.BinarySearch(s, v)
	if i == len(s) {
		return 0, false
	}
	return s[i], true
}

var errSyntax = errors.New("Quartz refuses the expression")

func refuse(format string, args ...any) error {
	return fmt.Errorf("%w: %s", errSyntax, fmt.Sprintf(format, args...))
}

// Parse parses an expression as the given release does. thisYear is the current year: years end 100 years later. The error says why
// Quartz refuses the expression.
func Parse(expr string, v Version, thisYear int) (*Expression, error) {
	e := &Expression{version: v, maxYear: thisYear + 100}
	fields := strings.FieldsFunc(strings.ToUpper(expr), func(r rune) bool { return r == ' ' || r == '\t' })
	if len(fields) > 7 && v != V232 {
		return nil, refuse("it has more than 7 fields")
	}
	for kind, text := range fields {
		if kind > year {
			break // 2.3.2 ignores more fields
		}
		if err := e.field(strings.TrimFunc(text, func(r rune) bool { return r <= ' ' }), kind); err != nil {
			return nil, err
		}
	}
	if len(fields) <= dayOfWeek {
		return nil, refuse("it has fewer than 6 fields")
	}
	if len(fields) <= year {
		if err := e.item("*", year); err != nil {
			return nil, err
		}
	}
	if e.sets[dayOfMonth].has(noValue) == e.sets[dayOfWeek].has(noValue) {
		return nil, refuse("day-of-month and day-of-week cannot both be given")
	}
	return e, nil
}

func (e *Expression) field(text string, kind int) error {
	listed := len(text) > 1 && strings.Contains(text, ",")
	if listed && strings.Contains(text, "L") && (kind == dayOfWeek || kind == dayOfMonth && e.version == V232) {
		return refuse("L cannot be combined with other days")
	}
	if kind == dayOfWeek && strings.Count(text, "#") > 1 {
		return refuse("# can be used once")
	}
	for item := range strings.SplitSeq(text, ",") {
		if item == "" {
			continue // Quartz ignores empty items
		}
		if err := e.item(item, kind); err != nil {
			return err
		}
	}
	return nil
}

var fromEndForm = regexp.MustCompile(`^L-[0-9]*W?$`)

func (e *Expression) item(s string, kind int) error {
	switch c := s[0]; {
	case c >= 'A' && c <= 'Z' && s != "L" && s != "LW" && !fromEndForm.MatchString(s):
		return e.named(s, kind)
	case c == '?':
		return e.unspecified(s, kind)
	case c == '*' || c == '/':
		return e.every(s, kind)
	case c == 'L':
		return e.last(s, kind)
	case isDigit(c):
		v, i, err := number(s, 0)
		if err != nil {
			return err
		}
		return e.numeric(s, i, v, kind)
	}
	return refuse("%q has an unexpected character", s)
}

var monthNames = []string{"JAN", "FEB", "MAR", "APR", "MAY", "JUN", "JUL", "AUG", "SEP", "OCT", "NOV", "DEC"}
var weekdayNames = []string{"SUN", "MON", "TUE", "WED", "THU", "FRI", "SAT"}

// nameAt returns the value of the name of three letters at s[i:].
func nameAt(s string, i, kind int) (int, error) {
	if i+3 > len(s) {
		return 0, refuse("%q ends within a name", s)
	}
	names := monthNames
	switch kind {
	case month:
	case dayOfWeek:
		names = weekdayNames
	default:
		return 0, refuse("%q has a name in a field of numbers", s)
	}
	n := slices.Index(names, s[i:i+3])
	if n < 0 {
		return 0, refuse("%q has an unknown name", s)
	}
	return n + 1, nil
}

// named reads MON, MON-FRI, FRI#3 and FRIL. Quartz ignores further characters, such as the step of SUN-FRI/2 and the rest of JANUARY.
func (e *Expression) named(s string, kind int) error {
	from, err := nameAt(s, 0, kind)
	if err != nil {
		return err
	}
	to, step := -1, 0
	if len(s) > 3 {
		switch c := s[3]; {
		case c == '-':
			if to, err = nameAt(s, 4, kind); err != nil {
				return err
			}
			step = 1
		case c == '#' && kind == dayOfWeek:
			if err := e.setNth(s[4:]); err != nil {
				return err
			}
		case c == 'L' && kind == dayOfWeek:
			e.lastWeekday = true
		}
	}
	return e.add(from, to, step, kind)
}

func (e *Expression) setNth(text string) error {
	n, err := parseInt(text)
	if err != nil || n < 1 || n > 5 {
		return refuse("a number from 1 to 5 must follow #")
	}
	e.nth = n
	return nil
}

func (e *Expression) unspecified(s string, kind int) error {
	if len(s) > 2 && s[1] != ' ' && s[2] != '\t' {
		return refuse("%q has characters after ?", s)
	}
	days := e.sets[dayOfMonth]
	switch {
	case kind != dayOfWeek && kind != dayOfMonth:
		return refuse("? is only for days")
	case kind == dayOfMonth:
	case e.version == V232 && !e.fromEnd && len(days) == 0:
		return refuse("day-of-month is empty")
	case (e.version != V232 || !e.fromEnd) && len(days) > 0 && days[len(days)-1] == noValue:
		return refuse("? is only for one of the days")
	}
	return e.add(noValue, -1, 0, kind)
}

func (e *Expression) every(s string, kind int) error {
	if s == "*" {
		return e.add(allValues, -1, 0, kind)
	}
	i, step := 0, 1
	if s[0] == '*' {
		i = 1
	} else if len(s) == 1 {
		return refuse("a number must follow /")
	}
	if s[i] == '/' {
		var err error
		if step, err = parseInt(s[i+1:]); err != nil {
			return refuse("%q has no number after /", s)
		}
		if err := checkStep(step, kind); err != nil {
			return err
		}
	}
	return e.add(allValues, -1, step, kind)
}

// last reads L, L-3, LW and L-3W.
func (e *Expression) last(s string, kind int) error {
	if kind < dayOfMonth && e.version == V252 {
		return refuse("L is only for days")
	}
	if kind == dayOfWeek {
		if err := e.add(7, 7, 0, kind); err != nil {
			return err
		}
	}
	if kind != dayOfMonth {
		return nil // Quartz adds no value for L in another field
	}
	offset, i := 0, 1
	if len(s) > 1 && s[1] == '-' {
		var err error
		if offset, i, err = number(s, 2); err != nil {
			return err
		}
		if offset > maxOffset {
			return refuse("the offset after L is over 30")
		}
	}
	weekday := i < len(s) && s[i] == 'W'
	if e.version == V232 {
		e.fromEnd = true
		e.nearest = e.nearest || weekday
		if len(s) > 1 && s[1] == '-' {
			e.offset = offset
		}
		return nil
	}
	if weekday {
		e.near.add(lastDay - offset)
	} else {
		e.sets[dayOfMonth].add(lastDay - offset)
	}
	return nil
}

// numeric reads the characters after the number v, which ends at s[i].
func (e *Expression) numeric(s string, i, v, kind int) error {
	if i >= len(s) {
		return e.add(v, -1, -1, kind)
	}
	switch s[i] {
	case 'L':
		if kind != dayOfWeek || v < 1 || v > 7 {
			return refuse("%q: L is only for a day-of-week", s)
		}
		e.lastWeekday = true
		e.sets[kind].add(v)
	case 'W':
		if kind != dayOfMonth || v > 31 {
			return refuse("%q: W is only for a day of the month", s)
		}
		if e.version == V232 {
			e.nearest = true
			e.sets[kind].add(v)
		} else {
			e.near.add(v)
		}
	case '#':
		if kind != dayOfWeek {
			return refuse("%q: # is only for a day-of-week", s)
		}
		if err := e.setNth(s[i+1:]); err != nil {
			return err
		}
		e.sets[kind].add(v)
	case '-':
		to, i, err := number(s, i+1)
		if err != nil {
			return err
		}
		step := 1
		if i < len(s) && s[i] == '/' {
			if step, _, err = number(s, i+1); err != nil {
				return err
			}
		}
		return e.add(v, to, step, kind)
	case '/':
		step, end, err := number(s, i+1)
		if err != nil {
			return err
		}
		// After one digit, Quartz refuses other characters; after several digits it ignores them.
		if end < len(s) && end == i+2 {
			return refuse("%q has an unexpected character after the step", s)
		}
		if err := checkStep(step, kind); err != nil {
			return err
		}
		return e.add(v, -1, step, kind)
	default:
		return e.add(v, -1, 0, kind)
	}
	return nil
}

func checkStep(step, kind int) error {
	most := [...]int{second: 59, minute: 59, hour: 23, dayOfMonth: 31, month: 12, dayOfWeek: 7, year: 1 << 30}[kind]
	if step > most {
		return refuse("the step %d is longer than the field", step)
	}
	return nil
}

// add adds the values from val to end, or to the end of the field if end is -1. A step of 0 or -1 adds one value.
func (e *Expression) add(val, end, step, kind int) error {
	lo, hi := [...]int{0, 0, 0, 1, 1, 1, 1970}[kind], [...]int{59, 59, 23, 31, 12, 7, e.maxYear}[kind]
	days := kind == dayOfMonth || kind == dayOfWeek
	if kind != year && val != allValues && !(days && val == noValue) && (val < lo || val > hi || end > hi) {
		return refuse("%d is not a value of the field", max(val, end))
	}
	s := &e.sets[kind]
	if (step == 0 || step == -1) && val != allValues {
		s.add(val)
		return nil
	}
	if val == allValues && step <= 0 {
		step = 1
		s.add(allValues)
	}
	from, to := val, end
	if to == -1 {
		to = hi
	}
	if from == allValues {
		from = lo
	}
	wrap := 0
	if to < from {
		if kind == year {
			return refuse("the years end before they begin")
		}
		wrap = [...]int{60, 60, 24, 31, 12, 7}[kind]
		to += wrap
	}
	for v := from; v <= to; v += step {
		switch {
		case wrap == 0:
			s.add(v)
		case v%wrap == 0 && kind >= dayOfMonth:
			s.add(wrap)
		default:
			s.add(v % wrap)
		}
	}
	return nil
}

func isDigit(c byte) bool { return c >= '0' && c <= '9' }

// number reads the digits at s[i:] and returns the position after them.
func number(s string, i int) (v, end int, err error) {
	end = i
	for end < len(s) && isDigit(s[end]) {
		end++
	}
	v, err = strconv.Atoi(s[i:end])
	if err != nil || v > 1<<31-1 {
		return 0, end, refuse("%q lacks a number", s)
	}
	return v, end, nil
}

// parseInt reads a number as java.lang.Integer.parseInt does.
func parseInt(s string) (int, error) {
	v, err := strconv.ParseInt(s, 10, 32)
	return int(v), err
}
