// Package bulk is the REST API that kills or retries many runs at once. A bulk action is a resource that the server works on. With max or
// cursor, a request itself changes a bounded number of runs.
package bulk

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/belfryhq/belfry/console/api/problem"
	"github.com/belfryhq/belfry/console/api/rest"
	"github.com/belfryhq/belfry/console/api/runs"
	"github.com/belfryhq/belfry/console/api/strict"
	"github.com/belfryhq/belfry/console/api/visible"
	"github.com/belfryhq/belfry/console/auth"
	"github.com/belfryhq/belfry/internal/domain"
	"github.com/belfryhq/belfry/internal/store/account"
	"github.com/belfryhq/belfry/internal/store/view"
)

// API serves bulk requests. All fields must be set.
type API struct {
	Store   Store
	Views   Views
	Jobs    runs.Jobs
	Fleet   runs.Fleet
	Visible *visible.Reader
	Audit   *rest.Audit
}

// Views reads runs.
type Views interface {
	Runs(ctx context.Context, f view.RunFilter) ([]domain.Run, domain.RunID, error)
	RunsByID(ctx context.Context, ids []domain.RunID) ([]domain.Run, error)
}

// Register adds the operations.
func (a *API) Register(r *rest.Router) {
	rest.Register(r, rest.Operation{Method: "POST", Path: "/runs/bulk", Tag: "Runs", Summary: "Kill or retry many runs", Needs: account.Operator, Status: 202,
		Description: "Makes a bulk action, which kills or retries the runs that match the filter, newest first, in the background: see GET /bulk/{id}. " +
			"The filter must not be empty. Runs that are created later do not match. The action has the rights of its creator. A user may have 20 " +
			"unfinished actions. With max or cursor, there is no action: the request itself changes runs, until max runs are processed or " +
			"15 seconds have passed; to continue, repeat it with next_cursor until that is empty.",
		Body: rest.BodyOf[bulkBody]()}, a.bulk)
	a.registerActions(r)
}

// The bounds of one request. The next request continues from the cursor.
const (
	bulkRuns  = 1000
	bulkPage  = 100
	bulkTime  = 15 * time.Second
	bulkTexts = 20 // failures whose text is in the answer
)

type bulkBody struct {
	Action string     `json:"action" enum:"kill,retry"`
	Filter bulkFilter `json:"filter"`
	Max    *int       `json:"max,omitempty" minimum:"1" maximum:"1000" doc:"Changes at most that many runs in the request itself; default with a cursor: 1000"`
	Cursor *string    `json:"cursor,omitempty" doc:"next_cursor of the previous answer; changes runs in the request itself"`
}

type bulkFilter struct {
	IDs         []domain.RunID                 `json:"ids,omitempty" doc:"These runs, at most 1000; the other filters do not apply"`
	BulkID      int64                          `json:"bulk_id,omitempty" doc:"The new runs of this bulk action; the other filters do not apply"`
	JobID       domain.JobID                   `json:"job_id,omitempty"`
	Group       string                         `json:"group,omitempty"`
	State       strict.OneOrMore[domain.State] `json:"state,omitempty" doc:"A single state needs no brackets. Default: the unfinished states for kill, failed for retry"`
	Cause       domain.Cause                   `json:"cause,omitempty"`
	Reason      domain.Reason                  `json:"reason,omitempty"`
	Instance    string                         `json:"instance,omitempty"`
	From        *domain.Instant                `json:"from,omitempty"`
	To          *domain.Instant                `json:"to,omitempty"`
	BroadcastID domain.RunID                   `json:"broadcast_id,omitzero" format:"uuid" doc:"The shards of one broadcast"`
	ParentRunID domain.RunID                   `json:"parent_run_id,omitzero" format:"uuid"`
}

type bulkFailure struct {
	RunID  domain.RunID `json:"run_id"`
	Detail string       `json:"detail"`
}

