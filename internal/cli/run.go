package cli

import (
	"errors"
	"fmt"
	"time"

	"github.com/belfryhq/belfry/internal/client"
	"github.com/belfryhq/belfry/internal/domain"
)

type runCmd struct {
	connection
	List  runListCmd  `cmd:"" help:"List runs, newest first."`
	Get   runGetCmd   `cmd:"" help:"Show one run and its attempts."`
	Log   runLogCmd   `cmd:"" help:"Print a run's log."`
	Kill  runKillCmd  `cmd:"" help:"End unfinished runs."`
	Retry runRetryCmd `cmd:"" help:"Run a finished run again, as a new run."`
}

func runID(s string) (domain.RunID, error) {
	id, err := domain.ParseRunID(s)
	if err != nil {
		return id, &usageError{fmt.Sprintf("%q: %v", s, err)}
	}
	return id, nil
}

type runListCmd struct {
	Job      string        `env:"BELFRY_JOB" placeholder:"JOB" help:"Only runs of this job: its id, or group/name."`
	Group    string        `short:"g" env:"BELFRY_RUN_GROUP" placeholder:"NAME" help:"Only runs of this group."`
	State    string        `env:"BELFRY_STATE" placeholder:"STATE" help:"Only runs in this state: pending, queued, running, retrying, succeeded, failed, cancelled or skipped."`
	Cause    string        `env:"BELFRY_CAUSE" placeholder:"CAUSE" help:"Only runs of this cause: schedule, misfire, manual, api, event, child or backfill."`
	Reason   string        `env:"BELFRY_REASON" placeholder:"REASON" help:"Only runs with this reason, such as lost or timeout."`
	Instance string        `env:"BELFRY_RUN_INSTANCE" placeholder:"NAME" help:"Only runs on this instance."`
	Since    time.Duration `env:"BELFRY_SINCE" placeholder:"DURATION" help:"Only runs of this last stretch of time, such as 24h."`
	Planned  bool          `env:"BELFRY_PLANNED" help:"Also runs that are planned and not yet due, as --state pending lists them."`
	Limit    int           `env:"BELFRY_LIMIT" default:"50" help:"Most runs to list."`
}

func (*runListCmd) Help() string {
	return "Runs planned for the next seconds are left out, unless --planned or --state pending asks for them.\n\n" +
		"Examples:\n\n    belfry run list --job default/report\n    belfry run list --state failed --since 24h -o json"
}

func (c *runListCmd) Run(a *app, parent *runCmd) error {
	cl, err := parent.dial()
	if err != nil {
		return err
	}
	defer cl.Close()
	f := client.RunFilter{Group: c.Group, State: c.State, Cause: c.Cause, Reason: c.Reason, Instance: c.Instance,
		Unplanned: !c.Planned && c.State == ""}
	if c.Job != "" {
		job, err := findJob(a.ctx, cl, c.Job)
		if err != nil {
			return err
		}
		f.JobID = job.ID
	}
	if c.Since > 0 {
		from := domain.At(time.Now().Add(-c.Since))
		f.From = &from
	}
	runs, err := cl.Runs(a.ctx, f, c.Limit)
	if err != nil {
		return err
	}
	a.noteLimit(len(runs), c.Limit)
	return a.print(parent.Output, runs, func(t *table) {
		t.row("ID", "JOB", "CAUSE", "STATE", "REASON", "FIRE TIME", "STARTED", "DURATION", "ATTEMPT", "INSTANCE")
		for _, r := range runs {
			name := shown(r.Group+"/"+r.JobName, 60)
			if r.Shard != nil {
				name += fmt.Sprintf(" [%d/%d]", r.Shard.Index, r.Shard.Total)
			}
			t.row(r.ID, name, r.Cause, r.State, r.Reason, r.FireTime, r.StartedAt, milliseconds(r.DurationMS),
				fmt.Sprintf("%d/%d", r.Attempt, r.MaxAttempts), r.Instance)
		}
	})
}

type runGetCmd struct {
	ID string `arg:"" help:"The run's id."`
}

func (*runGetCmd) Help() string {
	return "Example:\n\n    belfry run get 019a9d2c-7b40-8000-8000-0123456789ab"
}

func (c *runGetCmd) Run(a *app, parent *runCmd) error {
	id, err := runID(c.ID)
	if err != nil {
		return err
	}
	cl, err := parent.dial()
	if err != nil {
		return err
	}
	defer cl.Close()
	r, err := cl.Run(a.ctx, id)
	if err != nil {
		return err
	}
	return a.print(parent.Output, r, func(t *table) { runTable(t, r) })
}

