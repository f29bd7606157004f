//go:build !unix

package conformance

import (
	"os"
	"os/exec"
	"syscall"
)

const (
	sigStop = syscall.Signal(19)
	sigCont = syscall.Signal(18)
	sigTerm = syscall.SIGTERM
	sigKill = syscall.SIGKILL
)

const supported = false

func ownGroup(*exec.Cmd) {}

func signalGroup(*os.Process, syscall.Signal) bool { return false }

func groupAlive(*os.Process) bool { return false }
