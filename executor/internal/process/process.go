// Package process runs programs for handlers. A program's output becomes the run's log, within limits. The program and
// the processes that it started end when the handler's context is done.
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
	"sync"
	"time"

	"github.com/belfryhq/belfry/executor"
	"github.com/belfryhq/belfry/executor/runas"
	"github.com/belfryhq/belfry/executor/wire"
)

const (
	// killAfter is the time between SIGTERM and SIGKILL.
	killAfter = 5 * time.Second
	// pipesAfter bounds the wait for the end of the output after the program itself has ended. A daemon that the
	// program left behind may keep the pipes open.
	pipesAfter = 2 * time.Second
	// outputPrefix is the prefix of a line on stdout that sets the run's output. The last such line is used.
	outputPrefix = "::output "
)

// DefaultLogBytes is the default limit of one program's output in its run's log.
const DefaultLogBytes = 32 << 20

// Program describes a program to run.
type Program struct {
	Argv     []string
	Dir      string
	Env      []string       // the complete environment
	As       *runas.Account // the account that the program runs under; nil means that of this process
	LogBytes int64          // limit of the run's log, in bytes; 0 means DefaultLogBytes; output above it is dropped
}

// Run runs a program and returns when it has ended. Lines of stdout and stderr become the run's log. A line "::output
// text" on stdout sets the output. An exit status other than 0 is an error that contains the status and the last line on
// stderr that is not empty, up to 500 bytes of it.
//
// When ctx is done, the whole process group gets SIGTERM, and SIGKILL after 5 s. On Windows, the process is killed at
// once. The error then wraps the cause. Processes that the program leaves behind when it ends by itself may continue.
// They delay the return of Run by at most 2 s.
func Run(ctx context.Context, run executor.Run, p Program) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	// exec.CommandContext would kill only the process, not its group.
	cmd := exec.Command(p.Argv[0], p.Argv[1:]...)
	cmd.Dir, cmd.Env = p.Dir, p.Env
	output, budget := &outputFinder{}, newBudget(run, p.LogBytes)
	cmd.Stdout = io.MultiWriter(budget.writer(run.Stdout()), output)
	cause := &causeFinder{}
	cmd.Stderr = io.MultiWriter(budget.writer(run.Stderr()), cause)
	err := await(ctx, cmd, p.As)
	var failed *failedError
	if errors.As(err, &failed) {
		failed.cause = cause.cause()
	}
	if text, ok := output.last(); ok {
		if tooLong := run.SetOutput(text); err == nil {
			err = tooLong
		}
	}
	return err
}

// await starts a program and returns when it has ended.
func await(ctx context.Context, cmd *exec.Cmd, as *runas.Account) error {
	cmd.WaitDelay = pipesAfter
	group := newGroup(cmd, as)
	var out outputs
	if as != nil {
		if err := out.open(cmd, as); err != nil {
			return err
		}
	}
	err := cmd.Start()
	out.started()
	if err != nil {
		out.drain()
		return fmt.Errorf("start %s: %w", cmd.Path, err)
	}
	ended := group.watch(ctx, killAfter)
	err = cmd.Wait()
	out.drain()
	cancelled := ended()
	return ending(ctx, cmd, err, cancelled)
}

// outputs are the pipes from a program of another account. Package exec would create pipes that belong to this process's
// user, and the program could not open them by name, as in "echo text >/dev/stderr".
type outputs struct {
	readers, writers []*os.File
	copies           sync.WaitGroup
}

// open replaces the writers of the command by pipes that belong to the account.
func (o *outputs) open(cmd *exec.Cmd, as *runas.Account) error {
	same := cmd.Stdout == cmd.Stderr
	for _, to := range []*io.Writer{&cmd.Stdout, &cmd.Stderr} {
		if to == &cmd.Stderr && same {
			cmd.Stderr = cmd.Stdout
			break
		}
		r, w, err := os.Pipe()
		if err != nil {
			o.started()
			o.drain()
			return fmt.Errorf("open the output of %s: %w", cmd.Path, err)
		}
		_ = w.Chown(as.UID, as.GID) // systems that refuse this let a program open its pipes anyway
		o.readers, o.writers = append(o.readers, r), append(o.writers, w)
		sink := *to
		o.copies.Go(func() { _, _ = io.Copy(sink, r); r.Close() }) // after an error, the program gets SIGPIPE, as with exec's pipes
		*to = w
	}
	return nil
}

