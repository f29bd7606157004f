// Package scripts runs the scripts of jobs with the interpreters of this machine. It compiles Go programs first. An
// executor registers a Runner to run scripts:
//
//	r, err := scripts.New(scripts.Options{Languages: []string{"bash", "python"}})
//	e.RegisterScripts(r, r.Languages()...)
//
// A script runs as this process's user, with that user's rights. For example, it can read the environment of this
// process if the system allows that. Each language must therefore be allowed explicitly; the default is none. To
// isolate the scripts of different groups from each other, run their executors under different users. A process that
// runs as root should give its scripts another account: see Options.RunAs.
//
// # A run
//
// Each run gets a new directory with the script's file and an empty working directory. The Runner removes it when the
// run has ended. The arguments are the param, the shard's index and the number of shards. The environment is this
// process's environment without its BELFRY_ variables, plus the variables that describe the run (see docs/scripts.md).
// The script's output becomes the run's log, up to a limit. Above the limit, the script continues and its output is
// dropped. Exit status 0 means success. On a timeout or a kill, the script's whole process group gets SIGTERM, and
// SIGKILL after 5 s.
package scripts

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/belfryhq/belfry/executor"
	"github.com/belfryhq/belfry/executor/internal/process"
	"github.com/belfryhq/belfry/executor/runas"
)

// Options are the settings of a Runner.
type Options struct {
	// Languages are the allowed languages, as named by Known.
	Languages []string
	// Dir is the parent of the Runner's directory. Default: os.TempDir().
	Dir string
	// RunAs is the account under which scripts run. Their environment is then that of RunAs.Environ, plus the variables
	// that describe the run. The account must be able to reach Dir. Nil means this process's account.
	RunAs *runas.Account
	// LogBytes bounds the log of one run, in bytes. Each line counts 32 bytes more than its length. Default 32 MiB.
	LogBytes int64
}

// language describes how to run scripts of one language.
type language struct {
	name     string
	programs []string // possible interpreters; the first one on PATH is used
	options  []string // arguments before the script's file
	file     string   // the script's file name; some interpreters require its extension
	env      []string
}

// languages returns all known languages.
func languages() []language {
	return []language{
		{name: "bash", programs: []string{"bash"}, file: "script.sh"},
		{name: "sh", programs: []string{"sh"}, file: "script.sh"},
		// Without a terminal, Python buffers its output.
		{name: "python", programs: []string{"python3", "python"}, file: "script.py", env: []string{"PYTHONUNBUFFERED=1"}},
		{name: "node", programs: []string{"node", "nodejs"}, file: "script.js"},
		{name: "php", programs: []string{"php"}, file: "script.php"},
		{name: "powershell", programs: []string{"pwsh", "powershell"}, options: []string{"-NoLogo", "-NoProfile", "-NonInteractive", "-File"}, file: "script.ps1"},
		{name: goLanguage, programs: []string{"go"}, file: "main.go"},
	}
}

const goLanguage = "go"

// Known returns the names of all languages.
func Known() []string {
	var names []string
	for _, l := range languages() {
		names = append(names, l.name)
	}
	return names
}

// Runner is an executor.ScriptRunner. Create it with New.
type Runner struct {
	options   Options
	languages map[string]interpreter
	builds    builds

	mu  sync.Mutex
	dir *workshop // created by the first run
}

// interpreter is a language with the path of its interpreter.
type interpreter struct {
	language
	program string
}

// New finds the interpreters of the languages. The error names each unknown language and each language whose
// interpreter is not on PATH.
func New(o Options) (*Runner, error) {
	r := &Runner{options: o, languages: make(map[string]interpreter)}
	known := languages()
	var faults []error
	for _, name := range o.Languages {
		i := slices.IndexFunc(known, func(l language) bool { return l.name == name })
		if i < 0 {
			faults = append(faults, fmt.Errorf("%q is no script language; known are %s", name, strings.Join(Known(), ", ")))
			continue
		}
		program, err := find(known[i].programs)
		if err != nil {
			faults = append(faults, fmt.Errorf("%s: %w", name, err))
			continue
		}
		r.languages[name] = interpreter{known[i], program}
	}
	return r, errors.Join(faults...)
}

// find returns the absolute path of the first program that is on PATH.
func find(programs []string) (string, error) {
	for _, p := range programs {
		if path, err := exec.LookPath(p); err == nil {
			return filepath.Abs(path) // absolute, because the script has another working directory
		}
	}
	return "", fmt.Errorf("there is no %s on PATH", strings.Join(programs, " or "))
}

