package api

import (
	"context"
	"slices"

	"github.com/belfryhq/belfry/console/api/problem"
	"github.com/belfryhq/belfry/console/api/rest"
	"github.com/belfryhq/belfry/console/api/visible"
	"github.com/belfryhq/belfry/console/auth"
	"github.com/belfryhq/belfry/internal/domain"
	"github.com/belfryhq/belfry/internal/store/account"
	"github.com/belfryhq/belfry/internal/store/view"
)

// RunPath names a run in the path.
type RunPath struct {
	ID domain.RunID `path:"id" format:"uuid"`
}

// RunQuery is embedded by the inputs of what shows runs that fit filters.
type RunQuery struct {
	JobID    domain.JobID   `query:"job_id" minimum:"1"`
	Group    string         `query:"group"`
	State    []string       `query:"state" enum:"pending,queued,running,retrying,succeeded,failed,cancelled,skipped" doc:"One or several, separated by commas"`
	Cause    domain.Cause   `query:"cause" enum:"schedule,misfire,manual,api,event,child,backfill"`
	Reason   domain.Reason  `query:"reason" enum:"handler_error,handler_panic,handler_not_found,timeout,lost,drained,no_executor,queue_full,killed,discarded,covered,job_deleted,bad_script,unsupported"`
	Instance string         `query:"instance"`
	From     domain.Instant `query:"from" doc:"Runs from this instant on: by fire time, those without one by creation"`
	To       domain.Instant `query:"to" doc:"Runs before this instant"`

	BroadcastID domain.RunID `query:"broadcast_id" format:"uuid" doc:"The shards of one broadcast"`
	ParentRunID domain.RunID `query:"parent_run_id" format:"uuid" doc:"The runs that a run's end has caused"`
}

// filter returns what the query asks for, within what the caller may see.
func (q *RunQuery) filter(id auth.Identity) (view.RunFilter, error) {
	f := view.RunFilter{Only: id.Only(), JobID: q.JobID, Group: q.Group, Cause: q.Cause, Reason: q.Reason,
		Instance: q.Instance, From: q.From.Time, To: q.To.Time, BroadcastID: q.BroadcastID, ParentRunID: q.ParentRunID}
	if !q.BroadcastID.IsZero() && !q.ParentRunID.IsZero() {
		return f, problem.Invalid("parent_run_id", "cannot be combined with broadcast_id")
	}
	for _, s := range q.State {
		if !slices.Contains(domain.States, domain.State(s)) {
			return f, problem.Invalid("state", "is not known: "+problem.Clip(s))
		}
		f.States = append(f.States, domain.State(s))
	}
	return f, nil
}

func (a *API) registerRuns() {
	const tag = "Runs"
	rest.Register(a.rest, rest.Operation{Method: "GET", Path: "/runs", Tag: tag, Summary: "List runs, newest first", Needs: account.Viewer,
		Description: "Message, output and param are cut to 1,024 characters here; the run itself has them whole. " +
			"Where a filter lets little through, a page may be short or empty and still have a next_cursor."}, a.runs)
	rest.Register(a.rest, rest.Operation{Method: "GET", Path: "/runs/{id}", Tag: tag, Summary: "Show a run", Needs: account.Viewer}, a.run)
	rest.Register(a.rest, rest.Operation{Method: "POST", Path: "/runs/{id}/kill", Tag: tag, Summary: "Kill a run", Needs: account.Operator, Status: 202,
		Description: "Works in every unfinished state. It is cancelled once its handler has returned or its process is gone."}, a.kill)
	rest.Register(a.rest, rest.Operation{Method: "POST", Path: "/runs/{id}/retry", Tag: tag, Summary: "Run a final run again", Needs: account.Operator, Status: 202,
		Description: "Makes a new run."}, a.retry)
}

func (a *API) runs(ctx context.Context, id auth.Identity, in *struct {
	rest.List
	RunQuery
}) (*rest.Output[rest.Page[domain.Run]], error) {
	f, err := in.filter(id)
	if err != nil {
		return nil, err
	}
	f.Limit = in.Limit
	key, err := rest.DecodeCursor("run", in.Cursor)
	if err == nil && key != "" {
		if f.Before, err = domain.ParseRunID(key); err != nil {
			err = rest.BadCursor()
		}
	}
	if err != nil {
		return nil, err
	}
	runs, next, err := a.Views.Runs(ctx, f)
	if err != nil {
		return nil, err
	}
	if len(runs) == 0 && next.IsZero() && in.Cursor == "" {
		if err := a.visible.CheckGroup(ctx, id, in.Group); err != nil {
			return nil, err
		}
	}
	p := rest.Page[domain.Run]{Items: runs}
	if !next.IsZero() {
		p.NextCursor = rest.EncodeCursor("run", next.String())
	}
	return rest.Answer(p), nil
}

// runDetail is a run that always has its list of attempts.
type runDetail struct {
	domain.Run
	Attempts []domain.Attempt `json:"attempts" nullable:"false"`
	Children []relative       `json:"children" nullable:"false" doc:"Runs that its end has caused, up to 100"`
}

func (a *API) run(ctx context.Context, id auth.Identity, in *RunPath) (*rest.Output[runDetail], error) {
	r, err := a.Views.Run(ctx, in.ID)
	if err == nil {
		err = visible.Check(id, r.Group, visible.NoRun)
	}
	if err != nil {
		return nil, err
	}
	children, err := a.relatives(ctx, id, r)
	return rest.Answer(runDetail{r, append([]domain.Attempt{}, r.Attempts...), children}), err
}

func (a *API) kill(ctx context.Context, id auth.Identity, in *RunPath) (*rest.Output[rest.Accepted], error) {
	if err := a.visible.Run(ctx, id, in.ID); err != nil {
		return nil, err
	}
	if err := a.Dispatcher.Kill(ctx, in.ID, id.Actor()); err != nil {
		return nil, err
	}
	a.audit.Record(ctx, id, "run.kill", "run/"+in.ID.String(), nil, nil)
	return rest.Answer(rest.Accepted{RunIDs: []domain.RunID{in.ID}}), nil
}

// retryRun plans a new run of an ended one's job, which may belong to another group by now: then it is gone for those who
// do not see that.
func (a *API) retryRun(ctx context.Context, id auth.Identity, old *domain.Run) (domain.RunID, error) {
	job, err := a.Engine.Job(ctx, old.JobID)
	switch {
	case err == nil && !id.Sees(job.Group):
		return domain.NilRunID, domain.NewError(domain.Conflict, "the run's job is gone")
	case err != nil && domain.CodeOf(err) != domain.NotFound:
		return domain.NilRunID, err
	}
	return a.Engine.RetryRun(ctx, old.ID, id.Actor())
}

func (a *API) retry(ctx context.Context, id auth.Identity, in *RunPath) (*rest.Output[rest.Accepted], error) {
	old, err := a.Views.Run(ctx, in.ID)
	if err == nil {
		err = visible.Check(id, old.Group, visible.NoRun)
	}
	if err != nil {
		return nil, err
	}
	run, err := a.retryRun(ctx, id, &old)
	if err != nil {
		return nil, err
	}
	answer := rest.Accepted{RunIDs: []domain.RunID{run}}
	a.audit.Record(ctx, id, "run.retry", "run/"+in.ID.String(), nil, answer)
	return rest.Answer(answer), nil
}
