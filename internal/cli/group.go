package cli

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/belfryhq/belfry/internal/client"
	"github.com/belfryhq/belfry/internal/domain"
)

// mostListed is the limit of lists without a --limit flag.
const mostListed = 10_000

type groupCmd struct {
	connection
	List      groupListCmd      `cmd:"" help:"List groups."`
	Get       groupGetCmd       `cmd:"" help:"Show one group."`
	Create    groupCreateCmd    `cmd:"" help:"Create a group and print the token for its executors."`
	Set       groupSetCmd       `cmd:"" help:"Change a group's description or limits."`
	Usage     groupUsageCmd     `cmd:"" help:"Show how much of its limits a group uses."`
	Token     groupTokenCmd     `cmd:"" help:"Replace the token of a group's executors and print the new one."`
	XxlToken  groupXXLTokenCmd  `cmd:"" name:"xxl-token" help:"Open a group for executors of XXL-JOB."`
	Pause     groupPauseCmd     `cmd:"" help:"Pause the schedules of a group's jobs."`
	Resume    groupResumeCmd    `cmd:"" help:"End a group's pause."`
	Delete    groupDeleteCmd    `cmd:"" help:"Delete a group without jobs."`
	Instances groupInstancesCmd `cmd:"" help:"List the live instances of a group."`
}

type groupListCmd struct{}

func (*groupListCmd) Help() string { return "Example:\n\n    belfry group list" }

func (c *groupListCmd) Run(a *app, parent *groupCmd, cl *client.Client) error {
	groups, err := cl.Groups(a.ctx, mostListed)
	if err != nil {
		return err
	}
	return a.print(parent.Output, groups, func(t *table) {
		t.row("NAME", "JOBS", "INSTANCES", "PAUSED", "DESCRIPTION")
		for _, g := range groups {
			t.row(g.Name, g.Jobs, g.Instances, g.PausedAt, shown(g.Description, 80))
		}
	})
}

type groupGetCmd struct {
	Name string `arg:"" help:"The group's name."`
}

func (*groupGetCmd) Help() string { return "Example:\n\n    belfry group get default" }

func (c *groupGetCmd) Run(a *app, parent *groupCmd, cl *client.Client) error {
	g, err := cl.Group(a.ctx, c.Name)
	if err != nil {
		return err
	}
	return a.printGroup(parent.Output, g)
}

func (a *app) printGroup(form string, g domain.Group) error {
	return a.print(form, g, func(t *table) {
		t.pair("name", g.Name)
		t.pair("description", g.Description)
		t.pair("jobs", g.Jobs)
		t.pair("instances", g.Instances)
		if g.PausedAt != nil {
			t.pair("paused", pauseText(g))
		}
		if g.PreviousTokenUntil != nil {
			t.pair("previous token until", *g.PreviousTokenUntil)
		}
		t.pair("max instances", g.Limits.MaxInstances)
		t.pair("max connections", g.Limits.MaxConnections)
		t.pair("max jobs", g.Limits.MaxJobs)
		t.pair("max live runs", g.Limits.MaxLiveRuns)
		t.pair("max fires per minute", g.Limits.MaxFiresPerMinute)
		t.pair("max log bytes per day", g.Limits.MaxLogBytesPerDay)
		t.pair("max script versions", g.Limits.MaxScriptVersions)
		t.pair("created", g.CreatedAt)
		t.pair("updated", g.UpdatedAt)
	})
}

type groupCreateCmd struct {
	Name        string `arg:"" help:"The group's name: a-z, 0-9, _ and -."`
	Description string `env:"BELFRY_DESCRIPTION" placeholder:"TEXT" help:"Description of the group."`
}

func (*groupCreateCmd) Help() string {
	return "The token is printed on standard output. It is shown only once.\n\nExample:\n\n    belfry group create tools --description \"hosts with the tools\" > tools.token"
}

func (c *groupCreateCmd) Run(a *app, parent *groupCmd, cl *client.Client) error {
	g, err := cl.CreateGroup(a.ctx, c.Name, c.Description)
	if err != nil {
		return err
	}
	return a.printSecret(parent.Output, g, g.Token, "Group "+g.Name+" created. The token for its executors, shown only once:")
}

// printSecret prints only the secret on stdout, and its description on stderr.
func (a *app) printSecret(form string, v any, secret, what string) error {
	if form == "table" {
		fmt.Fprintln(a.stderr, what)
	}
	return a.print(form, v, func(t *table) { t.row(secret) })
}

