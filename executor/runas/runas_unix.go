//go:build unix

package runas

import (
	"fmt"
	"os"
)

func supported() error {
	if uid := os.Geteuid(); uid != 0 {
		return fmt.Errorf("only root can start programs under another account, and this process has the user id %d", uid)
	}
	return nil
}
