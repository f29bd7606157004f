//go:build unix && !linux

package freezes

import "time"

// monotonic is zero where the test does not know how to read CLOCK_MONOTONIC. Only people read it.
func monotonic() time.Duration { return 0 }
