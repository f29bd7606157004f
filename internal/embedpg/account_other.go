//go:build unix && !linux

package embedpg

import (
	"os/exec"
	"syscall"
)

func (a account) apply(cmd *exec.Cmd, _ syscall.Signal) {
	// A process group of its own: Ctrl-C in a terminal reaches Belfry alone,
	// which stops Postgres when everyone is done with it.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if a.mode == asOther {
		cmd.SysProcAttr.Credential = &syscall.Credential{Uid: uint32(a.uid), Gid: uint32(a.gid)}
	}
}

func namespacesAllowed(account) bool { return false }

func startWatchdog(pid int, signal syscall.Signal) (release func(), err error) {
	return startShellWatchdog(pid, signal)
}
