package scripts

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/belfryhq/belfry/executor"
	"github.com/belfryhq/belfry/executor/internal/process"
	"github.com/belfryhq/belfry/executor/runas"
)

const (
	// maxBuilds bounds the number of programs that are kept. Above it, the least recently used one is deleted.
	maxBuilds = 64
	// buildTimeout bounds one build, however many runs wait for it.
	buildTimeout = 10 * time.Minute
)

// builds holds the programs that were built from Go scripts, by digest. Concurrent runs share one build per digest. A
// failed build is not kept, so the next run builds again.
type builds struct {
	mu   sync.Mutex
	all  map[string]*build
	uses int64
	wg   sync.WaitGroup
}

type build struct {
	dir    string
	users  int           // runs that use the program or wait for it
	used   int64         // a use counter; higher means later
	done   chan struct{} // closed when binary or err is set
	binary string
	err    error
	cancel context.CancelFunc
}

// of returns the program of a script. If there is none, of builds it below base. The caller calls done when it no
// longer needs the program. When no caller waits for a build any more, the build is cancelled.
func (b *builds) of(ctx context.Context, toolchain toolchain, base string, script executor.Script) (binary string, done func(), err error) {
	one := b.join(toolchain, base, script)
	done = func() { b.leave(script.SHA256, one) }
	select {
	case <-one.done:
		err = one.err
	case <-ctx.Done():
		err = context.Cause(ctx)
	}
	if err == nil {
		return one.binary, done, nil
	}
	done()
	return "", nil, err
}

// join adds the caller to the users of a build. If there is no build yet, join starts one.
func (b *builds) join(toolchain toolchain, base string, script executor.Script) *build {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.uses++
	one := b.all[script.SHA256]
	if one != nil && one.gone() {
		delete(b.all, script.SHA256)
		one = nil
	}
	if one == nil {
		ctx, cancel := context.WithTimeout(context.Background(), buildTimeout)
		one = &build{done: make(chan struct{}), cancel: cancel}
		if b.all == nil {
			b.all = make(map[string]*build)
		}
		b.all[script.SHA256] = one
		b.wg.Go(func() {
			defer cancel()
			dir, binary, err := compile(ctx, toolchain, base, script)
			b.mu.Lock()
			defer b.mu.Unlock()
			if one.dir, one.binary, one.err = dir, binary, err; err != nil && b.all[script.SHA256] == one {
				delete(b.all, script.SHA256)
			}
			close(one.done)
		})
	}
	one.users++
	one.used = b.uses
	return one
}

// gone reports whether the program of a finished build has been deleted from disk. The caller holds the mutex.
func (one *build) gone() bool {
	select {
	case <-one.done:
		_, err := os.Stat(one.binary)
		return err != nil
	default:
		return false
	}
}

func (b *builds) leave(sha string, one *build) {
	b.mu.Lock()
	defer b.mu.Unlock()
	one.users--
	select {
	case <-one.done:
	default:
		if one.users == 0 { // an unfinished build without users
			one.cancel()
			delete(b.all, sha)
		}
		return
	}
	for len(b.all) > maxBuilds {
		oldest := ""
		for sha, other := range b.all {
			if other.users == 0 && (oldest == "" || other.used < b.all[oldest].used) {
				oldest = sha
			}
		}
		if oldest == "" {
			return
		}
		_ = os.RemoveAll(b.all[oldest].dir) // remaining files are deleted with the Runner's directory
		delete(b.all, oldest)
	}
}

// close cancels the unfinished builds and waits for their end.
func (b *builds) close() {
	b.mu.Lock()
	for _, one := range b.all {
		one.cancel()
	}
	b.all = nil
	b.mu.Unlock()
	b.wg.Wait()
}

