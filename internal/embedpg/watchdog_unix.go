//go:build unix

package embedpg

import (
	"fmt"
	"os/exec"
	"strconv"
	"sync"
	"syscall"
)

// startShellWatchdog starts a shell that sends signal to pid when this process
// ends, however it ends: then its standard input ends. It serves where the
// kernel cannot do that by itself. Call release once pid has ended.
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
		// Killed before its input ends, it signals nobody: by now pid may
		// belong to a stranger.
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	}), nil
}
