//go:build unix

package rig

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"
)

// PreviousCommit is the release before this one, which may use one database together with this one.
const PreviousCommit = "d343977"

// Release is what tests need of another release.
type Release struct {
	Belfry string // its binary
	Tests  string // the binary of its fault test, which can be started as an executor whose handlers write notes
}

// Previous returns the release before this one. It builds it from the history of the repository, and keeps the binaries in the user's
// cache directory. It skips the test if the history is not there.
func Previous(t testing.TB) *Release {
	t.Helper()
	const tests = "./internal/e2e/torture" // the name of the fault test in that release
	home, err := os.UserCacheDir()
	if err != nil {
		home = os.TempDir()
	}
	kept := filepath.Join(home, "belfry-ci", "release-"+PreviousCommit+"-"+runtime.Version()+"-"+runtime.GOARCH)
	in := func(dir string) *Release {
		return &Release{filepath.Join(dir, "belfry"), filepath.Join(dir, "faulttest.test")}
	}
	if _, err := os.Stat(kept); err == nil {
		return in(kept)
	}
	ctx, cancel := context.WithTimeout(t.Context(), Left(t, 20*time.Minute))
	defer cancel()
	root, tree := Root(t), t.TempDir()
	run := func(dir, name string, args ...string) (string, error) {
		cmd := exec.CommandContext(ctx, name, args...)
		cmd.Dir = dir
		out, err := cmd.CombinedOutput()
		return strings.TrimSpace(string(out)), err
	}
	if said, err := run(root, "git", "cat-file", "-e", PreviousCommit+"^{commit}"); err != nil {
		t.Skipf("NOT COVERED: the release before this one, because git has no commit %s (a shallow clone?): %v %s", PreviousCommit, err, said)
	}
	archive, src := filepath.Join(tree, "tree.tar"), filepath.Join(tree, "src")
	if err := os.Mkdir(src, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.MkdirAll(filepath.Dir(kept), 0o755); err != nil {
		t.Fatal(err)
	}
	made, err := os.MkdirTemp(filepath.Dir(kept), "building-") // on the same file system, so that it can be renamed
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = os.RemoveAll(made) }()
	for _, step := range [][]string{
		{root, "git", "archive", "--output", archive, PreviousCommit},
		{src, "tar", "-xf", archive},
		{src, "go", "build", "-o", in(made).Belfry, "."},
		{src, "go", "test", "-c", "-o", in(made).Tests, tests},
	} {
		if said, err := run(step[0], step[1], step[2:]...); err != nil {
			t.Fatalf("%s: %v\n%s", strings.Join(step[1:], " "), err, said)
		}
	}
	if err := os.Rename(made, kept); err != nil {
		if _, there := os.Stat(kept); there != nil { // another process may have been faster
			t.Fatal(err)
		}
	}
	return in(kept)
}
