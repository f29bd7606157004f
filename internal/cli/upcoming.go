package cli

import (
	"fmt"
	"time"

	"github.com/belfryhq/belfry/internal/client"
)

type jobUpcomingCmd struct {
	Within time.Duration `env:"BELFRY_WITHIN" default:"1h" help:"Length of the span from now on; at most 744h."`
	Group  string        `short:"g" env:"BELFRY_JOB_GROUP" placeholder:"NAME" help:"Only jobs of this group."`
	Limit  int           `env:"BELFRY_LIMIT" default:"100" help:"Maximum number of fire times to list; at most 500."`
}

func (*jobUpcomingCmd) Help() string {
	return "Fire times that a pause of the group suppresses are left out.\n\nExample:\n\n    belfry job upcoming --within 24h --group default"
}

func (c *jobUpcomingCmd) Run(a *app, parent *jobCmd, cl *client.Client) error {
	u, err := cl.Upcoming(a.ctx, c.Within, c.Group, c.Limit)
	if err != nil {
		return err
	}
	if u.Cut {
		fmt.Fprintf(a.stderr, "The list is complete up to %s; more fire times follow.\n", people(u.Through.Time))
	}
	return a.print(parent.Output, u, func(t *table) {
		t.row("FIRE TIME", "DUE", "JOB", "ID")
		for _, f := range u.Items {
			t.row(f.FireTime, f.DueAt, shown(f.Group+"/"+f.JobName, 80), f.JobID)
		}
	})
}
