package xxltest

import (
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"testing"
)

// Program is a program with an executor of one version. All programs have the same handlers:
//
//	demo      writes two lines to the log, and succeeds with "done"
//	echo      succeeds with its parameter, its shard and the number of shards, such as "a param 0/1"
//	fail      fails with "no such month"
//	sleep     N: sleeps for N seconds, unless it is interrupted or cancelled
//	stubborn  N FILE: does the same, but cannot be interrupted; then appends a line to the file
//	lines     N M: writes N lines to the log, sleeps for M seconds, and writes a last line
type Program struct {
	command func(s settings) *exec.Cmd
}

// settings are those of an executor that is started.
type settings struct {
	admin, app, token string
	port              int
	logs              string // directory
}

// Executor is a running executor.
type Executor struct {
	t     *testing.T
	cmd   *exec.Cmd
	ended chan struct{}
	out   *output
}

// Start starts an executor that registers at an admin, such as http://127.0.0.1:8081, and listens on a port of 127.0.0.1. It ends with the test.
func (p Program) Start(t *testing.T, admin, app, token string, port int) *Executor {
	t.Helper()
	e := &Executor{t: t, ended: make(chan struct{}), out: &output{}, cmd: p.command(settings{admin, app, token, port, t.TempDir()})}
	e.cmd.Stdout, e.cmd.Stderr = e.out, e.out
	if _, err := e.cmd.StdinPipe(); err != nil { // the executor ends when this process does
		t.Fatal(err)
	}
	if err := e.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		_ = e.cmd.Wait()
		close(e.ended)
	}()
	t.Cleanup(func() {
		_ = e.cmd.Process.Kill()
		<-e.ended
		if t.Failed() {
			t.Logf("the executor's output:\n%s", e.out)
		}
	})
	return e
}

// Signal sends a signal to the executor.
func (e *Executor) Signal(s syscall.Signal) {
	e.t.Helper()
	if err := e.cmd.Process.Signal(s); err != nil {
		e.t.Error(err)
	}
}

// Ended is closed when the executor has ended.
func (e *Executor) Ended() <-chan struct{} { return e.ended }

// output keeps the end of what an executor prints.
type output struct {
	mu   sync.Mutex
	text []byte
}

const mostOutput = 64 << 10

// Write implements io.Writer.
func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.text = append(o.text, p...)
	o.text = o.text[max(0, len(o.text)-mostOutput):]
	return len(p), nil
}

// String returns the end of the output.
func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return strings.ToValidUTF8(string(o.text), "?")
}

// runs runs a command of a test's preparation.
func runs(t *testing.T, cmd *exec.Cmd) {
	t.Helper()
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%s: %v\n%s", strings.Join(cmd.Args, " "), err, out)
	}
}

// needs skips the test if programs are not installed.
func needs(t *testing.T, what, packages string, programs ...string) {
	t.Helper()
	for _, p := range programs {
		if _, err := exec.LookPath(p); err != nil {
			t.Skipf("NOT COVERED: %s, because %s is not installed; Debian's packages are %s", what, p, packages)
		}
	}
}
