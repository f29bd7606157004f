//go:build !linux

package store

import "time"

// bootTime returns 0, so that the monotonic clock decides.
func bootTime() time.Duration { return 0 }
