package bulk

import (
	"context"
	"fmt"
	"math"
	"time"

	"github.com/belfryhq/belfry/console/api/rest"
	"github.com/belfryhq/belfry/console/api/strict"
	"github.com/belfryhq/belfry/console/auth"
	"github.com/belfryhq/belfry/internal/domain"
	"github.com/belfryhq/belfry/internal/store/account"
	store "github.com/belfryhq/belfry/internal/store/bulk"
)

// Store keeps bulk actions. Package internal/store/bulk documents the methods.
type Store interface {
	Create(ctx context.Context, by account.Principal, remote, action string, f store.Filter) (store.Action, error)
	Preview(ctx context.Context, by account.Principal, action string, f store.Filter) (store.Matched, error)
	Action(ctx context.Context, id int64, only []string) (store.Action, error)
	Actions(ctx context.Context, only []string, before int64, limit int) ([]store.Action, error)
	Stop(ctx context.Context, id int64, by string) (bool, error)
}

// bulkJob is how many runs of a job match.
type bulkJob struct {
	JobID   domain.JobID `json:"job_id"`
	JobName string       `json:"job_name"`
	Group   string       `json:"group"`
	Runs    int          `json:"runs"`
}

type bulkCounts struct {
	Done    int64 `json:"done" doc:"Runs for which a kill was requested, or a new run was planned"`
	Skipped int64 `json:"skipped" doc:"Runs that no longer exist, or whose state does not allow the action: final for kill, unfinished for retry"`
	Failed  int64 `json:"failed"`
}

type bulkError struct {
	Message string       `json:"message"`
	Runs    int          `json:"runs"`
	RunID   domain.RunID `json:"run_id" doc:"The first of these runs"`
}

// bulkUndo is the request that kills the new runs of a retry.
type bulkUndo struct {
	Action string     `json:"action"`
	Filter bulkFilter `json:"filter"`
}

type bulkAction struct {
	ID         int64           `json:"id"`
	Action     string          `json:"action" enum:"kill,retry"`
	Filter     bulkFilter      `json:"filter"`
	State      string          `json:"state" enum:"waiting,running,done,stopped,failed"`
	CreatedBy  string          `json:"created_by"`
	CreatedAt  domain.Instant  `json:"created_at" doc:"Runs that were created later do not match"`
	StartedAt  *domain.Instant `json:"started_at,omitempty"`
	FinishedAt *domain.Instant `json:"finished_at,omitempty"`
	Matched    int             `json:"matched" doc:"Runs that matched at created_at"`
	AtLeast    bool            `json:"at_least" doc:"Not all runs were counted: matched is a lower bound"`
	Jobs       []bulkJob       `json:"jobs" nullable:"false" doc:"The matched runs by job; the 100 jobs with most of them"`
	Counts     bulkCounts      `json:"counts"`
	Errors     []bulkError     `json:"errors" nullable:"false" doc:"Why runs failed; the first 20 reasons"`
	Note       string          `json:"note,omitempty" doc:"Why the action failed, was stopped, or waits"`
	Undo       *bulkUndo       `json:"undo,omitempty" doc:"Of a retry: the body of the POST /runs/bulk that kills its new runs"`
}

func (a *API) registerActions(r *rest.Router) {
	const tag = "Runs"
	rest.Register(r, rest.Operation{Method: "GET", Path: "/bulk", Tag: tag, Summary: "List bulk actions, newest first", Needs: account.Viewer,
		Description: "Actions are kept for seven days after their end. The list has those that are confined to groups that the caller sees."}, a.list)
	rest.Register(r, rest.Operation{Method: "GET", Path: "/bulk/{id}", Tag: tag, Summary: "Show a bulk action with its progress", Needs: account.Viewer}, a.show)
	rest.Register(r, rest.Operation{Method: "DELETE", Path: "/bulk/{id}", Tag: tag, Summary: "Stop a bulk action", Needs: account.Operator, Status: 200,
		Description: "The action ends after its current batch. Runs that it has changed stay so. An action that has ended does not change."}, a.stop)
}

func (a *API) list(ctx context.Context, id auth.Identity, in *struct{ rest.List }) (*rest.Output[rest.Page[bulkAction]], error) {
	before, err := rest.DecodeNumberCursor("bulk", in.Cursor)
	if err != nil {
		return nil, err
	}
	if before == 0 {
		before = math.MaxInt64
	}
	rows, err := a.Store.Actions(ctx, id.Only(), before, in.Limit+1)
	if err != nil {
		return nil, err
	}
	return rest.Answer(rest.Cut(rest.Each(rows, toAction), in.Limit, func(b bulkAction) string { return rest.NumberCursor("bulk", b.ID) })), nil
}

func (a *API) show(ctx context.Context, id auth.Identity, in *rest.IDPath) (*rest.Output[bulkAction], error) {
	found, err := a.Store.Action(ctx, in.ID, id.Only())
	if err != nil {
		return nil, err
	}
	return rest.Answer(toAction(found)), nil
}

