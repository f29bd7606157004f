package cli

import (
	"bufio"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/term"

	"github.com/belfryhq/belfry/internal/client"
	"github.com/belfryhq/belfry/internal/config"
	"github.com/belfryhq/belfry/internal/domain"
)

const defaultServer = "http://127.0.0.1:8080"

// connection holds the flags of every command that uses a console.
type connection struct {
	Server string        `env:"BELFRY_SERVER" placeholder:"http://127.0.0.1:8080" group:"connection" help:"URL of the console; by default the one of the last belfry login."`
	Token  config.Secret `env:"BELFRY_TOKEN" placeholder:"SECRET" group:"connection" help:"API token; by default the session of belfry login. Prefer the environment variable, because other users of the machine can see flags."`
	Output string        `short:"o" env:"BELFRY_OUTPUT" enum:"table,json,yaml" default:"table" group:"connection" help:"Output format: table, json or yaml."`
}

// savedLogin is the log-in that belfry login saves.
type savedLogin struct {
	Server    string         `json:"server"`
	Token     string         `json:"token"`
	ExpiresAt domain.Instant `json:"expires_at"`
}

// ProvideClient returns the client that flags, environment and the saved log-in describe. A saved token is sent only to the
// server that issued it. Kong calls ProvideClient for each Run method with a parameter of this type; Main closes the client
// after the command.
func (c *connection) ProvideClient(a *app) (*client.Client, error) {
	server, token := c.Server, c.Token.Reveal()
	if server == "" || token == "" {
		saved, err := loadLogin()
		if err != nil {
			return nil, err
		}
		if server == "" {
			server = saved.Server
		}
		if token == "" && saved.Token != "" && sameServer(server, saved.Server) {
			if !saved.ExpiresAt.IsZero() && time.Now().After(saved.ExpiresAt.Time) {
				return nil, fmt.Errorf("the session at %s expired at %s; log in again with \"belfry login\"", saved.Server, people(saved.ExpiresAt.Time))
			}
			token = saved.Token
		}
	}
	if server == "" {
		server = defaultServer
	}
	cl, err := client.New(server, token)
	if err != nil {
		return nil, &usageError{"--server: " + err.Error()}
	}
	a.client = cl
	return cl, nil
}

func sameServer(a, b string) bool { return normalServer(a) == normalServer(b) }

func normalServer(s string) string {
	if !strings.Contains(s, "://") {
		s = "http://" + s
	}
	return strings.ToLower(strings.TrimRight(s, "/"))
}

func loginPath() (string, error) {
	dir, err := os.UserConfigDir()
	if err != nil {
		return "", fmt.Errorf("find the directory for the session: %w", err)
	}
	return filepath.Join(dir, "belfry", "login.json"), nil
}

// loadLogin returns the saved log-in, or an empty one.
func loadLogin() (savedLogin, error) {
	var saved savedLogin
	path, err := loginPath()
	if err != nil {
		return saved, nil //nolint:nilerr // an account without a home directory has no saved log-in
	}
	data, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return saved, nil
	}
	if err != nil {
		return saved, fmt.Errorf("read the session: %w", err)
	}
	if err := json.Unmarshal(data, &saved); err != nil {
		return saved, fmt.Errorf("%s is damaged; log in again with \"belfry login\"", path)
	}
	return saved, nil
}

// save replaces the file atomically. Only this user can read it.
func (s savedLogin) save() (path string, err error) {
	if path, err = loginPath(); err != nil {
		return "", err
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return "", fmt.Errorf("save the session: %w", err)
	}
	data, err := json.Marshal(s)
	if err != nil {
		return "", err
	}
	f, err := os.CreateTemp(filepath.Dir(path), "login-*") // mode 0600
	if err != nil {
		return "", fmt.Errorf("save the session: %w", err)
	}
	_, err = f.Write(append(data, '\n'))
	if err = errors.Join(err, f.Close()); err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		return "", fmt.Errorf("save the session: %w", errors.Join(err, os.Remove(f.Name())))
	}
	return path, nil
}

type loginCmd struct {
	Server        string `env:"BELFRY_SERVER" default:"http://127.0.0.1:8080" help:"URL of the console."`
	Username      string `short:"u" env:"BELFRY_USERNAME" placeholder:"NAME" help:"Name of the user; by default belfry asks for it on a terminal."`
	PasswordStdin bool   `env:"BELFRY_PASSWORD_STDIN" help:"Read the password from standard input instead of asking for it."`
}

func (*loginCmd) Help() string {
	return "The command saves the session's token in belfry/login.json in your configuration directory, where only you can read it. " +
		"Other commands then need neither --server nor --token.\n\nExamples:\n\n" +
		"    belfry login\n    belfry login --server https://belfry.example --username ann --password-stdin < secret"
}

func (c *loginCmd) Run(a *app) error {
	cl, err := client.New(c.Server, "")
	if err != nil {
		return &usageError{"--server: " + err.Error()}
	}
	defer cl.Close()
	terminal, interactive := fileOf(a.stdin)
	in := bufio.NewReader(a.stdin)
	username := c.Username
	if username == "" {
		if !interactive || c.PasswordStdin {
			return &usageError{"--username is required, because standard input is not a terminal"}
		}
		fmt.Fprint(a.stderr, "User: ")
		if username, err = readLine(in); err != nil {
			return err
		}
	}
	var password string
	switch {
	case c.PasswordStdin:
		password, err = readLine(in)
	case interactive:
		password, err = a.askPassword(terminal)
	default:
		return &usageError{"--password-stdin is required, because standard input is not a terminal"}
	}
	if err != nil {
		return err
	}
	session, err := cl.Login(a.ctx, username, password)
	if refusal := new(client.Error); errors.As(err, &refusal) && refusal.Status == http.StatusUnauthorized {
		// A new error, because exitCode adds the advice to log in to an error with status 401.
		return fmt.Errorf("%s refused the log-in of %s: %s", c.Server, username, cmp.Or(refusal.Detail, "the user or the password is wrong"))
	}
	if err != nil {
		return err
	}
	path, err := savedLogin{Server: c.Server, Token: session.Token, ExpiresAt: session.ExpiresAt}.save()
	if err != nil {
		return err
	}
	fmt.Fprintf(a.stderr, "Logged in to %s as %s until %s; saved in %s\n", c.Server, printable(username), people(session.ExpiresAt.Time), path)
	return nil
}

func readLine(in *bufio.Reader) (string, error) {
	line, err := in.ReadString('\n')
	if err != nil && (!errors.Is(err, io.EOF) || line == "") {
		return "", fmt.Errorf("read standard input: %w", err)
	}
	return strings.TrimRight(line, "\r\n"), nil
}

// askPassword reads a password without echo. If it is interrupted, it restores the echo of the terminal.
func (a *app) askPassword(terminal *os.File) (string, error) {
	fd := int(terminal.Fd())
	before, err := term.GetState(fd)
	if err != nil {
		return "", fmt.Errorf("ask for the password: %w", err)
	}
	fmt.Fprint(a.stderr, "Password: ")
	type answer struct {
		password []byte
		err      error
	}
	answered := make(chan answer, 1) // buffered, because after an interrupt nothing receives the answer
	go func() {
		password, err := term.ReadPassword(fd)
		answered <- answer{password, err}
	}()
	defer fmt.Fprintln(a.stderr)
	select {
	case got := <-answered:
		if got.err != nil {
			return "", fmt.Errorf("ask for the password: %w", got.err)
		}
		return string(got.password), nil
	case <-a.ctx.Done():
		return "", errors.Join(context.Canceled, term.Restore(fd, before))
	}
}
