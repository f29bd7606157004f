package importer

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/belfryhq/belfry/internal/domain"
	"github.com/belfryhq/belfry/internal/schedule"
	"github.com/belfryhq/belfry/internal/xxl/quartz"
)

// Difference is a named way in which Quartz and Belfry read a cron expression differently. docs/xxl-job.md lists all of them.
type Difference string

// Expressions that Quartz accepts and Belfry refuses, because Quartz silently reads something else than they say.
const (
	NameStep      Difference = "name-step"       // SUN-FRI/2: Quartz ignores a step after a name
	ZeroStep      Difference = "zero-step"       // 0/0: Quartz fires at the first value only, or ignores the step
	LongStep      Difference = "long-step"       // 1-5/70: the step is longer than the field
	LongName      Difference = "long-name"       // JANUARY, TUES: Quartz reads the first three letters, and ignores the rest of the item
	EmptyItem     Difference = "empty-item"      // 1,,2: Quartz ignores empty items
	IgnoredText   Difference = "ignored-text"    // 1-5W, 5MON: Quartz ignores what follows a value
	ExtraField    Difference = "extra-field"     // Quartz 2.3.2 ignores fields after the seventh
	NinetyNine    Difference = "ninety-nine"     // 98 and 99 are Quartz's own marks for ? and *
	RangeToZero   Difference = "range-to-zero"   // 5-0 in a field that begins at 1
	YearRange     Difference = "year-range"      // years outside 1970 to 2099
	NeverInQuartz Difference = "never-in-quartz" // Quartz accepts the expression, and throws an exception when it computes a fire time
)

// Expressions that both accept and read differently.
const (
	ShortMonth   Difference = "short-month"   // 31W: Quartz 2.3.2 also fires on the last day of a shorter month, if it is a Friday
	WeekdayLists Difference = "weekday-list"  // 15W,20: Quartz 2.3.2 keeps the first day only
	NthLists     Difference = "nth-list"      // 2,6#3: Quartz applies # and L to the smallest weekday of the list
	LastDay250   Difference = "last-day-250"  // L in Quartz 2.5.0 counts from the end of a month of 31 days
	Weekday250   Difference = "weekday-250"   // W in Quartz 2.5.0 is missed if the weekday lies before or after the day
	LastDayLists Difference = "last-day-list" // L-2,27: Quartz 2.5.2 misses a day counted from the end that lies before another day of the list
	Weekday252   Difference = "weekday-252"   // W in Quartz 2.5.2 fires at the wrong time of day, or not at all
	Clocks       Difference = "clock-change"  // at a change of the clocks
)

// Comparison is the result of Compare.
type Comparison struct {
	Theirs, Ours []time.Time // the next ten fire times of XXL-JOB and of Belfry
	// Refused is why Belfry refuses the expression; TheirRefusal is why Quartz does.
	Refused, TheirRefusal string
	Differs               bool // some fire times differ
	Names                 []Difference
	// At is the first fire time that only one of the systems has.
	At         time.Time
	OnlyTheirs bool
}

// Exact reports whether no difference was found.
func (c *Comparison) Exact() bool {
	return c.Refused == "" && c.TheirRefusal == "" && len(c.Names) == 0
}

// shown is the number of fire times that a report shows of each system; compared is the number that Compare compares.
const (
	shown    = 10
	compared = 60
)

// lastYear is the last year that is compared. Belfry's year field ends there, and its schedules end in 2199; Quartz ends 100 years
// from now.
const lastYear = 2099

// nexter computes fire times.
type nexter func(after time.Time) (time.Time, bool)

