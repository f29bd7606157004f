//go:build unix

package bench

import (
	"os/exec"
	"syscall"
)

// ownGroup puts a part into a process group of its own, so that Ctrl-C reaches the measurement alone, which then ends
// its parts in order.
func ownGroup(cmd *exec.Cmd) { cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} }
