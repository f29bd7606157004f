//go:build unix

package rig

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// natsPy is the client library that docs/examples/executor.py needs.
const natsPy = "nats-py==2.16.0"

// Python returns a Python interpreter that has the library of docs/examples/executor.py. Why is the reason if there is
// none. The library is kept in a virtual environment in the user's cache directory. Python downloads it only if
// BELFRY_TEST_DOWNLOAD is set.
func Python(t testing.TB) (interpreter, why string) {
	t.Helper()
	home, err := os.UserCacheDir()
	if err != nil {
		home = os.TempDir()
	}
	dir := filepath.Join(home, "belfry-ci", strings.ReplaceAll(natsPy, "==", "-"))
	interpreter = filepath.Join(dir, "bin", "python3")
	if hasNATS(interpreter) {
		return interpreter, ""
	}
	if os.Getenv("BELFRY_TEST_DOWNLOAD") == "" {
		return "", natsPy + " is not installed; BELFRY_TEST_DOWNLOAD=1 fetches it from PyPI"
	}
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	made, err := os.MkdirTemp(t.TempDir(), "venv")
	if err != nil {
		t.Fatal(err)
	}
	for _, args := range [][]string{
		{"python3", "-m", "venv", made}, {filepath.Join(made, "bin", "pip"), "install", "--quiet", "--disable-pip-version-check", natsPy},
	} {
		if out, err := exec.CommandContext(ctx, args[0], args[1:]...).CombinedOutput(); err != nil {
			return "", strings.Join(args, " ") + ": " + err.Error() + "\n" + string(out)
		}
	}
	// The installed packages are found through the interpreter, so the directory may move.
	if err := os.MkdirAll(filepath.Dir(dir), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(made, dir); err != nil || !hasNATS(interpreter) {
		if here := filepath.Join(made, "bin", "python3"); errors.Is(err, syscall.EXDEV) || hasNATS(here) {
			return here, "" // another process has made the directory, or it is on another file system
		}
		t.Fatalf("keep the virtual environment: %v", err)
	}
	return interpreter, ""
}

func hasNATS(python string) bool {
	return exec.Command(python, "-c", "import nats.aio.client").Run() == nil
}
