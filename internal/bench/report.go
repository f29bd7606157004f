package bench

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"math"
	"os"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/belfryhq/belfry/internal/config"
)

// The sides of a comparison, as they are named in the JSON report.
const (
	sideBaseline = "yardstick"
	sideEngine   = "engine"
)

// Figures holds the figures of one run by name. The name ends in its unit, or has the unit before the last dot.
// docs/performance.md describes them.
type Figures map[string]float64

// Run is one measured run.
type Run struct {
	What    string    `json:"what"`
	Side    string    `json:"side"`
	At      time.Time `json:"at"`
	Figures Figures   `json:"figures"`
}

// Summary holds the medians of all runs of one measurement, and the engine's medians divided by the baseline's.
type Summary struct {
	What     string  `json:"what"`
	Runs     int     `json:"runs"`
	Baseline Figures `json:"yardstick,omitempty"`
	Engine   Figures `json:"engine,omitempty"`
	Ratios   Figures `json:"ratios,omitempty"`
}

// Report is the output of `belfry bench -o json`.
type Report struct {
	Version   string       `json:"version"`
	Machine   Machine      `json:"machine"`
	Settings  config.Bench `json:"settings"`
	Summaries []Summary    `json:"summaries"`
	Runs      []Run        `json:"runs"`

	columns map[string][2]string // of measurements that do not compare the baseline with the engine
}

func (f Figures) set(name string, v float64) {
	if !math.IsNaN(v) && !math.IsInf(v, 0) { // JSON cannot represent them
		f[name] = v
	}
}

func (f Figures) percentiles(name string, p Percentiles) {
	f.set(name+"_p50_ms", p.P50)
	f.set(name+"_p99_ms", p.P99)
	f.set(name+"_p99.9_ms", p.P999)
	f.set(name+"_max_ms", p.Max)
}

// ends adds when the last run had started and was settled, and the resulting rate.
func (f Figures) ends(l load, from, started, settled time.Time, ended int64, settleLag []float64) {
	f.set("all_started_ms", milliseconds(started.Sub(from)))
	f.set("all_settled_ms", milliseconds(settled.Sub(from)))
	f.set("fires_per_s", float64(ended)/settled.Sub(from).Seconds())
	if first, to := l.span(); to.After(first) {
		f.set("offered_per_s", float64(l.fires())/to.Sub(first).Seconds())
	}
	f.percentiles("settled_after", Percentiles{settleLag[0], settleLag[1], settleLag[2], settleLag[3]})
}

// lateness adds how late handlers started. The parts that ran the handlers have recorded it.
func (f Figures) lateness(ctx context.Context, parts []*child) error {
	var h Histogram
	for _, c := range parts {
		data, err := c.ask(ctx, "take")
		if err != nil {
			return err
		}
		if err := h.Merge(data); err != nil {
			return err
		}
	}
	f.percentiles("lateness", h.Percentiles())
	return nil
}

// headline returns the most important figures, which are printed after each run.
func (f Figures) headline() string {
	var parts []string
	for _, name := range []string{"fires_per_s", "max_per_s", "overload_per_s", "all_started_ms", "all_settled_ms", "lateness_p50_ms",
		"lateness_p99_ms", "cpu_us_per_run", "server_cpu_us_per_run", "cpu_percent", "transactions_per_s", "others_cpu_percent", "wal_bytes_per_run"} {
		if v, ok := f[name]; ok {
			parts = append(parts, name+" "+thousands(v))
		}
	}
	return strings.Join(parts, ", ")
}

// summarize computes medians and ratios, in the order of the measurements.
func (r *Report) summarize() {
	r.Summaries = nil
	for _, run := range r.Runs {
		at := slices.IndexFunc(r.Summaries, func(s Summary) bool { return s.What == run.What })
		if at < 0 {
			r.Summaries = append(r.Summaries, Summary{What: run.What})
			at = len(r.Summaries) - 1
		}
		s := &r.Summaries[at]
		if run.Side == sideEngine {
			s.Runs++
		}
	}
	for i := range r.Summaries {
		s := &r.Summaries[i]
		s.Baseline, s.Engine = r.medians(s.What, sideBaseline), r.medians(s.What, sideEngine)
		if _, ok := r.columns[s.What]; ok && s.Baseline != nil && s.Engine != nil {
			const cost = "server_cpu_us_per_run"
			if s.Baseline[cost] > 0 {
				s.Engine.set("added_"+cost, s.Engine[cost]-s.Baseline[cost])
			}
		}
		for name, v := range s.Engine {
			if y, ok := s.Baseline[name]; ok && y != 0 {
				if s.Ratios == nil {
					s.Ratios = make(Figures)
				}
				s.Ratios.set(name, v/y)
			}
		}
	}
}