// Languages returns the languages that the Runner runs, each once, sorted.
func (r *Runner) Languages() []string {
	var names []string
	for name := range r.languages {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

// Close removes the Runner's files. The caller must not call it while a run is in progress.
func (r *Runner) Close() error {
	r.builds.close()
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.dir == nil {
		return nil
	}
	err := r.dir.close()
	r.dir = nil
	return err
}

// RunScript implements executor.ScriptRunner.
func (r *Runner) RunScript(ctx context.Context, run executor.Run, script executor.Script) (err error) {
	l, ok := r.languages[script.Language]
	if !ok {
		return executor.Unsupported(fmt.Errorf("this executor runs no %s scripts", script.Language))
	}
	if strings.ContainsRune(run.Param(), 0) {
		return executor.Permanent(errors.New("param: a NUL cannot be passed to a program"))
	}
	dir, err := r.runDir()
	if err != nil {
		return fmt.Errorf("make the run's directory: %w", err)
	}
	defer func() {
		if left := remove(dir); left != nil {
			run.Log().Warn("the run's directory could not be removed: " + left.Error())
		}
	}()
	argv, done, err := r.command(ctx, l, dir, script)
	if err != nil {
		return err
	}
	defer done()
	env, err := r.environ(run, l, dir)
	if err != nil {
		return err
	}
	if err := r.handOver(dir); err != nil {
		return err
	}
	index, total := run.Shard()
	err = process.Run(ctx, run, process.Program{
		Argv: append(argv, run.Param(), strconv.Itoa(index), strconv.Itoa(total)),
		Dir:  filepath.Join(dir, workDir), Env: env, As: r.options.RunAs, LogBytes: r.options.LogBytes,
	})
	switch {
	case errors.Is(err, exec.ErrNotFound), errors.Is(err, os.ErrNotExist): // the interpreter existed when the executor started
		return executor.Unsupported(err)
	case r.options.RunAs != nil && errors.Is(err, os.ErrPermission):
		return executor.Unsupported(fmt.Errorf("%w: the account %s must be able to reach this program and the directory %s", err, r.options.RunAs.Name, dir))
	}
	return err
}

// handOver gives a run's directory and the files in it to the account that scripts run under. Before, only this process's
// user could access them.
func (r *Runner) handOver(dir string) error {
	if r.options.RunAs == nil {
		return nil
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return fmt.Errorf("read the run's directory: %w", err)
	}
	var paths []string
	for _, e := range entries {
		paths = append(paths, filepath.Join(dir, e.Name()))
	}
	return r.options.RunAs.Own(append(paths, dir)...)
}

// The names in a run's directory.
const (
	workDir    = "work"
	parentFile = "parent-output"
)

// runDir creates the directory of a run, including the working directory.
func (r *Runner) runDir() (string, error) {
	base, err := r.base()
	if err != nil {
		return "", err
	}
	dir, err := os.MkdirTemp(base, "run-")
	if err != nil {
		return "", err
	}
	if err := os.Mkdir(filepath.Join(dir, workDir), 0o700); err != nil {
		return "", errors.Join(err, os.RemoveAll(dir))
	}
	return dir, nil
}

// base returns the Runner's directory. It creates the directory if there is none or if another program deleted it.
func (r *Runner) base() (string, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.dir != nil {
		if _, err := os.Stat(r.dir.path); err == nil {
			return r.dir.path, nil
		}
		_ = r.dir.close() // the directory is gone, so its error does not matter
		r.dir = nil
	}
	dir := r.options.Dir
	if dir == "" {
		dir = os.TempDir()
	}
	w, err := openWorkshop(dir)
	if err != nil {
		return "", err
	}
	if r.options.RunAs != nil {
		// The account may reach the directories of its runs here, but not list or create any.
		if err := os.Chmod(w.path, 0o711); err != nil {
			return "", errors.Join(err, w.close())
		}
	}
	r.dir = w
	return w.path, nil
}

// command prepares the script for a run and returns the command line. It writes the script's file, or builds the
// program of a Go script. The caller calls done when the run has ended.
func (r *Runner) command(ctx context.Context, l interpreter, dir string, script executor.Script) (argv []string, done func(), err error) {
	if l.name == goLanguage {
		base, err := r.base()
		if err != nil {
			return nil, nil, fmt.Errorf("make the directory of builds: %w", err)
		}
		binary, done, err := r.builds.of(ctx, toolchain{l.program, r.options.RunAs}, base, script)
		return []string{binary}, done, err
	}
	// Each run gets a new file, because another script could have changed a shared one.
	file := filepath.Join(dir, l.file)
	if err := os.WriteFile(file, script.Code, 0o600); err != nil {
		return nil, nil, fmt.Errorf("write the script: %w", err)
	}
	return append(append([]string{l.program}, l.options...), file), func() {}, nil
}

// environ returns the environment of a run. It also writes the parent's output to a file, because that output may be
// too long for a variable.
func (r *Runner) environ(run executor.Run, l interpreter, dir string) ([]string, error) {
	env := append(process.Inherited(r.options.RunAs), l.env...)
	env = append(env, process.Told(run)...)
	if run.ParentRunID() == "" {
		return env, nil
	}
	file := filepath.Join(dir, parentFile)
	if err := os.WriteFile(file, []byte(run.ParentOutput()), 0o600); err != nil {
		return nil, fmt.Errorf("write the parent's output: %w", err)
	}
	return append(env, "BELFRY_PARENT_OUTPUT_FILE="+file), nil
}
