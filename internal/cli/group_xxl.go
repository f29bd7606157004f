package cli

import (
	"fmt"
	"io"
	"strings"

	"github.com/belfryhq/belfry/internal/client"
)

type groupXXLTokenCmd struct {
	Name       string   `arg:"" help:"The group's name."`
	TokenStdin bool     `env:"BELFRY_TOKEN_STDIN" xor:"token" required:"" help:"Read the access token that the executors already use from standard input."`
	Generate   bool     `env:"BELFRY_GENERATE" xor:"token" required:"" help:"Generate an access token and print it."`
	None       bool     `env:"BELFRY_NONE" xor:"token" required:"" help:"The executors have no access token. Then only --allow protects the group."`
	Allow      []string `env:"BELFRY_ALLOW" placeholder:"CIDR" help:"Network or address in which the executors are, such as 10.1.0.0/16; may be given several times. Registrations, callbacks and addresses elsewhere are refused. None by default; loopback addresses must be named."`
	Alias      string   `env:"BELFRY_ALIAS" placeholder:"APPNAME" help:"App name of the executors (xxl.job.executor.appname), if it is not the group's name."`
	Capacity   int      `env:"BELFRY_XXL_CAPACITY" placeholder:"N" help:"How many runs an executor takes at the same time, 1 to 65536. Default of a new group: 256."`
}

func (*groupXXLTokenCmd) Help() string {
	return "The executors register at `belfry gateway`, or at `belfry standalone --gateway`. Flags that are not given keep their values. " +
		"Belfry stores the access token, because the gateway sends it to the executors; it is encrypted if the console has a --secret-key.\n\nExamples:\n\n" +
		"    belfry group xxl-token billing --token-stdin --allow 10.1.0.0/16 < access.token\n" +
		"    belfry group xxl-token billing --generate --allow 10.1.0.0/16 --alias Billing.Executor"
}

func (c *groupXXLTokenCmd) Run(a *app, parent *groupCmd, cl *client.Client) error {
	open := client.OpenXXLJob{Generate: c.Generate, WithoutToken: c.None, Networks: c.Allow, AppName: c.Alias, Capacity: c.Capacity}
	if c.TokenStdin {
		token, err := io.ReadAll(io.LimitReader(a.stdin, 1<<10))
		if err != nil {
			return fmt.Errorf("read the access token from standard input: %w", err)
		}
		if open.Token = strings.TrimSpace(string(token)); open.Token == "" {
			return &usageError{"standard input has no access token"}
		}
	}
	g, err := cl.OpenXXLJob(a.ctx, c.Name, open)
	if err != nil {
		return err
	}
	for _, w := range g.Warnings {
		fmt.Fprintf(a.stderr, "Warning: %s\n", printable(w))
	}
	if g.Token != "" {
		return a.printSecret(parent.Output, g, g.Token, "Group "+g.Group+" is open for executors of XXL-JOB. Their access token, shown only once:")
	}
	return a.print(parent.Output, g, func(t *table) {
		t.pair("group", g.Group)
		t.pair("app name", g.AppName)
		t.pair("networks", g.Networks)
		t.pair("capacity", g.Capacity)
		t.pair("access token", map[bool]string{true: "set", false: "none"}[g.HasToken])
	})
}
