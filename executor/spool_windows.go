package executor

import (
	"errors"
	"io"
	"os"
	"syscall"
)

// errSharingViolation is the Windows error for a file that another process has opened exclusively.
const errSharingViolation syscall.Errno = 32

// lockFile opens a file exclusively.
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

// syncDir does nothing. Windows has no such call and orders renames itself.
func syncDir(string) error { return nil }
