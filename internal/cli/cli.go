// Package cli is the belfry command line. It parses arguments, runs the roles that the caller passes in, and uses the REST API
// for all other commands. It never exits the process; Main returns the exit code.
//
// Results go to stdout, all other output to stderr. Tables are for people and may change; -o json and -o yaml have the
// field names of the API and are for programs.
package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/alecthomas/kong"

	"github.com/belfryhq/belfry/internal/build"
	"github.com/belfryhq/belfry/internal/client"
	"github.com/belfryhq/belfry/internal/config"
	"github.com/belfryhq/belfry/internal/domain"
)

// The exit codes.
const (
	ExitDone   = 0
	ExitFailed = 1
	ExitUsage  = 2
)

// Roles runs the commands that do not use the REST API. Each method blocks until its work is done or ctx is cancelled, and
// returns nil after an ordinary stop. The caller has validated the settings.
type Roles interface {
	Standalone(ctx context.Context, settings config.Standalone) error
	Scheduler(ctx context.Context, settings config.Scheduler) error
	Dispatcher(ctx context.Context, settings config.Dispatcher) error
	Console(ctx context.Context, settings config.Console) error
	Executor(ctx context.Context, settings config.Executor) error
	Gateway(ctx context.Context, settings config.Gateway) error
	Migrate(ctx context.Context, settings config.Migrate, onlyStatus bool) error
	Restored(ctx context.Context, settings config.Restored) error
	// Bench runs a measurement, or one process of it if there are orders.
	Bench(ctx context.Context, settings config.Bench, orders io.Reader) error
	Conformance(ctx context.Context, settings config.Conformance) error
}

// Main runs the command in args, which do not include the program name, and returns the exit code.
func Main(ctx context.Context, args []string, stdin io.Reader, stdout, stderr io.Writer, roles Roles) int {
	a := &app{ctx: ctx, stdin: stdin, stdout: stdout, stderr: stderr, roles: roles}
	var grammar root
	helped := false
	parser, err := kong.New(&grammar,
		kong.Name("belfry"),
		kong.Description("Belfry is a distributed job scheduler. It fires each job on time, and once for each fire time.\n\n"+
			"To try it, run `belfry standalone --demo` and open the address that it prints. "+
			"Each flag can also be set by the environment variable that its help shows."),
		kong.Writers(stdout, stderr),
		kong.Exit(func(int) { helped = true }), // only --help and --version call it
		kong.Vars{"version": "belfry " + build.Read().Version},
		kong.ConfigureHelp(kong.HelpOptions{Compact: true, WrapUpperBound: 110}),
		kong.ExplicitGroups(groups),
		kong.Resolvers(kong.ResolverFunc(secretFiles)),
		kong.ValueFormatter(flagHelp),
	)
	if err != nil {
		fmt.Fprintf(stderr, "belfry: %v\n", err) // an invalid grammar, which every test of a command finds
		return ExitFailed
	}
	parsed, err := parser.Parse(args)
	if helped {
		return ExitDone
	}
	if err != nil {
		a.printError(err)
		fmt.Fprintf(stderr, "Run \"%s --help\" to learn more.\n", failedCommand(err))
		return ExitUsage
	}
	err = parsed.Run(a)
	if a.client != nil {
		a.client.Close()
	}
	return a.exitCode(err)
}

// app holds the values that all commands share.
type app struct {
	ctx            context.Context //nolint:containedctx // app lives as long as the one command
	stdin          io.Reader
	stdout, stderr io.Writer
	roles          Roles
	client         *client.Client // nil until the command needs one
}

// usageError is an error in the arguments that the parser cannot detect.
type usageError struct{ text string }

func (e *usageError) Error() string { return e.text }

// errReported means that the command failed and has already printed the error.
var errReported = errors.New("reported")

// loggedError is an error that a role has written to its own log.
type loggedError interface {
	error
	Logged()
}

func (a *app) exitCode(err error) int {
	logged := loggedError(nil)
	quiet := errors.As(err, &logged)
	switch {
	case err == nil:
		return ExitDone
	case errors.Is(err, errReported):
		return ExitFailed
	case a.ctx.Err() != nil && errors.Is(err, context.Canceled):
		if !quiet {
			fmt.Fprintln(a.stderr, "belfry: interrupted")
		}
		return ExitFailed
	}
	if !quiet {
		a.printError(err)
	}
	if errors.As(err, new(*usageError)) {
		return ExitUsage
	}
	if local := new(domain.Error); errors.As(err, &local) && local.Code == domain.Invalid {
		return ExitUsage // settings that only the role itself can check
	}
	if client.StatusOf(err) == 401 {
		fmt.Fprintln(a.stderr, "Log in with \"belfry login\", or set a token with BELFRY_TOKEN or --token.")
	}
	return ExitFailed
}

// printError prints an error, followed by one line for each invalid field.
func (a *app) printError(err error) {
	var fields []domain.FieldError
	var fromServer *client.Error
	var local *domain.Error
	text := err.Error()
	switch {
	case errors.As(err, &fromServer) && len(fromServer.Fields) > 0:
		fields = fromServer.Fields
		short := *fromServer
		short.Fields = nil
		text = strings.Replace(text, fromServer.Error(), short.Error(), 1)
	case errors.As(err, &local) && len(local.Fields) > 0:
		fields = local.Fields
		text = local.Message
		if text == "" {
			text = "the settings are not valid"
		}
	}
	fmt.Fprintf(a.stderr, "belfry: %s\n", printable(text))
	for _, f := range fields {
		fmt.Fprintf(a.stderr, "  %s: %s\n", printable(f.Location), printable(f.Message))
	}
}

// failedCommand returns the full name of the command in which parsing failed.
func failedCommand(err error) string {
	var e *kong.ParseError
	if errors.As(err, &e) && e.Context != nil {
		if node := e.Context.Selected(); node != nil {
			return node.FullPath()
		}
	}
	return "belfry"
}
