// Package scripts runs the scripts of jobs by the interpreters of this machine; programs in Go are built first. An
// executor that shall run scripts registers a Runner:
//
//	r, err := scripts.New(scripts.Options{Languages: []string{"bash", "python"}})
//	e.RegisterScripts(r, r.Languages()...)
//
// A script runs as this process's user, and can do what that user can, such as reading the environment of this process
// where the system lets it. So languages are allowed one by one, and none by default. What scripts of different groups must not see of each other
// needs executors under different users.
//
// # A run
//
// Each run has a directory of its own: the script's file, and an empty working directory beside it. It is removed when the
// run has ended. Arguments are the param, the shard's index and the number of shards; the environment is this
// process's without its BELFRY_ variables, and with those that tell of the run (see docs/scripts.md). What the script
// writes becomes the run's log, up to a bound past which it goes on unheard. The exit status 0 is success. On a timeout
// or a kill the script's whole process group gets SIGTERM, and after 5 s SIGKILL.
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
)

// Options say what a Runner runs.
type Options struct {
	// Languages are those that are allowed, of Known.
	Languages []string
	// Dir is the directory below which runs have theirs. Default: os.TempDir().
	Dir string
	// LogBytes bounds what one run may write into its log, with 32 bytes for each line. Default 32 MiB.
	LogBytes int64
}

// language is how scripts of one language are run.
type language struct {
	name     string
	programs []string // interpreters, the first that is found counts
	options  []string // before the script's file
	file     string   // the script's name, whose ending some interpreters want
	env      []string
}

// languages are all that are known.
func languages() []language {
	return []language{
		{name: "bash", programs: []string{"bash"}, file: "script.sh"},
		{name: "sh", programs: []string{"sh"}, file: "script.sh"},
		// Without a terminal Python would keep its output back until there is a lot of it.
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

// Runner is an executor.ScriptRunner. Make it with New.
type Runner struct {
	options   Options
	languages map[string]interpreter
	builds    builds

	mu  sync.Mutex
	dir *workshop // made by the first run
}

// interpreter is a language with the program that was found for it.
type interpreter struct {
	language
	program string
}

// New finds the interpreters of the languages. Its error names each language that is not known and each whose
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

// find returns the path of the first of the programs that is on PATH.
func find(programs []string) (string, error) {
	for _, p := range programs {
		if path, err := exec.LookPath(p); err == nil {
			return filepath.Abs(path) // the script runs in a directory of its own
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

// Close removes what the Runner has on disk. No run may be under way.
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
	env, err := environ(run, l, dir)
	if err != nil {
		return err
	}
	index, total := run.Shard()
	err = process.Run(ctx, run, process.Program{
		Argv: append(argv, run.Param(), strconv.Itoa(index), strconv.Itoa(total)),
		Dir:  filepath.Join(dir, workDir), Env: env, LogBytes: r.options.LogBytes,
	})
	if errors.Is(err, exec.ErrNotFound) || errors.Is(err, os.ErrNotExist) { // it was there when the executor started
		return executor.Unsupported(err)
	}
	return err
}

// The names within a run's directory.
const (
	workDir    = "work"
	parentFile = "parent-output"
)

// runDir makes the directory of a run, with the working directory in it.
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

// base returns the directory of this Runner, and makes it where there is none or somebody cleaned up.
func (r *Runner) base() (string, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.dir != nil {
		if _, err := os.Stat(r.dir.path); err == nil {
			return r.dir.path, nil
		}
		_ = r.dir.close() // nothing is left of it
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
	r.dir = w
	return w.path, nil
}

// command writes the script into the run's directory, building it where that is needed, and returns how to call it. done
// is to be called when it has ended.
func (r *Runner) command(ctx context.Context, l interpreter, dir string, script executor.Script) (argv []string, done func(), err error) {
	if l.name == goLanguage {
		base, err := r.base()
		if err != nil {
			return nil, nil, fmt.Errorf("make the directory of builds: %w", err)
		}
		binary, done, err := r.builds.of(ctx, l.program, base, script)
		return []string{binary}, done, err
	}
	// The script's file is written for each run: another script could have changed a file that they share.
	file := filepath.Join(dir, l.file)
	if err := os.WriteFile(file, script.Code, 0o600); err != nil {
		return nil, nil, fmt.Errorf("write the script: %w", err)
	}
	return append(append([]string{l.program}, l.options...), file), func() {}, nil
}

// environ is the environment of a run. What its parent left is in a file, too, for it may be longer than a variable.
func environ(run executor.Run, l interpreter, dir string) ([]string, error) {
	env := append(process.Inherited(), l.env...)
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
