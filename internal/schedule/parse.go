package schedule

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/belfryhq/belfry/internal/domain"
)

// MaxExpr bounds a cron expression, in bytes.
const MaxExpr = 256

// field is one field of a cron expression: its allowed values and, after split, its text.
type field struct {
	name     string
	min, max int
	names    []string // of the values, starting at min, upper case; nil if there are none
	wraps    bool     // a range may end before its start

	text   string
	number int // counted from 1
	column int // of the text's first byte, counted from 1
}

var (
	secondField     = field{name: "second", min: 0, max: 59}
	minuteField     = field{name: "minute", min: 0, max: 59}
	hourField       = field{name: "hour", min: 0, max: 23}
	dayOfMonthField = field{name: "day-of-month", min: 1, max: 31}
	monthField      = field{name: "month", min: 1, max: 12, names: []string{
		"JAN", "FEB", "MAR", "APR", "MAY", "JUN", "JUL", "AUG", "SEP", "OCT", "NOV", "DEC"}}
	weekdayNames = []string{"SUN", "MON", "TUE", "WED", "THU", "FRI", "SAT"}
)

// errAt describes what is wrong with a field, at an offset into its text.
type errAt struct {
	offset  int
	message string
	hint    string
}

func wrong(offset int, hint, format string, args ...any) *errAt {
	return &errAt{offset: offset, message: fmt.Sprintf(format, args...), hint: hint}
}

// describe returns the error text with its position.
func (f *field) describe(e *errAt) string {
	s := fmt.Sprintf("%s in field %d, column %d", e.message, f.number, f.column+e.offset)
	if e.hint != "" {
		s += "; " + e.hint
	}
	return s
}

func knownDialect(d domain.Dialect) bool {
	return d == "" || d == domain.DialectStandard || d == domain.DialectQuartz
}

// parseCron returns the compiled expression, or one message for each faulty field.
func parseCron(expr string, dialect domain.Dialect) (*cron, []string) {
	if err := checkText(expr); err != nil {
		return nil, []string{err.Error()}
	}
	if dialect == domain.DialectQuartz {
		return parseQuartz(expr)
	}
	return parseStandard(expr)
}

// checkText refuses texts that are no cron expression in any dialect, before they are parsed.
func checkText(expr string) error {
	if len(expr) > MaxExpr {
		return fmt.Errorf("is %d bytes long; at most %d are allowed", len(expr), MaxExpr)
	}
	for i := range len(expr) {
		if c := expr[i]; (c < ' ' && c != '\t') || c > '~' {
			return fmt.Errorf("has a character at column %d that no cron expression has; use plain ASCII, in one line", i+1)
		}
	}
	text := strings.ToUpper(strings.TrimSpace(expr))
	switch {
	case text == "":
		return errors.New("is required for kind cron, such as \"0 2 * * *\"")
	case strings.HasPrefix(text, "TZ=") || strings.HasPrefix(text, "CRON_TZ="):
		return errors.New("must not name a time zone; put it into time_zone and remove it here")
	}
	return nil
}

// split cuts expr at blanks and records where each part begins.
func split(expr string) []field {
	var fields []field
	for i := 0; i < len(expr); {
		if expr[i] == ' ' || expr[i] == '\t' {
			i++
			continue
		}
		end := i
		for end < len(expr) && expr[end] != ' ' && expr[end] != '\t' {
			end++
		}
		fields = append(fields, field{text: expr[i:end], number: len(fields) + 1, column: i + 1})
		i = end
	}
	return fields
}

// place assigns the parts of an expression to the fields.
func place(parts []field, meaning ...field) []field {
	placed := slices.Clone(meaning)
	for i := range placed {
		placed[i].text, placed[i].number, placed[i].column = parts[i].text, parts[i].number, parts[i].column
	}
	return placed
}

// isFixed reports whether the daylight saving rule of fixed expressions applies.
func isFixed(hour, minute string) bool { return !strings.ContainsAny(hour+minute, "*/-") }

// item is one element of a field's list: all values, one, or a range of them.
type item struct {
	star   bool // `*`
	single bool // one value, with an optional step
	lo, hi int
	step   int // 0: no step
}

