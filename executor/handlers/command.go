package handlers

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/belfryhq/belfry/executor"
	"github.com/belfryhq/belfry/executor/internal/process"
	"github.com/belfryhq/belfry/executor/runas"
)

// invocation is the parsed param of Command.
type invocation struct {
	Argv []string          `json:"argv"`
	Env  map[string]string `json:"env"`
	Dir  string            `json:"dir"`
}

// Command is the handler of NewCommand under this process's account.
func Command(ctx context.Context, run executor.Run) error { return command(ctx, run, nil) }

// NewCommand returns a handler that runs a program. Its param is a JSON array with the program and its arguments, or an object {argv, env, dir}.
// The handler starts no shell unless argv names one. The program gets this process's environment without its BELFRY_
// variables, env, and these variables: BELFRY_RUN_ID, BELFRY_JOB_ID, BELFRY_JOB_NAME, BELFRY_GROUP, BELFRY_CAUSE,
// BELFRY_FIRE_TIME, BELFRY_ATTEMPT, BELFRY_SHARD_INDEX, BELFRY_SHARD_TOTAL, and BELFRY_PARAM. A child run also gets
// BELFRY_PARENT_RUN_ID and BELFRY_PARENT_OUTPUT. If the run is traced, TRACEPARENT has the span of the attempt. Values over
// 64 KiB are left out.
//
// Lines of stdout and stderr become the run's log, up to 32 MiB. A line "::output text" on stdout sets the output. An
// exit status other than 0 is an error that contains the status and the last line on stderr that is not empty. When the
// context is cancelled, the whole process group gets SIGTERM, and SIGKILL after 5 s. On Windows, the process is killed at
// once.
//
// If as is not nil, programs run under this account. They then get the environment of as.Environ, and start in the
// account's home directory.
func NewCommand(as *runas.Account) executor.HandlerFunc {
	return func(ctx context.Context, run executor.Run) error { return command(ctx, run, as) }
}

func command(ctx context.Context, run executor.Run, as *runas.Account) error {
	inv, err := parseInvocation(run.Param())
	if err != nil {
		return executor.Permanent(err)
	}
	if as != nil && inv.Dir == "" {
		inv.Dir = as.Dir()
	}
	return process.Run(ctx, run, process.Program{Argv: inv.Argv, Dir: inv.Dir, Env: inv.environ(run, as), As: as})
}

func parseInvocation(param string) (inv invocation, err error) {
	if strings.HasPrefix(strings.TrimSpace(param), "[") {
		err = decodeParam(param, &inv.Argv)
	} else {
		err = decodeParam(param, &inv)
	}
	if err != nil {
		return inv, err
	}
	if len(inv.Argv) == 0 || inv.Argv[0] == "" {
		return inv, errors.New(`param: argv needs a program, such as ["date", "-u"]`)
	}
	for _, s := range append([]string{inv.Dir}, inv.Argv...) {
		if strings.ContainsRune(s, 0) {
			return inv, errors.New("param: a NUL cannot be passed to a program")
		}
	}
	for k, v := range inv.Env {
		if k == "" || strings.ContainsAny(k, "=\x00") || strings.ContainsRune(v, 0) {
			return inv, fmt.Errorf("param: env: %.50q cannot be set", k)
		}
	}
	return inv, nil
}

func (inv invocation) environ(run executor.Run, as *runas.Account) []string {
	env := process.Inherited(as)
	for _, k := range slices.Sorted(maps.Keys(inv.Env)) {
		env = append(env, k+"="+inv.Env[k])
	}
	return append(env, process.Told(run)...)
}
