//go:build !linux

package executor

import "time"

// bootTime returns 0: the wall clock and the monotonic clock decide. On Windows the monotonic clock continues during a
// suspend; elsewhere the wall clock has to notice one.
func bootTime() time.Duration { return 0 }
