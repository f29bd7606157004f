package executor

import (
	"time"

	"golang.org/x/sys/unix"
)

// bootTime reads CLOCK_BOOTTIME, which continues during a suspend, unlike Go's monotonic clock.
func bootTime() time.Duration {
	var t unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &t); err != nil {
		return 0 // no Linux that Go supports lacks the clock; without it the two others decide
	}
	return time.Duration(t.Nano())
}
