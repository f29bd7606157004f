package cli

import (
	"fmt"
	"time"

	"github.com/belfryhq/belfry/internal/client"
	"github.com/belfryhq/belfry/internal/domain"
)

type groupPauseCmd struct {
	Name   string        `arg:"" optional:"" help:"The group's name."`
	All    bool          `env:"BELFRY_ALL_GROUPS" help:"Pause all groups that are not paused, instead of one."`
	Reason string        `required:"" env:"BELFRY_REASON_TEXT" placeholder:"TEXT" help:"Reason of the pause, shown with the group."`
	Until  string        `env:"BELFRY_UNTIL" placeholder:"INSTANT" help:"End of the pause, such as 2026-12-01T06:00:00Z; by default the pause lasts until belfry group resume."`
	For    time.Duration `env:"BELFRY_FOR" placeholder:"DURATION" help:"Length of the pause, such as 2h, instead of --until."`
}

func (*groupPauseCmd) Help() string {
	return "During the pause, no job of the group fires by its schedule. After the pause, each job's misfire policy applies to the missed fire times. " +
		"Manual triggers, events, children and retries continue. With --all, groups that are paused already keep their pause.\n\nExamples:\n\n" +
		"    belfry group pause default --reason \"new disks\" --for 2h\n    belfry group pause default --reason \"new disks\" --until 2026-12-01T06:00:00Z\n" +
		"    belfry group pause --all --reason backup"
}

func (c *groupPauseCmd) Run(a *app, parent *groupCmd, cl *client.Client) error {
	until, err := end(c.Until, c.For)
	if err != nil {
		return err
	}
	if err := oneOrAll(c.Name, c.All); err != nil {
		return err
	}
	if c.All {
		return a.eachGroup(cl, func(g domain.Group) bool { return g.PausedAt == nil }, func(name string) error {
			_, err := cl.PauseGroup(a.ctx, name, c.Reason, until)
			return a.report(err, "%s paused\n", name)
		})
	}
	g, err := cl.PauseGroup(a.ctx, c.Name, c.Reason, until)
	if err != nil {
		return err
	}
	return a.print(parent.Output, g, func(t *table) { t.row(pauseText(g)) })
}

// end returns the end that --until or --for gives, or nil.
func end(until string, after time.Duration) (*domain.Instant, error) {
	switch {
	case until != "" && after != 0:
		return nil, &usageError{"give either --until or --for, not both"}
	case after < 0:
		return nil, &usageError{"--for must not be negative"}
	case after > 0:
		at := domain.At(time.Now().Add(after))
		return &at, nil
	case until == "":
		return nil, nil
	}
	at, err := parseInstant("--until", until)
	return &at, err
}

// parseInstant parses the instant of a flag.
func parseInstant(flag, text string) (at domain.Instant, err error) {
	if err := at.UnmarshalText([]byte(text)); err != nil {
		return at, &usageError{fmt.Sprintf("%s: %v", flag, err)}
	}
	return at, nil
}

func pauseText(g domain.Group) string {
	if g.PausedAt == nil {
		return fmt.Sprintf("Group %s is not paused.", g.Name)
	}
	return fmt.Sprintf("Group %s %s", g.Name, pausePeriod(g.PauseState))
}

// pausePeriod describes a pause, as the end of a sentence.
func pausePeriod(p domain.PauseState) string {
	text := "is paused from " + people(p.PausedAt.Time)
	if p.PausedUntil != nil {
		text += " to " + people(p.PausedUntil.Time)
	}
	return fmt.Sprintf("%s by %s: %s", text, p.PausedBy, p.PauseReason)
}

type groupResumeCmd struct {
	Name   string `arg:"" optional:"" help:"The group's name."`
	All    bool   `env:"BELFRY_ALL_GROUPS" help:"Resume all groups whose pause has this --reason, instead of one."`
	Reason string `env:"BELFRY_RESUME_REASON" placeholder:"TEXT" help:"Reason of the pauses that --all ends."`
}

