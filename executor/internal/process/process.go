// Package process runs programs for handlers: their output becomes the run's log, within bounds, and they end when the
// handler's context does, with all that they started.
package process

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/belfryhq/belfry/executor"
)

const (
	// killAfter is how long a process group has between SIGTERM and SIGKILL.
	killAfter = 5 * time.Second
	// pipesAfter bounds the wait for the end of the output once the program itself has ended: a daemon that it left
	// behind may hold the pipes open for ever.
	pipesAfter = 2 * time.Second
	// outputPrefix begins the line of stdout that sets the run's output; the last such line counts.
	outputPrefix = "::output "
)

// DefaultLogBytes bounds what one program may write into its run's log.
const DefaultLogBytes = 32 << 20

// Program says what to run.
type Program struct {
	Argv     []string
	Dir      string
	Env      []string // the whole environment
	LogBytes int64    // what becomes the run's log at most; 0: DefaultLogBytes. What exceeds it is dropped
}

// Run runs a program for a run and returns when it has ended. Lines of stdout and stderr become the run's log. A line
// "::output text" on stdout sets the output. Any exit status but 0 is an error that names it.
//
// When ctx is done the whole process group gets SIGTERM, after 5 s SIGKILL (on Windows: the process is killed at once);
// the error wraps the cause. What the program leaves behind when it ends by itself may live on, yet keeps the run
// waiting for 2 s at most.
func Run(ctx context.Context, run executor.Run, p Program) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	// Not exec.CommandContext: its killing would reach one process, not the group.
	cmd := exec.Command(p.Argv[0], p.Argv[1:]...)
	cmd.Dir, cmd.Env = p.Dir, p.Env
	output, budget := &outputFinder{}, newBudget(run, p.LogBytes)
	cmd.Stdout = io.MultiWriter(budget.writer(run.Stdout()), output)
	cmd.Stderr = budget.writer(run.Stderr())
	err := await(ctx, cmd)
	if text, ok := output.last(); ok {
		if tooLong := run.SetOutput(text); err == nil {
			err = tooLong
		}
	}
	return err
}

// await starts a program and returns when it has ended, by itself or because ctx was done.
func await(ctx context.Context, cmd *exec.Cmd) error {
	cmd.WaitDelay = pipesAfter
	group := newGroup(cmd)
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("start %s: %w", cmd.Path, err)
	}
	ended := group.watch(ctx, killAfter)
	err := cmd.Wait()
	cancelled := ended()
	return ending(ctx, cmd, err, cancelled)
}

// ending says how the program ended.
func ending(ctx context.Context, cmd *exec.Cmd, err error, cancelled bool) error {
	status, success := "exit status unknown", false
	if cmd.ProcessState != nil {
		status, success = cmd.ProcessState.String(), cmd.ProcessState.Success() // "exit status 3", "signal: terminated"
	}
	switch {
	case cancelled: // also one that ended in good order when it was told to
		return &stoppedError{status, context.Cause(ctx)}
	case errors.Is(err, exec.ErrWaitDelay):
		return nil // it succeeded, and something it left behind holds its output
	case err != nil && cmd.ProcessState != nil && !success:
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

// Inherited is the agent's own environment without its settings: the group's token, and what else the agent was
// given in BELFRY_ variables, is not for whoever may write a job.
func Inherited() []string {
	return slices.DeleteFunc(os.Environ(), func(entry string) bool { return strings.HasPrefix(entry, "BELFRY_") })
}

// mostInVariable bounds the value of a variable that tells a program of its run: Linux takes 128 KiB.
const mostInVariable = 64 << 10

// Told tells a program of its run. A value over 64 KiB is left out, and so is one with a NUL.
func Told(run executor.Run) []string {
	index, total := run.Shard()
	env := make([]string, 0, 16)
	tell := func(name, value string) {
		if len(value) <= mostInVariable && !strings.ContainsRune(value, 0) {
			env = append(env, "BELFRY_"+name+"="+value)
		}
	}
	tell("RUN_ID", run.ID())
	tell("JOB_ID", strconv.FormatInt(run.JobID(), 10))
	tell("JOB_NAME", run.JobName())
	tell("GROUP", run.Group())
	tell("CAUSE", run.Cause())
	tell("FIRE_TIME", run.FireTime().UTC().Format("2006-01-02T15:04:05.000Z07:00"))
	tell("ATTEMPT", strconv.Itoa(run.Attempt()))
	tell("SHARD_INDEX", strconv.Itoa(index))
	tell("SHARD_TOTAL", strconv.Itoa(total))
	tell("PARAM", run.Param())
	if run.ParentRunID() != "" {
		tell("PARENT_RUN_ID", run.ParentRunID())
		tell("PARENT_OUTPUT", run.ParentOutput())
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

// mostSaid bounds what Quiet passes on.
const mostSaid = 64 << 10

// Quiet runs a program whose output is not for a run's log: the first 64 KiB of it go to said. It ends as Run's does.
func Quiet(ctx context.Context, p Program, said io.Writer) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	cmd := exec.Command(p.Argv[0], p.Argv[1:]...)
	cmd.Dir, cmd.Env = p.Dir, p.Env
	cmd.Stdout = &head{to: said, left: mostSaid}
	cmd.Stderr = cmd.Stdout
	return await(ctx, cmd)
}

// head passes on the beginning of what is written to it.
type head struct {
	to   io.Writer
	left int
}

// Write implements io.Writer.
func (h *head) Write(p []byte) (int, error) {
	n := min(len(p), h.left)
	h.left -= n
	if _, err := h.to.Write(p[:n]); err != nil {
		return 0, err
	}
	return len(p), nil
}
