package schedule

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/belfryhq/belfry/internal/domain"
)

// The oracle of this file walks, second by second, through the days around a change of the clocks. It shares no code
// with the package: expressions are drawn as structures, rendered to text for Compile, and evaluated as structures here.

// part is one element of a field's list. Method has gives its meaning, and text its spelling.
type part struct {
	form   string // "*", "v", "a-b", and with a step "*/s", "v/s", "a-b/s"; Quartz's forms in special
	a, b   int
	step   int
	offset int // of L-n and L-nW
}

// fieldSpec is a drawn field: the values from min to max, and how to spell them.
type fieldSpec struct {
	min, max  int
	parts     []part
	spell     func(int) string
	bareSteps bool          // a step follows numbers only, never names
	wrap      func(int) int // maps 8 to 1 and the like; the identity where nothing wraps around
}

func (f fieldSpec) text() string {
	var texts []string
	for _, p := range f.parts {
		spell := f.spell
		if f.bareSteps && strings.HasSuffix(p.form, "/s") {
			spell = strconv.Itoa
		}
		r := strings.NewReplacer("v", spell(p.a), "a", spell(p.a), "b", spell(p.b), "s", fmt.Sprint(p.step), "n", fmt.Sprint(p.offset))
		texts = append(texts, r.Replace(p.form))
	}
	return strings.Join(texts, ",")
}

// has reports whether the field names v, by counting from the beginning of each part to its end.
func (f fieldSpec) has(v int) bool {
	for _, p := range f.parts {
		from, to, step := f.min, f.max, 1
		switch p.form {
		case "*":
		case "*/s":
			step = p.step
		case "v":
			from, to = p.a, p.a
		case "v/s":
			from, step = p.a, p.step
		case "a-b":
			from, to = p.a, p.b
		case "a-b/s":
			from, to, step = p.a, p.b, p.step
		default:
			continue
		}
		if to < from {
			to += f.max - f.min + 1
		}
		for x := from; x <= to; x += step {
			if f.wrap(x) == v {
				return true
			}
		}
	}
	return false
}

// exprSpec is a drawn expression.
type exprSpec struct {
	dialect                                      domain.Dialect
	second, minute, hour, dom, month, dow, years fieldSpec
	domOpen, dowOpen                             bool // `?`
}

func (e exprSpec) text() string {
	dom, dow := e.dom.text(), e.dow.text()
	if e.domOpen {
		dom = "?"
	}
	if e.dowOpen {
		dow = "?"
	}
	s := strings.Join([]string{e.second.text(), e.minute.text(), e.hour.text(), dom, e.month.text(), dow}, " ")
	if e.dialect == domain.DialectQuartz {
		s += " " + e.years.text()
	}
	return s
}

// isFixed reports whether the expression is fixed: hour and minute are single values or lists of them.
func (e exprSpec) isFixed() bool {
	for _, p := range slices.Concat(e.hour.parts, e.minute.parts) {
		if p.form != "v" {
			return false
		}
	}
	return true
}

// hasDate reports whether the expression names the date.
func (e exprSpec) hasDate(y int, m time.Month, d int) bool {
	date := time.Date(y, m, d, 0, 0, 0, 0, time.UTC)
	if !e.month.has(int(m)) {
		return false
	}
	weekday := int(date.Weekday())
	if e.dialect == domain.DialectStandard {
		dom, dow := e.dom.has(d), e.dow.has(weekday)
		if e.dom.text()[0] == '*' || e.dow.text()[0] == '*' {
			return dom && dow
		}
		return dom || dow
	}
	if !e.years.has(y) {
		return false
	}
	length := time.Date(y, m+1, 0, 0, 0, 0, 0, time.UTC).Day()
	dom := e.domOpen || e.dom.has(d)
	for _, p := range e.dom.parts {
		switch p.form {
		case "L":
			dom = dom || d == length
		case "L-n":
			dom = dom || d == length-p.offset
		case "LW":
			dom = dom || d == workingDayNear(y, m, length, length)
		case "L-nW":
			dom = dom || length > p.offset && d == workingDayNear(y, m, length-p.offset, length)
		case "vW":
			dom = dom || p.a <= length && d == workingDayNear(y, m, p.a, length)
		}
	}
	dow := e.dowOpen || e.dow.has(weekday+1)
	for _, p := range e.dow.parts {
		switch p.form {
		case "L":
			dow = dow || weekday == 6
		case "vL":
			dow = dow || weekday+1 == p.a && d+7 > length
		case "v#n":
			dow = dow || weekday+1 == p.a && (d-1)/7+1 == p.offset
		}
	}
	return dom && dow
}

