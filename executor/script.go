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

// Script is one version of a job's script. Code is what its digest says: it was verified just before.
type Script struct {
	Language string
	Version  int    // counts the versions of the job's script from 1
	SHA256   string // of Code, in lower case hexadecimal
	Code     []byte
}

// ScriptRunner runs scripts. RunScript is for scripts what Handle is for handlers: it is called by many goroutines at once
// and should return soon after ctx is done. BadScript and Unsupported mark errors that lie in the script and in this
// machine. A runner that is an io.Closer is closed when Run ends. Package scripts has one for the usual languages.
type ScriptRunner interface {
	RunScript(ctx context.Context, run Run, script Script) error
}

// RegisterScripts lets this instance run scripts in the given languages, such as bash or python. Whoever may edit a job of
// the group then decides what this process runs. It panics when a language is empty or taken, or when Run was called.
func (e *Executor) RegisterScripts(r ScriptRunner, languages ...string) {
	for _, language := range languages {
		switch {
		case e.started.Load():
			panic("executor: scripts in " + language + " come after Run")
		case r == nil || language == "" || len(language) > 64:
			panic(fmt.Sprintf("executor: %q cannot name a language, or its runner is nil", language))
		case e.runners[language] != nil:
			panic("executor: a runner of scripts in " + language + " is there already")
		}
		e.runners[language] = r
	}
}

// BadScript marks err as lying in the script itself, such as code that does not compile: the run fails with the reason
// bad_script and without further attempts. BadScript(nil) is nil.
func BadScript(err error) error {
	if err == nil {
		return nil
	}
	return Permanent(&reasonError{err, reasonBadScript})
}

// Unsupported marks err as saying that this machine cannot run the script, such as an interpreter that is gone: the
// attempt fails with the reason unsupported. Unsupported(nil) is nil.
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

// ReasonOf is the reason of an attempt whose handler returned err: handler_error, unless BadScript or Unsupported marked it.
func ReasonOf(err error) string {
	var marked *reasonError
	if errors.As(err, &marked) {
		return marked.reason
	}
	return reasonHandler
}

// languages lists those that have a runner, sorted.
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

// scriptWait is how long an accepted attempt waits for the code of its script, with its slot. Belfry sends it as soon as
// the answer to the offer says that it is not here; an answer that is lost is made up for by handing the attempt back.
const scriptWait = 10 * time.Second

// runsScript reports whether a runner takes scripts as the offer's.
func (x *engine) runsScript(s *wire.Script) bool {
	return x.runners[s.Language] != nil && validDigest(s.SHA256)
}

// lacking adds the digest of an accepted offer's script to those that the answer asks for, unless its code is here.
func (x *engine) lacking(asked []string, s *wire.Script) []string {
	if s == nil || slices.Contains(asked, s.SHA256) || x.scripts.has(s.SHA256) {
		return asked
	}
	return append(asked, s.SHA256)
}

// fetch gives an attempt of a script its handler once the code is here. Without it the attempt cannot start.
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

// takeScript keeps code that a control request brings.
func (x *engine) takeScript(m *wire.Control) error {
	if len(x.runners) == 0 {
		return errors.New("unsupported: this executor runs no scripts")
	}
	return x.scripts.put(m.SHA256, m.Code)
}
