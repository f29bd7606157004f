//go:build unix

package scripts

import (
	"io"
	"os"
	"syscall"
)

// lockFile locks a file until the file is closed or the process ends. It fails at once if another process holds the
// lock.
func lockFile(path string) (io.Closer, error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		f.Close()
		return nil, err
	}
	return f, nil
}
