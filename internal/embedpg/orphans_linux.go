package embedpg

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// processesOf returns the Postgres processes on the cluster. Each of them has its data directory as working directory.
// Processes that cannot be inspected belong to other users.
func processesOf(_ context.Context, data string) ([]int, error) {
	want, err := os.Stat(data)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil, fmt.Errorf("list processes: %w", err)
	}
	var found []int
	for _, entry := range entries {
		pid, err := strconv.Atoi(entry.Name())
		if err != nil {
			continue
		}
		proc := filepath.Join("/proc", entry.Name())
		dir, err := os.Stat(filepath.Join(proc, "cwd"))
		if err != nil || !os.SameFile(dir, want) {
			continue
		}
		// The working directory of another program, such as a shell, may be this directory too.
		if exe, err := os.Readlink(filepath.Join(proc, "exe")); err == nil && strings.Contains(filepath.Base(exe), "postgres") {
			found = append(found, pid)
		}
	}
	return found, nil
}
