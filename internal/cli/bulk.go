package cli

import (
	"fmt"
	"time"

	"github.com/belfryhq/belfry/internal/client"
	"github.com/belfryhq/belfry/internal/domain"
)

// runFilter holds the flags that select runs for kill and retry instead of ids.
type runFilter struct {
	Job       string        `env:"BELFRY_JOB" placeholder:"JOB" help:"Instead of ids: all runs of this job (its id, or group/name)."`
	Group     string        `short:"g" env:"BELFRY_RUN_GROUP" placeholder:"NAME" help:"Instead of ids: all runs of this group."`
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

// bulk changes all matching runs in steps, and shows its progress on a terminal.
func (a *app) bulk(cl *client.Client, action string, f *runFilter) (bulkDone, error) {
	var sum bulkDone
	filter, err := f.body(a, cl)
	if err != nil {
		return sum, err
	}
	b := client.Bulk{Action: action, Filter: filter, Max: bulkStep}
	_, terminal := fileOf(a.stderr)
	for {
		step, err := cl.BulkRuns(a.ctx, b)
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
func (a *app) printBulk(form, done string, sum bulkDone) error {
	return a.print(form, sum, func(t *table) {
		text := fmt.Sprintf("%d of %d runs: %s", sum.Done, sum.Matched, done)
		if sum.Skipped > 0 {
			text += fmt.Sprintf("; %d skipped because their state changed", sum.Skipped)
		}
		t.row(text)
	})
}
