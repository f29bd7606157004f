//go:build !unix || solaris || illumos || aix

package spool

import (
	"errors"
	"io"
	"os"
)

// lockFile creates a file that must not exist. If a process was killed, its file must be removed by hand.
func lockFile(name string) (io.Closer, error) {
	f, err := os.OpenFile(name, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
	if errors.Is(err, os.ErrExist) {
		return nil, ErrLocked
	}
	if err != nil {
		return nil, err
	}
	return unlocker{f, name}, nil
}

type unlocker struct {
	*os.File
	name string
}

// Close removes the file.
func (u unlocker) Close() error { return errors.Join(u.File.Close(), os.Remove(u.name)) }

// syncDir does nothing, because directories cannot be synchronized here.
func syncDir(string) error { return nil }
