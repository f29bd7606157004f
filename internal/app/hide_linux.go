package app

import (
	"fmt"
	"syscall"
)

// prSetDumpable is PR_SET_DUMPABLE of prctl(2).
const prSetDumpable = 4

// hide keeps the process's memory and environment, which hold the group's token, from other processes of its user, such
// as the commands and scripts that it runs. Root sees them still.
func hide() error {
	if _, _, errno := syscall.RawSyscall(syscall.SYS_PRCTL, prSetDumpable, 0, 0); errno != 0 {
		return fmt.Errorf("hide the settings from commands and scripts: %w", errno)
	}
	return nil
}
