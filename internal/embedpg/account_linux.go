package embedpg

import (
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"syscall"
)

func (a account) apply(cmd *exec.Cmd, deathSignal syscall.Signal) {
	attr := &syscall.SysProcAttr{
		// A separate process group: Ctrl-C in a terminal reaches Belfry only, which stops Postgres after the components
		// that use it.
		Setpgid:   true,
		Pdeathsig: deathSignal,
	}
	switch a.mode {
	case inNamespace:
		attr.Cloneflags = syscall.CLONE_NEWUSER
		attr.UidMappings = []syscall.SysProcIDMap{{ContainerID: a.uid, HostID: os.Geteuid(), Size: 1}}
		attr.GidMappings = []syscall.SysProcIDMap{{ContainerID: a.gid, HostID: os.Getegid(), Size: 1}}
	case asOther:
		attr.Credential = &syscall.Credential{Uid: uint32(a.uid), Gid: uint32(a.gid)}
	case asCaller:
	}
	cmd.SysProcAttr = attr
}

// namespacesAllowed reports whether a child may run in the user namespace of account a. The namespace is created before
// the program is executed, so the error about a missing program means success.
func namespacesAllowed(a account) bool {
	err := a.command(syscall.SIGKILL, missingProgram).Start()
	return errors.Is(err, fs.ErrNotExist)
}

// startWatchdog does nothing, because the kernel sends the death signal, see apply.
func startWatchdog(int, syscall.Signal) (release func(), err error) { return func() {}, nil }
