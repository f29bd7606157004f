package bench

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/belfryhq/belfry/internal/config"
)

// Bench is one invocation of `belfry bench`.
type Bench struct {
	Config  config.Bench
	Stdout  io.Writer // the report
	Stderr  io.Writer // progress, and warnings of the parts
	Version string

	*rig
	search search
	report Report
}

// rig is what all measurements of one invocation share.
type rig struct {
	config  config.Bench
	display *display
	servers *servers
	loader  *loader
	meter   *meter
}

// Run measures, prints the report and removes all servers and files. It returns when all processes have ended.
func (b *Bench) Run(ctx context.Context) (err error) {
	b.report = Report{Version: b.Version, Machine: machine(), Settings: b.Config}
	d := newDisplay(b.Stderr, b.Config.Quiet)
	if !canMeter() {
		d.say("this system does not report the CPU time and memory of processes: the report lacks them")
	}
	if b.Config.Profile != "" {
		if err := os.MkdirAll(b.Config.Profile, 0o755); err != nil {
			return fmt.Errorf("create the directory of --profile: %w", err)
		}
	}
	d.progress("starting Postgres and NATS")
	s := &servers{config: b.Config, display: d, stderr: b.Stderr}
	defer func() { err = errors.Join(err, s.stop()) }()
	if err := s.start(ctx); err != nil {
		return err
	}
	b.rig = &rig{config: b.Config, display: d, servers: s, loader: &loader{db: s.db, display: d, serial: b.Config.Serial}, meter: &meter{s}}
	b.search = search{rig: b.rig}
	if err := b.measure(ctx); err != nil {
		return err
	}
	d.clear()
	b.report.summarize()
	return b.report.print(b.Stdout, b.Config.Output)
}

// measure runs the mode of the settings.
func (b *Bench) measure(ctx context.Context) error {
	c := b.Config
	if c.Jobs > 0 && c.Mode != "idle" {
		if err := b.loader.addIdleJobs(ctx, c.Jobs); err != nil {
			return err
		}
	}
	if c.History > 0 && c.Mode != "history" {
		if err := b.loader.addHistory(ctx, c.History); err != nil {
			return err
		}
	}
	modes := map[string]func(context.Context) error{
		"burst": b.burst, "rate": b.rate, "max": b.max, "overload": b.overload, "idle": b.idle, "history": b.history, "gateway": b.gateway,
	}
	if c.Mode != "all" {
		return modes[c.Mode](ctx)
	}
	// The modes that fill the database come last.
	for _, mode := range []string{"burst", "rate", "gateway", "overload", "idle", "history"} {
		if err := modes[mode](ctx); err != nil {
			return err
		}
	}
	return nil
}

// alternate measures the baseline and the engine in turn, Config.Runs times each. A nil function is left out.
func (b *Bench) alternate(ctx context.Context, what string, baseline, engine func(context.Context) (Figures, error)) error {
	return b.inTurn(ctx, what,
		side{sideBaseline, "baseline", b.Config.Baseline, baseline},
		side{sideEngine, "engine", b.Config.Engine, engine})
}

// side is one side of a comparison.
type side struct {
	key, name string
	on        bool
	do        func(context.Context) (Figures, error) // nil: it is left out
}

// inTurn measures sides in turn, Config.Runs times each.
func (b *Bench) inTurn(ctx context.Context, what string, sides ...side) error {
	for i := range b.Config.Runs {
		for _, s := range sides {
			if !s.on || s.do == nil {
				continue
			}
			b.display.progress("%s: %s, run %d of %d", what, s.name, i+1, b.Config.Runs)
			f, err := s.do(ctx)
			if err != nil {
				return fmt.Errorf("%s, %s: %w", what, s.name, err)
			}
			b.report.Runs = append(b.report.Runs, Run{What: what, Side: s.key, At: time.Now().UTC(), Figures: f})
			b.display.say("%s: %s, run %d of %d: %s", what, s.name, i+1, b.Config.Runs, f.headline())
		}
	}
	return nil
}

// both measures the baseline and the engine under the same load.
func (b *Bench) both(ctx context.Context, what string, of func(from time.Time) load) error {
	return b.alternate(ctx, what,
		func(ctx context.Context) (Figures, error) { return baseline{b.rig}.measure(ctx, of) },
		func(ctx context.Context) (Figures, error) {
			e := engineRun{rig: b.rig, of: of}
			return e.run(ctx)
		})
}
