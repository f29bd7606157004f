package rig

import "syscall"

// DieWithTest makes the kernel kill a process when the process of the test ends, also if that is killed.
func DieWithTest(attr *syscall.SysProcAttr) { attr.Pdeathsig = syscall.SIGKILL }
