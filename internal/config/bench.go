package config

import (
	"time"

	"github.com/belfryhq/belfry/internal/domain"
)

// Bench holds the settings of `belfry bench`.
type Bench struct {
	Mode     string        `json:"mode" arg:"" name:"mode" help:"What to measure: burst, rate, max, overload, idle, history, gateway or all."`
	Fires    int           `json:"fires" name:"fires" env:"BELFRY_BENCH_FIRES" default:"10000" help:"burst: number of fires due at one instant."`
	Rate     int           `json:"rate" name:"rate" env:"BELFRY_BENCH_RATE" default:"3000" help:"rate, idle, history, gateway: fires a second. max: the rate at which the search starts."`
	Max      int           `json:"max" name:"max" env:"BELFRY_BENCH_MAX" default:"0" help:"overload: the highest sustained rate; found by a search if 0."`
	Span     time.Duration `json:"span" name:"span" env:"BELFRY_BENCH_SPAN" default:"15s" help:"Duration of each load, 1s to 24h."`
	Spread   bool          `json:"spread" name:"spread" env:"BELFRY_BENCH_SPREAD" help:"Spread fires evenly over each second, instead of all on the whole second."`
	Serial   bool          `json:"serial" name:"serial" env:"BELFRY_BENCH_SERIAL" help:"Fire jobs with the block policy serial, the default of new jobs, instead of parallel."`
	Jobs     int           `json:"jobs" name:"jobs" env:"BELFRY_BENCH_JOBS" default:"0" help:"Enabled jobs that are not due soon, in addition to those that fire. idle: the number to compare with 10,000; 1,000,000 if 0."`
	History  int           `json:"history" name:"history" env:"BELFRY_BENCH_HISTORY" default:"0" help:"Past runs to write first. history: the number to compare with none; 20,000,000 if 0."`
	Runs     int           `json:"runs" name:"runs" env:"BELFRY_BENCH_RUNS" default:"1" help:"Alternating runs of the baseline and the engine, 1 to 99; medians are printed."`
	Baseline bool          `json:"yardstick" name:"yardstick" env:"BELFRY_BENCH_YARDSTICK" default:"true" negatable:"" help:"Measure the baseline in the same run, and print ratios to it."`
	Engine   bool          `json:"engine" name:"engine" env:"BELFRY_BENCH_ENGINE" default:"true" negatable:"" help:"Measure the engine."`

	Schedulers  int `json:"schedulers" name:"schedulers" env:"BELFRY_BENCH_SCHEDULERS" default:"1" help:"Scheduler processes." group:"bench"`
	Dispatchers int `json:"dispatchers" name:"dispatchers" env:"BELFRY_BENCH_DISPATCHERS" default:"1" help:"Dispatcher processes." group:"bench"`
	Executors   int `json:"executors" name:"executors" env:"BELFRY_BENCH_EXECUTORS" default:"1" help:"Executor processes." group:"bench"`
	Capacity    int `json:"capacity" name:"capacity" env:"BELFRY_BENCH_CAPACITY" default:"65536" help:"Maximum number of concurrent runs of each executor; it should exceed the number of fires due at one instant." group:"bench"`

	Addresses int `json:"addresses" name:"addresses" env:"BELFRY_BENCH_ADDRESSES" default:"4" help:"gateway: how many executors of XXL-JOB, which share one process, and how many of Belfry's own." group:"bench"`

	Dir     string `json:"dir" name:"dir" env:"BELFRY_BENCH_DIR" placeholder:"DIR" help:"Directory on the disk to measure. The measurement creates a temporary directory in it. Default: the system's temporary directory." group:"bench"`
	Profile string `json:"profile" name:"profile" env:"BELFRY_BENCH_PROFILE" placeholder:"DIR" help:"Write CPU and allocation profiles of each process, and the cost of each SQL statement, into this directory." group:"bench"`
	Output  string `json:"output" name:"output" short:"o" env:"BELFRY_BENCH_OUTPUT" default:"table" help:"Output format: table or json." group:"bench"`
	Quiet   bool   `json:"quiet" name:"quiet" env:"BELFRY_BENCH_QUIET" help:"Print nothing while it runs." group:"bench"`
}

// The modes of `belfry bench`.
var benchModes = []string{"burst", "rate", "max", "overload", "idle", "history", "gateway", "all"}

// DefaultBench returns the settings of `belfry bench` without flags. It does not set the mode.
func DefaultBench() Bench {
	return Bench{Fires: 10_000, Rate: 3000, Span: 15 * time.Second, Runs: 1, Baseline: true, Engine: true,
		Schedulers: 1, Dispatchers: 1, Executors: 1, Capacity: 65536, Addresses: 4, Output: "table"}
}

// Validate reports all faults at once, as an Invalid error whose locations are flags.
func (c Bench) Validate() error {
	var f domain.Faults
	checkOneOf(&f, "mode", c.Mode, benchModes...)
	between(&f, "--fires", c.Fires, 1, 1_000_000)
	between(&f, "--rate", c.Rate, 1, 100_000)
	between(&f, "--max", c.Max, 0, 100_000)
	between(&f, "--span", c.Span, time.Second, 24*time.Hour)
	between(&f, "--jobs", c.Jobs, 0, 10_000_000)
	between(&f, "--history", c.History, 0, 1_000_000_000)
	between(&f, "--runs", c.Runs, 1, 99)
	between(&f, "--schedulers", c.Schedulers, 1, 64)
	between(&f, "--dispatchers", c.Dispatchers, 1, 64)
	between(&f, "--executors", c.Executors, 1, 64)
	between(&f, "--capacity", c.Capacity, 1, 65536)
	between(&f, "--addresses", c.Addresses, 1, 100)
	checkOneOf(&f, "--output", c.Output, "table", "json")
	if !c.Engine && !c.Baseline {
		f.Add("--no-engine", "leaves nothing to measure if the baseline is off, too")
	}
	return f.Err("")
}
