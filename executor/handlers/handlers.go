// Package handlers holds the handlers of the stock agent: http, command, sleep and echo. Any executor may register
// them. A handler fails permanently if its param is invalid, because a retry cannot fix that.
package handlers

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/belfryhq/belfry/executor"
	"github.com/belfryhq/belfry/executor/runas"
)

// Options selects the handlers that Register registers.
type Options struct {
	// AllowCommand also registers command. Everyone who may edit a job of the group can then run any program with the
	// rights of this process, or of RunAs.
	AllowCommand bool
	// RunAs is the account under which command runs programs. Nil means this process's account.
	RunAs *runas.Account
	// HTTP limits the addresses to which http connects.
	HTTP HTTPOptions
}

// Register registers http, sleep and echo under these names, and command if it is allowed.
func Register(e *executor.Executor, o Options) {
	e.HandleFunc("http", NewHTTP(o.HTTP))
	e.HandleFunc("sleep", Sleep)
	e.HandleFunc("echo", Echo)
	if o.AllowCommand {
		e.HandleFunc("command", NewCommand(o.RunAs))
	}
}

// Echo writes its param into the run's log and sets it as the output. If the param is longer than executor.MaxOutput
// bytes, Echo only logs it.
func Echo(_ context.Context, run executor.Run) error {
	run.Log().Info(run.Param())
	if len(run.Param()) > executor.MaxOutput {
		return nil
	}
	return run.SetOutput(run.Param())
}

// Sleep waits for the duration in its param: a duration string such as "2s", or a JSON number of seconds. An empty
// param means 1 s.
func Sleep(ctx context.Context, run executor.Run) error {
	d, err := sleepDuration(run.Param())
	if err != nil {
		return executor.Permanent(err)
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func sleepDuration(param string) (time.Duration, error) {
	param = strings.TrimSpace(param)
	if param == "" {
		return time.Second, nil
	}
	var text string
	var seconds float64
	switch {
	case json.Unmarshal([]byte(param), &seconds) == nil:
		const maxSeconds = 1e9
		if seconds < 0 || seconds > maxSeconds {
			return 0, fmt.Errorf("param: %s seconds is not from 0 to %.0f", param, maxSeconds)
		}
		return time.Duration(seconds * float64(time.Second)), nil
	case json.Unmarshal([]byte(param), &text) != nil:
		text = param
	}
	d, err := time.ParseDuration(text)
	if err != nil || d < 0 {
		return 0, fmt.Errorf(`param: %.100q is neither a duration such as "2s" nor a number of seconds`, param)
	}
	return d, nil
}

// decodeParam decodes a JSON object and rejects unknown fields, so that a misspelt field is noticed.
func decodeParam(param string, v any) error {
	if strings.TrimSpace(param) == "" {
		return errors.New("param: it is empty; a JSON value is needed")
	}
	dec := json.NewDecoder(strings.NewReader(param))
	dec.DisallowUnknownFields()
	if err := dec.Decode(v); err != nil {
		return fmt.Errorf("param: %w", err)
	}
	if dec.More() {
		return errors.New("param: more than one JSON value")
	}
	return nil
}
