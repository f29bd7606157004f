//go:build !linux

package clock

import "time"

// bootTime returns 0, because the system has no such clock.
func bootTime() time.Duration { return 0 }
