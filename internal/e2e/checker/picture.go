package checker

import (
	"fmt"
	"html"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/belfryhq/belfry/internal/domain"
)

// Span is a period of time.
type Span struct{ From, To time.Time }

// bins are the columns of a picture.
type bins struct {
	span  Span
	width time.Duration

	succeeded, other, lost, ledger []int
	worst                          []time.Duration // lateness
}

func binned(h *History, span Span, n int) *bins {
	b := &bins{
		span: span, width: span.To.Sub(span.From) / time.Duration(n), succeeded: make([]int, n), other: make([]int, n),
		lost: make([]int, n), ledger: make([]int, n), worst: make([]time.Duration, n),
	}
	for i := range h.Runs {
		r := &h.Runs[i]
		at := r.FireTime
		if at.IsZero() {
			at = r.CreatedAt
		}
		k := b.bin(at)
		if k < 0 {
			continue
		}
		switch {
		case r.State == domain.Succeeded:
			b.succeeded[k]++
		case r.Reason == domain.ReasonLost:
			b.lost[k]++
		default:
			b.other[k]++
		}
		if r.LatenessMS != nil {
			b.worst[k] = max(b.worst[k], time.Duration(*r.LatenessMS)*time.Millisecond)
		}
	}
	for i := range h.Ledger {
		if k := b.bin(h.Ledger[i].Last); k >= 0 {
			b.ledger[k] += h.Ledger[i].Count
		}
	}
	return b
}

func (b *bins) bin(at time.Time) int {
	k := int(at.Sub(b.span.From) / b.width)
	if at.Before(b.span.From) || k >= len(b.succeeded) {
		return -1
	}
	return k
}

// Picture draws a history as text, in sixty columns.
func Picture(h *History, span Span) string {
	b := binned(h, span, 60)
	var out strings.Builder
	fmt.Fprintf(&out, "%-20s %s to %s, %v a column\n", "", span.From.UTC().Format("15:04:05"), span.To.UTC().Format("15:04:05"), b.width.Round(100*time.Millisecond))
	row := func(name string, values []int) {
		most := slices.Max(values)
		fmt.Fprintf(&out, "%-20s ", name)
		for _, v := range values {
			out.WriteString(bar(v, most))
		}
		fmt.Fprintf(&out, " up to %d\n", most)
	}
	row("succeeded", b.succeeded)
	row("lost", b.lost)
	row("other ends", b.other)
	row("ledger", b.ledger)
	late := make([]int, len(b.worst))
	for i, d := range b.worst {
		late[i] = int(d.Milliseconds())
	}
	row("worst lateness, ms", late)
	for _, lane := range faultLanes(h) {
		fmt.Fprintf(&out, "%-20s ", lane.name)
		line := []rune(strings.Repeat("·", len(b.worst)))
		for _, f := range lane.faults {
			for at := f.From; !at.After(f.To); at = at.Add(b.width) {
				if k := b.bin(at); k >= 0 {
					line[k] = '#'
				}
			}
		}
		fmt.Fprintf(&out, "%s %d\n", string(line), len(lane.faults))
	}
	return out.String()
}

func bar(v, most int) string {
	const levels = " ▁▂▃▄▅▆▇█"
	if most == 0 || v == 0 {
		return " "
	}
	return string([]rune(levels)[1+v*7/most])
}

type lane struct {
	name   string
	faults []Fault
}

// faultLanes groups faults by their targets.
func faultLanes(h *History) []lane {
	by := make(map[string][]Fault)
	for _, f := range h.Faults {
		by[f.Target] = append(by[f.Target], f)
	}
	var out []lane
	for _, target := range slices.Sorted(maps.Keys(by)) {
		out = append(out, lane{target, by[target]})
	}
	return out
}

// colors by the verb of a fault's kind.
var colors = map[string]string{
	"kill": "#c0392b", "stop": "#e67e22", "freeze": "#2980b9", "cut": "#8e44ad", "blackhole": "#34495e",
	"wipe": "#d81b60", "outage": "#7f0000", "restart": "#e67e22", "slow": "#16a085", "shift": "#b7950b",
	"attack": "#6d4c41", "replace": "#00838f", "step": "#827717", "failover": "#4a148c", "quorum": "#c62828", "fill": "#5d4037",
}

