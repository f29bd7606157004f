//go:build unix && !linux

package rig

import (
	"errors"
	"testing"
)

// SmallDisk says that only Linux is supported.
func SmallDisk(testing.TB, string, string) (why string) {
	return "only Linux mounts a small file system"
}

// Fill does nothing.
func Fill(string) (empty func(), err error) { return func() {}, errors.ErrUnsupported }