// Compare compares how a release of Quartz and Belfry read an expression, for fire times after now.
func Compare(expr, zone string, v quartz.Version, now time.Time) Comparison {
	var c Comparison
	now = now.Truncate(time.Second)
	location, err := time.LoadLocation(zone)
	if err != nil {
		c.Refused = err.Error()
		return c
	}
	q, theirErr := quartz.Parse(expr, v, now.Year())
	theirs := func(at time.Time) (time.Time, bool) { return q.Next(at, location) }
	if theirErr != nil {
		c.TheirRefusal = theirErr.Error()
	} else {
		c.Theirs = take(theirs, now, shown)
	}
	spec := domain.Schedule{Kind: domain.ScheduleCron, Expr: expr, Dialect: domain.DialectQuartz, TimeZone: zone}
	ours, ourErr := schedule.Compile(spec, schedule.Options{})
	if ourErr != nil {
		c.Refused = reason(ourErr)
	} else {
		c.Ours = take(ours.Next, now, shown)
	}
	switch {
	case theirErr != nil:
	case ourErr != nil:
		c.Names = refusals(expr, v)
	case c.differ(theirs, ours.Next, now, compared):
		c.Names = readings(expr, v)
		if atChange(location, c.At) {
			c.Names = append(c.Names, Clocks)
		}
		c.Differs = true
	default:
		for _, change := range clockChanges(location, now, 4) {
			if c.differ(theirs, ours.Next, change.Add(-26*time.Hour), compared) && c.At.Before(change.Add(26*time.Hour)) {
				c.Names, c.Differs = []Difference{Clocks}, true
				break
			}
			c.At = time.Time{}
		}
	}
	return c
}

// atChange reports whether the offset of the zone changes within two days of an instant.
func atChange(zone *time.Location, at time.Time) bool {
	const reach = 48 * time.Hour
	changes := clockChanges(zone, at.Add(-reach), 1)
	return len(changes) > 0 && changes[0].Before(at.Add(reach))
}

// take returns the first n fire times after an instant.
func take(next nexter, after time.Time, n int) []time.Time {
	times := []time.Time{}
	for at, ok := next(after); ok && len(times) < n; at, ok = next(at) {
		times = append(times, at)
	}
	return times
}

// differ reports whether one of the first n fire times differs, and sets At.
func (c *Comparison) differ(theirs, ours nexter, after time.Time, n int) bool {
	for range n {
		a, hasA := theirs(after)
		b, hasB := ours(after)
		hasA, hasB = hasA && a.Year() <= lastYear, hasB && b.Year() <= lastYear // both have their own ends of time
		switch {
		case !hasA && !hasB:
			return false
		case hasA && hasB && a.Equal(b):
			after = a
			continue
		case hasA && (!hasB || a.Before(b)):
			c.At, c.OnlyTheirs = a, true
		default:
			c.At, c.OnlyTheirs = b, false
		}
		return true
	}
	return false
}

// clockChanges returns the next n instants within three years at which the offset of a zone changes.
func clockChanges(zone *time.Location, now time.Time, n int) (changes []time.Time) {
	at := now.In(zone)
	_, offset := at.Zone()
	for limit := now.AddDate(3, 0, 0); len(changes) < n; {
		_, end := at.ZoneBounds()
		if end.IsZero() || end.After(limit) {
			return changes
		}
		if !end.After(at) {
			end = at.Add(24 * time.Hour)
		}
		if _, next := end.Zone(); next != offset {
			changes, offset = append(changes, end), next
		}
		at = end
	}
	return changes
}

// reason joins the field errors of err.
func reason(err error) string {
	var e *domain.Error
	if !errors.As(err, &e) || len(e.Fields) == 0 {
		return err.Error()
	}
	var parts []string
	for _, f := range e.Fields {
		parts = append(parts, f.Message)
	}
	return strings.Join(parts, "; ")
}

// pattern recognizes a difference by the text of a field.
type pattern struct {
	name   Difference
	fields string // indexes of the fields, counted from 0
	regexp *regexp.Regexp
}

// refusedForms are the forms that Belfry refuses.
var refusedForms = []pattern{
	{NameStep, "45", regexp.MustCompile(`(^|,)[A-Z]{3}(-[A-Z]{3})?/`)},
	{ZeroStep, "0123456", regexp.MustCompile(`/0+(,|$)`)},
	{LongName, "45", regexp.MustCompile(`(^|,)[A-Z]{3}([A-KM-Z]|L.)|-[A-Z]{4}`)},
	{EmptyItem, "0123456", regexp.MustCompile(`^,|,,|,$`)},
	{NinetyNine, "012345", regexp.MustCompile(`(^|,)9[89](,|$)`)},
	{RangeToZero, "345", regexp.MustCompile(`-0+(,|/|$)`)},
	{IgnoredText, "0123456", regexp.MustCompile(`^\?.|\*[^/,]|[0-9][A-KM-VX-Z]|-[0-9]+[A-Z]|-[A-Z]{3}[0-9#L]|[WL#][^,-]*[A-VX-Z]|/[0-9]{2,}[^0-9,]`)},
}

