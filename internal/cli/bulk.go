package cli

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/belfryhq/belfry/internal/client"
	"github.com/belfryhq/belfry/internal/domain"
)

// runFilter holds the flags that select runs for kill and retry.
type runFilter struct {
	Job       string        `env:"BELFRY_JOB" placeholder:"JOB" help:"Only runs of this job: its id, or group/name."`
	Group     string        `short:"g" env:"BELFRY_RUN_GROUP" placeholder:"NAME" help:"Only runs of this group."`
	State     []string      `env:"BELFRY_STATE" placeholder:"STATE" help:"Only runs in these states."`
	Cause     string        `env:"BELFRY_CAUSE" placeholder:"CAUSE" help:"Only runs of this cause."`
	Reason    string        `env:"BELFRY_REASON" placeholder:"REASON" help:"Only runs with this reason, such as lost or timeout."`
	Instance  string        `env:"BELFRY_RUN_INSTANCE" placeholder:"NAME" help:"Only runs on this instance."`
	Since     time.Duration `env:"BELFRY_SINCE" placeholder:"DURATION" help:"Only runs of the last DURATION, such as 24h."`
	Broadcast string        `env:"BELFRY_BROADCAST" placeholder:"RUN" help:"Only the shards of this broadcast (the broadcast_id of its runs)."`
}

func (f *runFilter) given() bool {
	return f.Job != "" || f.Group != "" || len(f.State) > 0 || f.Cause != "" || f.Reason != "" || f.Instance != "" || f.Since != 0 || f.Broadcast != ""
}

// check returns an error unless the command has either ids or a filter.
func (f *runFilter) check(ids []string) error {
	switch {
	case len(ids) == 0 && !f.given():
		return &usageError{"give the ids of runs, or flags such as --job or --state"}
	case len(ids) > 0 && f.given():
		return &usageError{"give either ids or flags that select runs, not both"}
	}
	return nil
}

func (f *runFilter) body(a *app, cl *client.Client) (client.BulkFilter, error) {
	out := client.BulkFilter{Group: f.Group, State: f.State, Cause: f.Cause, Reason: f.Reason, Instance: f.Instance}
	if f.Job != "" {
		job, err := findJob(a.ctx, cl, f.Job)
		if err != nil {
			return out, err
		}
		out.JobID = job.ID
	}
	if f.Since > 0 {
		from := domain.At(time.Now().Add(-f.Since))
		out.From = &from
	}
	if f.Broadcast != "" {
		id, err := runID(f.Broadcast)
		if err != nil {
			return out, err
		}
		out.BroadcastID = &id
	}
	return out, nil
}

// runBulkCmd has the commands of bulk actions.
type runBulkCmd struct {
	Kill  runBulkKillCmd  `cmd:"" help:"Kill all unfinished runs that match, after asking."`
	Retry runBulkRetryCmd `cmd:"" help:"Run all failed runs that match again, after asking."`
	List  runBulkListCmd  `cmd:"" help:"List bulk actions, newest first."`
	Get   runBulkGetCmd   `cmd:"" help:"Show a bulk action with its progress."`
	Stop  runBulkStopCmd  `cmd:"" help:"Stop a bulk action. Runs that it has changed stay so."`
}

// bulkStart holds the flags of the commands that make bulk actions.
type bulkStart struct {
	runFilter
	Bulk   int64 `env:"BELFRY_BULK" placeholder:"ID" help:"The new runs of this bulk retry, instead of other flags. Killing them undoes the retry."`
	DryRun bool  `env:"BELFRY_DRY_RUN" help:"Only count the matching runs by job."`
	Yes    bool  `short:"y" env:"BELFRY_YES" help:"Do not ask."`
}

const bulkHelp = "The command first counts the matching runs by job, and asks. The server performs the action in the background. The command shows " +
	"the progress until the action ends. If you interrupt the command, the action continues."

