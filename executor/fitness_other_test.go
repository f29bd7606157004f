//go:build !linux

package executor

import "testing"

func withoutFiles(t *testing.T, _ func()) {
	t.Helper()
	t.Skip("NOT COVERED: this test limits the process's file descriptors only on Linux")
}
