//go:build unix && !linux

package embedpg

import (
	"os/exec"
	"syscall"
)

func (a account) apply(cmd *exec.Cmd, _ syscall.Signal) {
	// A separate process group: Ctrl-C in a terminal reaches Belfry only, which stops Postgres after the components
	// that use it.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if a.mode == asOther {
		cmd.SysProcAttr.Credential = &syscall.Credential{Uid: uint32(a.uid), Gid: uint32(a.gid)}
	}
}

func namespacesAllowed(account) bool { return false }

func startWatchdog(pid int, signal syscall.Signal) (release func(), err error) {
	return startShellWatchdog(pid, signal)
}