// readForms are the forms that both accept and read differently, with the releases of Quartz.
var readForms = []struct {
	pattern
	only []quartz.Version // nil: all
}{
	{pattern{ShortMonth, "3", regexp.MustCompile(`(^|,)(29|30|31)W`)}, []quartz.Version{quartz.V232}},
	{pattern{WeekdayLists, "3", regexp.MustCompile(`W,|,[^,]*W`)}, []quartz.Version{quartz.V232}},
	{pattern{NthLists, "5", regexp.MustCompile(`,.*[L#]|[L#].*,`)}, nil},
	{pattern{LastDay250, "3", regexp.MustCompile(`L`)}, []quartz.Version{quartz.V250}},
	{pattern{Weekday250, "3", regexp.MustCompile(`W`)}, []quartz.Version{quartz.V250}},
	{pattern{Weekday252, "3", regexp.MustCompile(`W`)}, []quartz.Version{quartz.V252}},
	{pattern{LastDayLists, "3", regexp.MustCompile(`L.*,|,.*L`)}, []quartz.Version{quartz.V252}},
}

func refusals(expr string, v quartz.Version) []Difference {
	fields := strings.Fields(strings.ToUpper(expr))
	if len(fields) > 7 {
		return []Difference{ExtraField}
	}
	names := matching(refusedForms, fields)
	for i, text := range fields {
		if longStep(i, text) {
			names = append(names, LongStep)
		}
	}
	if len(fields) == 7 && outsideYears(fields[6]) {
		names = append(names, YearRange)
	}
	if e, err := quartz.Parse(expr, v, 2026); err == nil && len(names) == 0 {
		if _, fires := e.Next(time.Unix(0, 0), time.UTC); !fires {
			names = append(names, NeverInQuartz)
		}
	}
	return names
}

func readings(expr string, v quartz.Version) (names []Difference) {
	fields := strings.Fields(strings.ToUpper(expr))
	for _, f := range readForms {
		if (f.only == nil || slices.Contains(f.only, v)) && len(matching([]pattern{f.pattern}, fields)) > 0 {
			names = append(names, f.name)
		}
	}
	return names
}

func matching(patterns []pattern, fields []string) (names []Difference) {
	for _, p := range patterns {
		for i, text := range fields {
			if i < 7 && strings.Contains(p.fields, strconv.Itoa(i)) && p.regexp.MatchString(text) {
				names = append(names, p.name)
				break
			}
		}
	}
	return names
}

var stepForm = regexp.MustCompile(`/([0-9]+)`)

func longStep(field int, text string) bool {
	size := []int{60, 60, 24, 31, 12, 7, 130}[min(field, 6)]
	for _, m := range stepForm.FindAllStringSubmatch(text, -1) {
		if n, err := strconv.Atoi(m[1]); err == nil && n > size {
			return true
		}
	}
	return false
}

var yearForm = regexp.MustCompile(`[0-9]+`)

func outsideYears(text string) bool {
	for _, item := range strings.Split(text, ",") {
		base, _, _ := strings.Cut(item, "/")
		for _, digits := range yearForm.FindAllString(base, -1) {
			if n, err := strconv.Atoi(digits); err != nil || n > 2099 || n < 1970 {
				return true
			}
		}
	}
	return false
}

// text describes the difference for a report, with the zone's local time.
func (c *Comparison) text(zone *time.Location) string {
	names := make([]string, len(c.Names))
	for i, n := range c.Names {
		names[i] = string(n)
	}
	who := "only Belfry"
	if c.OnlyTheirs {
		who = "only XXL-JOB"
	}
	return fmt.Sprintf("fire times differ (%s): at %s %s fires", strings.Join(names, ", "), c.At.In(zone).Format("2006-01-02 15:04:05 -07:00"), who)
}
