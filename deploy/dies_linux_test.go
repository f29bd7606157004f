package deploy

import "syscall"

// dieWithTest has the kernel kill a process when the test's ends, however it ends.
func dieWithTest(attr *syscall.SysProcAttr) { attr.Pdeathsig = syscall.SIGKILL }
