//go:build unix

package embedpg

import (
	"fmt"
	"os/exec"
	"strconv"
	"sync"
	"syscall"
)

// startShellWatchdog starts a shell that sends signal to pid when this process ends for any reason: its standard input
// then ends. It is for systems whose kernel cannot do that itself. Call release after pid has ended.
func startShellWatchdog(pid int, signal syscall.Signal) (release func(), err error) {
	cmd := exec.Command("/bin/sh", "-c", `read -r _; kill -"$1" "$2"`, "sh", strconv.Itoa(int(signal)), strconv.Itoa(pid))
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // so that Ctrl-C does not end it
	stdin, err := cmd.StdinPipe()
	if err != nil {
		return func() {}, fmt.Errorf("open a pipe to the watchdog: %w", err)
	}
	if err := cmd.Start(); err != nil {
		closeQuietly(stdin)
		return func() {}, fmt.Errorf("start the watchdog: %w", err)
	}
	return sync.OnceFunc(func() {
		// The shell is killed before its input ends, so it sends no signal: pid may belong to another process by now.
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	}), nil
}
