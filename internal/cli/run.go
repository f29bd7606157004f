package cli

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/belfryhq/belfry/internal/client"
	"github.com/belfryhq/belfry/internal/domain"
)

type runCmd struct {
	connection
	List  runListCmd  `cmd:"" help:"List runs, newest first."`
	Get   runGetCmd   `cmd:"" help:"Show one run and its attempts."`
	Log   runLogCmd   `cmd:"" help:"Print a run's log."`
	Kill  runKillCmd  `cmd:"" help:"Kill unfinished runs."`
	Retry runRetryCmd `cmd:"" help:"Run a finished run again, as a new run."`
	Bulk  runBulkCmd  `cmd:"" help:"Kill or retry many runs, with a count before and the progress."`
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
	Since    time.Duration `env:"BELFRY_SINCE" placeholder:"DURATION" help:"Only runs of the last DURATION, such as 24h."`
	Bulk     int64         `env:"BELFRY_BULK" placeholder:"ID" help:"Only the new runs of this bulk action."`
	Q        string        `name:"q" short:"q" env:"BELFRY_RUN_QUERY" placeholder:"TEXT" help:"Only runs with this text in the message, the output or the param; case is ignored."`
	Cursor   string        `env:"BELFRY_CURSOR" placeholder:"CURSOR" help:"With --q: continue the search that printed this cursor, with the same flags."`
	Planned  *bool         `negatable:"" env:"BELFRY_PLANNED" help:"Also list runs that are planned but not yet due. The default with --state; --no-planned leaves them out there too."`
	Shards   bool          `env:"BELFRY_SHARDS" help:"Print one line for each shard of a broadcast instead of one for all."`
	Limit    int           `env:"BELFRY_LIMIT" default:"50" help:"Maximum number of runs to list."`
}

func (*runListCmd) Help() string {
	return "The list leaves out runs that are planned but not yet due, unless you give --planned or --state pending. All shards of a broadcast are one line.\n\n" +
		"With --q, the command searches the texts of the runs from new to old, for at most ten seconds. It prints how far back it searched, and how to continue. " +
		"Then -o json prints an object with items, next_cursor and searched_back_to, otherwise a list.\n\n" +
		"Examples:\n\n    belfry run list --job default/report\n    belfry run list --state failed --since 24h -o json\n    belfry run list --q \"connection refused\" --since 24h"
}

func (c *runListCmd) Run(a *app, parent *runCmd, cl *client.Client) error {
	f := client.RunFilter{Group: c.Group, State: c.State, Cause: c.Cause, Reason: c.Reason, Instance: c.Instance,
		Unplanned: c.State == "", BulkID: c.Bulk}
	if c.Planned != nil {
		f.Unplanned = !*c.Planned
	}
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
	if c.Q != "" {
		return c.search(a, parent.Output, cl, f)
	}
	if c.Cursor != "" {
		return &usageError{"--cursor needs --q"}
	}
	runs, err := cl.Runs(a.ctx, f, c.Limit)
	if err != nil {
		return err
	}
	a.noteLimit(len(runs), c.Limit)
	return a.print(parent.Output, runs, func(t *table) { c.table(t, runs) })
}

// searchFor is how long run list searches before it prints what it has found.
const searchFor = 10 * time.Second

// search prints the runs that contain the text, and how to continue.
func (c *runListCmd) search(a *app, form string, cl *client.Client, f client.RunFilter) error {
	found := client.RunSearch{Items: []domain.Run{}, NextCursor: c.Cursor}
	for begun := time.Now(); ; {
		page, err := cl.SearchRuns(a.ctx, f, c.Q, found.NextCursor, c.Limit-len(found.Items))
		if err != nil {
			return err
		}
		found.Items = append(found.Items, page.Items...)
		found.NextCursor, found.SearchedBackTo = page.NextCursor, page.SearchedBackTo
		if found.NextCursor == "" || len(found.Items) >= c.Limit || time.Since(begun) > searchFor {
			break
		}
	}
	if err := a.print(form, found, func(t *table) { c.table(t, found.Items) }); err != nil {
		return err
	}
	if found.SearchedBackTo != nil {
		fmt.Fprintf(a.stderr, "Searched back to %s.\n", people(found.SearchedBackTo.Time))
	}
	if found.NextCursor != "" {
		fmt.Fprintf(a.stderr, "There are older runs. To continue, repeat the command with --cursor %s\n", found.NextCursor)
	}
	return nil
}