type groupSetCmd struct {
	Name              string  `arg:"" help:"The group's name."`
	Description       *string `env:"BELFRY_DESCRIPTION" placeholder:"TEXT" help:"Description of the group."`
	MaxInstances      *int    `env:"BELFRY_MAX_INSTANCES" placeholder:"N" help:"Instances with a live heartbeat. Default of a new group: 1000."`
	MaxConnections    *int    `env:"BELFRY_MAX_CONNECTIONS" placeholder:"N" help:"NATS connections with the group's token. Default of a new group: 2000."`
	MaxJobs           *int    `env:"BELFRY_MAX_JOBS" placeholder:"N" help:"Jobs, enabled or not. Default of a new group: 50000."`
	MaxLiveRuns       *int    `env:"BELFRY_MAX_LIVE_RUNS" placeholder:"N" help:"Runs that are not final. Default of a new group: 500000."`
	MaxFiresPerMinute *int    `env:"BELFRY_MAX_FIRES_PER_MINUTE" placeholder:"N" help:"Fire times that become runs, by the minute of the fire time. Default of a new group: 600000."`
	MaxLogBytesPerDay *int64  `env:"BELFRY_MAX_LOG_BYTES_PER_DAY" placeholder:"BYTES" help:"Bytes of run logs by UTC day. Default of a new group: 53687091200 (50 GiB)."`
	MaxScriptVersions *int    `env:"BELFRY_MAX_SCRIPT_VERSIONS" placeholder:"N" help:"Stored versions of all scripts together. Default of a new group: 10000."`
}

func (*groupSetCmd) Help() string {
	return "Flags that are not given keep their values. `belfry group get` shows the limits.\n\nExample:\n\n    belfry group set billing --max-instances 50 --max-jobs 2000"
}

func (c *groupSetCmd) Run(a *app, parent *groupCmd, cl *client.Client) error {
	g, err := cl.ChangeGroup(a.ctx, c.Name, c.Description, domain.GroupLimitsChange{
		MaxInstances: c.MaxInstances, MaxConnections: c.MaxConnections, MaxJobs: c.MaxJobs, MaxLiveRuns: c.MaxLiveRuns,
		MaxFiresPerMinute: c.MaxFiresPerMinute, MaxLogBytesPerDay: c.MaxLogBytesPerDay, MaxScriptVersions: c.MaxScriptVersions,
	})
	if err != nil {
		return err
	}
	return a.printGroup(parent.Output, g)
}

type groupUsageCmd struct {
	Name string `arg:"" help:"The group's name."`
}

func (*groupUsageCmd) Help() string {
	return "The usage may be higher than a limit, for example after the limit was lowered.\n\nExample:\n\n    belfry group usage billing"
}

func (c *groupUsageCmd) Run(a *app, parent *groupCmd, cl *client.Client) error {
	u, err := cl.GroupUsage(a.ctx, c.Name)
	if err != nil {
		return err
	}
	return a.print(parent.Output, u, func(t *table) {
		t.row("WHAT", "USED", "LIMIT", "PERCENT")
		for _, v := range u.All() {
			t.row(strings.ReplaceAll(v.Name, "_", " "), v.Used, v.Limit, 100*v.Used/v.Limit)
		}
	})
}

type groupTokenCmd struct {
	Name    string        `arg:"" help:"The group's name."`
	Overlap time.Duration `env:"BELFRY_OVERLAP" placeholder:"DURATION" help:"How long the old token stays valid, such as 24h; at most 168h. Without it, the old token becomes invalid at once."`
}

func (*groupTokenCmd) Help() string {
	return "Without --overlap, the old token opens no new connections, and its connections end: at once in standalone, and within a minute otherwise. With --overlap, restart the executors with the new token in that time. A group has at most two valid tokens; older ones become invalid at once. The new token is printed on standard output. It is shown only once.\n\nExamples:\n\n    belfry group token tools > tools.token\n    belfry group token tools --overlap 24h > tools.token"
}

func (c *groupTokenCmd) Run(a *app, parent *groupCmd, cl *client.Client) error {
	if c.Overlap < 0 {
		return &usageError{"--overlap must not be negative"}
	}
	token, err := cl.ReplaceGroupToken(a.ctx, c.Name, c.Overlap)
	if err != nil {
		return err
	}
	what := "The new token of group " + c.Name + "'s executors, shown only once:"
	if token.PreviousTokenUntil != nil {
		what = "The old token of group " + c.Name + " is valid until " + cell(*token.PreviousTokenUntil) + ". " + what
	}
	return a.printSecret(parent.Output, token, token.Token, what)
}

type groupDeleteCmd struct {
	Names []string `arg:"" name:"name" help:"Names of groups."`
}

func (*groupDeleteCmd) Help() string { return "Example:\n\n    belfry group delete tools" }

