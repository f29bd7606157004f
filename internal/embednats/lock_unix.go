//go:build unix

package embednats

import (
	"errors"
	"os"
	"path/filepath"
	"syscall"

	"github.com/belfryhq/belfry/internal/domain"
)

// lockDir locks the directory for this server. The kernel releases the lock with the process, so a SIGKILL leaves
// nothing to clean up.
func lockDir(dir string) (*os.File, error) {
	f, err := os.OpenFile(filepath.Join(dir, "lock"), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, domain.WrapError(domain.Internal, "lock the NATS store directory", err)
	}
	err = syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
	if err == nil {
		return f, nil
	}
	if errors.Is(err, syscall.EWOULDBLOCK) {
		err = domain.WrapError(domain.Conflict, "another NATS server uses "+dir+"; stop it or choose another --data-dir", err)
	} else {
		err = domain.WrapError(domain.Internal, "lock the NATS store directory", err)
	}
	return nil, errors.Join(err, f.Close())
}
