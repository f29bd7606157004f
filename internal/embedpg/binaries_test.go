package embedpg

import (
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"testing"
)

func TestParseVersion(t *testing.T) {
	for line, want := range map[string]int{
		"postgres (PostgreSQL) 15.18 (Debian 15.18-0+deb12u1)\n": 15,
		"postgres (PostgreSQL) 18beta1\n":                        18,
		"postgres (PostgreSQL) 9.6.24\n":                         9,
		"postgres (PostgreSQL) \n":                               0,
		"mysqld 8.0\n":                                           0,
		"":                                                       0,
	} {
		got, err := parseVersion(line)
		if got != want || (err == nil) != (want != 0) {
			t.Errorf("parseVersion(%q) = %d, %v; want %d", line, got, err, want)
		}
	}
}

func TestInstalledDirsComeNewestFirst(t *testing.T) {
	t.Setenv("PATH", t.TempDir()) // nothing there
	root := t.TempDir()
	for _, dir := range []string{"usr/lib/postgresql/9.6/bin", "usr/lib/postgresql/15/bin", "usr/lib/postgresql/17/bin", "opt/homebrew/opt/postgresql@16/bin"} {
		installFake(t, filepath.Join(root, dir), 0)
	}
	// A directory with client programs only is not an installation.
	if err := os.MkdirAll(filepath.Join(root, "usr/lib/postgresql/18/bin"), 0o755); err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, dir := range installedDirs(root) {
		relative, err := filepath.Rel(root, dir)
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, relative)
	}
	want := []string{"usr/lib/postgresql/17/bin", "usr/lib/postgresql/15/bin", "usr/lib/postgresql/9.6/bin", "opt/homebrew/opt/postgresql@16/bin"}
	if !slices.Equal(got, want) {
		t.Errorf("installedDirs = %q, want %q", got, want)
	}
}

func TestTooOldBinariesAreRefused(t *testing.T) {
	dir := t.TempDir()
	installFake(t, dir, minMajor-1)
	if bin, err := findBinaries(t.Context(), dir, 0, t.TempDir(), slog.New(slog.DiscardHandler)); err == nil {
		t.Errorf("found %v", bin)
	}
	// An existing cluster of that version still uses these binaries.
	if bin, err := findBinaries(t.Context(), dir, minMajor-1, t.TempDir(), slog.New(slog.DiscardHandler)); err != nil || bin.dir != dir {
		t.Errorf("found %v, %v", bin, err)
	}
}

func TestBinDirWithoutPostgresIsRefused(t *testing.T) {
	if bin, err := findBinaries(t.Context(), t.TempDir(), 0, t.TempDir(), slog.New(slog.DiscardHandler)); err == nil {
		t.Errorf("found %v", bin)
	}
}

// installFake writes programs into dir that only print their version.
func installFake(t *testing.T, dir string, major int) {
	t.Helper()
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	script := "#!/bin/sh\necho 'postgres (PostgreSQL) " + strconv.Itoa(major) + ".1'\n"
	for _, program := range []string{"initdb", "postgres"} {
		if err := os.WriteFile(filepath.Join(dir, program), []byte(script), 0o755); err != nil {
			t.Fatal(err)
		}
	}
}
