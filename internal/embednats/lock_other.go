//go:build !unix

package embednats

import (
	"os"
	"path/filepath"

	"github.com/belfryhq/belfry/internal/domain"
)

// lockDir does not lock here: there is no lock that a killed process surely gives up in the standard library.
// The port, which a second server on the same settings shares, is what keeps it out.
func lockDir(dir string) (*os.File, error) {
	f, err := os.OpenFile(filepath.Join(dir, "lock"), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, domain.WrapError(domain.Internal, "lock the NATS store directory", err)
	}
	return f, nil
}
