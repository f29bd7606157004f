package embedpg

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
)

const (
	orphanFastTimeout = 20 * time.Second // how long an orphan may write its checkpoint before it gets stronger signals
	unseenTimeout     = 30 * time.Second // for processes on the cluster that are not visible from here
)

// takeCluster returns the cluster's running lock, which proves that no Postgres process uses it. The postmaster
// inherits the lock, and its backends inherit it from the postmaster. So the lock also covers processes that
// stopOrphans cannot see: those in another container that shares the directory, and, on systems other than Linux,
// backends without a postmaster.
func (c *cluster) takeCluster(ctx context.Context) (*os.File, error) {
	bounded, cancel := context.WithTimeoutCause(ctx, unseenTimeout, errors.New("processes that are not visible from here still use it"))
	defer cancel()
	running, err := waitLock(bounded, filepath.Join(c.base, "running.lock"))
	if err != nil {
		return nil, fmt.Errorf("take over the Postgres cluster %s: %w", c.base, err)
	}
	// Without a process on the cluster, its pid file is stale. Postgres would detect that itself, unless the process id
	// belongs to another process by now.
	if err := os.Remove(pidFile(c.data())); err != nil && !errors.Is(err, fs.ErrNotExist) {
		closeQuietly(running)
		return nil, fmt.Errorf("remove a stale pid file: %w", err)
	}
	return running, nil
}

// stopOrphans stops every visible process on the cluster. The caller holds the data directory's lock, so none of them
// has an owner.
func stopOrphans(ctx context.Context, data string, log *slog.Logger) error {
	orphans, err := processesOf(ctx, data)
	if err != nil {
		return fmt.Errorf("find a Postgres left running on %s: %w", data, err)
	}
	if len(orphans) == 0 {
		return nil
	}
	log.Info("stopping a Postgres that an earlier process left running", "pids", orphans)
	return endOrphans(ctx, data, orphans)
}

// endOrphans starts with the method that loses the least: the postmaster's fast shutdown, then an immediate shutdown of
// every process, then SIGKILL, after which Postgres recovers as after a crash.
func endOrphans(ctx context.Context, data string, orphans []int) error {
	if postmaster := recordedPID(data); slices.Contains(orphans, postmaster) {
		gone, err := endAndWait(ctx, data, []int{postmaster}, syscall.SIGINT, orphanFastTimeout)
		if gone || err != nil {
			return err
		}
	}
	for _, signal := range []syscall.Signal{syscall.SIGQUIT, syscall.SIGKILL} {
		left, err := processesOf(ctx, data)
		if err != nil {
			return err
		}
		gone, err := endAndWait(ctx, data, left, signal, immediateTimeout)
		if gone || err != nil {
			return err
		}
	}
	return fmt.Errorf("a Postgres without an owner still runs on %s and cannot be stopped: processes %v", data, orphans)
}

func endAndWait(ctx context.Context, data string, pids []int, signal syscall.Signal, timeout time.Duration) (gone bool, err error) {
	for _, pid := range pids {
		if err := signalProcess(pid, signal); err != nil {
			return false, fmt.Errorf("stop the orphaned Postgres with process id %d: %w", pid, err)
		}
	}
	tick := time.NewTicker(pollInterval)
	defer tick.Stop()
	for deadline := time.Now().Add(timeout); time.Now().Before(deadline); {
		left, err := processesOf(ctx, data)
		if err != nil || len(left) == 0 {
			return err == nil, err
		}
		select {
		case <-ctx.Done():
			return false, fmt.Errorf("wait for an orphaned Postgres to end: %w", context.Cause(ctx))
		case <-tick.C:
		}
	}
	return false, nil
}

func pidFile(data string) string { return filepath.Join(data, "postmaster.pid") }

// recordedPID returns the postmaster's process id from the pid file, or 0.
func recordedPID(data string) int {
	content, err := os.ReadFile(pidFile(data))
	if err != nil {
		return 0
	}
	first, _, _ := strings.Cut(string(content), "\n")
	pid, err := strconv.Atoi(strings.TrimSpace(first))
	if err != nil || pid < 2 {
		return 0
	}
	return pid
}
