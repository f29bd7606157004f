package embedpg

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

const minMajor = 14 // the oldest version that the Postgres project maintained when this was written

// binaries is one installation of Postgres.
type binaries struct {
	dir   string // of initdb and postgres
	major int
}

func (b binaries) path(program string) string { return filepath.Join(b.dir, program) }

// findBinaries returns an installation for a cluster of the given major version or, if major is 0, the best one for a
// new cluster.
func findBinaries(ctx context.Context, binDir string, major int, cache string, log *slog.Logger) (binaries, error) {
	var dirs []string
	if binDir != "" {
		dirs = []string{binDir}
	} else {
		dirs = installedDirs("/")
	}
	var found []binaries
	var broken []error
	for _, dir := range dirs {
		bin, err := inspect(ctx, dir)
		if err != nil {
			broken = append(broken, err)
			continue
		}
		if major == 0 && bin.major >= minMajor || bin.major == major {
			return bin, nil
		}
		found = append(found, bin)
	}
	switch {
	case binDir != "" && len(broken) > 0:
		return binaries{}, errors.Join(broken...)
	case binDir == "" && (major == 0 || major == downloadMajor):
		return defaultDownload(cache, log).binaries(ctx)
	case major == 0:
		return binaries{}, fmt.Errorf("%s holds Postgres %d; at least %d is needed", binDir, found[0].major, minMajor)
	default:
		return binaries{}, &VersionError{Major: major, Found: majors(found)}
	}
}

// VersionError means that no installed Postgres can open the cluster, because each major version opens only its own
// clusters.
type VersionError struct {
	Major int   // of the Postgres that created the cluster
	Found []int // installed major versions
}

func (e *VersionError) Error() string {
	have := "no other is installed"
	if len(e.Found) > 0 {
		have = fmt.Sprintf("only %v was found", e.Found)
	}
	return fmt.Sprintf("the cluster was made by Postgres %d, and %s: install Postgres %d, or take the data over with pg_upgrade or pg_dump", e.Major, have, e.Major)
}

func majors(found []binaries) []int {
	var list []int
	for _, bin := range found {
		list = append(list, bin.major)
	}
	slices.Sort(list)
	return slices.Compact(list)
}

// installedDirs lists the possible locations of Postgres in order of preference: first the one in the caller's PATH,
// then those of packagers, newest first. root is "/" except in tests.
func installedDirs(root string) []string {
	var dirs []string
	if path, err := exec.LookPath("postgres"); err == nil {
		// Packages link the program into PATH; the other programs are next to the link's target.
		if target, err := filepath.EvalSymlinks(path); err == nil {
			dirs = append(dirs, filepath.Dir(target))
		}
		dirs = append(dirs, filepath.Dir(path))
	}
	for _, pattern := range []string{
		"usr/lib/postgresql/*/bin",                               // Debian, Ubuntu
		"usr/pgsql-*/bin",                                        // PGDG on Red Hat
		"usr/libexec/postgresql*",                                // Alpine
		"opt/homebrew/opt/postgresql*/bin",                       // Homebrew on Apple silicon
		"usr/local/opt/postgresql*/bin",                          // Homebrew on Intel
		"Applications/Postgres.app/Contents/Versions/[0-9]*/bin", // Postgres.app
	} {
		matches, err := filepath.Glob(filepath.Join(root, pattern))
		if err != nil {
			panic(err) // the pattern itself is malformed
		}
		slices.SortFunc(matches, func(a, b string) int { return versionIn(b) - versionIn(a) })
		dirs = append(dirs, matches...)
	}
	return slices.DeleteFunc(dirs, func(dir string) bool {
		_, errInit := os.Stat(filepath.Join(dir, "initdb"))
		_, errServer := os.Stat(filepath.Join(dir, "postgres"))
		return errInit != nil || errServer != nil
	})
}

// versionIn returns the last number in a path, or 0.
func versionIn(path string) int {
	fields := strings.FieldsFunc(path, func(r rune) bool { return r < '0' || r > '9' })
	if len(fields) == 0 {
		return 0
	}
	version, err := strconv.Atoi(fields[len(fields)-1])
	if err != nil {
		return 0
	}
	return version
}

// inspect runs the server program to get its version.
func inspect(ctx context.Context, dir string) (binaries, error) {
	if _, err := os.Stat(filepath.Join(dir, "initdb")); err != nil {
		return binaries{}, fmt.Errorf("look for Postgres: %w", err)
	}
	output, err := exec.CommandContext(ctx, filepath.Join(dir, "postgres"), "--version").Output()
	if err != nil {
		return binaries{}, fmt.Errorf("get the version of %s/postgres: %w", dir, err)
	}
	major, err := parseVersion(string(output))
	if err != nil {
		return binaries{}, fmt.Errorf("get the version of %s/postgres: %w", dir, err)
	}
	return binaries{dir: dir, major: major}, nil
}

// parseVersion parses lines such as "postgres (PostgreSQL) 15.18 (Debian 15.18-0)" and "postgres (PostgreSQL) 18beta1".
func parseVersion(line string) (int, error) {
	_, rest, found := strings.Cut(line, "(PostgreSQL) ")
	end := 0
	for end < len(rest) && rest[end] >= '0' && rest[end] <= '9' {
		end++
	}
	major, err := strconv.Atoi(rest[:end])
	if !found || err != nil {
		return 0, fmt.Errorf("%q names no version", strings.TrimSpace(line))
	}
	return major, nil
}
