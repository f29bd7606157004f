//go:build !unix

package embednats

import (
	"os"
	"path/filepath"

	"github.com/belfryhq/belfry/internal/domain"
)

// lockDir does not lock on this system: the standard library has no lock here that is certainly released when a process
// is killed. A second server with the same settings fails because the port is in use.
func lockDir(dir string) (*os.File, error) {
	f, err := os.OpenFile(filepath.Join(dir, "lock"), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, domain.WrapError(domain.Internal, "lock the NATS store directory", err)
	}
	return f, nil
}
