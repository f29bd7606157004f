//go:build !linux

package pgtest

import "os"

// tempDir returns where servers keep their files.
func tempDir() string { return os.TempDir() }