type runBulkKillCmd struct{ bulkStart }

func (*runBulkKillCmd) Help() string {
	return bulkHelp + " A kill cannot be undone.\n\nExamples:\n\n    belfry run bulk kill --job default/report --dry-run\n    belfry run bulk kill --group default --state queued --yes\n" +
		"    belfry run bulk kill --bulk 7"
}

func (c *runBulkKillCmd) Run(a *app, parent *runCmd, cl *client.Client) error {
	return c.run(a, parent.Output, "kill", cl)
}

type runBulkRetryCmd struct{ bulkStart }

func (*runBulkRetryCmd) Help() string {
	return bulkHelp + "\n\nExamples:\n\n    belfry run bulk retry --group default --since 12h\n    belfry run bulk retry --reason lost --since 24h --yes -o json"
}

func (c *runBulkRetryCmd) Run(a *app, parent *runCmd, cl *client.Client) error {
	return c.run(a, parent.Output, "retry", cl)
}

func (c *bulkStart) run(a *app, form, action string, cl *client.Client) error {
	switch {
	case c.Bulk != 0 && c.given():
		return &usageError{"give either --bulk or flags that select runs, not both"}
	case c.Bulk == 0 && !c.given():
		return &usageError{"give flags that select runs, such as --job or --state"}
	}
	filter, err := c.body(a, cl)
	if err != nil {
		return err
	}
	filter.BulkID = c.Bulk
	b := client.Bulk{Action: action, Filter: filter}
	if c.DryRun || !c.Yes {
		matches, err := cl.CountBulk(a.ctx, b)
		if err != nil {
			return err
		}
		if c.DryRun || matches.Matched == 0 && !matches.AtLeast {
			return a.print(form, matches, func(t *table) { matchTable(t, matches) })
		}
		if err := askBulk(a, action, matches); err != nil {
			return err
		}
	}
	done, err := startBulk(a, cl, b)
	if done.ID == 0 {
		return err
	}
	if printed := a.print(form, done, func(t *table) { bulkTable(t, done) }); printed != nil {
		return printed
	}
	return err
}

// matchTable shows how many runs match.
func matchTable(t *table, m client.BulkMatches) {
	t.row("RUNS", "JOB", "ID")
	for _, j := range m.Jobs {
		t.row(j.Runs, shown(j.Group+"/"+j.JobName, 80), j.JobID)
	}
	t.row(matchText(m), "total", "")
}

func matchText(m client.BulkMatches) string {
	if m.AtLeast {
		return fmt.Sprintf("%d or more", m.Matched)
	}
	return fmt.Sprint(m.Matched)
}

// askBulk shows the matching runs, and asks on a terminal whether to change them.
func askBulk(a *app, action string, m client.BulkMatches) error {
	const jobsShown = 20
	for _, j := range m.Jobs[:min(len(m.Jobs), jobsShown)] {
		fmt.Fprintf(a.stderr, "%d runs of %s/%s\n", j.Runs, j.Group, printable(j.JobName))
	}
	if more := len(m.Jobs) - jobsShown; more > 0 {
		fmt.Fprintf(a.stderr, "and runs of %d or more other jobs\n", more)
	}
	if _, terminal := fileOf(a.stdin); !terminal {
		return &usageError{fmt.Sprintf("%s runs match; add --yes to %s them, or --dry-run to count them", matchText(m), action)}
	}
	if !a.agrees(fmt.Sprintf("%s these %s runs?", strings.ToUpper(action[:1])+action[1:], matchText(m))) {
		fmt.Fprintln(a.stderr, "Nothing was changed.")
		return errReported
	}
	return nil
}

