//go:build unix

package e2e

import (
	"bytes"
	"encoding/json"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/belfryhq/belfry/internal/e2e/rig"
)

// process is a started belfry or NATS server. It is killed at the end of its test at the latest.
type process struct {
	name   string
	t      testing.TB
	cmd    *exec.Cmd
	stdout *lines
	stderr *lines
	ended  chan struct{} // closed when it has ended and all its output has been read
}

// launch starts the test binary in another role. extra has environment entries.
func launch(t testing.TB, name, as, dir string, extra []string, args ...string) *process {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	return start(t, name, exec.Command(self, args...), dir, append([]string{envAs + "=" + as}, extra...))
}

// start starts a command as a process of the test.
func start(t testing.TB, name string, cmd *exec.Cmd, dir string, extra []string) *process {
	t.Helper()
	p := &process{name: name, t: t, cmd: cmd, stdout: newLines(), stderr: newLines(), ended: make(chan struct{})}
	p.cmd.Dir = dir
	p.cmd.Env = append(append(rig.Env(), "HOME="+dir), extra...)
	// In a separate process group, so that a Ctrl-C reaches only the test, which then ends its processes.
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	rig.DieWithTest(p.cmd.SysProcAttr)
	p.cmd.Stdout, p.cmd.Stderr = p.stdout, p.stderr
	p.cmd.WaitDelay = 2 * time.Second // a process that it has started may hold its output open
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		_ = p.cmd.Wait() // exit returns the status
		close(p.ended)
	}()
	t.Cleanup(func() {
		p.kill()
		if t.Failed() {
			t.Logf("the end of the log of %s:\n%s", name, p.stderr.tail(60))
		}
	})
	return p
}

// kill sends SIGKILL and returns when the process has ended.
func (p *process) kill() {
	_ = p.cmd.Process.Kill() // it may be gone already
	<-p.ended
}

func (p *process) signal(s syscall.Signal) {
	p.t.Helper()
	if err := p.cmd.Process.Signal(s); err != nil {
		p.t.Fatalf("%s: %v", p.name, err)
	}
}

// exit waits for the end of the process and returns its exit code, -1 if a signal ended it.
func (p *process) exit() int {
	p.t.Helper()
	select {
	case <-p.ended:
	case <-time.After(patience):
		p.t.Fatalf("%s does not end", p.name)
	}
	return p.cmd.ProcessState.ExitCode()
}

// says waits for a line of standard output that begins with prefix, and returns what follows.
func (p *process) says(prefix string) string {
	p.t.Helper()
	return strings.TrimPrefix(p.await(p.stdout, "say "+prefix, func(l string) bool { return strings.HasPrefix(l, prefix) }), prefix)
}

// logs waits for a line of the log that contains text.
func (p *process) logs(text string) {
	p.t.Helper()
	p.await(p.stderr, "log "+text, func(l string) bool { return strings.Contains(l, text) })
}

// logsJSON returns the log of a process that has ended, whose every line must be a JSON record, including those of libraries.
func (p *process) logsJSON() string {
	p.t.Helper()
	text := p.stderr.text()
	for line := range strings.Lines(text) {
		var record struct{ Time, Level, Msg string }
		if err := json.Unmarshal([]byte(line), &record); err != nil || record.Time == "" || record.Level == "" || record.Msg == "" {
			p.t.Errorf("%s logged a line that is not a JSON record: %q", p.name, line)
		}
	}
	if text == "" {
		p.t.Errorf("%s logged nothing", p.name)
	}
	return text
}

func (p *process) await(from *lines, what string, match func(string) bool) string {
	p.t.Helper()
	deadline := time.After(patience)
	for {
		line, found, more := from.find(match)
		if found {
			return line
		}
		select {
		case <-more:
		case <-p.ended:
			if line, found, _ := from.find(match); found {
				return line
			}
			p.t.Fatalf("%s ended (%v) and did not %s", p.name, p.cmd.ProcessState, what)
		case <-deadline:
			p.t.Fatalf("%s did not %s", p.name, what)
		}
	}
}

// lines collects the output of a process by line.
type lines struct {
	mu   sync.Mutex
	all  []string      // guarded by mu
	rest []byte        // guarded by mu; an unfinished line
	more chan struct{} // guarded by mu; closed and replaced with each line
}

func newLines() *lines { return &lines{more: make(chan struct{})} }

// Write implements io.Writer. A write may end within a line.
func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.rest = append(l.rest, p...)
	for {
		i := bytes.IndexByte(l.rest, '\n')
		if i < 0 {
			return len(p), nil
		}
		l.all = append(l.all, string(l.rest[:i]))
		l.rest = l.rest[i+1:]
		close(l.more)
		l.more = make(chan struct{})
	}
}

func (l *lines) find(match func(string) bool) (line string, found bool, more <-chan struct{}) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, line := range l.all {
		if match(line) {
			return line, true, l.more
		}
	}
	return "", false, l.more
}

// snapshot returns the complete lines so far.
func (l *lines) snapshot() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.all[:len(l.all):len(l.all)]
}

func (l *lines) text() string { return l.tail(1 << 30) }

func (l *lines) tail(n int) string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.Join(l.all[max(0, len(l.all)-n):], "\n")
}

// eventually is rig.Eventually.
func eventually(t testing.TB, bound time.Duration, what string, ok func() bool) {
	t.Helper()
	rig.Eventually(t, bound, what, ok)
}

// every calls do n times, once per period. It sets the pace of faults and edits in a test.
func every(period time.Duration, n int, do func(i int)) {
	tick := time.NewTicker(period)
	defer tick.Stop()
	for i := range n {
		<-tick.C
		do(i)
	}
}
