//go:build unix

package embedpg

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"syscall"
)

// openNoFollow refuses a symbolic link in place of the file.
const openNoFollow = syscall.O_NOFOLLOW

// tryLock takes the lock on file unless another process holds it. The lock ends with the last descriptor of this open
// file, so at the latest with the process: Go opens files with close-on-exec, so children do not inherit them.
func tryLock(file *os.File) (bool, error) {
	err := syscall.Flock(int(file.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
	if errors.Is(err, syscall.EWOULDBLOCK) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("lock %s: %w", file.Name(), err)
	}
	return true, nil
}

// ownerOf returns the user id of the file's owner.
func ownerOf(info fs.FileInfo) (int, error) {
	stat, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return 0, fmt.Errorf("the owner of %s is unknown", info.Name())
	}
	return int(stat.Uid), nil
}

func signalProcess(pid int, signal syscall.Signal) error {
	err := syscall.Kill(pid, signal)
	if errors.Is(err, syscall.ESRCH) {
		return nil
	}
	return err
}
