package handlers

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"sort"
	"strconv"
	"strings"
	"time"

	"github.com/belfryhq/belfry/executor"
)

const (
	// killAfter is how long a process group has between SIGTERM and SIGKILL.
	killAfter = 5 * time.Second
	// pipesAfter bounds the wait for the end of the output once the process itself has ended: a daemon that it
	// left behind may hold the pipes open for ever.
	pipesAfter = 2 * time.Second
	// outputPrefix begins the line of stdout that sets the run's output; the last such line counts.
	outputPrefix = "::output "
)

// invocation is the param of Command.
type invocation struct {
	Argv []string          `json:"argv"`
	Env  map[string]string `json:"env"`
	Dir  string            `json:"dir"`
}

// Command runs a program. Its param is a JSON array, the program and its arguments, or an object {argv, env, dir}.
// No shell is involved unless argv names one. Beside this process's environment it gets env, and BELFRY_RUN_ID,
// BELFRY_JOB_ID, BELFRY_JOB_NAME, BELFRY_FIRE_TIME, BELFRY_ATTEMPT, BELFRY_SHARD_INDEX, BELFRY_SHARD_TOTAL and, up to
// 64 KiB, BELFRY_PARAM.
//
// Lines of stdout and stderr become the run's log. A line "::output text" on stdout sets the output. Any exit status
// but 0 is an error that names it. When the context is cancelled the whole process group gets SIGTERM, after 5 s
// SIGKILL (on Windows: the process is killed at once).
func Command(ctx context.Context, run executor.Run) error {
	inv, err := parseInvocation(run.Param())
	if err != nil {
		return executor.Permanent(err)
	}
	// Not exec.CommandContext's killing: it would reach one process, not the group.
	cmd := exec.CommandContext(ctx, inv.Argv[0], inv.Argv[1:]...)
	cmd.Dir = inv.Dir
	cmd.Env = inv.environ(run)
	output := &outputFinder{}
	cmd.Stdout = io.MultiWriter(run.Stdout(), output)
	cmd.Stderr = run.Stderr()
	cmd.WaitDelay = killAfter + pipesAfter
	group := newProcessGroup(cmd)
	cmd.Cancel = group.terminate

	if err := cmd.Start(); err != nil {
		return fmt.Errorf("start %s: %w", inv.Argv[0], err)
	}
	killer := group.killLater(ctx, killAfter)
	err = cmd.Wait()
	killer()
	if text, ok := output.last(); ok {
		if err := run.SetOutput(text); err != nil {
			return err
		}
	}
	return commandError(ctx, cmd, err)
}

// commandError says how the program ended.
func commandError(ctx context.Context, cmd *exec.Cmd, err error) error {
	status := "exit status unknown"
	if cmd.ProcessState != nil {
		status = cmd.ProcessState.String() // "exit status 3", "signal: terminated"
	}
	switch {
	case ctx.Err() != nil && (err != nil || !cmd.ProcessState.Success()):
		return &stoppedError{status, context.Cause(ctx)}
	case errors.Is(err, exec.ErrWaitDelay):
		return nil // it succeeded, and something it left behind holds its output
	case err != nil && cmd.ProcessState != nil && !cmd.ProcessState.Success():
		return errors.New(status)
	}
	return err
}

// stoppedError is the end of a program whose context was done. Its text leaves out why that was, for whoever cancelled
// the context says that.
type stoppedError struct {
	status string
	cause  error
}

func (e *stoppedError) Error() string { return "stopped the program (" + e.status + ")" }
func (e *stoppedError) Unwrap() error { return e.cause }

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

func (inv invocation) environ(run executor.Run) []string {
	env := inherited()
	names := make([]string, 0, len(inv.Env))
	for k := range inv.Env {
		names = append(names, k)
	}
	sort.Strings(names)
	for _, k := range names {
		env = append(env, k+"="+inv.Env[k])
	}
	return append(env, runEnviron(run)...)
}

// inherited is the agent's own environment without its settings: the group's token, and what else the agent was
// given in BELFRY_ variables, is not for whoever may write a job.
func inherited() []string {
	return slices.DeleteFunc(os.Environ(), func(entry string) bool { return strings.HasPrefix(entry, "BELFRY_") })
}

// runEnviron tells a program of its run.
func runEnviron(run executor.Run) []string {
	index, total := run.Shard()
	env := []string{
		"BELFRY_RUN_ID=" + run.ID(),
		"BELFRY_JOB_ID=" + strconv.FormatInt(run.JobID(), 10),
		"BELFRY_JOB_NAME=" + run.JobName(),
		"BELFRY_FIRE_TIME=" + run.FireTime().UTC().Format("2006-01-02T15:04:05.000Z07:00"),
		"BELFRY_ATTEMPT=" + strconv.Itoa(run.Attempt()),
		"BELFRY_SHARD_INDEX=" + strconv.Itoa(index),
		"BELFRY_SHARD_TOTAL=" + strconv.Itoa(total),
	}
	if !strings.ContainsRune(run.Param(), 0) {
		env = append(env, "BELFRY_PARAM="+run.Param())
	}
	return env
}

// outputFinder looks for output lines in what is written to it. It keeps one line of at most an output's size.
type outputFinder struct {
	line  []byte
	found string
	any   bool
}

// Write implements io.Writer.
func (f *outputFinder) Write(p []byte) (int, error) {
	n := len(p)
	for {
		i := bytes.IndexByte(p, '\n')
		if i < 0 {
			f.keep(p)
			return n, nil
		}
		f.keep(p[:i])
		f.look()
		p = p[i+1:]
	}
}

// keep holds one byte more than fits, so that SetOutput refuses what is too long.
func (f *outputFinder) keep(p []byte) {
	room := len(outputPrefix) + executor.MaxOutput + 2 - len(f.line)
	f.line = append(f.line, p[:min(len(p), room)]...)
}

func (f *outputFinder) look() {
	if text, ok := bytes.CutPrefix(bytes.TrimSuffix(f.line, []byte("\r")), []byte(outputPrefix)); ok {
		f.found, f.any = string(text), true
	}
	f.line = f.line[:0]
}

// last is the text of the last output line.
func (f *outputFinder) last() (string, bool) {
	f.look()
	return f.found, f.any
}
