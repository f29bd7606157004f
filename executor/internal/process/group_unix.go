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

	"github.com/belfryhq/belfry/executor/runas"
)

// group is a program with the processes that it started and that are still in its process group.
type group struct{ cmd *exec.Cmd }

func newGroup(cmd *exec.Cmd, as *runas.Account) group {
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if as != nil {
		cmd.SysProcAttr.Credential = &syscall.Credential{Uid: uint32(as.UID), Gid: uint32(as.GID), Groups: groupIDs(as)}
	}
	return group{cmd}
}

// groupIDs returns the account's supplementary groups. They replace those of this process.
func groupIDs(as *runas.Account) []uint32 {
	ids := make([]uint32, 0, len(as.Groups))
	for _, g := range as.Groups {
		ids = append(ids, uint32(g))
	}
	return ids
}

func (g group) signal(sig syscall.Signal) error {
	err := syscall.Kill(-g.cmd.Process.Pid, sig)
	if errors.Is(err, syscall.ESRCH) {
		return os.ErrProcessDone
	}
	return err
}

// watch sends SIGTERM to the group when ctx is done, and SIGKILL d later. The caller calls the returned function when
// the program itself has ended. That function reports whether ctx was done before that. If it was, the function first
// waits until the rest of the group has ended. A program that ends by itself may leave daemons.
func (g group) watch(ctx context.Context, d time.Duration) (ended func() (cancelled bool)) {
	var wg sync.WaitGroup
	stop := make(chan struct{})
	cancelled := false
	wg.Go(func() {
		select {
		case <-ctx.Done():
			cancelled = true
			_ = g.signal(syscall.SIGTERM) // the group may be empty
			g.killAfter(d, stop)
		case <-stop:
		}
	})
	return func() bool { close(stop); wg.Wait(); return cancelled }
}

// killAfter kills the group after d, unless the group has ended. It checks for that after leaderEnded is closed.
func (g group) killAfter(d time.Duration, leaderEnded <-chan struct{}) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		timer.Reset(0)
	case <-leaderEnded:
	}
	look := time.NewTicker(20 * time.Millisecond) // the system sends no notification when a group ends
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
