package conformance

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/belfryhq/belfry/internal/domain"
)

// process is a started executor: a shell's process group.
type process struct {
	cmd    *exec.Cmd
	output string        // a file
	done   chan struct{} // closed when the shell has ended
}

// launchConfig says how to start an executor.
type launchConfig struct {
	group, token string
	instance     string
	spool        string
	capacity     int
	drain        time.Duration
}

// start runs the command in a shell. It does not pass on BELFRY_ variables of the tester's own environment, except those
// that begin with BELFRY_CONFORMANCE_.
func (t *tester) start(w *world, c launchConfig) (*process, error) {
	if err := os.MkdirAll(c.spool, 0o700); err != nil {
		return nil, domain.WrapError(domain.Internal, "create a spool directory", err)
	}
	output, err := os.CreateTemp(t.logDir, c.group+"-*.log")
	if err != nil {
		return nil, domain.WrapError(domain.Internal, "create a file for the executor's output", err)
	}
	defer output.Close() // the executor has its own descriptor
	cmd := exec.Command("/bin/sh", "-c", t.options.Command)
	for _, v := range os.Environ() {
		if !strings.HasPrefix(v, "BELFRY_") || strings.HasPrefix(v, "BELFRY_CONFORMANCE_") {
			cmd.Env = append(cmd.Env, v)
		}
	}
	cmd.Env = append(cmd.Env,
		"BELFRY_NATS_URL="+w.server.URL(), "BELFRY_TOKEN="+c.token, "BELFRY_GROUP="+c.group, "BELFRY_INSTANCE="+c.instance,
		"BELFRY_SPOOL_DIR="+c.spool, fmt.Sprintf("BELFRY_CAPACITY=%d", c.capacity), "BELFRY_DRAIN_TIMEOUT="+c.drain.String())
	cmd.Stdout, cmd.Stderr = output, output
	ownGroup(cmd)
	if err := cmd.Start(); err != nil {
		return nil, domain.WrapError(domain.Internal, "start the executor", err)
	}
	p := &process{cmd: cmd, output: output.Name(), done: make(chan struct{})}
	go func() {
		_ = cmd.Wait() // the output shows why it ended, and cases check what it published
		close(p.done)
	}()
	t.mu.Lock()
	t.processes = append(t.processes, p)
	t.mu.Unlock()
	return p, nil
}

func (p *process) signal(sig syscall.Signal) bool { return signalGroup(p.cmd.Process, sig) }

// alive reports whether any process of the executor is left.
func (p *process) alive() bool {
	select {
	case <-p.done:
		return groupAlive(p.cmd.Process)
	default:
		return true
	}
}

// kill ends all processes of the executor and waits for the shell.
func (p *process) kill() {
	p.signal(sigKill)
	<-p.done
}

// tail returns the end of the executor's output, as one line.
func (p *process) tail() string {
	data, err := os.ReadFile(p.output)
	if err != nil {
		return ""
	}
	const most = 300
	text := strings.Join(strings.Fields(string(data)), " ")
	if len(text) > most {
		text = "…" + strings.ToValidUTF8(text[len(text)-most:], "")
	}
	return text
}

// spoolOf returns the spool directory of an executor of a group.
func (t *tester) spoolOf(group, name string) string {
	return filepath.Join(t.dir, "spool", group, name)
}
