//go:build !linux

package executor

import "time"

// bootTime returns 0, so that the wall clock and the monotonic clock decide. On Windows, the monotonic clock continues
// during a suspend. On other systems, only the wall clock shows one.
func bootTime() time.Duration { return 0 }
