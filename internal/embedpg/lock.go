package embedpg

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// lockDataDir makes the calling process the owner of dir until the returned file is closed.
func lockDataDir(dir string) (*os.File, error) {
	file, err := os.OpenFile(lockPath(dir), os.O_RDWR|os.O_CREATE|openNoFollow, 0o600)
	if err != nil {
		return nil, fmt.Errorf("open the lock on the data directory: %w", err)
	}
	held, err := tryLock(file)
	if err == nil && !held {
		err = &InUseError{DataDir: dir, PID: readPID(file)}
	}
	if err == nil {
		err = writePID(file)
	}
	if err != nil {
		closeQuietly(file)
		return nil, err
	}
	return file, nil
}

// waitLock waits for the lock on work that only one process at a time should do.
func waitLock(ctx context.Context, path string) (*os.File, error) {
	file, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|openNoFollow, 0o600)
	if err != nil {
		return nil, err
	}
	tick := time.NewTicker(10 * pollInterval)
	defer tick.Stop()
	for {
		held, err := tryLock(file)
		if held {
			return file, nil
		}
		if err != nil {
			closeQuietly(file)
			return nil, err
		}
		select {
		case <-ctx.Done():
			closeQuietly(file)
			return nil, context.Cause(ctx)
		case <-tick.C:
		}
	}
}

func writePID(file *os.File) error {
	if err := file.Truncate(0); err != nil {
		return fmt.Errorf("write the lock on the data directory: %w", err)
	}
	if _, err := file.WriteAt([]byte(strconv.Itoa(os.Getpid())+"\n"), 0); err != nil {
		return fmt.Errorf("write the lock on the data directory: %w", err)
	}
	return nil
}

// readPID returns 0 if the owner has locked the file but not written it yet.
func readPID(file *os.File) int {
	content, err := io.ReadAll(io.NewSectionReader(file, 0, 32))
	if err != nil {
		return 0
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(content)))
	if err != nil {
		return 0
	}
	return pid
}

// Free reports whether dir is a data directory that no live process owns.
func Free(dir string) (bool, error) {
	file, err := os.OpenFile(lockPath(dir), os.O_RDWR|openNoFollow, 0)
	if err != nil {
		return false, fmt.Errorf("open the lock on the data directory: %w", err)
	}
	defer closeQuietly(file)
	return tryLock(file)
}

func lockPath(dir string) string { return filepath.Join(dir, "postgres.lock") }
