//go:build unix

package process

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"sync"
	"syscall"
	"time"
)

// group is a program and what it starts, as far as that stays in its process group.
type group struct{ cmd *exec.Cmd }

func newGroup(cmd *exec.Cmd) group {
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	return group{cmd}
}

func (g group) signal(sig syscall.Signal) error {
	err := syscall.Kill(-g.cmd.Process.Pid, sig)
	if errors.Is(err, syscall.ESRCH) {
		return os.ErrProcessDone
	}
	return err
}

// watch asks the group to end when ctx is done, and kills it d later. The returned function is called when the program
// itself has ended: it waits until the rest of a cancelled program's group is gone too, and reports whether ctx was done
// before that. A program that ended by itself may leave daemons.
func (g group) watch(ctx context.Context, d time.Duration) (ended func() (cancelled bool)) {
	var wg sync.WaitGroup
	stop := make(chan struct{})
	cancelled := false
	wg.Go(func() {
		select {
		case <-ctx.Done():
			cancelled = true
			_ = g.signal(syscall.SIGTERM) // there may be nobody left
			g.killAfter(d, stop)
		case <-stop:
		}
	})
	return func() bool { close(stop); wg.Wait(); return cancelled }
}

// killAfter kills the group after d, unless it is found gone once leaderEnded is closed.
func (g group) killAfter(d time.Duration, leaderEnded <-chan struct{}) {
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
	_ = g.signal(syscall.SIGKILL)
}