func runTable(t *table, r domain.Run) {
	t.pair("id", r.ID)
	t.pair("job", fmt.Sprintf("%s/%s (%d)", r.Group, r.JobName, r.JobID))
	t.pair("cause", r.Cause)
	t.pair("state", r.State)
	t.pair("reason", r.Reason)
	t.pair("message", r.Message)
	t.pair("waiting", r.Waiting)
	if r.HeldBy != nil {
		t.pair("held by", *r.HeldBy)
	}
	t.pair("note", r.Note)
	t.pair("param", shown(r.Param, 200))
	t.pair("output", shown(r.Output, 1000))
	t.pair("fire time", r.FireTime)
	t.pair("due", r.DueAt)
	t.pair("started", r.StartedAt)
	t.pair("finished", r.FinishedAt)
	t.pair("lateness", milliseconds(r.LatenessMS))
	t.pair("duration", milliseconds(r.DurationMS))
	t.pair("route", r.Route)
	t.pair("instance", r.Instance)
	if r.Shard != nil {
		t.pair("shard", fmt.Sprintf("%d of %d", r.Shard.Index, r.Shard.Total))
	}
	if r.BroadcastID != nil {
		t.pair("broadcast", *r.BroadcastID)
	}
	if r.ParentRunID != nil {
		t.pair("parent", *r.ParentRunID)
	}
	t.pair("attempt", fmt.Sprintf("%d of %d", r.Attempt, r.MaxAttempts))
	for _, at := range r.Attempts {
		text := attemptText(at)
		if at.Instance != "" {
			text = "on " + at.Instance + ": " + text
		}
		t.pair(fmt.Sprintf("attempt %d", at.Attempt), text)
	}
}

// attemptText says how an attempt ended, or how far it has come.
func attemptText(at domain.Attempt) string {
	var text string
	switch {
	case at.Outcome == "" && at.StartedAt == nil:
		return "not started yet"
	case at.Outcome == "":
		return "running since " + people(at.StartedAt.Time)
	case at.Reason == domain.NoReason:
		text = at.Outcome
	default:
		text = fmt.Sprintf("%s (%s)", at.Outcome, at.Reason)
	}
	if at.Message != "" {
		text += ": " + at.Message
	}
	if at.LateOutcome != "" {
		text += "; its instance reported " + at.LateOutcome + " later"
	}
	return text
}

type runLogCmd struct {
	ID         string `arg:"" help:"The run's id."`
	Follow     bool   `short:"f" env:"BELFRY_FOLLOW" help:"Go on until the run's log has ended."`
	From       int64  `env:"BELFRY_FROM" default:"1" help:"Number of the first line."`
	Timestamps bool   `short:"t" env:"BELFRY_TIMESTAMPS" help:"Print time, level and attempt of each line."`
}

func (*runLogCmd) Help() string {
	return "With -o json each line is one object; with -o yaml, one document.\n\nExample:\n\n    belfry run log -f 019a9d2c-7b40-8000-8000-0123456789ab"
}

// logPageLines is how many lines are asked for at once.
const logPageLines = 1000

func (c *runLogCmd) Run(a *app, parent *runCmd) error {
	id, err := runID(c.ID)
	if err != nil {
		return err
	}
	cl, err := parent.dial()
	if err != nil {
		return err
	}
	defer cl.Close()
	w := a.logWriter(parent.Output, c.Timestamps)
	if c.Follow {
		return cl.FollowLog(a.ctx, id, c.From, w.line)
	}
	for from := c.From; ; {
		page, err := cl.Log(a.ctx, id, from, logPageLines)
		if err != nil {
			return err
		}
		for _, l := range page.Lines {
			if err := w.line(l); err != nil {
				return err
			}
		}
		if page.End || len(page.Lines) == 0 || page.Next <= from {
			return nil
		}
		from = page.Next
	}
}

type runKillCmd struct {
	IDs []string `arg:"" name:"id" help:"Ids of runs."`
}

func (*runKillCmd) Help() string {
	return "It asks; the run is cancelled when its handler has returned or its process is gone.\n\nExample:\n\n    belfry run kill 019a9d2c-7b40-8000-8000-0123456789ab"
}

func (c *runKillCmd) Run(a *app, parent *runCmd) error {
	cl, err := parent.dial()
	if err != nil {
		return err
	}
	defer cl.Close()
	return a.each(c.IDs, func(ref string) error {
		id, err := runID(ref)
		if err != nil {
			return err
		}
		if err := cl.KillRun(a.ctx, id); err != nil {
			return err
		}
		fmt.Fprintf(a.stdout, "%s kill requested\n", id)
		return nil
	})
}

type runRetryCmd struct {
	ID string `arg:"" help:"The run's id."`
	waiting
}

func (*runRetryCmd) Help() string {
	return "It prints the new run's id.\n\nExample:\n\n    belfry run retry 019a9d2c-7b40-8000-8000-0123456789ab --wait"
}

func (c *runRetryCmd) Run(a *app, parent *runCmd) error {
	id, err := runID(c.ID)
	if err != nil {
		return err
	}
	cl, err := parent.dial()
	if err != nil {
		return err
	}
	defer cl.Close()
	ids, err := cl.RetryRun(a.ctx, id)
	if err != nil {
		return err
	}
	return a.await(cl, parent.Output, ids, c.waiting)
}

// errNotSucceeded is the end of a wait for runs of which one did not succeed.
var errNotSucceeded = errors.New("not every run succeeded")