type bulkAnswer struct {
	ID       int64          `json:"id,omitempty" doc:"The id of the new action, for /bulk/{id}"`
	Bulk     *bulkAction    `json:"bulk,omitempty" doc:"The new action. The fields from done on apply to requests with max or cursor"`
	AtLeast  bool           `json:"at_least,omitempty" doc:"Not all runs were counted: matched is a lower bound"`
	Jobs     []bulkJob      `json:"jobs,omitempty" doc:"The matched runs by job, without max and cursor; the 100 jobs with most of them"`
	Matched  int            `json:"matched" doc:"Runs that match the filter"`
	Done     int            `json:"done" doc:"Runs for which a kill was requested, or a retry was planned"`
	Skipped  int            `json:"skipped" doc:"Runs that no longer exist, or whose state does not allow the action: final for kill, unfinished for retry"`
	Failed   int            `json:"failed"`
	Failures []bulkFailure  `json:"failures" nullable:"false" doc:"The first 20 failures"`
	RunIDs   []domain.RunID `json:"run_ids" nullable:"false" doc:"For retry: the new runs"`
	Next     string         `json:"next_cursor" doc:"The cursor of the next request; empty if all runs are processed"`
}

var unfinished = []domain.State{domain.Pending, domain.Queued, domain.Running, domain.Retrying}

func (a *API) bulk(ctx context.Context, id auth.Identity, in *struct {
	rest.JSONBody
	DryRun bool `query:"dry_run" doc:"Only count the matching runs by job, within bounds, and change nothing"`
}) (*rest.Output[bulkAnswer], error) {
	var b bulkBody
	shape := in.Decode(&b)
	if err := strict.AlsoFaulty(shape, b.check()); err != nil {
		return nil, err
	}
	if err := a.Visible.CheckGroup(ctx, id, b.Filter.Group); err != nil {
		if domain.CodeOf(err) == domain.Invalid {
			err = problem.Invalid("filter.group", visible.UnknownGroupText(b.Filter.Group))
		}
		return nil, err
	}
	if b.Max == nil && b.Cursor == nil || in.DryRun {
		return a.create(ctx, id, &b, in.DryRun)
	}
	return a.now(ctx, id, &b)
}

// now changes runs in the request.
func (a *API) now(ctx context.Context, id auth.Identity, b *bulkBody) (*rest.Output[bulkAnswer], error) {
	most, cursor := bulkRuns, ""
	if b.Max != nil {
		most = *b.Max
	}
	if b.Cursor != nil {
		cursor = *b.Cursor
	}
	next, err := rest.DecodeRunCursor("run", cursor)
	if err != nil {
		return nil, err
	}
	out := bulkAnswer{Failures: []bulkFailure{}, RunIDs: []domain.RunID{}}
	defer func() { // also after an error, because some runs may have changed
		if out.Done > 0 {
			a.Audit.Record(ctx, id, "run.bulk_"+b.Action, "runs", nil, map[string]any{"filter": b.Filter, "done": out.Done, "failed": out.Failed})
		}
	}()
	deadline := time.Now().Add(bulkTime)
	for more := true; more; more = out.Matched < most && !next.IsZero() && time.Now().Before(deadline) {
		var found []domain.Run
		if found, next, err = a.bulkPage(ctx, id, b, next, min(bulkPage, most-out.Matched)); err != nil {
			return nil, err
		}
		for _, r := range found {
			if err := a.bulkOne(ctx, id, b.Action, r, &out); err != nil {
				return nil, err
			}
		}
	}
	if !next.IsZero() {
		out.Next = rest.EncodeCursor("run", next.String())
	}
	return rest.Answer(out), nil
}