func (c *runListCmd) table(t *table, runs []domain.Run) {
	t.row("ID", "JOB", "CAUSE", "STATE", "REASON", "FIRE TIME", "STARTED", "DURATION", "ATTEMPT", "INSTANCE")
	for _, line := range fold(runs) {
		if !c.Shards {
			line.row(t)
			continue
		}
		for _, r := range line {
			folded{r}.row(t)
		}
	}
}

type runGetCmd struct {
	ID string `arg:"" help:"The run's id."`
}

func (*runGetCmd) Help() string {
	return "Example:\n\n    belfry run get 019a9d2c-7b40-8000-8000-0123456789ab"
}

func (c *runGetCmd) Run(a *app, parent *runCmd, cl *client.Client) error {
	id, err := runID(c.ID)
	if err != nil {
		return err
	}
	r, err := a.runFamily(cl, id)
	if err != nil {
		return err
	}
	return a.print(parent.Output, r, func(t *table) { familyTable(t, r) })
}

func runTable(t *table, r domain.Run) {
	t.pair("id", r.ID)
	t.pair("job", fmt.Sprintf("%s/%s (%d)", r.Group, r.JobName, r.JobID))
	t.pair("cause", r.Cause)
	t.pair("state", r.State)
	t.pair("reason", r.Reason)
	t.pair("message", r.Message)
	t.pair("waiting", r.Waiting.String())
	if r.Waited != nil {
		t.pair("waited", fmt.Sprintf("%s: %s", milliseconds(&r.Waited.DurationMS), r.Waited.Text))
	}
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
	t.pair("route", r.Route.String())
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
			text = "on " + executorText(at) + ": " + text
		}
		t.pair(fmt.Sprintf("attempt %d", at.Attempt), text)
	}
}

// executorText names the executor of an attempt: its instance, version and host.
func executorText(at domain.Attempt) string {
	details := slices.DeleteFunc([]string{at.ExecutorVersion, at.Host}, func(s string) bool { return s == "" || s == at.Instance })
	if len(details) == 0 {
		return at.Instance
	}
	return fmt.Sprintf("%s (%s)", at.Instance, strings.Join(details, ", "))
}

// attemptText describes the outcome or the progress of an attempt.
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
	Follow     bool   `short:"f" env:"BELFRY_FOLLOW" help:"Print new lines until the log ends."`
	From       int64  `env:"BELFRY_FROM" default:"1" help:"Number of the first line."`
	Tail       int64  `env:"BELFRY_TAIL" placeholder:"N" help:"Start N lines before the end; at most 10000."`
	Grep       string `env:"BELFRY_GREP" placeholder:"TEXT" help:"Only lines that contain this text, ignoring case."`
	Level      string `env:"BELFRY_LEVEL" placeholder:"LEVEL" help:"Only lines of these levels, separated by commas: debug, info, warn, error, stdout, stderr."`
	Timestamps bool   `short:"t" env:"BELFRY_TIMESTAMPS" help:"Print time, level and attempt of each line."`
}

func (*runLogCmd) Help() string {
	return "With -o json, each line is an object. With -o yaml, each line is a document.\n\nExamples:\n\n    belfry run log -f 019a9d2c-7b40-8000-8000-0123456789ab\n" +
		"    belfry run log 019a9d2c-7b40-8000-8000-0123456789ab --tail 1000 --grep timeout --level warn,error"
}

// fits reports whether a new line passes the filter. The server filters the lines that exist already.
func (c *runLogCmd) fits(l domain.LogLine) bool {
	return strings.Contains(strings.ToLower(colour.ReplaceAllString(l.Text, "")), strings.ToLower(c.Grep)) &&
		(c.Level == "" || slices.Contains(strings.Split(c.Level, ","), l.Level))
}

// mostTail is the limit of the API.
const mostTail = 10_000

// logPageLines is the number of lines in one request.
const logPageLines = 1000

