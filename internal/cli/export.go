package cli

import (
	"fmt"

	"github.com/belfryhq/belfry/internal/client"
	"github.com/belfryhq/belfry/internal/jobfile"
)

type exportCmd struct {
	connection
	Group string `short:"g" env:"BELFRY_EXPORT_GROUP" placeholder:"NAME" help:"Only this group."`
}

func (*exportCmd) Help() string {
	return "The command prints all groups, calendars, jobs and event triggers that you may see as YAML, without tokens. For admins, an export of all groups also has the alert channels, without their secrets.\n\nExamples:\n\n" +
		"    belfry export > belfry.yaml\n    belfry export --group billing | belfry import --server https://other:8080 -f - --dry-run"
}

func (c *exportCmd) Run(a *app, cl *client.Client) error {
	text, err := cl.Export(a.ctx, c.Group)
	if err != nil {
		return err
	}
	_, err = a.stdout.Write(text)
	return err
}

type importFileCmd struct {
	File     string `short:"f" env:"BELFRY_IMPORT_FILE" required:"" placeholder:"FILE" help:"An export, or a file of jobs; - is standard input."`
	DryRun   bool   `env:"BELFRY_DRY_RUN" help:"Print what would change, and change nothing."`
	ExitCode bool   `env:"BELFRY_EXIT_CODE" help:"With --dry-run: exit with 1 if anything would change."`
}

func (*importFileCmd) Help() string {
	return "The server checks the whole file before it changes anything. It deletes nothing; to delete jobs, use belfry job apply --prune. " +
		"To get a token for a new group, run belfry group token NAME.\n\nExamples:\n\n    belfry import -f belfry.yaml --dry-run\n    belfry export | belfry import file -f - --server http://other:8080"
}

func (c *importFileCmd) Run(a *app, parent *importCmd, cl *client.Client) error {
	data, err := a.readFile(c.File)
	if err != nil {
		return err
	}
	result, err := cl.Import(a.ctx, data, c.DryRun)
	if err != nil {
		return err
	}
	rows := make([]applied, len(result.Items))
	for i, item := range result.Items {
		rows[i] = applied{Action: item.Action, Group: item.Group, Name: item.Name, Source: item.Error}
		for _, d := range item.Changes {
			rows[i].Changes = append(rows[i].Changes, jobfile.Difference(d))
		}
	}
	if err := a.printApplied(parent.Output, result, rows, c.DryRun); err != nil {
		return err
	}
	if result.Failed > 0 {
		return fmt.Errorf("%d of %d could not be imported", result.Failed, len(result.Items))
	}
	if c.DryRun && c.ExitCode && result.Created+result.Updated > 0 {
		return errReported
	}
	return nil
}
