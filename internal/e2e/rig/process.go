//go:build unix

package rig

import (
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/belfryhq/belfry/internal/freeport"
	"github.com/belfryhq/belfry/internal/natsauth"
)

// EnvAs is the environment variable with the role in which the test binary is started again.
const EnvAs = "E2E_AS"

// Patience bounds waits that would otherwise hang. A quiet machine needs a second or two, a busy one may need much longer.
const Patience = 5 * time.Minute

// Process is a process of a test: usually the test binary, started again in another role. It is killed at the end of its test at
// the latest.
type Process struct {
	cmd  *exec.Cmd
	gone chan struct{} // closed when it has ended
}

// Start starts the test binary in another role. It appends the process's output to a file.
func Start(t testing.TB, as, dir, log string, env []string, args ...string) *Process {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	return StartCommand(t, exec.Command(self, args...), dir, log, append([]string{EnvAs + "=" + as}, env...))
}

// StartCommand starts a command in a directory, with env in addition to Env. It appends the command's output to a file.
func StartCommand(t testing.TB, cmd *exec.Cmd, dir, log string, env []string) *Process {
	t.Helper()
	out, err := os.OpenFile(log, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	defer out.Close()
	p := &Process{cmd: cmd, gone: make(chan struct{})}
	p.cmd.Dir, p.cmd.Stdout, p.cmd.Stderr = dir, out, out
	p.cmd.Env = append(append(Env(), "HOME="+dir), env...)
	// In a separate process group, so that a Ctrl-C reaches only the test, which then ends its processes.
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	DieWithTest(p.cmd.SysProcAttr)
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		_ = p.cmd.Wait() // State has the result
		close(p.gone)
	}()
	t.Cleanup(p.Kill)
	return p
}

// Kill sends SIGKILL and returns when the process has ended.
func (p *Process) Kill() {
	_ = p.cmd.Process.Kill() // it may be gone already
	<-p.gone
}

// Signal sends a signal. It does nothing if the process has ended.
func (p *Process) Signal(s syscall.Signal) { _ = p.cmd.Process.Signal(s) }

// Gone is closed when the process has ended.
func (p *Process) Gone() <-chan struct{} { return p.gone }

// State returns the exit status after the process has ended.
func (p *Process) State() *os.ProcessState { return p.cmd.ProcessState }

// Env returns the environment of this process without settings of Belfry.
func Env() []string {
	var env []string
	for _, e := range os.Environ() {
		if !strings.HasPrefix(e, "BELFRY_") && !strings.HasPrefix(e, "E2E_") {
			env = append(env, e)
		}
	}
	return env
}

// FreePort returns a port from freeport.Take as text. A server that is killed and started again keeps its port.
func FreePort(t testing.TB) string {
	t.Helper()
	return strconv.Itoa(freeport.Take(t))
}

// Root returns the directory of the module.
func Root(t testing.TB) string {
	t.Helper()
	dir, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	for ; ; dir = filepath.Dir(dir) {
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
			return dir
		}
		if dir == filepath.Dir(dir) {
			t.Fatal("there is no go.mod in any directory above")
		}
	}
}

// WriteIssuer writes a new account seed for NATS's auth callout to a file and returns its public key.
func WriteIssuer(t testing.TB, path string) string {
	t.Helper()
	issuer, err := natsauth.NewIssuer()
	if err != nil {
		t.Fatal(err)
	}
	public, err := issuer.PublicKey()
	if err != nil {
		t.Fatal(err)
	}
	seed, err := issuer.Seed()
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, seed, 0o600); err != nil {
		t.Fatal(err)
	}
	return public
}

// Left returns the time until the test's own deadline (go test -timeout), less a margin for its clean-up, but at most the
// given bound.
func Left(t testing.TB, bound time.Duration) time.Duration {
	const margin = 15 * time.Second
	if own, ok := t.(interface{ Deadline() (time.Time, bool) }); ok {
		if end, ok := own.Deadline(); ok {
			return min(bound, time.Until(end)-margin)
		}
	}
	return bound
}

// Eventually polls until ok returns true. It fails the test after the bound, or shortly before the test's own deadline, so that the
// failure names what the test waited for.
func Eventually(t testing.TB, bound time.Duration, what string, ok func() bool) {
	t.Helper()
	bound = Left(t, bound)
	tick := time.NewTicker(25 * time.Millisecond)
	defer tick.Stop()
	deadline := time.After(bound)
	for !ok() {
		select {
		case <-tick.C:
		case <-deadline:
			t.Fatalf("not within %v: %s", bound, what)
		}
	}
}