func (c *runLogCmd) Run(a *app, parent *runCmd, cl *client.Client) error {
	id, err := runID(c.ID)
	if err != nil {
		return err
	}
	w := a.logWriter(parent.Output, c.Timestamps)
	from := c.From
	if c.Tail > 0 {
		from = -min(c.Tail, mostTail)
	}
	filter := client.LogFilter{Text: c.Grep, Levels: c.Level}
	for search := filter != (client.LogFilter{}); search || !c.Follow; { // the server searches the existing lines
		page, err := cl.SearchLog(a.ctx, id, from, logPageLines, filter)
		if err != nil {
			return err
		}
		for _, l := range page.Lines {
			if err := w.line(l); err != nil {
				return err
			}
		}
		if page.End {
			return nil
		}
		caughtUp := page.Next <= max(from, 1) || !search && len(page.Lines) == 0
		from = max(page.Next, from)
		if caughtUp {
			break
		}
	}
	if !c.Follow {
		return nil
	}
	return cl.FollowLog(a.ctx, id, from, func(l domain.LogLine) error {
		if !c.fits(l) {
			return nil
		}
		return w.line(l)
	})
}

type runKillCmd struct {
	IDs []string `arg:"" optional:"" name:"id" help:"Ids of runs."`
	runFilter
}

func (*runKillCmd) Help() string {
	return "The command only requests the kill. The run ends as cancelled when its handler has returned or its process is gone. With flags instead of ids, it kills all matching unfinished runs, without asking. The command run bulk kill asks, and continues on the server.\n\n" +
		"Examples:\n\n    belfry run kill 019a9d2c-7b40-8000-8000-0123456789ab\n    belfry run kill --job default/report --state queued\n" +
		"    belfry run kill --broadcast 019a9d2c-7b40-8000-8000-0123456789ab"
}

func (c *runKillCmd) Run(a *app, parent *runCmd, cl *client.Client) error {
	if err := c.check(c.IDs); err != nil {
		return err
	}
	if len(c.IDs) == 0 {
		sum, err := changeAll(a, cl, "kill", &c.runFilter)
		if err != nil && sum.Matched == 0 {
			return err
		}
		return errors.Join(printBulk(a, parent.Output, "kill requested", sum), err)
	}
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
	IDs   []string `arg:"" optional:"" name:"id" help:"Ids of runs."`
	Param *string  `short:"p" env:"BELFRY_RETRY_PARAM" placeholder:"TEXT" help:"With ids: the parameter of the new runs; by default that of the old run."`
	runFilter
	waiting
}

// check is like that of the filter. With ids, --instance names the instance of the new runs.
func (c *runRetryCmd) check() error {
	filter := c.runFilter
	if len(c.IDs) > 0 {
		filter.Instance = ""
	}
	if err := filter.check(c.IDs); err != nil {
		return err
	}
	if len(c.IDs) == 0 && c.Param != nil {
		return &usageError{"--param needs the ids of runs"}
	}
	return nil
}

func (*runRetryCmd) Help() string {
	return "The command prints the ids of the new runs. A retried shard runs again alone. With ids, --param changes the parameter, and --instance names the instance that must run the new runs. With flags instead of ids, it retries all matching failed runs, or those in the states of --state, without asking. The command run bulk retry asks, and continues on the server.\n\n" +
		"Examples:\n\n    belfry run retry 019a9d2c-7b40-8000-8000-0123456789ab --wait\n" +
		"    belfry run retry 019a9d2c-7b40-8000-8000-0123456789ab --param 2026-03 --instance worker-2\n    belfry run retry --job default/report --reason lost --since 24h"
}

func (c *runRetryCmd) Run(a *app, parent *runCmd, cl *client.Client) error {
	if err := c.check(); err != nil {
		return err
	}
	if len(c.IDs) == 0 {
		sum, err := changeAll(a, cl, "retry", &c.runFilter)
		if err != nil && sum.Matched == 0 {
			return err
		}
		if err == nil && (c.Wait || c.Follow) && len(sum.RunIDs) > 0 {
			return a.await(cl, parent.Output, sum.RunIDs, c.waiting)
		}
		return errors.Join(printBulk(a, parent.Output, "run again", sum), err)
	}
	var made []domain.RunID
	err := a.each(c.IDs, func(ref string) error {
		id, err := runID(ref)
		if err != nil {
			return err
		}
		ids, err := cl.RetryRunWith(a.ctx, id, client.Retry{Param: c.Param, Instance: c.Instance})
		made = append(made, ids...)
		return err
	})
	if len(made) == 0 {
		return err
	}
	return errors.Join(a.await(cl, parent.Output, made, c.waiting), err)
}

// errNotSucceeded means that a wait ended and a run did not succeed.
var errNotSucceeded = errors.New("not every run succeeded")
