//go:build unix && !linux

package embedpg

import (
	"context"
	"errors"
	"os/exec"
	"strconv"
	"strings"
)

// processesOf returns the postmaster on the cluster if it runs. Its command line names the cluster, which distinguishes
// it from another process with the same id. Backends without a postmaster are not found here; takeCluster waits for
// them.
func processesOf(ctx context.Context, data string) ([]int, error) {
	pid := recordedPID(data)
	if pid == 0 {
		return nil, nil
	}
	command, err := exec.CommandContext(ctx, "/bin/ps", "-ww", "-o", "command=", "-p", strconv.Itoa(pid)).Output()
	var none *exec.ExitError
	if errors.As(err, &none) && ctx.Err() == nil {
		return nil, nil // ps found no such process
	}
	if err != nil {
		return nil, err
	}
	if !strings.Contains(string(command), data) {
		return nil, nil
	}
	return []int{pid}, nil
}
