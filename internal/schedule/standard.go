package schedule

import (
	"fmt"
	"strconv"
	"strings"

	robfig "github.com/robfig/cron/v3"
)

// standardFields are the fields of crontab(5) with leading seconds. Day-of-week is 0-7; 0 and 7 are Sunday.
var standardFields = []field{
	secondField, minuteField, hourField, dayOfMonthField, monthField,
	{name: "day-of-week", min: 0, max: 7, names: weekdayNames},
}

var descriptors = map[string]string{
	"@yearly": "0 0 1 1 *", "@annually": "0 0 1 1 *", "@monthly": "0 0 1 * *", "@weekly": "0 0 * * 0",
	"@daily": "0 0 * * *", "@midnight": "0 0 * * *", "@hourly": "0 * * * *",
}

// robfigStar is the bit by which robfig marks a field that contains `*`.
const robfigStar = 1 << 63

// parseStandard validates each field, so that errors have a position, and uses robfig's parser for the values. It
// handles the differences itself: zone prefixes and `@every` never reach that parser, and 7 becomes 0. It combines
// day-of-month and day-of-week as crontab(5) does, where `*/2` counts as `*`.
func parseStandard(expr string) (*cron, []string) {
	parts := split(expr)
	if strings.HasPrefix(parts[0].text, "@") {
		full, err := expandDescriptor(parts)
		if err != nil {
			return nil, []string{err.Error()}
		}
		parts = split(full)
	}
	switch len(parts) {
	case 5:
		parts = append([]field{{text: "0"}}, parts...)
	case 6:
	default:
		return nil, []string{fmt.Sprintf("has %d fields; write 5 (minute hour day-of-month month day-of-week) "+
			"or 6 (with the second in front)%s", len(parts), quartzHint(parts))}
	}
	fields := place(parts, standardFields...)
	texts := make([]string, len(fields))
	var faults []string
	for i := range fields {
		f := &fields[i]
		list, err := f.items(refuseQuartz(f))
		if err != nil {
			faults = append(faults, f.describe(err))
			continue
		}
		texts[i] = f.text
		if f.max == 7 {
			texts[i] = renderWeekdays(list)
		}
	}
	if faults != nil {
		return nil, faults
	}
	parser := robfig.NewParser(robfig.Second | robfig.Minute | robfig.Hour | robfig.Dom | robfig.Month | robfig.Dow)
	parsed, err := parser.Parse(strings.Join(texts, " "))
	spec, ok := parsed.(*robfig.SpecSchedule)
	if err != nil || !ok {
		return nil, []string{fmt.Sprintf("cannot be read: %v", err)}
	}
	dom, dow := fields[3].text, fields[5].text
	return &cron{
		seconds: spec.Second &^ robfigStar, minutes: spec.Minute &^ robfigStar, hours: spec.Hour &^ robfigStar,
		months: spec.Month &^ robfigStar,
		days: dayRule{
			dom:    domSet{days: spec.Dom &^ robfigStar},
			dow:    dowSet{every: spec.Dow &^ robfigStar},
			either: dom[0] != '*' && dow[0] != '*',
		},
		fixed: isFixed(fields[2].text, fields[1].text),
	}, nil
}

func expandDescriptor(parts []field) (string, error) {
	name := strings.ToLower(parts[0].text)
	full, ok := descriptors[name]
	switch {
	case name == "@every":
		return "", fmt.Errorf("@every is not a cron expression here; use kind fixed_rate with every")
	case name == "@reboot":
		return "", fmt.Errorf("@reboot is not supported, because a job has no machine of its own; let the machine trigger the job at boot")
	case !ok:
		return "", fmt.Errorf("%q is not known; use @hourly, @daily, @midnight, @weekly, @monthly, @yearly or @annually", parts[0].text)
	case len(parts) > 1:
		return "", fmt.Errorf("%s must stand alone; remove everything from column %d on", name, parts[1].column)
	}
	return full, nil
}

// quartzHint returns a hint if the expression seems to be of the other dialect.
func quartzHint(parts []field) string {
	for _, p := range parts {
		if p.text == "?" {
			return "; for Quartz expressions set dialect to quartz"
		}
	}
	return ""
}

// refuseQuartz reports syntax that only the other dialect has.
func refuseQuartz(f *field) func(string, int) (bool, *errAt) {
	return func(text string, offset int) (bool, *errAt) {
		day := f.name == "day-of-month" || f.name == "day-of-week"
		upper := strings.ToUpper(text)
		last := upper[len(upper)-1]
		if upper == "?" || day && (upper[0] == 'L' || last == 'L' || last == 'W' || strings.Contains(upper, "#")) {
			return false, wrong(offset, "set dialect to quartz, or write * for every", "%s %s is Quartz syntax", f.name, text)
		}
		return false, nil
	}
}

// renderWeekdays writes a validated list with values 0-6 for robfig's parser, one value at a time if 7 is involved. A
// step after a single value ends at 6, so that Sunday is not counted twice.
func renderWeekdays(list []item) string {
	var texts []string
	for _, it := range list {
		if it.star || it.single && it.step > 0 {
			it.hi = 6
		}
		step := max(it.step, 1)
		if it.star && step == 1 {
			texts = append(texts, "*")
			continue
		}
		if it.lo == 7 {
			it.lo, it.hi = 0, 0
		}
		for v := it.lo; v <= it.hi; v += step {
			texts = append(texts, strconv.Itoa(v%7))
		}
	}
	return strings.Join(texts, ",")
}