// workingDayNear looks outward from day for a Monday to Friday of the month.
func workingDayNear(y int, m time.Month, day, length int) int {
	for distance := 0; ; distance++ {
		for _, d := range []int{day - distance, day + distance} {
			if d >= 1 && d <= length {
				if w := time.Date(y, m, d, 0, 0, 0, 0, time.UTC).Weekday(); w != time.Saturday && w != time.Sunday {
					return d
				}
			}
		}
	}
}

// table reports for every local second whether it matches. It evaluates each value of a field only once.
type table struct {
	spec                 exprSpec
	second, minute, hour [60]bool
	dates                map[int64]bool
}

func newTable(e exprSpec) *table {
	t := &table{spec: e, dates: map[int64]bool{}}
	for v := range 60 {
		t.second[v], t.minute[v], t.hour[v] = e.second.has(v), e.minute.has(v), e.hour.has(v)
	}
	return t
}

func (t *table) matches(local int64) bool {
	if !t.second[local%60] || !t.minute[local/60%60] || !t.hour[local/3600%24] {
		return false
	}
	day := local / 86400
	match, known := t.dates[day]
	if !known {
		match = t.spec.hasDate(time.Unix(local, 0).UTC().Date())
		t.dates[day] = match
	}
	return match
}

// walk holds the local second that the clocks of a zone show at each second from begin on.
type walk struct {
	zone       *time.Location
	begin      int64
	shown      []int64
	first      map[int64]int // local second to the index of its first occurrence
	dates      map[int64]bool
	inner, end int64 // the part that is compared; the rest is needed because gaps and repeats reach into it
}

const walkReach, innerReach = 30 * 3600, 14 * 3600

func newWalk(zone *time.Location, change int64) *walk {
	w := &walk{
		zone: zone, begin: change - walkReach, first: map[int64]int{}, dates: map[int64]bool{},
		inner: change - innerReach, end: change + innerReach,
	}
	for i := range 2 * walkReach {
		local := time.Unix(w.begin+int64(i), 0).In(zone)
		_, offset := local.Zone()
		shown := w.begin + int64(i) + int64(offset)
		w.shown = append(w.shown, shown)
		if _, seen := w.first[shown]; !seen {
			w.first[shown] = i
		}
		w.dates[shown/86400] = true
	}
	return w
}

// fires returns the fire times in [inner, end), ascending.
func (w *walk) fires(e exprSpec) []int64 {
	t := newTable(e)
	var fires []int64
	if !e.isFixed() {
		for i, shown := range w.shown {
			if t.matches(shown) {
				fires = append(fires, w.begin+int64(i))
			}
		}
	} else {
		for local := w.shown[0]; local <= w.shown[len(w.shown)-1]; local++ {
			if !t.matches(local) {
				continue
			}
			if i, exists := w.first[local]; exists {
				fires = append(fires, w.begin+int64(i))
			} else if w.dates[local/86400] {
				fires = append(fires, w.begin+int64(w.afterGap(local)))
			}
		}
		slices.Sort(fires)
		fires = slices.Compact(fires)
	}
	return slices.DeleteFunc(fires, func(at int64) bool { return at < w.inner || at >= w.end })
}

// afterGap returns the index of the first second after the gap that skips local.
func (w *walk) afterGap(local int64) int {
	for i := 1; i < len(w.shown); i++ {
		if w.shown[i-1] < local && local < w.shown[i] {
			return i
		}
	}
	panic("the walk does not hold the gap")
}

