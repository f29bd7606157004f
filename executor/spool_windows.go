package executor

import (
	"errors"
	"io"
	"os"
	"syscall"
)

// errSharingViolation is Windows' word for a file that another process has opened for itself alone.
const errSharingViolation syscall.Errno = 32

// lockFile opens a file that nobody else may open meanwhile.
func lockFile(name string) (io.Closer, error) {
	path, err := syscall.UTF16PtrFromString(name)
	if err != nil {
		return nil, err
	}
	h, err := syscall.CreateFile(path, syscall.GENERIC_READ|syscall.GENERIC_WRITE, 0, nil, syscall.OPEN_ALWAYS, syscall.FILE_ATTRIBUTE_NORMAL, 0)
	if errors.Is(err, errSharingViolation) {
		return nil, errSpoolLocked
	}
	if err != nil {
		return nil, err
	}
	return os.NewFile(uintptr(h), name), nil
}

// syncDir does nothing: Windows has no such call, and orders renames by itself.
func syncDir(string) error { return nil }
