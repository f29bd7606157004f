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

// Clock sets the clock of one Postgres server. The machine's clock does not change.
type Clock struct {
	t    testing.TB
	file string    // its modification time is the clock's reading at the server's start
	base time.Time // the modification time without a step
}

// Set sets the server's clock to what it would be without any step, plus ahead in whole seconds. It takes effect at once.
func (c *Clock) Set(ahead time.Duration) {
	c.t.Helper()
	if err := os.Chtimes(c.file, time.Time{}, c.base.Add(ahead)); err != nil {
		c.t.Fatal(err)
	}
}

// DatabaseWithClock returns the URL of a migrated database on a separate server, whose clock the test can set. Without libfaketime,
// the test is skipped. The server ends with the test. Its clock is behind the machine's by up to the duration of its start.
func DatabaseWithClock(t testing.TB, migrate Migrate) (url string, clock *Clock) {
	t.Helper()
	dir, clock := WithClock(t)
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
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

// WithClock returns a directory of Postgres programs, for embedpg.Config.BinDir, and the clock of the server that is started with
// them. The server runs under libfaketime, which changes the readings of the wall clock, but not of the monotonic clock. Without
// libfaketime, the test is skipped.
//
// libfaketime takes the time from the modification time of a file, because it cannot read a file safely: Postgres also reads the
// clock in signal handlers, which may have interrupted an earlier reading.
func WithClock(t testing.TB) (dir string, clock *Clock) {
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
	dir, err = os.MkdirTemp("", "belfry-faketime-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	clock = &Clock{t: t, file: filepath.Join(dir, "started"), base: time.Now()}
	if err := os.WriteFile(clock.file, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	clock.Set(0)
	settings := fmt.Sprintf("LD_PRELOAD='%s' FAKETIME='%%' FAKETIME_FOLLOW_FILE='%s' FAKETIME_DONT_RESET=1 FAKETIME_NO_CACHE=1 FAKETIME_DONT_FAKE_MONOTONIC=1 NO_FAKE_STAT=1 ", library, clock.file)
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
	return dir, clock
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
