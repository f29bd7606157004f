//go:build unix

package conformance

import (
	"os"
	"os/exec"
	"syscall"
)

// The signals that cases send to a whole process group.
const (
	sigStop = syscall.SIGSTOP
	sigCont = syscall.SIGCONT
	sigTerm = syscall.SIGTERM
	sigKill = syscall.SIGKILL
)

// supported reports whether this system can stop and continue processes.
const supported = true

// ownGroup puts the executor into a new process group, so that signals reach all of its processes.
func ownGroup(cmd *exec.Cmd) { cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} }

// signalGroup sends a signal to a process group, and reports whether any process of the group was left.
func signalGroup(leader *os.Process, sig syscall.Signal) bool {
	return syscall.Kill(-leader.Pid, sig) == nil
}

// groupAlive reports whether any process of the group is left.
func groupAlive(leader *os.Process) bool { return syscall.Kill(-leader.Pid, 0) == nil }
