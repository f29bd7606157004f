//go:build unix

package freeport

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"syscall"
)

// lockFile is one file for all ports; each port is a lock on one byte. It stays open, because closing it would release
// all locks.
var lockFile = sync.OnceValues(func() (*os.File, error) {
	return os.OpenFile(filepath.Join(os.TempDir(), fmt.Sprintf("belfry-test-ports-%d", os.Getuid())), os.O_CREATE|os.O_RDWR, 0o600)
})

// lock reports whether this process got the port's lock.
func lock(port int) (bool, error) {
	err := set(syscall.F_WRLCK, port)
	if errors.Is(err, syscall.EAGAIN) || errors.Is(err, syscall.EACCES) {
		return false, nil
	}
	return err == nil, err
}

func unlock(port int) { _ = set(syscall.F_UNLCK, port) } // the end of the process releases it too

func set(kind int16, port int) error {
	f, err := lockFile()
	if err != nil {
		return err
	}
	return syscall.FcntlFlock(f.Fd(), syscall.F_SETLK, &syscall.Flock_t{Type: kind, Start: int64(port), Len: 1})
}
