//go:build !unix

package process

import (
	"context"
	"os/exec"
	"sync"
	"time"
)

// group is a program; this system has no groups that could be signalled.
type group struct{ cmd *exec.Cmd }

func newGroup(cmd *exec.Cmd) group { return group{cmd} }

// watch ends the program when ctx is done. The returned function reports whether that was before its own end.
func (g group) watch(ctx context.Context, _ time.Duration) (ended func() (cancelled bool)) {
	var wg sync.WaitGroup
	stop := make(chan struct{})
	cancelled := false
	wg.Go(func() {
		select {
		case <-ctx.Done():
			cancelled = true
			_ = g.cmd.Process.Kill() // it may have ended
		case <-stop:
		}
	})
	return func() bool { close(stop); wg.Wait(); return cancelled }
}