func (b *bulkBody) check() error {
	var f domain.Faults
	if b.Action != "kill" && b.Action != "retry" {
		f.Add("action", "must be kill or retry")
	}
	if b.Max != nil && (*b.Max < 1 || *b.Max > bulkRuns) {
		f.Add("max", fmt.Sprintf("must be 1 to %d", bulkRuns))
	}
	c := &b.Filter
	empty := len(c.IDs) == 0 && c.BulkID == 0 && c.JobID == 0 && c.Group == "" && len(c.State) == 0 && c.Cause == "" && c.Reason == "" &&
		c.Instance == "" && c.From == nil && c.To == nil && c.BroadcastID.IsZero() && c.ParentRunID.IsZero()
	if !strict.IsText(c.Instance) {
		f.Add("filter.instance", strict.NotText)
	}
	if empty {
		f.Add("filter", "must not be empty; add a field such as job_id or state")
	}
	if len(c.IDs) > bulkRuns {
		f.Add("filter.ids", fmt.Sprintf("at most %d are allowed", bulkRuns))
	}
	switch {
	case c.BulkID < 0:
		f.Add("filter.bulk_id", "must be the id of a bulk action")
	case c.BulkID != 0 && (b.Max != nil || b.Cursor != nil):
		f.Add("filter.bulk_id", "cannot be combined with max or cursor")
	}
	if c.JobID < 0 {
		f.Add("filter.job_id", "must be the id of a job")
	}
	for i, s := range c.State {
		at := fmt.Sprintf("filter.state[%d]", i)
		switch {
		case !slices.Contains(domain.States, s):
			f.Add(at, "is not known: "+problem.Clip(string(s)))
		case b.Action == "kill" && s.Final():
			f.Add(at, "is final; only unfinished runs can be killed")
		case b.Action == "retry" && !s.Final():
			f.Add(at, "is not final; only final runs can be retried")
		}
	}
	if c.Cause != "" && !slices.Contains(domain.Causes, c.Cause) {
		f.Add("filter.cause", "is not known: "+problem.Clip(string(c.Cause)))
	}
	if c.Reason != "" && !slices.Contains(domain.Reasons, c.Reason) {
		f.Add("filter.reason", "is not known: "+problem.Clip(string(c.Reason)))
	}
	if !c.BroadcastID.IsZero() && !c.ParentRunID.IsZero() {
		f.Add("filter.parent_run_id", "cannot be combined with broadcast_id")
	}
	return f.Err("the request is not valid")
}

// bulkPage reads the next runs that match.
func (a *API) bulkPage(ctx context.Context, id auth.Identity, b *bulkBody, before domain.RunID, limit int) ([]domain.Run, domain.RunID, error) {
	c := &b.Filter
	states := c.State
	if len(states) == 0 {
		states = []domain.State{domain.Failed}
		if b.Action == "kill" {
			states = unfinished
		}
	}
	f := view.RunFilter{
		Only: id.Only(), JobID: c.JobID, Group: c.Group, States: states, Cause: c.Cause, Reason: c.Reason, Instance: c.Instance,
		BroadcastID: c.BroadcastID, ParentRunID: c.ParentRunID, Before: before, Limit: limit,
	}
	if c.From != nil {
		f.From = c.From.Time
	}
	if c.To != nil {
		f.To = c.To.Time
	}
	if len(c.IDs) == 0 {
		return a.Views.Runs(ctx, f)
	}
	found, err := a.Views.RunsByID(ctx, c.IDs)
	return slices.DeleteFunc(found, func(r domain.Run) bool { return !id.Sees(r.Group) }), domain.NilRunID, err
}

// bulkOne kills or retries one run, and counts a failure. Only the end of ctx ends the request.
func (a *API) bulkOne(ctx context.Context, id auth.Identity, action string, r domain.Run, out *bulkAnswer) error {
	out.Matched++
	var err error
	if action == "kill" {
		err = a.Fleet.Kill(ctx, r.ID, id.Actor())
	} else {
		var made domain.RunID
		if made, err = runs.Retry(ctx, a.Jobs, id, &r); err == nil {
			out.RunIDs = append(out.RunIDs, made)
		}
	}
	switch {
	case err == nil:
		out.Done++
	case ctx.Err() != nil:
		return ctx.Err()
	case domain.CodeOf(err) == domain.NotFound || domain.CodeOf(err) == domain.Conflict:
		out.Skipped++
	default:
		out.Failed++
		if len(out.Failures) < bulkTexts {
			out.Failures = append(out.Failures, bulkFailure{r.ID, bulkFailureText(err)})
		}
	}
	return nil
}

// bulkFailureText returns the part of an error that the client gets.
func bulkFailureText(err error) string {
	var e *domain.Error
	if errors.As(err, &e) && e.Code != domain.Internal {
		return e.Message
	}
	return problem.InternalDetail
}
