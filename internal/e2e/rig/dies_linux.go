package rig

import "syscall"

// DieWithTest has the kernel kill a process when the test's ends, however it ends.
func DieWithTest(attr *syscall.SysProcAttr) { attr.Pdeathsig = syscall.SIGKILL }