// nastyZones are zones and the years in which their clocks change in unusual ways.
var nastyZones = []struct {
	zone  string
	years []int
}{
	{"America/New_York", []int{2026, 2099}},
	{"Europe/London", []int{2026, 1971}},
	{"Europe/Dublin", []int{2026}},           // winter is the daylight saving time
	{"Australia/Lord_Howe", []int{2026}},     // by half an hour
	{"Asia/Kathmandu", []int{1986}},          // by a quarter of an hour, at midnight
	{"Africa/Casablanca", []int{2026, 2030}}, // back for Ramadan
	{"Pacific/Apia", []int{2011}},            // skips 30 December
	{"Pacific/Kwajalein", []int{1993}},       // skips 21 August
	{"America/Sao_Paulo", []int{2018}},       // at midnight
	{"Africa/Cairo", []int{2026}},            // at midnight, and back to the evening before
	{"America/St_Johns", []int{2010}},        // at a minute past midnight
	{"Asia/Pyongyang", []int{2015, 2018}},    // by half an hour, once
	{"Antarctica/Troll", []int{2026}},        // by two hours
	{"America/Caracas", []int{2007, 2016}},
	{"Asia/Shanghai", []int{2026}}, // no change
}

// changes returns the seconds of the year at which the offset of zone changes. If there are none, it returns one second of the
// year.
func changes(zone *time.Location, year int) []int64 {
	offset := func(sec int64) int {
		_, o := time.Unix(sec, 0).In(zone).Zone()
		return o
	}
	var found []int64
	begin := time.Date(year, 1, 1, 0, 0, 0, 0, time.UTC).Unix() - 86400
	for hour := begin; hour < begin+367*86400; hour += 3600 {
		if offset(hour) == offset(hour+3600) {
			continue
		}
		for sec := hour; sec < hour+3600; sec++ {
			if offset(sec) != offset(sec+1) {
				found = append(found, sec+1)
			}
		}
	}
	if found == nil {
		found = []int64{begin + 59*86400} // the end of February
	}
	return found
}

func TestNextAgainstOracle(t *testing.T) {
	for _, nasty := range nastyZones {
		t.Run(nasty.zone, func(t *testing.T) {
			t.Parallel()
			zone, err := time.LoadLocation(nasty.zone)
			if err != nil {
				t.Fatal(err)
			}
			var walks []*walk
			for _, year := range nasty.years {
				for _, change := range changes(zone, year) {
					walks = append(walks, newWalk(zone, change))
				}
			}
			drawn, firing := 0, 0
			rapid.Check(t, func(t *rapid.T) {
				w := walks[rapid.IntRange(0, len(walks)-1).Draw(t, "walk")]
				e := drawExpr(t, w)
				if drawn++; compareWithWalk(t, w, e) > 0 {
					firing++
				}
			})
			if firing*5 < drawn {
				t.Errorf("only %d of %d expressions fired: too few for the comparison", firing, drawn)
			}
		})
	}
}

// compareWithWalk returns how many fire times it compared.
func compareWithWalk(t *rapid.T, w *walk, e exprSpec) int {
	text := e.text()
	s, err := Compile(domain.Schedule{
		Kind: domain.ScheduleCron, Expr: text, Dialect: e.dialect, TimeZone: w.zone.String(),
	}, Options{})
	if err != nil {
		t.Fatalf("%s %q: %v", e.dialect, text, err)
	}
	show := func(sec int64) string { return time.Unix(sec, 0).In(w.zone).Format(time.RFC3339) }
	want := w.fires(e)
	at := w.inner - 1
	for i := 0; ; i++ {
		next, ok := s.Next(time.Unix(at, 0))
		if !ok || next.Unix() >= w.end {
			if i < len(want) {
				t.Fatalf("%s %q: after %s nothing fires, want %s", e.dialect, text, show(at), show(want[i]))
			}
			break
		}
		if i == len(want) || next.Unix() != want[i] {
			wanted := "none"
			if i < len(want) {
				wanted = show(want[i])
			}
			t.Fatalf("%s %q: after %s got %s, want %s", e.dialect, text, show(at), show(next.Unix()), wanted)
		}
		at = next.Unix()
	}
	// Next must work from any instant, not only from fire times.
	for range 5 {
		at := rapid.Int64Range(w.inner, w.end-1).Draw(t, "at")
		i, _ := slices.BinarySearch(want, at+1)
		next, ok := s.Next(time.Unix(at, 0))
		if i < len(want) && (!ok || next.Unix() != want[i]) {
			t.Fatalf("%s %q: after %s got %v, want %s", e.dialect, text, show(at), next, show(want[i]))
		}
		if i == len(want) && ok && next.Unix() < w.end {
			t.Fatalf("%s %q: after %s got %s, want none before %s", e.dialect, text, show(at), show(next.Unix()), show(w.end))
		}
	}
	return len(want)
}
