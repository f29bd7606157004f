package deploy

import "syscall"

// dieWithTest makes the kernel kill a process when the test's process ends for any reason.
func dieWithTest(attr *syscall.SysProcAttr) { attr.Pdeathsig = syscall.SIGKILL }