func (c *groupDeleteCmd) Run(a *app, parent *groupCmd, cl *client.Client) error {
	return a.each(c.Names, func(name string) error {
		if err := cl.DeleteGroup(a.ctx, name); err != nil {
			return err
		}
		fmt.Fprintf(a.stdout, "%s deleted\n", printable(name))
		return nil
	})
}

type groupInstancesCmd struct {
	Name string `arg:"" help:"The group's name."`
}

func (*groupInstancesCmd) Help() string { return "Example:\n\n    belfry group instances default" }

func (c *groupInstancesCmd) Run(a *app, parent *groupCmd, cl *client.Client) error {
	instances, err := cl.Instances(a.ctx, c.Name)
	if err != nil {
		return err
	}
	return a.print(parent.Output, instances, func(t *table) {
		t.row("INSTANCE", "HOST", "RUNNING", "CAPACITY", "DRAINING", "HANDLERS", "SCRIPTS", "STARTED", "NO RUNS BECAUSE")
		for _, i := range instances {
			t.row(i.ID, i.Host, i.Running, i.Capacity, i.Draining, shown(cell(i.Handlers), 60), i.Languages, i.StartedAt, shown(i.NotOffered.String(), 120))
		}
	})
}

type tokenCmd struct {
	connection
	Create tokenCreateCmd `cmd:"" help:"Create an API token and print it."`
	List   tokenListCmd   `cmd:"" help:"List API tokens."`
	Delete tokenDeleteCmd `cmd:"" help:"Delete API tokens. They are invalid at once."`
}

type tokenCreateCmd struct {
	Name      string        `arg:"" help:"Name of the token."`
	Role      string        `env:"BELFRY_ROLE" enum:",admin,operator,viewer" default:"" help:"Role of the token: admin, operator or viewer; by default its owner's role, or operator with --group."`
	Groups    []string      `name:"group" short:"g" env:"BELFRY_TOKEN_GROUPS" placeholder:"NAME" help:"Groups that an operator or viewer is confined to."`
	Scope     string        `env:"BELFRY_TOKEN_SCOPE" enum:",events" default:"" help:"events: the token may only send events."`
	ExpiresIn time.Duration `env:"BELFRY_EXPIRES_IN" placeholder:"DURATION" help:"Lifetime of the token, such as 720h; by default it does not expire."`
}

func (*tokenCreateCmd) Help() string {
	return "The token is printed on standard output. It is shown only once.\n\nExample:\n\n    belfry token create ci --role operator --group default --expires-in 720h > ci.token"
}

func (c *tokenCreateCmd) Run(a *app, parent *tokenCmd, cl *client.Client) error {
	if c.ExpiresIn < 0 {
		return &usageError{"--expires-in must not be negative"}
	}
	spec := client.NewToken{Name: c.Name, Role: c.Role, Groups: c.Groups, Scope: c.Scope}
	if c.ExpiresIn > 0 {
		at := domain.At(time.Now().Add(c.ExpiresIn))
		spec.ExpiresAt = &at
	}
	token, err := cl.CreateToken(a.ctx, spec)
	if err != nil {
		return err
	}
	return a.printSecret(parent.Output, token, token.Secret, "Token "+printable(c.Name)+" created, shown only once:")
}

type tokenListCmd struct{}

func (*tokenListCmd) Help() string { return "Example:\n\n    belfry token list" }

func (c *tokenListCmd) Run(a *app, parent *tokenCmd, cl *client.Client) error {
	tokens, err := cl.Tokens(a.ctx, mostListed)
	if err != nil {
		return err
	}
	return a.print(parent.Output, tokens, func(t *table) {
		t.row("ID", "NAME", "USER", "ROLE", "SCOPE", "GROUPS", "CREATED", "EXPIRES", "LAST USED")
		for _, k := range tokens {
			t.row(k.ID, k.Name, k.User, k.Role, k.Scope, k.Groups, k.CreatedAt, k.ExpiresAt, k.LastUsedAt)
		}
	})
}

type tokenDeleteCmd struct {
	IDs []string `arg:"" name:"id" help:"Ids of tokens, from belfry token list."`
}

func (*tokenDeleteCmd) Help() string { return "Example:\n\n    belfry token delete 3" }

func (c *tokenDeleteCmd) Run(a *app, parent *tokenCmd, cl *client.Client) error {
	return a.each(c.IDs, func(ref string) error {
		id, err := strconv.ParseInt(ref, 10, 64)
		if err != nil || id <= 0 {
			return &usageError{fmt.Sprintf("%q is not the id of a token", ref)}
		}
		if err := cl.DeleteToken(a.ctx, id); err != nil {
			return err
		}
		fmt.Fprintf(a.stdout, "%d deleted\n", id)
		return nil
	})
}
