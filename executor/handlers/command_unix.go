//go:build unix

package handlers

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"sync"
	"syscall"
	"time"
)

// processGroup is a program and what it starts, as far as that stays in its group.
type processGroup struct{ cmd *exec.Cmd }

func newProcessGroup(cmd *exec.Cmd) processGroup {
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	return processGroup{cmd}
}

// terminate asks the group to end.
func (g processGroup) terminate() error { return g.signal(syscall.SIGTERM) }

func (g processGroup) signal(sig syscall.Signal) error {
	err := syscall.Kill(-g.cmd.Process.Pid, sig)
	if errors.Is(err, syscall.ESRCH) {
		return os.ErrProcessDone
	}
	return err
}

// killLater kills the group d after ctx is done. The returned function is called when the program itself has ended:
// it waits until the rest of a cancelled program's group is gone too. A program that ended by itself may leave daemons.
func (g processGroup) killLater(ctx context.Context, d time.Duration) (ended func()) {
	var wg sync.WaitGroup
	stop := make(chan struct{})
	wg.Go(func() {
		select {
		case <-ctx.Done():
			g.killAfter(d, stop)
		case <-stop:
		}
	})
	return func() { close(stop); wg.Wait() }
}

// killAfter kills the group after d, unless it is found gone once leaderEnded is closed.
func (g processGroup) killAfter(d time.Duration, leaderEnded <-chan struct{}) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		timer.Reset(0)
	case <-leaderEnded:
	}
	look := time.NewTicker(20 * time.Millisecond) // nothing tells of a group's end
	defer look.Stop()
	for !errors.Is(g.signal(0), os.ErrProcessDone) {
		select {
		case <-look.C:
			continue
		case <-timer.C:
		}
		break
	}
	_ = g.signal(syscall.SIGKILL) // there may be nobody left
}
