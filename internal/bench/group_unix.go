//go:build unix

package bench

import (
	"os/exec"
	"syscall"
)

// ownGroup puts a part into a new process group, so that Ctrl-C reaches only the measuring process. That process then
// stops the parts in order.
func ownGroup(cmd *exec.Cmd) { cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} }
