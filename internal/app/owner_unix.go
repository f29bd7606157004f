//go:build unix

package app

import (
	"fmt"
	"os"
	"syscall"

	"github.com/belfryhq/belfry/internal/domain"
)

// checkOwner refuses a data directory that is another user's: what is written there as somebody else, as root above
// all, its owner could not read at his next start.
func checkOwner(dir string) error {
	info, err := os.Stat(dir)
	if err != nil {
		return fmt.Errorf("look at --data-dir: %w", err)
	}
	st, ok := info.Sys().(*syscall.Stat_t)
	if !ok || int(st.Uid) == os.Geteuid() {
		return nil
	}
	return domain.NewError(domain.Conflict, fmt.Sprintf(
		"--data-dir %s belongs to user id %d, and this process runs as %d: start it as its owner, or name another directory", dir, st.Uid, os.Geteuid()))
}
