package bench

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"runtime"
	"strconv"
	"strings"
	"time"

	"github.com/mattn/go-isatty"

	"github.com/belfryhq/belfry/internal/config"
)

// Bench is one invocation of `belfry bench`.
type Bench struct {
	Config  config.Bench
	Stdout  io.Writer // the report
	Stderr  io.Writer // progress, and what the parts have to complain about
	Version string

	log     *slog.Logger
	tty     bool
	line    bool // the terminal shows a line of progress that the next one replaces
	servers servers
	jobs    int64 // the newest job's id
	found   int   // runs a second that were sustained when the maximum was last searched for; 0: none yet

	statements bool // Postgres keeps the costs of statements
	report     Report
}

// Run measures, prints the report, and removes all that it made. It returns when every process is gone.
func (b *Bench) Run(ctx context.Context) (err error) {
	b.log = logger(b.Stderr)
	if f, ok := b.Stderr.(*os.File); ok {
		b.tty = isatty.IsTerminal(f.Fd())
	}
	b.report = Report{Version: b.Version, Machine: machine(), Settings: b.Config}
	if !canMeter() {
		b.say("this system does not tell what a process uses: CPU and memory are left out")
	}
	if b.Config.Profile != "" {
		if err := os.MkdirAll(b.Config.Profile, 0o755); err != nil {
			return fmt.Errorf("make --profile: %w", err)
		}
	}
	b.progress("starting Postgres and NATS")
	defer func() { err = errors.Join(err, b.stopServers()) }()
	if err := b.startServers(ctx); err != nil {
		return err
	}
	if err := b.measure(ctx); err != nil {
		return err
	}
	b.clearLine()
	b.report.summarize()
	return b.report.print(b.Stdout, b.Config.Output)
}

// measure does what the mode says.
func (b *Bench) measure(ctx context.Context) error {
	c := b.Config
	if c.Jobs > 0 && c.Mode != "idle" {
		if err := b.addIdleJobs(ctx, c.Jobs); err != nil {
			return err
		}
	}
	if c.History > 0 && c.Mode != "history" {
		if err := b.addHistory(ctx, c.History); err != nil {
			return err
		}
	}
	modes := map[string]func(context.Context) error{
		"burst": b.burst, "rate": b.rate, "max": b.max, "overload": b.overload, "idle": b.idle, "history": b.history,
	}
	if c.Mode != "all" {
		return modes[c.Mode](ctx)
	}
	// Those that fill the database come last.
	for _, mode := range []string{"burst", "rate", "overload", "idle", "history"} {
		if err := modes[mode](ctx); err != nil {
			return err
		}
	}
	return nil
}

// alternate measures the baseline and the engine in turn, Config.Runs times each.
func (b *Bench) alternate(ctx context.Context, what string, baseline, engine func(context.Context) (Figures, error)) error {
	for i := range b.Config.Runs {
		for _, side := range []struct {
			key, name string
			on        bool
			do        func(context.Context) (Figures, error)
		}{{sideBaseline, "baseline", b.Config.Baseline, baseline}, {sideEngine, "engine", b.Config.Engine, engine}} {
			if !side.on || side.do == nil {
				continue
			}
			b.progress("%s: %s, run %d of %d", what, side.name, i+1, b.Config.Runs)
			f, err := side.do(ctx)
			if err != nil {
				return fmt.Errorf("%s, %s: %w", what, side.name, err)
			}
			b.report.Runs = append(b.report.Runs, Run{What: what, Side: side.key, At: time.Now().UTC(), Figures: f})
			b.say("%s: %s, run %d of %d: %s", what, side.name, i+1, b.Config.Runs, f.headline())
		}
	}
	return nil
}

// burst fires all in one instant.
func (b *Bench) burst(ctx context.Context) error {
	of := func(from time.Time) load { return load{Sets: []set{{N: b.Config.Fires, From: from}}} }
	return b.both(ctx, fmt.Sprintf("burst of %s", thousands(float64(b.Config.Fires))), of)
}

// rate fires an open rate.
func (b *Bench) rate(ctx context.Context) error { return b.both(ctx, b.rateName(), b.rateLoad) }

func (b *Bench) rateName() string {
	how := "on whole seconds"
	if b.Config.Spread {
		how = "spread"
	}
	return fmt.Sprintf("%s/s %s for %v", thousands(float64(b.Config.Rate)), how, b.Config.Span)
}

func (b *Bench) rateLoad(from time.Time) load {
	return load{Sets: []set{{N: b.Config.Rate, From: from, For: b.Config.Span.Truncate(time.Second), Spread: b.Config.Spread}}}
}

// both gives baseline and engine the same load.
func (b *Bench) both(ctx context.Context, what string, of func(from time.Time) load) error {
	return b.alternate(ctx, what,
		func(ctx context.Context) (Figures, error) { return b.baseline(ctx, of) },
		func(ctx context.Context) (Figures, error) {
			e := engineRun{Bench: b, of: of}
			return e.run(ctx)
		})
}

// say prints a line that stays.
func (b *Bench) say(format string, args ...any) {
	if b.Config.Quiet {
		return
	}
	b.clearLine()
	fmt.Fprintf(b.Stderr, format+"\n", args...)
}

// progress shows what is going on, on a terminal.
func (b *Bench) progress(format string, args ...any) {
	if b.Config.Quiet || !b.tty {
		return
	}
	b.clearLine()
	fmt.Fprintf(b.Stderr, format, args...)
	b.line = true
}

func (b *Bench) clearLine() {
	if b.line {
		fmt.Fprint(b.Stderr, "\r\x1b[K")
		b.line = false
	}
}

// Machine is what absolute figures depend on.
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

// thousands writes a number with three or more figures, and commas between thousands.
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