// startBulk makes a bulk action and waits for its end, with its progress on a terminal. The error says whether it changed all runs.
func startBulk(a *app, cl *client.Client, b client.Bulk) (client.BulkAction, error) {
	action, err := cl.StartBulk(a.ctx, b)
	if err != nil {
		return action, err
	}
	if action, err = followBulk(a, cl, action); err != nil {
		return action, err
	}
	for _, e := range action.Errors {
		fmt.Fprintf(a.stderr, "%d runs, such as %s: %s\n", e.Runs, e.RunID, printable(e.Message))
	}
	switch {
	case action.State == "failed" || action.State == "stopped":
		return action, fmt.Errorf("bulk action %d %s: %s", action.ID, action.State, action.Note)
	case action.Counts.Failed > 0:
		return action, fmt.Errorf("%d of %s runs could not be changed", action.Counts.Failed, matchText(action.BulkMatches))
	}
	return action, nil
}

// followBulk waits for the end of a bulk action.
func followBulk(a *app, cl *client.Client, action client.BulkAction) (client.BulkAction, error) {
	_, terminal := fileOf(a.stderr)
	told, note := time.Now(), ""
	for poll := firstPoll; action.FinishedAt == nil; poll = min(poll*3/2, slowestPoll) {
		t := time.NewTimer(poll)
		var err error
		select {
		case <-t.C:
			var next client.BulkAction
			if next, err = cl.BulkAction(a.ctx, action.ID); err == nil {
				action = next
			}
		case <-a.ctx.Done():
			t.Stop()
			err = a.ctx.Err()
		}
		if err != nil {
			fmt.Fprintf(a.stderr, "Bulk action %d continues on the server. \"belfry run bulk get %d\" shows it, and \"belfry run bulk stop %d\" stops it.\n", action.ID, action.ID, action.ID)
			return action, err
		}
		if action.Note != note && action.FinishedAt == nil {
			if note = action.Note; note != "" {
				fmt.Fprintf(a.stderr, "Bulk action %d waits: %s\n", action.ID, printable(note))
			}
		}
		if terminal && time.Since(told) > tellEvery {
			told = time.Now()
			fmt.Fprintln(a.stderr, progressText(action))
		}
	}
	return action, nil
}

func progressText(action client.BulkAction) string {
	n := action.Counts
	return fmt.Sprintf("%d of %s runs so far", n.Done+n.Skipped+n.Failed, matchText(action.BulkMatches))
}

func bulkTable(t *table, b client.BulkAction) {
	t.pair("id", b.ID)
	t.pair("action", b.Action)
	t.pair("filter", filterText(b.Filter))
	t.pair("state", b.State)
	t.pair("note", b.Note)
	t.pair("created", b.CreatedAt)
	t.pair("by", b.CreatedBy)
	t.pair("finished", b.FinishedAt)
	t.pair("matched", matchText(b.BulkMatches))
	t.pair("done", b.Counts.Done)
	t.pair("skipped", b.Counts.Skipped)
	t.pair("failed", b.Counts.Failed)
	for _, e := range b.Errors {
		t.pair("error", fmt.Sprintf("%d runs, such as %s: %s", e.Runs, e.RunID, e.Message))
	}
	if b.Action == "retry" && b.Counts.Done > 0 {
		t.pair("new runs", fmt.Sprintf("belfry run list --bulk %d", b.ID))
	}
}

// filterText is a filter in one line, such as "group=default state=["failed"]".
func filterText(filter map[string]json.RawMessage) string {
	var parts []string
	for _, name := range slices.Sorted(maps.Keys(filter)) {
		parts = append(parts, name+"="+strings.Trim(string(filter[name]), `"`))
	}
	return shown(strings.Join(parts, " "), 200)
}

type runBulkListCmd struct {
	Limit int `env:"BELFRY_LIMIT" default:"50" help:"Maximum number of actions to list."`
}

func (*runBulkListCmd) Help() string {
	return "Actions are kept for seven days after their end.\n\nExample:\n\n    belfry run bulk list"
}

