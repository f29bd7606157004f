package app

import (
	"context"
	"fmt"

	"github.com/belfryhq/belfry/internal/config"
	"github.com/belfryhq/belfry/internal/conformance"
	"github.com/belfryhq/belfry/internal/domain"
)

// Conformance tests an executor and prints the report. It returns an error if a duty is broken.
func (a *App) Conformance(ctx context.Context, c config.Conformance) error {
	o := conformance.Options{Command: c.Executor, Short: c.Short, Only: c.Duties, LogDir: c.LogDir}
	if !c.Quiet {
		o.Progress = func(l conformance.Line) {
			fmt.Fprintf(a.Stderr, "%s: %s (%.1f s)\n", l.Duty, l.Verdict, float64(l.TookMS)/1000)
		}
		o.Notice = func(text string) { fmt.Fprintln(a.Stderr, text) }
	}
	report, err := conformance.Run(ctx, o)
	if err != nil {
		return err
	}
	write := report.Table
	if c.Output == "json" {
		write = report.JSON
	}
	if err := write(a.Stdout); err != nil {
		return domain.WrapError(domain.Internal, "print the report", err)
	}
	if !report.OK {
		return fmt.Errorf("%d of %d duties are broken", report.Broken, len(report.Duties))
	}
	return nil
}
