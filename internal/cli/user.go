package cli

import (
	"bufio"
	"fmt"
	"os"

	"github.com/belfryhq/belfry/internal/client"
)

type userCmd struct {
	connection
	List   userListCmd   `cmd:"" help:"List users."`
	Create userCreateCmd `cmd:"" help:"Create a user."`
	Set    userSetCmd    `cmd:"" help:"Change a user's role, groups or password; disable or enable the user."`
	Logout userLogoutCmd `cmd:"" help:"End all sessions of users."`
	Delete userDeleteCmd `cmd:"" help:"Delete users and their tokens."`
}

func userTable(t *table, users ...client.User) {
	t.row("ID", "NAME", "KIND", "ROLE", "GROUPS", "DISABLED", "CREATED")
	for _, u := range users {
		t.row(u.ID, u.Username, u.Kind, u.Role, u.Groups, u.Disabled, u.CreatedAt)
	}
}

type userListCmd struct{}

func (*userListCmd) Help() string { return "Example:\n\n    belfry user list" }

func (c *userListCmd) Run(a *app, parent *userCmd, cl *client.Client) error {
	users, err := cl.Users(a.ctx, mostListed)
	if err != nil {
		return err
	}
	return a.print(parent.Output, users, func(t *table) { userTable(t, users...) })
}

type userCreateCmd struct {
	Name          string   `arg:"" help:"The user's name: a-z, 0-9, _ and -."`
	Role          string   `required:"" env:"BELFRY_USER_ROLE" enum:"admin,operator,viewer" help:"Role of the user: admin, operator or viewer."`
	Groups        []string `name:"group" short:"g" env:"BELFRY_USER_GROUPS" placeholder:"NAME" help:"Groups that an operator or viewer is confined to."`
	PasswordStdin bool     `env:"BELFRY_PASSWORD_STDIN" help:"Read the password from standard input instead of asking for it."`
	MustChange    *bool    `name:"must-change-password" negatable:"" env:"BELFRY_USER_MUST_CHANGE_PASSWORD" help:"Require a new password at the first log-in; the default, except with --password-stdin."`
}

func (*userCreateCmd) Help() string {
	return "Examples:\n\n    belfry user create ann --role operator --group default\n    belfry user create bob --role viewer --group default --password-stdin < secret"
}

func (c *userCreateCmd) Run(a *app, parent *userCmd, cl *client.Client) error {
	password, err := a.newPassword(c.PasswordStdin)
	if err != nil {
		return err
	}
	u, err := cl.CreateUser(a.ctx, client.NewUser{Username: c.Name, Password: password, Role: c.Role, Groups: c.Groups,
		MustChangePassword: mustChange(c.MustChange, c.PasswordStdin)})
	if err != nil {
		return err
	}
	return a.print(parent.Output, u, func(t *table) { userTable(t, u) })
}

// mustChange reports whether the user must change the password that an admin set. By default a password that a person typed
// must be changed. A password from standard input need not be, because the user may be a program.
func mustChange(said *bool, stdin bool) bool {
	if said != nil {
		return *said
	}
	return !stdin
}

// newPassword reads a password from standard input, or asks for it on a terminal.
func (a *app) newPassword(stdin bool) (string, error) {
	terminal, interactive := fileOf(a.stdin)
	switch {
	case stdin:
		return readLine(bufio.NewReader(a.stdin))
	case interactive:
		return a.askTwice(terminal)
	}
	return "", &usageError{"--password-stdin is required, because standard input is not a terminal"}
}

// askTwice asks for a new password twice until both answers are equal.
func (a *app) askTwice(terminal *os.File) (string, error) {
	for {
		first, err := a.askPassword(terminal)
		if err != nil {
			return "", err
		}
		fmt.Fprint(a.stderr, "Again. ")
		second, err := a.askPassword(terminal)
		if err != nil || first == second {
			return first, err
		}
		fmt.Fprintln(a.stderr, "The passwords differ. Try again.")
	}
}

