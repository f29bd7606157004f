package rig

import (
	"os"
	"path/filepath"
	"syscall"
	"testing"
)

// SmallDisk mounts a small file system on a directory, which it creates, until the test ends. size is as in the mount option of tmpfs.
// It returns why it cannot.
func SmallDisk(t testing.TB, dir, size string) (why string) {
	t.Helper()
	if os.Geteuid() != 0 {
		return "only root can mount a small file system"
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Mount("tmpfs", dir, "tmpfs", 0, "mode=0700,size="+size); err != nil {
		return "the kernel does not mount a small file system: " + err.Error()
	}
	t.Cleanup(func() { _ = syscall.Unmount(dir, syscall.MNT_DETACH) })
	return ""
}

// Fill fills the file system of a directory, and returns a function that makes room again.
func Fill(dir string) (empty func(), err error) {
	file, err := os.Create(filepath.Join(dir, "ballast"))
	if err != nil {
		return func() {}, err
	}
	defer file.Close()
	for chunk := make([]byte, 4096); err == nil; {
		_, err = file.Write(chunk)
	}
	return func() { _ = os.Remove(file.Name()) }, nil
}