func (r *Report) medians(what, side string) Figures {
	all := make(map[string][]float64)
	for _, run := range r.Runs {
		if run.What == what && run.Side == side {
			for name, v := range run.Figures {
				all[name] = append(all[name], v)
			}
		}
	}
	if len(all) == 0 {
		return nil
	}
	out := make(Figures, len(all))
	for name, values := range all {
		out.set(name, median(values))
	}
	return out
}

// shown is the order in which figures are printed. The figures of single parts and tables follow their sum.
var shown = []string{
	"fires", "ended", "requests", "succeeded", "missed", "offered_per_s", "fires_per_s", "max_per_s", "overload_per_s",
	"overload_of_max", "out_of_order", "recovery_s", "all_started_ms", "all_settled_ms", "lateness", "recorded_lateness", "settled_after",
	"measured_s", "cpu_us_per_run", "server_cpu_us_per_run", "added_server_cpu_us_per_run", "cpu_percent", "others_cpu_percent", "memory_bytes", "transactions_per_s", "wal_bytes", "wal_bytes_per_run", "database_bytes_per_run", "nats_bytes_per_run",
	"hot_growth", "table_bytes", "index_bytes",
}

func rank(name string) int {
	best, length := len(shown), 0
	for i, s := range shown {
		if (name == s || strings.HasPrefix(name, s+".") || strings.HasPrefix(name, s+"_")) && len(s) > length {
			best, length = i, len(s)
		}
	}
	return best
}

// sortedNames returns the names of figures in the order in which they are printed.
func sortedNames(sides ...Figures) []string {
	names := make(map[string]bool)
	for _, f := range sides {
		for name := range f {
			names[name] = true
		}
	}
	return slices.SortedFunc(maps.Keys(names), func(a, b string) int {
		if d := rank(a) - rank(b); d != 0 {
			return d
		}
		return strings.Compare(a, b)
	})
}

func (r *Report) print(w io.Writer, form string) error {
	if form == "json" {
		e := json.NewEncoder(w)
		e.SetIndent("", "  ")
		return e.Encode(r)
	}
	fmt.Fprintf(w, "belfry %s on %s, %d CPUs %s\n", r.Version, r.Machine.System, r.Machine.CPUs, r.Machine.Model)
	for _, s := range r.Summaries {
		fmt.Fprintf(w, "\n%s (medians of %d)\n", s.What, max(1, s.Runs))
		t := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
		columns, ok := r.columns[s.What]
		if !ok {
			columns = [2]string{"baseline", "engine"}
		}
		fmt.Fprintf(t, "\t%s\t%s\tratio\t\n", columns[0], columns[1])
		for _, name := range sortedNames(s.Baseline, s.Engine) {
			if strings.HasPrefix(name, "cpu_percent.") && s.Engine["cpu_us_per_run"] > 0 {
				continue // cpu_us_per_run shows the same in another unit
			}
			fmt.Fprintf(t, "%s\t%s\t%s\t%s\t\n", name, cell(s.Baseline, name), cell(s.Engine, name), cell(s.Ratios, name))
		}
		if err := t.Flush(); err != nil {
			return err
		}
	}
	return nil
}

func cell(f Figures, name string) string {
	v, ok := f[name]
	if !ok {
		return "-"
	}
	return thousands(v)
}

// Machine describes the computer, on which absolute figures depend.
type Machine struct {
	System string `json:"system"`
	CPUs   int    `json:"cpus"`
	Model  string `json:"cpu_model,omitempty"`
	Memory int64  `json:"memory_bytes,omitempty"`
}

func machine() Machine {
	m := Machine{System: runtime.GOOS + "/" + runtime.GOARCH, CPUs: runtime.NumCPU(), Memory: kilobytes("/proc/meminfo", "MemTotal:")}
	if text, err := os.ReadFile("/proc/cpuinfo"); err == nil {
		for line := range strings.Lines(string(text)) {
			if key, value, found := strings.Cut(line, ":"); found && strings.TrimSpace(key) == "model name" {
				m.Model = strings.TrimSpace(value)
				break
			}
		}
	}
	return m
}

// thousands formats a number with at least three digits, and with commas between thousands.
func thousands(v float64) string {
	switch {
	case v < 0:
		return "-" + thousands(-v)
	case v < 10:
		return strconv.FormatFloat(v, 'f', 2, 64)
	case v < 100:
		return strconv.FormatFloat(v, 'f', 1, 64)
	}
	digits := strconv.FormatFloat(v, 'f', 0, 64)
	var out strings.Builder
	for i, d := range digits {
		if i > 0 && (len(digits)-i)%3 == 0 {
			out.WriteByte(',')
		}
		out.WriteRune(d)
	}
	return out.String()
}
