//go:build unix

package app

import (
	"fmt"
	"os"
	"syscall"

	"github.com/belfryhq/belfry/internal/domain"
)

// checkOwner returns a Conflict if the data directory belongs to another user. Files that this process, for example as root,
// writes there would be unreadable for the owner at the next start.
func checkOwner(dir string) error {
	info, err := os.Stat(dir)
	if err != nil {
		return fmt.Errorf("check --data-dir: %w", err)
	}
	st, ok := info.Sys().(*syscall.Stat_t)
	if !ok || int(st.Uid) == os.Geteuid() {
		return nil
	}
	return domain.NewError(domain.Conflict, fmt.Sprintf(
		"--data-dir %s belongs to user id %d, and this process runs as %d: start it as the directory's owner, or use another directory", dir, st.Uid, os.Geteuid()))
}