func (*groupResumeCmd) Help() string {
	return "Each job's misfire policy applies to the fire times missed during the pause.\n\nExamples:\n\n    belfry group resume default\n" +
		"    belfry group resume --all --reason backup"
}

func (c *groupResumeCmd) Run(a *app, parent *groupCmd, cl *client.Client) error {
	if err := oneOrAll(c.Name, c.All); err != nil {
		return err
	}
	if c.All != (c.Reason != "") {
		return &usageError{"--all and --reason belong together: only pauses with this reason end"}
	}
	if c.All {
		return a.eachGroup(cl, func(g domain.Group) bool { return g.PausedAt != nil && g.PauseReason == c.Reason }, func(name string) error {
			_, err := cl.ResumeGroup(a.ctx, name)
			return a.report(err, "%s resumed\n", name)
		})
	}
	g, err := cl.ResumeGroup(a.ctx, c.Name)
	if err != nil {
		return err
	}
	return a.print(parent.Output, g, func(t *table) { t.row(fmt.Sprintf("Group %s is resumed.", g.Name)) })
}

func oneOrAll(name string, all bool) error {
	if (name == "") != all {
		return &usageError{"give either the name of a group or --all"}
	}
	return nil
}

// eachGroup calls do with the names of the groups that ok selects.
func (a *app) eachGroup(cl *client.Client, ok func(domain.Group) bool, do func(name string) error) error {
	groups, err := cl.Groups(a.ctx, mostListed)
	if err != nil {
		return err
	}
	var names []string
	for _, g := range groups {
		if ok(g) {
			names = append(names, g.Name)
		}
	}
	return a.each(names, do)
}

// report prints what was done with a name, unless there is an error, which it returns.
func (a *app) report(err error, format, name string) error {
	if err == nil {
		fmt.Fprintf(a.stdout, format, printable(name))
	}
	return err
}

type jobPauseCmd struct {
	Jobs   []string      `arg:"" name:"job" help:"Ids, or group/name."`
	Reason string        `required:"" env:"BELFRY_REASON_TEXT" placeholder:"TEXT" help:"Reason of the pause, shown with the job."`
	Until  string        `env:"BELFRY_UNTIL" placeholder:"INSTANT" help:"End of the pause, such as 2026-12-01T06:00:00Z; by default the pause lasts until belfry job resume."`
	For    time.Duration `env:"BELFRY_FOR" placeholder:"DURATION" help:"Length of the pause, such as 2h, instead of --until."`
}

func (*jobPauseCmd) Help() string {
	return "A paused job does not fire by its schedule. After the pause, its misfire policy applies to the missed fire times. " +
		"Manual triggers, events, parents and retries still start runs. A job whose group is paused too fires again when both pauses are over.\n\nExamples:\n\n" +
		"    belfry job pause default/report --reason \"new disks\" --for 2h\n    belfry job pause 7 8 --reason \"new disks\" --until 2026-12-01T06:00:00Z"
}

func (c *jobPauseCmd) Run(a *app, cl *client.Client) error {
	until, err := end(c.Until, c.For)
	if err != nil {
		return err
	}
	return a.eachJob(cl, c.Jobs, func(j domain.Job) (string, error) {
		_, err := cl.PauseJob(a.ctx, j.ID, c.Reason, until)
		return "paused", err
	})
}

type jobResumeCmd struct {
	Jobs []string `arg:"" name:"job" help:"Ids, or group/name."`
}

func (*jobResumeCmd) Help() string {
	return "The misfire policy of each job applies to the fire times missed during its pause. A pause of the group stays.\n\nExample:\n\n    belfry job resume default/report"
}

func (c *jobResumeCmd) Run(a *app, cl *client.Client) error {
	return a.eachJob(cl, c.Jobs, func(j domain.Job) (string, error) {
		_, err := cl.ResumeJob(a.ctx, j.ID)
		return "resumed", err
	})
}
