package pgtest

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/belfryhq/belfry/internal/embedpg"
)

// Clock sets the clock of a Postgres server of its own. The machine's clock does not change.
type Clock struct {
	t    testing.TB
	file string // the offset from the machine's clock, as libfaketime reads it
}

// Set sets the server's clock to the machine's clock plus ahead. It takes effect at once.
func (c *Clock) Set(ahead time.Duration) {
	c.t.Helper()
	fresh := c.file + ".new"
	if err := os.WriteFile(fresh, fmt.Appendf(nil, "%+.3f\n", ahead.Seconds()), 0o644); err != nil {
		c.t.Fatal(err)
	}
	if err := os.Rename(fresh, c.file); err != nil {
		c.t.Fatal(err)
	}
}

// DatabaseWithClock returns the URL of a migrated database on a server of its own, whose clock the test can set. The server runs
// under libfaketime, which changes the readings of the wall clock, but not of the monotonic clock. Without libfaketime, the test is
// skipped. The server ends with the test.
func DatabaseWithClock(t testing.TB, migrate Migrate) (url string, clock *Clock) {
	t.Helper()
	library := faketime()
	if library == "" {
		t.Skip("NOT COVERED: a step of the database's clock, because libfaketime is not installed")
	}
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	bin, err := embedpg.Binaries(ctx)
	if err != nil {
		t.Fatal(err)
	}
	// Postgres may run under another account, which cannot enter the directories of package testing.
	dir, err := os.MkdirTemp("", "belfry-faketime-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	clock = &Clock{t: t, file: filepath.Join(dir, "ahead")}
	clock.Set(0)
	settings := fmt.Sprintf("LD_PRELOAD='%s' FAKETIME_TIMESTAMP_FILE='%s' FAKETIME_NO_CACHE=1 FAKETIME_DONT_FAKE_MONOTONIC=1 NO_FAKE_STAT=1 ", library, clock.file)
	wrap := func(program, environment string) {
		script := fmt.Sprintf("#!/bin/sh\n%sexec '%s' \"$@\"\n", environment, filepath.Join(bin, program))
		if err := os.WriteFile(filepath.Join(dir, program), []byte(script), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	wrap("initdb", "")
	wrap("postgres", settings)
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	url, stop, err := startEphemeral(ctx, dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		if err := stop(ctx); err != nil {
			t.Errorf("stop Postgres: %v", err)
		}
	})
	if err := migrate(ctx, url); err != nil {
		t.Fatalf("migrate: %v", err)
	}
	return url, clock
}

// faketime returns the path of libfaketime as packagers install it, or "".
func faketime() string {
	for _, pattern := range []string{"/usr/lib/*/faketime/libfaketime.so.1", "/usr/lib*/faketime/libfaketime.so.1"} {
		if found, err := filepath.Glob(pattern); err == nil && len(found) > 0 {
			return found[0]
		}
	}
	return ""
}
