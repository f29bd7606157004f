package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/belfryhq/belfry/internal/client"
	"github.com/belfryhq/belfry/internal/domain"
	"github.com/belfryhq/belfry/internal/jobfile"
)

// waiting holds the flags of commands that start runs.
type waiting struct {
	Wait    bool          `short:"w" env:"BELFRY_WAIT" help:"Wait until the run is finished, and print why it waits; exit with 1 if it does not succeed."`
	Follow  bool          `short:"f" env:"BELFRY_FOLLOW" help:"Print the run's log while it runs, and wait."`
	Timeout time.Duration `env:"BELFRY_WAIT_TIMEOUT" default:"0s" help:"Maximum wait; 0s is no limit. The run itself continues."`
}

const (
	firstPoll   = 100 * time.Millisecond
	slowestPoll = time.Second
	tellEvery   = 2 * time.Second
	mostTold    = 10
	// mostShards bounds the list of a job's runs. It exceeds the number of shards of one broadcast plus the other runs between
	// them.
	mostShards = 5000
)

// await prints the ids of runs and, if requested, waits until they end.
func (a *app) await(cl *client.Client, form string, ids []domain.RunID, w waiting) error {
	if !w.Wait && !w.Follow {
		return a.print(form, map[string]any{"run_ids": ids}, func(t *table) {
			for _, id := range ids {
				t.row(id)
			}
		})
	}
	ctx := a.ctx
	if w.Timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeoutCause(ctx, w.Timeout, fmt.Errorf("not finished within %s", w.Timeout))
		defer cancel()
	}
	hush := a.tellWaits(ctx, cl, ids, tellEvery)
	defer hush()
	if w.Follow {
		if err := a.followAll(ctx, cl, form, ids); err != nil {
			hush()
			if ctx.Err() != nil {
				return a.gaveUp(ctx, cl, ids)
			}
			a.printError(fmt.Errorf("follow the log: %w", err)) // the outcome of the run still determines the exit code
		}
	}
	runs, err := waitAll(ctx, cl, ids)
	hush()
	if err != nil {
		if ctx.Err() != nil {
			return a.gaveUp(ctx, cl, ids)
		}
		return err
	}
	if err := a.printEnds(form, runs, w.Follow); err != nil {
		return err
	}
	for _, r := range runs {
		if r.State != domain.Succeeded {
			return errNotSucceeded
		}
	}
	return nil
}

// lastLook limits the time that gaveUp takes.
const lastLook = 5 * time.Second

// gaveUp returns why a wait ended before its runs did. After a timeout, the error says why each run waits.
func (a *app) gaveUp(ctx context.Context, cl *client.Client, ids []domain.RunID) error {
	err := context.Cause(ctx)
	if a.ctx.Err() != nil {
		return err // an interrupt needs no explanation
	}
	look, cancel := context.WithTimeout(a.ctx, lastLook)
	defer cancel()
	for _, id := range ids[:min(len(ids), mostTold)] {
		if r, seen := cl.Run(look, id); seen == nil && !r.State.Final() {
			err = fmt.Errorf("%w; %s", err, unfinished(r))
		}
	}
	return err
}

// tellWaits prints on stderr why runs do not start, and prints again when the reason changes, because a run may wait for minutes.
// The caller must call hush before it writes to stderr itself.
func (a *app) tellWaits(ctx context.Context, cl *client.Client, ids []domain.RunID, every time.Duration) (hush func()) {
	ctx, cancel := context.WithCancel(ctx)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		told := make(map[domain.RunID]string)
		tick := time.NewTicker(every)
		defer tick.Stop()
		for {
			select {
			case <-tick.C:
			case <-ctx.Done():
				return
			}
			for _, id := range ids[:min(len(ids), mostTold)] {
				r, err := cl.Run(ctx, id)
				if err != nil || r.Waiting == nil {
					continue // the run is about to start, or the wait itself reports the error
				}
				if text := unfinished(r); text != told[id] {
					told[id] = text
					fmt.Fprintln(a.stderr, printable(text))
				}
			}
		}
	}()
	return func() { cancel(); <-ended }
}

// unfinished describes the progress of a run and why it waits.
func unfinished(r domain.Run) string {
	text := fmt.Sprintf("run %s is %s", r.ID, r.State)
	switch {
	case r.HeldBy != nil:
		text += fmt.Sprintf(", held by run %s", *r.HeldBy)
	case r.Waiting != nil:
		text += ": " + r.Waiting.Text
	case r.Note != "":
		text += ": " + r.Note
	case r.State == domain.Running && r.StartedAt != nil:
		text += fmt.Sprintf(" on %s since %s", r.Instance, people(r.StartedAt.Time))
	case (r.State == domain.Pending || r.State == domain.Retrying) && r.DueAt != nil:
		text += ", due at " + people(r.DueAt.Time)
	}
	return text
}