// SVG draws a history. From top to bottom it shows the runs by their ends and the ledger, the worst lateness, and a lane of faults
// for each process and server.
func SVG(h *History, span Span) string {
	const width, left, top, runs, lateness, row, columns = 1200, 90, 40, 220, 120, 18, 300
	b := binned(h, span, columns)
	lanes := faultLanes(h)
	height := top + runs + 30 + lateness + 30 + row*len(lanes) + 60
	var out strings.Builder
	fmt.Fprintf(&out, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" font-family="sans-serif" font-size="11">`+"\n", width, height)
	fmt.Fprintf(&out, `<rect width="%d" height="%d" fill="white"/>`+"\n", width, height)
	wide := float64(width-left-20) / columns
	x := func(k int) float64 { return left + float64(k)*wide }
	when := func(at time.Time) float64 {
		f := float64(at.Sub(span.From)) / float64(span.To.Sub(span.From))
		return left + min(max(f, 0), 1)*(width-left-20)
	}
	most := 1
	for k := range columns {
		most = max(most, b.succeeded[k]+b.other[k]+b.lost[k]+b.ledger[k])
	}
	fmt.Fprintf(&out, `<text x="%d" y="20" font-size="14">Fire times by result, %v a column</text>`+"\n", left, b.width.Round(100*time.Millisecond))
	for k := range columns {
		y := float64(top + runs)
		for _, part := range []struct {
			n     int
			color string
		}{{b.succeeded[k], "#7fb069"}, {b.other[k], "#f4d35e"}, {b.lost[k], "#d1495b"}, {b.ledger[k], "#9aa5b1"}} {
			high := float64(part.n) / float64(most) * runs
			if part.n > 0 {
				y -= high
				fmt.Fprintf(&out, `<rect x="%.1f" y="%.1f" width="%.2f" height="%.1f" fill="%s"/>`+"\n", x(k), y, wide, high, part.color)
			}
		}
	}
	fmt.Fprintf(&out, `<text x="5" y="%d">%d</text><text x="5" y="%d">0</text>`+"\n", top+10, most, top+runs)
	for i, one := range [][2]string{{"succeeded", "#7fb069"}, {"other ends", "#f4d35e"}, {"lost", "#d1495b"}, {"in the ledger", "#9aa5b1"}} {
		at := left + 500 + i*130
		fmt.Fprintf(&out, `<rect x="%d" y="11" width="10" height="10" fill="%s"/><text x="%d" y="20">%s</text>`+"\n", at, one[1], at+14, one[0])
	}
	base := top + runs + 30 + lateness
	worst := time.Second
	for _, d := range b.worst {
		worst = max(worst, d)
	}
	fmt.Fprintf(&out, `<text x="%d" y="%d">worst lateness</text><text x="5" y="%d">%v</text>`+"\n", left, top+runs+22, top+runs+40, worst.Round(100*time.Millisecond))
	for k, d := range b.worst {
		high := float64(d) / float64(worst) * lateness
		fmt.Fprintf(&out, `<rect x="%.1f" y="%.1f" width="%.2f" height="%.1f" fill="#5c6b7a"/>`+"\n", x(k), float64(base)-high, wide, high)
	}
	for i, l := range lanes {
		y := base + 30 + i*row
		fmt.Fprintf(&out, `<text x="5" y="%d">%s</text>`+"\n", y+12, html.EscapeString(l.name))
		for _, f := range l.faults {
			verb, _, _ := strings.Cut(f.Kind, " ")
			from, to := when(f.From), when(f.To)
			fmt.Fprintf(&out, `<rect x="%.1f" y="%d" width="%.1f" height="%d" fill="%s"><title>%s, %s, %v</title></rect>`+"\n", from, y, max(to-from, 1.5),
				row-4, colors[verb], html.EscapeString(f.Kind), f.From.UTC().Format("15:04:05.000"), f.To.Sub(f.From).Round(time.Millisecond))
		}
	}
	for i, verb := range slices.Sorted(maps.Keys(colors)) {
		at := left + i*100
		fmt.Fprintf(&out, `<rect x="%d" y="%d" width="10" height="10" fill="%s"/><text x="%d" y="%d">%s</text>`+"\n", at, height-22, colors[verb], at+14, height-13, verb)
	}
	out.WriteString("</svg>\n")
	return out.String()
}

// Markdown returns the report: the verdict, the counts and the text picture.
func (r *Report) Markdown(title string, seed uint64, picture string) string {
	var b strings.Builder
	fmt.Fprintf(&b, "# %s\n\n", title)
	if r.OK() {
		fmt.Fprintf(&b, "**Verdict: every promise was kept.** ")
	} else {
		fmt.Fprintf(&b, "**Verdict: %d violations.** ", len(r.Violations))
	}
	faults := 0
	for _, n := range r.Faults {
		faults += n
	}
	fmt.Fprintf(&b, "%d jobs, %d fire times, %d runs, %d starts of handlers, %d faults. Seed %d.\n\n", r.Jobs, r.Fires, r.Runs, r.Starts, faults, seed)
	for i, v := range r.Violations {
		if i == 50 {
			fmt.Fprintf(&b, "- and %d more\n", len(r.Violations)-i)
			break
		}
		fmt.Fprintf(&b, "- **%s**: %s\n", v.Rule, v.Text)
	}
	fmt.Fprintf(&b, "\n## What happened\n\n```text\n%s```\n\n", picture)
	fmt.Fprintf(&b, "| | |\n|---|---:|\n| fire times in the missed ledger | %d |\n| attempts declared lost | %d |\n| of these, never started | %d |\n"+
		"| results that arrived after the end of their attempt | %d |\n| attempts drained | %d |\n", r.Ledgered, r.Lost, r.Unstarted, r.LateOnes, r.Drained)
	fmt.Fprintf(&b, "| worst lateness, with faults | %v |\n| runs without a fault near, whose lateness was checked | %d |\n| worst lateness of those | %v |\n",
		r.Worst, r.Certain, r.WorstCalm)
	fmt.Fprintf(&b, "| runs due while only schedulers had faults, and one had none, whose lateness was checked | %d |\n| worst lateness of those | %v |\n",
		r.OneLeft, r.WorstLeft)
	table := func(name string, counts map[string]int) {
		fmt.Fprintf(&b, "\n## Runs by %s\n\n| | Runs |\n|---|---:|\n", name)
		for _, key := range slices.Sorted(maps.Keys(counts)) {
			fmt.Fprintf(&b, "| %s | %d |\n", key, counts[key])
		}
	}
	for _, name := range slices.Sorted(maps.Keys(r.By)) {
		table(name, r.By[name])
	}
	fmt.Fprintf(&b, "\n## Faults by kind\n\n| | Faults |\n|---|---:|\n")
	for _, key := range slices.Sorted(maps.Keys(r.Faults)) {
		fmt.Fprintf(&b, "| %s | %d |\n", key, r.Faults[key])
	}
	return b.String()
}
