package config

import (
	"strings"

	"github.com/belfryhq/belfry/internal/domain"
)

// Conformance holds the settings of `belfry conformance`.
type Conformance struct {
	Executor string   `name:"executor" env:"BELFRY_CONFORMANCE_EXECUTOR" placeholder:"CMD" help:"The executor to test, as a command line for /bin/sh. Required."`
	Short    bool     `name:"short" env:"BELFRY_CONFORMANCE_SHORT" help:"Leave out slow duties: about 40 seconds instead of 4 minutes."`
	Duties   []string `name:"duty" env:"BELFRY_CONFORMANCE_DUTY" placeholder:"DUTY" help:"Test only this duty; may be given several times."`
	LogDir   string   `name:"log-dir" env:"BELFRY_CONFORMANCE_LOG_DIR" placeholder:"DIR" help:"Keep the executors' output in this directory; by default it is deleted."`
	Output   string   `name:"output" short:"o" env:"BELFRY_CONFORMANCE_OUTPUT" default:"table" help:"Output format: table or json."`
	Quiet    bool     `name:"quiet" env:"BELFRY_CONFORMANCE_QUIET" help:"Print no progress."`
}

// Validate reports all faults at once, as an Invalid error whose locations are flags.
func (c Conformance) Validate() error {
	var f domain.Faults
	if strings.TrimSpace(c.Executor) == "" {
		f.Add("--executor", "is required: the command that starts the executor")
	}
	checkOneOf(&f, "--output", c.Output, "table", "json")
	return f.Err("")
}
