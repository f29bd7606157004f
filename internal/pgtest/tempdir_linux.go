package pgtest

import (
	"os"
	"syscall"
)

const (
	memoryDir = "/dev/shm"

	// enoughMemory is what several test binaries with a million rows each may need. The memory file system of a container often
	// has 64 MB, which the first copy of a database would exceed.
	enoughMemory = 4 << 30
)

// tempDir returns where servers keep their files: in memory if there is room, because copying a database creates three
// hundred files, which takes many times as long on a disk's file system. TMPDIR overrides that.
func tempDir() string {
	var room syscall.Statfs_t
	if os.Getenv("TMPDIR") == "" && syscall.Statfs(memoryDir, &room) == nil && room.Bavail*uint64(room.Bsize) >= enoughMemory {
		return memoryDir
	}
	return os.TempDir()
}
