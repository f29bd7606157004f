package deploy

import (
	"bytes"
	"context"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/belfryhq/belfry/internal/cli"
	"github.com/belfryhq/belfry/internal/config"
)

// started is a cli.Roles that only records the role and the settings that would have been started.
type started struct {
	cli.Roles // nil: the other methods are not called
	role      string
	settings  any
}

func (s *started) note(role string, settings any) error {
	s.role, s.settings = role, settings
	return nil
}

func (s *started) Standalone(_ context.Context, c config.Standalone) error {
	return s.note("standalone", c)
}
func (s *started) Scheduler(_ context.Context, c config.Scheduler) error {
	return s.note("scheduler", c)
}
func (s *started) Dispatcher(_ context.Context, c config.Dispatcher) error {
	return s.note("dispatcher", c)
}
func (s *started) Console(_ context.Context, c config.Console) error   { return s.note("console", c) }
func (s *started) Executor(_ context.Context, c config.Executor) error { return s.note("executor", c) }
func (s *started) Gateway(_ context.Context, c config.Gateway) error   { return s.note("gateway", c) }
func (s *started) Migrate(_ context.Context, c config.Migrate, onlyStatus bool) error {
	if onlyStatus {
		return s.note("status", c)
	}
	return s.note("migrate", c)
}

// command runs the belfry command line with args and env, and returns the role that it would have started.
func command(t *testing.T, args []string, env map[string]string) started {
	t.Helper()
	isolate(t, env)
	var role started
	var said bytes.Buffer
	if code := cli.Main(t.Context(), args, strings.NewReader(""), &said, &said, &role); code != cli.ExitDone {
		t.Errorf("belfry %s: exit code %d\n%s", strings.Join(args, " "), code, said.String())
	}
	return role
}

// knowsSettings checks that a command reads each BELFRY_ variable of env.
func knowsSettings(t *testing.T, args []string, env map[string]string) {
	t.Helper()
	isolate(t, nil)
	var help bytes.Buffer
	if code := cli.Main(t.Context(), append(slices.Clone(args), "--help"), strings.NewReader(""), &help, &help, &started{}); code != cli.ExitDone {
		t.Errorf("belfry %s --help: exit code %d", strings.Join(args, " "), code)
	}
	words := strings.FieldsFunc(help.String(), func(r rune) bool { return r != '_' && (r < 'A' || r > 'Z') })
	for _, name := range slices.Sorted(maps.Keys(env)) {
		if strings.HasPrefix(name, "BELFRY_") && !slices.Contains(words, name) {
			t.Errorf("belfry %s does not know %s", strings.Join(args, " "), name)
		}
	}
}

// isolate replaces all settings of Belfry in the environment of the test.
func isolate(t *testing.T, env map[string]string) {
	t.Helper()
	for _, e := range os.Environ() {
		if name, _, _ := strings.Cut(e, "="); strings.HasPrefix(name, "BELFRY_") {
			t.Setenv(name, "") // so that the test restores it afterwards
			os.Unsetenv(name)
		}
	}
	for name, value := range env {
		if strings.HasPrefix(name, "BELFRY_") {
			t.Setenv(name, value)
		}
	}
}

func TestCommandCanFail(t *testing.T) {
	isolate(t, nil)
	for _, args := range [][]string{{"scheduler"}, {"scheduler", "--no-such-flag"}, {"clerk"}} {
		if code := cli.Main(t.Context(), args, strings.NewReader(""), &bytes.Buffer{}, &bytes.Buffer{}, &started{}); code == cli.ExitDone {
			t.Errorf("belfry %q was accepted", args)
		}
	}
}
