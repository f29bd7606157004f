package app

import (
	"fmt"
	"syscall"
)

// prSetDumpable is PR_SET_DUMPABLE of prctl(2).
const prSetDumpable = 4

// hide prevents other processes of the same user, such as the commands and scripts that the executor runs, from reading this
// process's memory and environment, which contain the group's token. Root can still read them.
func hide() error {
	if _, _, errno := syscall.RawSyscall(syscall.SYS_PRCTL, prSetDumpable, 0, 0); errno != 0 {
		return fmt.Errorf("hide the settings from commands and scripts: %w", errno)
	}
	return nil
}
