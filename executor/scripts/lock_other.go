//go:build !unix

package scripts

import (
	"io"
	"os"
)

// lockFile opens a file and keeps it open. On these systems, a directory with an open file cannot be removed, which is
// sufficient.
func lockFile(path string) (io.Closer, error) { return os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600) }
