package cli

import (
	"fmt"
	"time"

	"github.com/belfryhq/belfry/internal/client"
	"github.com/belfryhq/belfry/internal/domain"
)

type jobBackfillCmd struct {
	Job    string `arg:"" help:"The job's id, or group/name."`
	From   string `required:"" env:"BELFRY_BACKFILL_FROM" placeholder:"INSTANT" help:"Start of the range (inclusive), such as 2026-03-01T00:00:00Z."`
	To     string `env:"BELFRY_BACKFILL_TO" placeholder:"INSTANT" help:"End of the range (exclusive); by default now."`
	Max    int    `env:"BELFRY_BACKFILL_MAX" default:"100" help:"Maximum number of fire times, starting with the first; at most 1000."`
	DryRun bool   `env:"BELFRY_DRY_RUN" help:"Only print the fire times."`
	waiting
}

func (*jobBackfillCmd) Help() string {
	return "The command plans one run for each fire time of the job's current schedule in the range, even if that fire time already has a run. " +
		"The runs become due in order, and the job's block policy applies to them.\n\nExamples:\n\n" +
		"    belfry job backfill default/report --from 2026-03-01T00:00:00Z --to 2026-04-01T00:00:00Z --dry-run\n" +
		"    belfry job backfill default/report --from 2026-03-01T00:00:00Z --wait"
}

func (c *jobBackfillCmd) Run(a *app, parent *jobCmd, cl *client.Client) error {
	b := client.Backfill{Max: c.Max, To: domain.At(time.Now())}
	var err error
	if b.From, err = parseInstant("--from", c.From); err != nil {
		return err
	}
	if c.To != "" {
		if b.To, err = parseInstant("--to", c.To); err != nil {
			return err
		}
	}
	job, err := findJob(a.ctx, cl, c.Job)
	if err != nil {
		return err
	}
	made, err := cl.BackfillJob(a.ctx, job.ID, b, c.DryRun)
	if err != nil {
		return err
	}
	if made.Next != nil {
		fmt.Fprintf(a.stderr, "The range has more fire times; continue with --from %s\n", made.Next)
	}
	if (c.Wait || c.Follow) && !c.DryRun {
		return a.await(cl, parent.Output, made.RunIDs, c.waiting)
	}
	return a.print(parent.Output, made, func(t *table) {
		t.row("FIRE TIME", "RUN")
		for i, at := range made.FireTimes {
			run := ""
			if i < len(made.RunIDs) {
				run = made.RunIDs[i].String()
			}
			t.row(at, run)
		}
	})
}
