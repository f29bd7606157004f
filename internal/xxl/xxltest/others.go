package xxltest

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// The versions of the executors in other languages.
const (
	goExecutor = "github.com/xxl-job/xxl-job-executor-go@v1.2.0"
	pyxxl      = "pyxxl==0.4.8"
)

// Go builds the program with executor-go in a separate module, so that Belfry's module does not depend on it. The go command fetches it from the
// module proxy.
func Go(t *testing.T) Program {
	t.Helper()
	dir := t.TempDir()
	source, err := os.ReadFile(testdata("goexecutor", "main.go"))
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "main.go"), source, 0o644); err != nil {
		t.Fatal(err)
	}
	program := filepath.Join(dir, "executor")
	for _, args := range [][]string{{"mod", "init", "executor"}, {"get", goExecutor}, {"build", "-o", program, "."}} {
		cmd := exec.CommandContext(t.Context(), "go", args...)
		cmd.Dir, cmd.Env = dir, append(os.Environ(), "GOWORK=off", "GOFLAGS=-mod=mod")
		runs(t, cmd)
	}
	return Program{func(s settings) *exec.Cmd { return exec.Command(program, s.admin, s.app, s.token, fmt.Sprint(s.port)) }}
}

// Python installs pyxxl in a virtual environment. BELFRY_XXL_PYTHON is an interpreter that has it.
func Python(t *testing.T) Program {
	t.Helper()
	interpreter := os.Getenv("BELFRY_XXL_PYTHON")
	if interpreter == "" {
		needs(t, "executors in Python", "python3 and python3-venv", "python3")
		dir := filepath.Join(t.TempDir(), "venv")
		interpreter = filepath.Join(dir, "bin", "python3")
		runs(t, exec.CommandContext(t.Context(), "python3", "-m", "venv", dir))
		runs(t, exec.CommandContext(t.Context(), filepath.Join(dir, "bin", "pip"), "install", "--quiet", "--disable-pip-version-check", pyxxl))
	}
	return Program{func(s settings) *exec.Cmd {
		cmd := exec.Command(interpreter, "-u", testdata("pyexecutor", "executor.py"), s.admin, s.app, s.token, fmt.Sprint(s.port), s.logs)
		cmd.Dir, cmd.Env = s.logs, append(os.Environ(), "PYTHONDONTWRITEBYTECODE=1")
		return cmd
	}}
}