// started closes this process's copies of the ends that the program writes to.
func (o *outputs) started() {
	for _, w := range o.writers {
		w.Close()
	}
}

// drain returns when all output is read, at the latest after pipesAfter.
func (o *outputs) drain() {
	end := time.Now().Add(pipesAfter)
	for _, r := range o.readers {
		_ = r.SetReadDeadline(end) // a closed pipe has been read to its end
	}
	o.copies.Wait()
}

// ending returns the error for the way in which the program ended.
func ending(ctx context.Context, cmd *exec.Cmd, err error, cancelled bool) error {
	status, success := "exit status unknown", false
	if cmd.ProcessState != nil {
		status, success = cmd.ProcessState.String(), cmd.ProcessState.Success() // for example "exit status 3" or "signal: terminated"
	}
	switch {
	case cancelled: // including a program that exited with status 0 after the signal
		return &stoppedError{status, context.Cause(ctx)}
	case errors.Is(err, exec.ErrWaitDelay):
		return nil // the program succeeded, but a process that it left behind holds its output open
	case err != nil && cmd.ProcessState != nil && !success:
		return &failedError{status: status}
	}
	return err
}

// failedError is the error of a program that ended by itself, but not with exit status 0.
type failedError struct {
	status string
	cause  string // from stderr; empty if there is none
}

func (e *failedError) Error() string {
	if e.cause == "" {
		return e.status
	}
	return e.status + ": " + e.cause
}

// stoppedError is the error of a program that was stopped because its context was done. Its text does not contain the
// cause, because the caller that cancelled the context reports it.
type stoppedError struct {
	status string
	cause  error
}

func (e *stoppedError) Error() string { return "stopped the program (" + e.status + ")" }
func (e *stoppedError) Unwrap() error { return e.cause }

// Inherited returns the environment that programs inherit. Under this process's account, it is this process's environment
// without the BELFRY_ variables, because these contain secrets such as the group's token. Under another account, it is
// runas.Account.Environ.
func Inherited(as *runas.Account) []string {
	if as != nil {
		return as.Environ()
	}
	return slices.DeleteFunc(os.Environ(), func(entry string) bool { return strings.HasPrefix(entry, "BELFRY_") })
}

// mostInVariable is the maximum length of a variable's value, in bytes. Linux accepts 128 KiB.
const mostInVariable = 64 << 10

// Told returns the environment variables that describe a run to its program. It omits values over 64 KiB and values
// with a NUL byte.
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
	if t := run.Label(wire.LabelTraceparent); t != "" {
		env = append(env, "TRACEPARENT="+t)
	}
	return env
}

// outputFinder searches its input for output lines. It buffers one line of at most an output's size.
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

// keep buffers one byte more than the maximum, so that SetOutput refuses a line that is too long.
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

// last returns the text of the last output line. It returns false if there was none.
func (f *outputFinder) last() (string, bool) {
	f.look()
	return f.found, f.any
}

// mostSaid is the limit of the output that Quiet passes on, in bytes.
const mostSaid = 64 << 10

// Quiet runs a program whose output does not belong in a run's log. It writes the first 64 KiB of the output to said.
// The program ends in the same way as with Run.
func Quiet(ctx context.Context, p Program, said io.Writer) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	cmd := exec.Command(p.Argv[0], p.Argv[1:]...)
	cmd.Dir, cmd.Env = p.Dir, p.Env
	cmd.Stdout = &head{to: said, left: mostSaid}
	cmd.Stderr = cmd.Stdout
	return await(ctx, cmd, p.As)
}

// head passes on the beginning of its input.
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
