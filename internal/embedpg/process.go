package embedpg

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"time"
)

const (
	tailLines   = 12                     // of Postgres's log, kept for the error if it ends unexpectedly
	maxLogLine  = 64 << 10               // longer lines are split
	logDeadline = 200 * time.Millisecond // how long to read the log of backends that outlive the postmaster
)

// process is a running postmaster.
type process struct {
	log  *slog.Logger
	cmd  *exec.Cmd
	done chan struct{} // closed when the postmaster has ended and tail is complete

	mu       sync.Mutex
	expected bool     // guarded by mu: the end was requested
	tail     []string // guarded by mu: the last lines of the log
	exit     error    // written before done is closed
}

// startProcess starts the postmaster and a goroutine that waits for its end.
func startProcess(c *cluster, cfg Config) (*process, error) {
	// A test's data is discarded, so nothing has to be flushed.
	deathSignal := syscall.SIGINT
	if cfg.Ephemeral {
		deathSignal = syscall.SIGQUIT
	}
	cmd := c.account.command(deathSignal, c.bin.path("postgres"), "-D", c.data(), "-c", "config_file="+c.configFile())
	reader, writer, err := os.Pipe()
	if err != nil {
		return nil, fmt.Errorf("open a pipe for Postgres's log: %w", err)
	}
	cmd.Stdout, cmd.Stderr = writer, writer
	cmd.ExtraFiles = []*os.File{c.running}
	p := &process{log: cfg.Log, cmd: cmd, done: make(chan struct{})}
	started := make(chan error)
	go p.supervise(deathSignal, reader, started)
	err = <-started
	closeQuietly(writer)
	c.letGo()
	if err != nil {
		closeQuietly(reader)
		return nil, fmt.Errorf("start Postgres: %w", err)
	}
	return p, nil
}

// supervise starts the postmaster and waits for its end on one locked thread. The kernel sends the death signal when
// the thread that forked ends, not the process, and the Go runtime may end threads at any time.
func (p *process) supervise(deathSignal syscall.Signal, reader *os.File, started chan<- error) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if err := p.cmd.Start(); err != nil {
		started <- err
		return
	}
	releaseWatchdog, err := startWatchdog(p.cmd.Process.Pid, deathSignal)
	if err != nil {
		p.log.Warn("cannot start the watchdog, Postgres keeps running until the next start if Belfry is killed", "err", err)
	}
	started <- nil

	copied := make(chan struct{})
	go func() {
		defer close(copied)
		p.copyLog(reader)
	}()
	p.exit = p.cmd.Wait()
	releaseWatchdog()
	if err := reader.SetReadDeadline(time.Now().Add(logDeadline)); err != nil {
		closeQuietly(reader) // ends the copying too
	}
	<-copied
	closeQuietly(reader)
	close(p.done)
}

// copyLog logs Postgres's output until its end or the deadline.
func (p *process) copyLog(reader io.Reader) {
	lines := bufio.NewScanner(reader)
	lines.Buffer(make([]byte, 0, 4<<10), maxLogLine)
	lines.Split(scanLinesOrPieces)
	for lines.Scan() {
		line := lines.Text()
		// Postgres calls an ordinary refused connection FATAL; only a panic needs an operator's attention.
		if strings.HasPrefix(line, "PANIC:") {
			p.log.Error("Postgres panicked, it ends all connections and recovers", "line", line)
		} else {
			p.log.Debug("Postgres", "line", line)
		}
		p.mu.Lock()
		if len(p.tail) == tailLines {
			p.tail = append(p.tail[:0], p.tail[1:]...)
		}
		p.tail = append(p.tail, line)
		p.mu.Unlock()
	}
}

// scanLinesOrPieces splits at line ends, and splits a line that does not fit the buffer into pieces. If the scanner
// stopped, Postgres would block when the pipe is full.
func scanLinesOrPieces(data []byte, atEOF bool) (int, []byte, error) {
	advance, token, err := bufio.ScanLines(data, atEOF)
	if advance == 0 && err == nil && len(data) >= maxLogLine {
		return len(data), data, nil
	}
	return advance, token, err
}

func (p *process) kill(signal syscall.Signal) {
	if err := p.cmd.Process.Signal(signal); err != nil && !errors.Is(err, os.ErrProcessDone) {
		p.log.Warn("cannot signal Postgres, it keeps running", "signal", signal.String(), "err", err)
	}
}

// awaitOrKill waits for the end. After the timeout, it kills the process.
func (p *process) awaitOrKill(timeout time.Duration) {
	select {
	case <-p.done:
	case <-time.After(timeout):
		p.kill(syscall.SIGKILL)
		<-p.done
	}
}

func (p *process) expectEnd() {
	p.mu.Lock()
	defer p.mu.Unlock()
	select {
	case <-p.done: // Postgres ended before the request to stop, so its end stays an error.
	default:
		p.expected = true
	}
}

// exitError returns how the postmaster exited. Call it only after done is closed.
func (p *process) exitError() error {
	if p.exit == nil {
		return nil
	}
	return fmt.Errorf("Postgres ended with %w; its last log lines: %s", p.exit, p.lastLines())
}

func (p *process) unexpectedEnd() error {
	select {
	case <-p.done:
	default:
		return nil
	}
	p.mu.Lock()
	expected := p.expected
	p.mu.Unlock()
	switch {
	case expected:
		return nil
	case p.exit == nil:
		return fmt.Errorf("Postgres was shut down by another process; its last log lines: %s", p.lastLines())
	default:
		return p.exitError()
	}
}

func (p *process) lastLines() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.tail) == 0 {
		return "none"
	}
	return strings.Join(p.tail, " | ")
}

// closeQuietly closes c and ignores the error.
func closeQuietly(c io.Closer) { _ = c.Close() }