func (a *API) stop(ctx context.Context, id auth.Identity, in *rest.IDPath) (*rest.Output[bulkAction], error) {
	if _, err := a.Store.Action(ctx, in.ID, id.Only()); err != nil {
		return nil, err
	}
	stopped, err := a.Store.Stop(ctx, in.ID, id.Actor())
	if err != nil {
		return nil, err
	}
	found, err := a.Store.Action(ctx, in.ID, id.Only())
	if err != nil {
		return nil, err
	}
	out := toAction(found)
	if stopped {
		a.Audit.Record(ctx, id, "run.bulk_stop", object(in.ID), nil, map[string]any{"action": out.Action, "filter": out.Filter, "counts": out.Counts})
	}
	return rest.Answer(out), nil
}

func object(id int64) string { return fmt.Sprintf("bulk/%d", id) }

// create makes an action, or only counts the matching runs.
func (a *API) create(ctx context.Context, id auth.Identity, b *bulkBody, dryRun bool) (*rest.Output[bulkAnswer], error) {
	f := b.Filter.stored()
	if f.BulkID != 0 {
		if _, err := a.Store.Action(ctx, f.BulkID, id.Only()); err != nil {
			if domain.CodeOf(err) == domain.NotFound {
				err = &domain.Error{Code: domain.Invalid, Message: "the request is not valid",
					Fields: []domain.FieldError{{Location: "filter.bulk_id", Message: "there is no such bulk action"}}}
			}
			return nil, err
		}
	}
	out := bulkAnswer{Failures: []bulkFailure{}, RunIDs: []domain.RunID{}}
	if dryRun {
		m, err := a.Store.Preview(ctx, id.Principal, b.Action, f)
		if err != nil {
			return nil, err
		}
		out.Matched, out.AtLeast, out.Jobs = m.Runs, m.AtLeast, toJobs(m)
		return rest.Answer(out), nil
	}
	made, err := a.Store.Create(ctx, id.Principal, id.Remote, b.Action, f)
	if err != nil {
		return nil, err
	}
	view := toAction(made)
	out.ID, out.Matched, out.AtLeast, out.Jobs, out.Bulk = made.ID, view.Matched, view.AtLeast, view.Jobs, &view
	a.Audit.Record(ctx, id, "run.bulk_"+b.Action, object(made.ID), nil, map[string]any{"filter": b.Filter, "matched": out.Matched, "at_least": out.AtLeast})
	return rest.Answer(out), nil
}

func toJobs(m store.Matched) []bulkJob {
	return rest.Each(m.Jobs, func(j store.JobCount) bulkJob { return bulkJob(j) })
}

func toAction(a store.Action) bulkAction {
	out := bulkAction{
		ID: a.ID, Action: a.Action, Filter: shown(a.Filter), State: a.State, CreatedBy: a.CreatedBy, CreatedAt: domain.At(a.CreatedAt),
		StartedAt: instant(a.StartedAt), FinishedAt: instant(a.FinishedAt),
		Matched: a.Matched.Runs, AtLeast: a.Matched.AtLeast, Jobs: toJobs(a.Matched), Counts: bulkCounts{a.Done, a.Skipped, a.Failed},
		Errors: rest.Each(a.Errors, func(f store.Fault) bulkError { return bulkError(f) }), Note: a.Note,
	}
	if a.Action == store.Retry && a.Done > 0 {
		out.Undo = &bulkUndo{store.Kill, bulkFilter{BulkID: a.ID}}
	}
	return out
}

func instant(at *time.Time) *domain.Instant {
	if at == nil {
		return nil
	}
	return domain.AtPtr(*at)
}

// stored returns the filter as the store keeps it.
func (c *bulkFilter) stored() store.Filter {
	f := store.Filter{IDs: c.IDs, BulkID: c.BulkID, JobID: c.JobID, Group: c.Group, States: c.State, Cause: c.Cause, Reason: c.Reason,
		Instance: c.Instance, From: c.From, To: c.To}
	if !c.BroadcastID.IsZero() {
		f.BroadcastID = &c.BroadcastID
	}
	if !c.ParentRunID.IsZero() {
		f.ParentRunID = &c.ParentRunID
	}
	return f
}

func shown(f store.Filter) bulkFilter {
	c := bulkFilter{IDs: f.IDs, BulkID: f.BulkID, JobID: f.JobID, Group: f.Group, State: strict.OneOrMore[domain.State](f.States), Cause: f.Cause,
		Reason: f.Reason, Instance: f.Instance, From: f.From, To: f.To}
	if f.BroadcastID != nil {
		c.BroadcastID = *f.BroadcastID
	}
	if f.ParentRunID != nil {
		c.ParentRunID = *f.ParentRunID
	}
	return c
}
