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
		// A process group of its own: Ctrl-C in a terminal reaches Belfry
		// alone, which stops Postgres when everyone is done with it.
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

// namespacesAllowed reports whether a child may run in a user namespace as a
// says. The namespace is made before the program is executed, so that a missing
// program is the sign of success.
func namespacesAllowed(a account) bool {
	err := a.command(syscall.SIGKILL, missingProgram).Start()
	return errors.Is(err, fs.ErrNotExist)
}

// startWatchdog is not needed: the kernel does it, see apply.
func startWatchdog(int, syscall.Signal) (release func(), err error) { return func() {}, nil }
