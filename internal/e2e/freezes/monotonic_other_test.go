//go:build unix && !linux

package freezes

import "time"

// monotonic returns zero, because the test reads CLOCK_MONOTONIC on Linux only. The test only logs it.
func monotonic() time.Duration { return 0 }
