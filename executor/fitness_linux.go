package executor

import (
	"os"
	"syscall"
	"time"
)

// fileCount counts the open file descriptors of this process.
type fileCount struct {
	open  int
	again time.Time // when to list them again
}

// costShare bounds the time for listing descriptors, as a share of all time.
const costShare = 50

// read returns the number of open descriptors and their limit. Since Linux 6.2, the size of the directory is their
// number. On an older kernel, they have to be listed, which takes long if they are many.
func (c *fileCount) read() (open, limit int, ok bool) {
	const dir = "/proc/self/fd"
	var most syscall.Rlimit
	if syscall.Getrlimit(syscall.RLIMIT_NOFILE, &most) != nil {
		return 0, 0, false
	}
	limit = int(min(most.Cur, 1<<30))
	info, err := os.Stat(dir)
	if err != nil {
		return 0, 0, false
	}
	if n := int(info.Size()); n > 0 {
		return n, limit, true
	}
	begin := time.Now()
	if begin.Before(c.again) {
		return c.open, limit, true
	}
	f, err := os.Open(dir)
	if err != nil {
		return 0, 0, false
	}
	defer f.Close()
	names, err := f.Readdirnames(-1)
	if err != nil {
		return 0, 0, false
	}
	now := time.Now()
	c.open, c.again = len(names)-1, now.Add(costShare*now.Sub(begin)) // without the one that lists them
	return c.open, limit, true
}