// compile builds the program of a script in a new directory.
func compile(ctx context.Context, toolchain toolchain, base string, script executor.Script) (dir, binary string, err error) {
	foreign, err := inspect(script.Code)
	if err != nil {
		return "", "", executor.BadScript(err)
	}
	if dir, err = os.MkdirTemp(base, "build-"); err != nil {
		return "", "", fmt.Errorf("make the directory of the build: %w", err)
	}
	defer func() {
		if err != nil {
			_ = remove(dir) // remaining files are deleted with the Runner's directory
		}
	}()
	file := filepath.Join(dir, "main.go")
	if err = os.WriteFile(file, script.Code, 0o600); err != nil {
		return "", "", fmt.Errorf("write the script: %w", err)
	}
	if err = toolchain.own(base, file, dir); err != nil {
		return "", "", err
	}
	if said, err := toolchain.run(ctx, base, dir, "mod", "init", "script"); err != nil {
		return "", "", executor.Unsupported(fmt.Errorf("prepare the build: %w\n%s", err, said))
	}
	if foreign {
		// This step is separate from the build, because an unavailable proxy is not the script's fault.
		if said, err := toolchain.run(ctx, base, dir, "mod", "tidy"); err != nil {
			return "", "", fmt.Errorf("find the modules that the script imports: %w\n%s", err, said)
		}
	}
	binary = filepath.Join(dir, "script")
	said, err := toolchain.run(ctx, base, dir, "build", "-o", binary, ".")
	switch {
	case ctx.Err() != nil:
		return "", "", fmt.Errorf("build the script: %w", ctx.Err())
	case err != nil:
		return "", "", executor.BadScript(fmt.Errorf("the script does not build:\n%s", cmp.Or(said, err.Error())))
	}
	return dir, binary, nil
}

// inspect reports whether a program imports packages outside the standard library.
func inspect(code []byte) (foreign bool, err error) {
	f, err := parser.ParseFile(token.NewFileSet(), "main.go", code, parser.ImportsOnly)
	if err != nil {
		return false, fmt.Errorf("the script is no Go program: %w", err)
	}
	if f.Name.Name != "main" {
		return false, fmt.Errorf("the script is package %s; a program is package main", f.Name.Name)
	}
	for _, i := range f.Imports {
		first, _, _ := strings.Cut(strings.Trim(i.Path.Value, "`\""), "/")
		foreign = foreign || strings.Contains(first, ".")
	}
	return foreign, nil
}

// toolchain is the program go, and the account that it and the programs that it builds run under.
type toolchain struct {
	program string
	as      *runas.Account // nil means this process's account
}

// The directories of an account's builds, in the Runner's directory. The account may have no home directory.
const (
	cacheDir  = "go-cache"
	goPathDir = "go"
)

// own gives the files of a build to the account, and makes the directories that its builds share.
func (t toolchain) own(base string, files ...string) error {
	if t.as == nil {
		return nil
	}
	for _, name := range []string{cacheDir, goPathDir} {
		dir := filepath.Join(base, name)
		if err := os.Mkdir(dir, 0o700); err != nil && !errors.Is(err, os.ErrExist) {
			return fmt.Errorf("make a directory for builds: %w", err)
		}
		files = append(files, dir)
	}
	return t.as.Own(files...)
}

// run runs the toolchain in a script's module and returns its output. It uses this process's GOPROXY and similar
// settings.
func (t toolchain) run(ctx context.Context, base, dir string, args ...string) (said string, err error) {
	env := process.Inherited(t.as)
	if t.as != nil {
		for _, name := range []string{"GOPROXY", "GONOPROXY", "GOPRIVATE", "GOSUMDB", "GONOSUMDB", "GOTOOLCHAIN"} {
			if value, ok := os.LookupEnv(name); ok {
				env = append(env, name+"="+value)
			}
		}
		env = append(env, "GOCACHE="+filepath.Join(base, cacheDir), "GOPATH="+filepath.Join(base, goPathDir))
	}
	env = append(env, "GO111MODULE=on", "GOWORK=off", "GOFLAGS="+strings.TrimSpace(os.Getenv("GOFLAGS")+" -mod=mod"))
	var text bytes.Buffer
	err = process.Quiet(ctx, process.Program{Argv: append([]string{t.program}, args...), Dir: dir, Env: env, As: t.as}, &text)
	if ctx.Err() != nil {
		return "", errors.Join(ctx.Err(), err)
	}
	var lines []string
	for line := range strings.SplitSeq(strings.TrimSpace(text.String()), "\n") {
		if !strings.HasPrefix(line, "# ") && !strings.HasPrefix(line, "go: creating new go.mod") {
			lines = append(lines, line)
		}
	}
	return strings.Join(lines, "\n"), err
}
