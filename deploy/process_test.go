package deploy

import (
	"bytes"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// patience limits the wait for an expected event. A healthy machine needs seconds.
const patience = 5 * time.Minute

// process is a started program. It is killed when its test ends, if it still runs.
type process struct {
	t     testing.TB
	name  string
	cmd   *exec.Cmd
	said  transcript
	ended chan struct{}
}

// start runs a program with env. It inherits only PATH from this process's environment.
func start(t testing.TB, name, path string, env map[string]string, args ...string) *process {
	t.Helper()
	p := &process{t: t, name: name, cmd: exec.Command(path, args...), ended: make(chan struct{})}
	dir := t.TempDir()
	p.cmd.Dir = dir
	p.cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + dir}
	for key, value := range env {
		p.cmd.Env = append(p.cmd.Env, key+"="+value)
	}
	p.cmd.SysProcAttr = &syscall.SysProcAttr{}
	dieWithTest(p.cmd.SysProcAttr)
	p.cmd.Stdout, p.cmd.Stderr = &p.said, &p.said
	p.cmd.WaitDelay = 2 * time.Second
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		_ = p.cmd.Wait() // done checks the exit status
		close(p.ended)
	}()
	t.Cleanup(func() {
		p.kill()
		if t.Failed() {
			t.Logf("%s said, last of all:\n%s", name, p.said.tail(4000))
		}
	})
	return p
}

func (p *process) kill() {
	_ = p.cmd.Process.Kill() // it may have ended already
	<-p.ended
}

// says waits until the process has printed text, and returns the rest of that line.
func (p *process) says(text string) string {
	p.t.Helper()
	line := ""
	eventually(p.t, p.name+" prints "+text, func() bool {
		_, after, found := strings.Cut(p.said.tail(1<<20), text)
		line, _, _ = strings.Cut(after, "\n")
		select {
		case <-p.ended:
			if !found {
				p.t.Fatalf("%s has ended: %v", p.name, p.cmd.ProcessState)
			}
		default:
		}
		return found
	})
	return line
}

// done waits until a process ends by itself, and checks that it succeeded.
func (p *process) done() {
	p.t.Helper()
	select {
	case <-p.ended:
	case <-time.After(patience):
		p.t.Fatalf("%s does not end", p.name)
	}
	if code := p.cmd.ProcessState.ExitCode(); code != 0 {
		p.t.Fatalf("%s ends with exit code %d", p.name, code)
	}
}

// transcript is the output of a process.
type transcript struct {
	mu   sync.Mutex
	text bytes.Buffer // guarded by mu
}

func (s *transcript) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.text.Write(p)
}

func (s *transcript) tail(n int) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	all := s.text.Bytes()
	return string(all[max(0, len(all)-n):])
}

// eventually polls until ok returns true, and fails the test when patience is over.
func eventually(t testing.TB, what string, ok func() bool) {
	t.Helper()
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	deadline := time.After(patience)
	for !ok() {
		select {
		case <-tick.C:
		case <-deadline:
			t.Fatalf("not within %v: %s", patience, what)
		}
	}
}
