package executor

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/belfryhq/belfry/executor/wire"
)

// Script is one version of a job's script. The executor has checked Code against SHA256.
type Script struct {
	Language string
	Version  int    // counted from 1
	SHA256   string // of Code, in lower-case hexadecimal
	Code     []byte
}

// ScriptRunner runs scripts. The executor calls RunScript from many goroutines concurrently. RunScript should return
// soon after ctx is done. It marks an error in the script with BadScript, and a script that this machine cannot run
// with Unsupported. If a runner is an io.Closer, the executor closes it when Run ends. Package scripts has a runner for
// the usual languages.
type ScriptRunner interface {
	RunScript(ctx context.Context, run Run, script Script) error
}

// RegisterScripts lets this instance run scripts in the given languages, for example bash or python. Everyone who may
// edit a job of the group can then decide what this process runs. RegisterScripts panics if r is nil, if a language is
// empty, longer than 64 bytes or already registered, or if Run was called.
func (e *Executor) RegisterScripts(r ScriptRunner, languages ...string) {
	for _, language := range languages {
		switch {
		case e.started.Load():
			panic("executor: scripts in " + language + " are registered after Run was called")
		case r == nil || language == "" || len(language) > 64:
			panic(fmt.Sprintf("executor: %q cannot name a language, or its runner is nil", language))
		case e.runners[language] != nil:
			panic("executor: a runner of scripts in " + language + " is already registered")
		}
		e.runners[language] = r
	}
}

// BadScript marks err as a fault in the script itself, for example code that does not compile. The run fails with
// reason bad_script, without further attempts. BadScript(nil) is nil.
func BadScript(err error) error {
	if err == nil {
		return nil
	}
	return Permanent(&reasonError{err, reasonBadScript})
}

// Unsupported marks err as a sign that this machine cannot run the script, for example because an interpreter is
// missing. The attempt fails with reason unsupported. Unsupported(nil) is nil.
func Unsupported(err error) error {
	if err == nil {
		return nil
	}
	return &reasonError{err, reasonUnsupported}
}

const (
	reasonBadScript   = "bad_script"
	reasonUnsupported = "unsupported"
)

type reasonError struct {
	err    error
	reason string
}

func (e *reasonError) Error() string { return e.err.Error() }
func (e *reasonError) Unwrap() error { return e.err }

// ReasonOf returns the reason of an attempt whose handler returned err. It is handler_error, unless BadScript or
// Unsupported marked err.
func ReasonOf(err error) string {
	var marked *reasonError
	if errors.As(err, &marked) {
		return marked.reason
	}
	return reasonHandler
}

// languages returns the languages that have a runner, sorted.
func (e *Executor) languages() []string {
	names := make([]string, 0, len(e.runners))
	for language := range e.runners {
		names = append(names, language)
	}
	slices.Sort(names)
	return names
}

// closeRunners closes each runner once.
func (e *Executor) closeRunners() (errs []error) {
	closed := make(map[ScriptRunner]bool)
	for _, language := range e.languages() {
		r := e.runners[language]
		if c, ok := r.(io.Closer); ok && !closed[r] {
			closed[r] = true
			if err := c.Close(); err != nil {
				errs = append(errs, fmt.Errorf("close the runner of %s scripts: %w", language, err))
			}
		}
	}
	return errs
}

// scriptWait is how long an accepted attempt waits for its script's code. The attempt holds its slot during that time.
// Belfry sends the code when the answer to the offer asks for it. If that answer is lost, the executor hands the
// attempt back.
const scriptWait = 10 * time.Second

// runsScript reports whether a runner is registered for the script's language and its digest is valid.
func (x *engine) runsScript(s *wire.Script) bool {
	return x.runners[s.Language] != nil && validDigest(s.SHA256)
}

// lacking adds the digest of an accepted offer's script to asked, unless the cache has its code.
func (x *engine) lacking(asked []string, s *wire.Script) []string {
	if s == nil || slices.Contains(asked, s.SHA256) || x.scripts.has(s.SHA256) {
		return asked
	}
	return append(asked, s.SHA256)
}

// fetch waits for the code of an attempt's script and sets the attempt's handler. Without the code, the attempt cannot
// start.
func (x *engine) fetch(a *attempt) {
	s := a.script
	code, ok := x.scripts.await(s.SHA256, a.stop, scriptWait)
	if !ok {
		return
	}
	runner := x.runners[s.Language]
	script := Script{Language: s.Language, Version: s.Version, SHA256: s.SHA256, Code: code}
	a.handler = newRegistered(HandlerFunc(func(ctx context.Context, run Run) error { return runner.RunScript(ctx, run, script) }))
}

// takeScript stores the code from a control request.
func (x *engine) takeScript(m *wire.Control) error {
	if len(x.runners) == 0 {
		return errors.New("unsupported: this executor runs no scripts")
	}
	return x.scripts.put(m.SHA256, m.Code)
}