type userSetCmd struct {
	Name          string   `arg:"" help:"The user's name."`
	Role          string   `env:"BELFRY_USER_ROLE" enum:",admin,operator,viewer" default:"" help:"New role: admin, operator or viewer."`
	Groups        []string `name:"group" short:"g" env:"BELFRY_USER_GROUPS" placeholder:"NAME" help:"New groups that an operator or viewer is confined to; they replace all previous groups."`
	Disable       bool     `env:"BELFRY_USER_DISABLE" help:"Log the user out, and refuse the password and all tokens of the user."`
	Enable        bool     `env:"BELFRY_USER_ENABLE" help:"Enable a disabled user."`
	Password      bool     `env:"BELFRY_USER_PASSWORD" help:"Ask for a new password; the user's sessions end."`
	PasswordStdin bool     `env:"BELFRY_PASSWORD_STDIN" help:"Read a new password from standard input; the user's sessions end."`
	MustChange    *bool    `name:"must-change-password" negatable:"" env:"BELFRY_USER_MUST_CHANGE_PASSWORD" help:"Require a new password at the next log-in; by default only with --password."`
}

func (*userSetCmd) Help() string {
	return "Fields without a flag stay unchanged.\n\nExamples:\n\n    belfry user set ann --role viewer --group default --group tools\n" +
		"    belfry user set ann --disable\n    belfry user set ann --password-stdin < secret"
}

func (c *userSetCmd) Run(a *app, parent *userCmd, cl *client.Client) error {
	change, err := c.change()
	if err != nil {
		return err
	}
	if c.Password || c.PasswordStdin {
		password, err := a.newPassword(c.PasswordStdin)
		if err != nil {
			return err
		}
		must := mustChange(c.MustChange, c.PasswordStdin)
		change.Password, change.MustChangePassword = &password, &must
	}
	u, err := cl.ChangeUser(a.ctx, c.Name, change)
	if err != nil {
		return err
	}
	return a.print(parent.Output, u, func(t *table) { userTable(t, u) })
}

func (c *userSetCmd) change() (change client.UserChange, err error) {
	if c.Disable && c.Enable {
		return change, &usageError{"give either --disable or --enable, not both"}
	}
	if c.Role != "" {
		change.Role = &c.Role
	}
	if len(c.Groups) > 0 {
		change.Groups = &c.Groups
	}
	if c.Disable || c.Enable {
		change.Disabled = &c.Disable
	}
	change.MustChangePassword = c.MustChange
	if change == (client.UserChange{}) && !c.Password && !c.PasswordStdin {
		return change, &usageError{"nothing to change; give --role, --group, --disable, --enable, --password or --password-stdin"}
	}
	return change, nil
}

type userLogoutCmd struct {
	Names []string `arg:"" name:"name" help:"Names of users."`
}

func (*userLogoutCmd) Help() string {
	return "API tokens stay valid. To delete them, use belfry token list and belfry token delete.\n\nExample:\n\n    belfry user logout ann"
}

func (c *userLogoutCmd) Run(a *app, parent *userCmd, cl *client.Client) error {
	return a.each(c.Names, func(name string) error {
		if err := cl.LogUserOut(a.ctx, name); err != nil {
			return err
		}
		fmt.Fprintf(a.stdout, "%s logged out\n", printable(name))
		return nil
	})
}

type userDeleteCmd struct {
	Names []string `arg:"" name:"name" help:"Names of users."`
}

func (*userDeleteCmd) Help() string { return "Example:\n\n    belfry user delete ann" }

func (c *userDeleteCmd) Run(a *app, parent *userCmd, cl *client.Client) error {
	return a.each(c.Names, func(name string) error {
		if err := cl.DeleteUser(a.ctx, name); err != nil {
			return err
		}
		fmt.Fprintf(a.stdout, "%s deleted\n", printable(name))
		return nil
	})
}
