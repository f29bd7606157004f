//go:build unix

package rig

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
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

// Previous builds the release before this one from the history of the repository. It skips the test if the history is not there.
func Previous(t testing.TB) *Release {
	t.Helper()
	const tests = "./internal/e2e/torture" // the name of the fault test in that release
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
	archive := filepath.Join(tree, "tree.tar")
	src := filepath.Join(tree, "src")
	if err := os.Mkdir(src, 0o755); err != nil {
		t.Fatal(err)
	}
	r := &Release{Belfry: filepath.Join(tree, "belfry"), Tests: filepath.Join(tree, "faulttest.test")}
	// With -trimpath, the build cache does not depend on the directory.
	for _, step := range [][]string{
		{root, "git", "archive", "--output", archive, PreviousCommit},
		{src, "tar", "-xf", archive},
		{src, "go", "build", "-trimpath", "-o", r.Belfry, "."},
		{src, "go", "test", "-c", "-trimpath", "-o", r.Tests, tests},
	} {
		if said, err := run(step[0], step[1], step[2:]...); err != nil {
			t.Fatalf("%s: %v\n%s", strings.Join(step[1:], " "), err, said)
		}
	}
	return r
}
