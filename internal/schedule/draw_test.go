package schedule

import (
	"strconv"
	"strings"
	"time"

	"pgregory.net/rapid"

	"github.com/belfryhq/belfry/internal/domain"
)

// drawExpr draws an expression that is likely to fire within the walk.
func drawExpr(t *rapid.T, w *walk) exprSpec {
	e := exprSpec{dialect: rapid.SampledFrom([]domain.Dialect{domain.DialectStandard, domain.DialectQuartz}).Draw(t, "dialect")}
	quartz := e.dialect == domain.DialectQuartz
	change := time.Unix(w.shown[walkReach], 0).UTC()
	before := time.Unix(w.shown[walkReach-1], 0).UTC()

	d := drawer{t: t, wraps: quartz}
	e.second = d.field("second", 0, 59, []int{0, 0, 0, 30}, strconv.Itoa)
	e.minute = d.field("minute", 0, 59, []int{0, 1, 15, 30, 45, 59, change.Minute()}, strconv.Itoa)
	e.hour = d.field("hour", 0, 23, []int{0, change.Hour(), before.Hour(), (change.Hour() + 23) % 24, (before.Hour() + 1) % 24}, strconv.Itoa)
	e.dom = d.field("dom", 1, 31, []int{change.Day(), before.Day()}, strconv.Itoa)
	e.month = d.field("month", 1, 12, []int{int(change.Month()), int(before.Month())}, func(v int) string {
		return d.name("month", v, time.Month((v-1)%12+1).String())
	})
	if quartz {
		e.dow = d.field("dow", 1, 7, []int{int(change.Weekday()) + 1, int(before.Weekday()) + 1}, func(v int) string {
			return d.name("dow", v, time.Weekday(v-1).String())
		})
		d.quartzDays(&e, change.Day())
		d.wraps = false
		e.years = d.field("year", 1970, 2099, []int{change.Year(), before.Year()}, strconv.Itoa)
		return e
	}
	e.dow = d.field("dow", 0, 7, []int{int(change.Weekday()), int(before.Weekday()), 7}, func(v int) string {
		return d.name("dow", v, time.Weekday(v%7).String())
	})
	e.dow.max = 6 // where a step after a single value ends
	e.dow.wrap = func(v int) int { return v % 7 }
	return e
}

type drawer struct {
	t     *rapid.T
	wraps bool
}

// field draws the list of a field. It often takes a near value, because those match close to the change of the clocks.
func (d *drawer) field(name string, lo, hi int, near []int, spell func(int) string) fieldSpec {
	size := hi - lo + 1
	f := fieldSpec{min: lo, max: hi, spell: spell, bareSteps: d.wraps, wrap: func(v int) int { return lo + (v-lo)%size }}
	value := rapid.OneOf(rapid.SampledFrom(near), rapid.SampledFrom(near), rapid.IntRange(lo, hi))
	forms := []string{"v", "v", "v", "*", "*", "a-b", "*/s", "v/s", "a-b/s"}
	if name != "hour" && name != "minute" && name != "second" {
		forms = append(forms, "*", "*", "*", "*", "*")
	}
	for range rapid.SampledFrom([]int{1, 1, 2, 3}).Draw(d.t, name+" length") {
		p := part{form: rapid.SampledFrom(forms).Draw(d.t, name+" form")}
		p.a, p.b = value.Draw(d.t, name+" a"), value.Draw(d.t, name+" b")
		p.step = rapid.IntRange(1, min(size, 20)).Draw(d.t, name+" step")
		if p.a > p.b && !d.wraps {
			p.a, p.b = p.b, p.a
		}
		if p.form == "v/s" && hi == 7 && lo == 0 && p.a == 7 {
			p.form = "v"
		}
		f.parts = append(f.parts, p)
	}
	return f
}

// name spells a value as a number or as a name of three letters. 7 is always a number, because SUN means 0.
func (d *drawer) name(field string, v int, long string) string {
	if field == "dow" && v == 7 {
		return "7"
	}
	switch v % 3 {
	case 0:
		return strings.ToUpper(long[:3])
	case 1:
		return strings.ToLower(long[:3])
	}
	return strconv.Itoa(v)
}

// quartzDays sets one of the day fields to `?` and puts Quartz's forms into the other.
func (d *drawer) quartzDays(e *exprSpec, day int) {
	special := func(f *fieldSpec, forms []string, offsets int) {
		if !rapid.Bool().Draw(d.t, "special") {
			return
		}
		p := part{form: rapid.SampledFrom(forms).Draw(d.t, "special form")}
		p.a = rapid.IntRange(f.min, f.max).Draw(d.t, "special day")
		p.offset = rapid.IntRange(1, offsets).Draw(d.t, "special offset")
		if !rapid.Bool().Draw(d.t, "beside others") {
			f.parts = nil
		}
		f.parts = append(f.parts, p)
	}
	if rapid.Bool().Draw(d.t, "by weekday") {
		e.domOpen = true
		special(&e.dow, []string{"L", "vL", "v#n"}, 5)
		return
	}
	e.dowOpen = true
	special(&e.dom, []string{"L", "L-n", "LW", "L-nW", "vW"}, 30)
}