// items reads a field's list of plain items. special, if not nil, is called first and may handle an item itself.
func (f *field) items(special func(text string, offset int) (bool, *errAt)) ([]item, *errAt) {
	var list []item
	offset := 0
	for text := range strings.SplitSeq(f.text, ",") {
		if text == "" {
			return nil, wrong(offset, "remove the comma or write a value", "%s has an empty list item", f.name)
		}
		taken, err := false, (*errAt)(nil)
		if special != nil {
			taken, err = special(text, offset)
		}
		if !taken && err == nil {
			var it item
			it, err = f.item(text, offset)
			list = append(list, it)
		}
		if err != nil {
			return nil, err
		}
		offset += len(text) + 1
	}
	return list, nil
}

func (f *field) item(text string, offset int) (item, *errAt) {
	base, step, stepped := strings.Cut(text, "/")
	it, err := f.base(base, offset)
	if err != nil || !stepped {
		return it, err
	}
	offset += len(base) + 1
	if it.step, err = f.digits(step, offset); err != nil {
		return it, wrong(offset, "write a number after the slash, such as */5", "%s has a step that is not a number", f.name)
	}
	if it.step == 0 {
		return it, wrong(offset, "the smallest step is 1", "%s has a step of 0", f.name)
	}
	if it.single {
		it.hi = f.max // 5/10 is 5-59/10
	}
	return it, nil
}

func (f *field) base(text string, offset int) (item, *errAt) {
	if text == "*" {
		return item{star: true, lo: f.min, hi: f.max}, nil
	}
	from, to, ranged := strings.Cut(text, "-")
	switch {
	case text == "":
		return item{}, wrong(offset, "write */ for every", "%s has nothing before the slash", f.name)
	case ranged && from == "":
		return item{}, wrong(offset, "negative numbers are not allowed", "%s has a range without a beginning", f.name)
	case ranged && to == "":
		return item{}, wrong(offset+len(text), "write both ends, such as 1-5", "%s has a range without an end", f.name)
	}
	lo, err := f.value(from, offset)
	if err != nil {
		return item{}, err
	}
	if !ranged {
		return item{single: true, lo: lo, hi: lo}, nil
	}
	hi, err := f.value(to, offset+len(from)+1)
	if hi == 0 && lo > 0 && f.max == 7 {
		hi = 7 // SAT-SUN: in a range, this can only mean the Sunday at the end of the week
	}
	if err == nil && hi < lo && !f.wraps {
		hint := fmt.Sprintf("write %s-%d,%d-%s", from, f.max, f.min, to)
		return item{}, wrong(offset, hint, "%s %s is a range that ends before it begins", f.name, text)
	}
	return item{lo: lo, hi: hi}, err
}

// value parses a number or a name and checks its range.
func (f *field) value(text string, offset int) (int, *errAt) {
	if i := slices.Index(f.names, strings.ToUpper(text)); i >= 0 {
		return f.min + i, nil
	}
	if text == "" {
		return 0, wrong(offset, "", "%s lacks a value", f.name)
	}
	n, err := f.digits(text, offset)
	if err != nil {
		return 0, err
	}
	if n < f.min || n > f.max {
		return 0, wrong(offset, "", "%s %s is out of range %d-%d", f.name, text, f.min, f.max)
	}
	return n, nil
}

func (f *field) digits(text string, offset int) (int, *errAt) {
	for i := range len(text) {
		if text[i] < '0' || text[i] > '9' {
			hint := fmt.Sprintf("use %d-%d", f.min, f.max)
			if f.names != nil {
				hint += fmt.Sprintf(" or %s-%s", f.names[0], f.names[len(f.names)-1])
			}
			return 0, wrong(offset, hint, "%s has the invalid value %q", f.name, text)
		}
	}
	n, err := strconv.Atoi(text)
	if err != nil || n > 1e6 {
		return 0, wrong(offset, "", "%s %s is out of range %d-%d", f.name, text, f.min, f.max)
	}
	return n, nil
}
