package pgtest

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/belfryhq/belfry/internal/embedpg"
)

const (
	dirPrefix = "belfry-pgtest-"

	// litterAge is the minimum age of a directory that is removed, because a directory that another test binary has just
	// created is not locked yet.
	litterAge = 10 * time.Minute
)

// startEphemeral starts a server in a new temporary directory. binDir is as in embedpg.Config.
func startEphemeral(ctx context.Context, binDir string) (url string, stop func(context.Context) error, err error) {
	parent := tempDir()
	removeLitter(parent, time.Now())
	dir, err := os.MkdirTemp(parent, dirPrefix)
	if err != nil {
		return "", nil, err
	}
	server, err := embedpg.Start(ctx, embedpg.Config{DataDir: dir, Ephemeral: true, BinDir: binDir})
	if err != nil {
		return "", nil, errors.Join(fmt.Errorf("start Postgres: %w", err), os.RemoveAll(dir))
	}
	return server.URL(), func(ctx context.Context) error {
		return errors.Join(server.Stop(ctx), os.RemoveAll(dir))
	}, nil
}

// removeLitter deletes the files that killed test binaries have left. Errors are ignored, for example because the files
// belong to another user.
func removeLitter(parent string, now time.Time) {
	dirs, err := filepath.Glob(filepath.Join(parent, dirPrefix+"*"))
	if err != nil {
		panic(err) // the pattern itself is malformed
	}
	for _, dir := range dirs {
		info, err := os.Lstat(dir)
		if err != nil || !info.IsDir() || now.Sub(info.ModTime()) < litterAge {
			continue
		}
		if free, err := embedpg.Free(dir); err == nil && free {
			_ = os.RemoveAll(dir)
		}
	}
}
