//go:build !unix

package process

import (
	"context"
	"os/exec"
	"sync"
	"time"

	"github.com/belfryhq/belfry/executor/runas"
)

// group is a program. This system has no process groups that can be signalled.
type group struct{ cmd *exec.Cmd }

// newGroup ignores the account, because runas finds none on this system.
func newGroup(cmd *exec.Cmd, _ *runas.Account) group { return group{cmd} }

// watch kills the program when ctx is done. The returned function reports whether ctx was done before the program
// ended.
func (g group) watch(ctx context.Context, _ time.Duration) (ended func() (cancelled bool)) {
	var wg sync.WaitGroup
	stop := make(chan struct{})
	cancelled := false
	wg.Go(func() {
		select {
		case <-ctx.Done():
			cancelled = true
			_ = g.cmd.Process.Kill() // it may have ended already
		case <-stop:
		}
	})
	return func() bool { close(stop); wg.Wait(); return cancelled }
}