func (c *runBulkListCmd) Run(a *app, parent *runCmd, cl *client.Client) error {
	actions, err := cl.BulkActions(a.ctx, c.Limit)
	if err != nil {
		return err
	}
	a.noteLimit(len(actions), c.Limit)
	return a.print(parent.Output, actions, func(t *table) {
		t.row("ID", "ACTION", "FILTER", "STATE", "CREATED", "BY", "MATCHED", "DONE", "SKIPPED", "FAILED")
		for _, b := range actions {
			t.row(b.ID, b.Action, shown(filterText(b.Filter), 60), b.State, b.CreatedAt, b.CreatedBy, matchText(b.BulkMatches),
				b.Counts.Done, b.Counts.Skipped, b.Counts.Failed)
		}
	})
}

type runBulkGetCmd struct {
	ID int64 `arg:"" help:"The id of the bulk action."`
}

func (*runBulkGetCmd) Help() string { return "Example:\n\n    belfry run bulk get 7" }

func (c *runBulkGetCmd) Run(a *app, parent *runCmd, cl *client.Client) error {
	b, err := cl.BulkAction(a.ctx, c.ID)
	if err != nil {
		return err
	}
	return a.print(parent.Output, b, func(t *table) { bulkTable(t, b) })
}

type runBulkStopCmd struct {
	ID int64 `arg:"" help:"The id of the bulk action."`
}

func (*runBulkStopCmd) Help() string { return "Example:\n\n    belfry run bulk stop 7" }

func (c *runBulkStopCmd) Run(a *app, parent *runCmd, cl *client.Client) error {
	b, err := cl.StopBulk(a.ctx, c.ID)
	if err != nil {
		return err
	}
	return a.print(parent.Output, b, func(t *table) { bulkTable(t, b) })
}

// bulkDone is the result of a bulk request.
type bulkDone struct {
	Matched int            `json:"matched"`
	Done    int            `json:"done"`
	Skipped int            `json:"skipped"`
	Failed  int            `json:"failed"`
	RunIDs  []domain.RunID `json:"run_ids,omitempty"`
}

// bulkStep is how many runs a request changes at most.
const bulkStep = 1000

// changeAll kills or retries all matching runs in steps, without a bulk action: the console itself changes them, so that kills also work
// while no dispatcher runs, such as after a restore. It shows its progress on a terminal.
func changeAll(a *app, cl *client.Client, action string, f *runFilter) (bulkDone, error) {
	var sum bulkDone
	filter, err := f.body(a, cl)
	if err != nil {
		return sum, err
	}
	b := client.BulkStep{Bulk: client.Bulk{Action: action, Filter: filter}, Max: bulkStep}
	_, terminal := fileOf(a.stderr)
	for {
		step, err := cl.StepBulk(a.ctx, b)
		if err != nil {
			return sum, err
		}
		sum.Matched, sum.Done = sum.Matched+step.Matched, sum.Done+step.Done
		sum.Skipped, sum.Failed = sum.Skipped+step.Skipped, sum.Failed+step.Failed
		sum.RunIDs = append(sum.RunIDs, step.RunIDs...)
		for _, bad := range step.Failures {
			a.printError(fmt.Errorf("%s: %s", bad.RunID, bad.Detail))
		}
		if b.Cursor = step.Next; b.Cursor == "" {
			break
		}
		if terminal {
			fmt.Fprintf(a.stderr, "%d runs so far\n", sum.Done)
		}
	}
	if sum.Failed > 0 {
		err = fmt.Errorf("%d of %d runs could not be changed", sum.Failed, sum.Matched)
	}
	return sum, err
}

// printBulk prints the result of a bulk request.
func printBulk(a *app, form, done string, sum bulkDone) error {
	return a.print(form, sum, func(t *table) {
		text := fmt.Sprintf("%d of %d runs: %s", sum.Done, sum.Matched, done)
		if sum.Skipped > 0 {
			text += fmt.Sprintf("; %d skipped because their state changed", sum.Skipped)
		}
		t.row(text)
	})
}
