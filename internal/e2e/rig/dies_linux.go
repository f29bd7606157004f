package rig

import "syscall"

// DieWithTest makes the kernel kill a process when the test's process ends, even if the test's process is killed.
func DieWithTest(attr *syscall.SysProcAttr) { attr.Pdeathsig = syscall.SIGKILL }
