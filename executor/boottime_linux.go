package executor

import (
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// bootTime reads CLOCK_BOOTTIME, which continues during a suspend, unlike Go's monotonic clock.
func bootTime() time.Duration {
	var t unix.Timespec
	// A raw system call, because every attempt makes it and it never blocks. unix.ClockGettime would also make the
	// goroutines of attempts outgrow their first stack.
	_, _, errno := unix.RawSyscall(unix.SYS_CLOCK_GETTIME, unix.CLOCK_BOOTTIME, uintptr(unsafe.Pointer(&t)), 0) //nolint:gosec // t lives here
	if errno != 0 {
		return 0 // every Linux that Go supports has the clock; without it, the two other clocks decide
	}
	return time.Duration(t.Nano())
}
