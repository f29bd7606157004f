package cli

import (
	"bufio"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"os"

	"github.com/belfryhq/belfry/internal/client"
)

type passwordCmd struct {
	PasswordStdin bool `env:"BELFRY_PASSWORD_STDIN" help:"Read the current and the new password from standard input, one per line, instead of asking for them."`
}

func (*passwordCmd) Help() string {
	return "The command changes the password of the user who is logged in, ends all sessions of that user, and saves a new session. " +
		"If an admin set your password, you must change it before any other command works.\n\nExamples:\n\n" +
		"    belfry password\n    printf '%s\\n%s\\n' \"$OLD\" \"$NEW\" | belfry password --password-stdin"
}

func (c *passwordCmd) Run(a *app) error {
	saved, cl, err := savedClient()
	if err != nil {
		return err
	}
	defer cl.Close()
	current, next, err := c.read(a)
	if err != nil {
		return err
	}
	session, err := cl.ChangePassword(a.ctx, current, next)
	if err != nil {
		return err
	}
	saved.Token, saved.ExpiresAt = session.Token, session.ExpiresAt
	if _, err := saved.save(); err != nil {
		return err
	}
	fmt.Fprintln(a.stderr, "The password was changed. All other sessions have ended.")
	return nil
}

func (c *passwordCmd) read(a *app) (current, next string, err error) {
	if c.PasswordStdin {
		in := bufio.NewReader(a.stdin)
		if current, err = readLine(in); err == nil {
			next, err = readLine(in)
		}
		return current, next, err
	}
	terminal, interactive := fileOf(a.stdin)
	if !interactive {
		return "", "", &usageError{"--password-stdin is required, because standard input is not a terminal"}
	}
	fmt.Fprint(a.stderr, "Current. ")
	if current, err = a.askPassword(terminal); err == nil {
		fmt.Fprint(a.stderr, "New. ")
		next, err = a.askTwice(terminal)
	}
	return current, next, err
}

// savedClient returns the client of belfry login.
func savedClient() (savedLogin, *client.Client, error) {
	saved, err := loadLogin()
	if err != nil {
		return saved, nil, err
	}
	if saved.Token == "" {
		return saved, nil, errors.New("no session is saved; log in with \"belfry login\"")
	}
	cl, err := client.New(saved.Server, saved.Token)
	return saved, cl, err
}

type logoutCmd struct {
	Everywhere bool `env:"BELFRY_LOGOUT_EVERYWHERE" help:"End all sessions of the user, including those in browsers."`
}

func (*logoutCmd) Help() string {
	return "The command ends the saved session and deletes it. API tokens stay valid.\n\nExamples:\n\n    belfry logout\n    belfry logout --everywhere"
}

func (c *logoutCmd) Run(a *app) error {
	saved, cl, err := savedClient()
	if err != nil {
		return err
	}
	defer cl.Close()
	err = cl.LogOut(a.ctx, c.Everywhere)
	if refusal := new(client.Error); err != nil && (!errors.As(err, &refusal) || refusal.Status != http.StatusUnauthorized) {
		return err // the saved token is kept, because it may still be valid
	}
	path, err := loginPath()
	if err != nil {
		return err
	}
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("delete the saved session: %w", err)
	}
	fmt.Fprintf(a.stderr, "Logged out of %s\n", saved.Server)
	return nil
}