// printEnds prints the outcomes of runs. With a followed log, the table goes to stderr, and JSON and YAML are left out.
func (a *app) printEnds(form string, runs []domain.Run, followed bool) error {
	if followed && form != "table" {
		return nil
	}
	if form != "table" {
		return a.print(form, runs, nil)
	}
	w := a.stdout
	if followed {
		w = a.stderr
	}
	for _, r := range runs {
		text := fmt.Sprintf("%s %s", r.ID, r.State)
		if r.Reason != domain.NoReason {
			text += " (" + string(r.Reason) + ")"
		}
		if r.DurationMS != nil {
			text += " in " + milliseconds(r.DurationMS)
		}
		if r.Message != "" {
			text += ": " + printable(r.Message)
		}
		if _, err := fmt.Fprintln(w, text); err != nil {
			return err
		}
	}
	return nil
}

// waitAll waits until all runs, and all shards of their broadcasts, are final.
func waitAll(ctx context.Context, cl *client.Client, ids []domain.RunID) ([]domain.Run, error) {
	var runs []domain.Run
	seen, listed := make(map[domain.RunID]bool), make(map[domain.RunID]bool)
	for len(ids) > 0 {
		id := ids[0]
		ids = ids[1:]
		if seen[id] {
			continue
		}
		seen[id] = true
		r, err := waitFinal(ctx, cl, id)
		if err != nil {
			return nil, err
		}
		runs = append(runs, r)
		if r.BroadcastID != nil && !listed[*r.BroadcastID] {
			listed[*r.BroadcastID] = true
			shards, err := cl.Runs(ctx, client.RunFilter{JobID: r.JobID}, mostShards)
			if err != nil {
				return nil, err
			}
			for _, s := range shards {
				if s.BroadcastID != nil && *s.BroadcastID == *r.BroadcastID {
					ids = append(ids, s.ID)
				}
			}
		}
	}
	return runs, nil
}

func waitFinal(ctx context.Context, cl *client.Client, id domain.RunID) (domain.Run, error) {
	for poll := firstPoll; ; poll = min(poll*3/2, slowestPoll) {
		r, err := cl.Run(ctx, id)
		if err != nil || r.State.Final() {
			return r, err
		}
		t := time.NewTimer(poll)
		select {
		case <-t.C:
		case <-ctx.Done():
			t.Stop()
			return r, ctx.Err()
		}
	}
}

// followAll prints the logs of runs as they arrive. With several runs, each line starts with the number of its run.
func (a *app) followAll(ctx context.Context, cl *client.Client, form string, ids []domain.RunID) error {
	w := a.logWriter(form, false)
	g, ctx := errgroup.WithContext(ctx)
	for i, id := range ids {
		g.Go(func() error {
			return cl.FollowLog(ctx, id, 1, func(l domain.LogLine) error {
				if len(ids) > 1 && form == "table" {
					l.Text = fmt.Sprintf("[%d] %s", i, l.Text)
				}
				return w.line(l)
			})
		})
	}
	return g.Wait()
}

// logWriter prints log lines; goroutines may share it.
type logWriter struct {
	mu         sync.Mutex
	w          io.Writer
	form       string
	timestamps bool
	terminal   bool
}

func (a *app) logWriter(form string, timestamps bool) *logWriter {
	_, terminal := fileOf(a.stdout)
	return &logWriter{w: a.stdout, form: form, timestamps: timestamps, terminal: terminal}
}

func (w *logWriter) line(l domain.LogLine) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	switch w.form {
	case "json":
		e := json.NewEncoder(w.w)
		e.SetEscapeHTML(false)
		return e.Encode(l)
	case "yaml":
		text, err := jobfile.YAML(l)
		if err != nil {
			return err
		}
		_, err = fmt.Fprintf(w.w, "---\n%s", text)
		return err
	}
	text := logText(l.Text, w.terminal)
	if w.timestamps {
		text = fmt.Sprintf("%s %-5s %d %s", l.At, l.Level, l.Attempt, text)
	}
	_, err := fmt.Fprintln(w.w, text)
	if err != nil {
		return errors.Join(errReported, err) // the reader of the output is gone
	}
	return nil
}
