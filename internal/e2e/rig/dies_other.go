//go:build unix && !linux

package rig

import "syscall"

// DieWithTest does nothing on systems whose kernel does not support it. A killed test leaves its processes there.
func DieWithTest(*syscall.SysProcAttr) {}
