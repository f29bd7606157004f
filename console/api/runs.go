package api

import (
	"context"
	"slices"

	"github.com/belfryhq/belfry/console/auth"
	"github.com/belfryhq/belfry/internal/domain"
	"github.com/belfryhq/belfry/internal/store/account"
	"github.com/belfryhq/belfry/internal/store/view"
)

const noRun = "there is no such run"

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
		return f, invalidField("parent_run_id", "cannot be combined with broadcast_id")
	}
	for _, s := range q.State {
		if !slices.Contains(domain.States, domain.State(s)) {
			return f, invalidField("state", "is not known: "+clip(s))
		}
		f.States = append(f.States, domain.State(s))
	}
	return f, nil
}

func (a *API) registerRuns() {
	const tag = "Runs"
	register(a, operation{method: "GET", path: "/runs", tag: tag, summary: "List runs, newest first", needs: account.Viewer,
		description: "Message, output and param are cut to 1,024 characters here; the run itself has them whole. " +
			"Where a filter lets little through, a page may be short or empty and still have a next_cursor."}, a.runs)
	register(a, operation{method: "GET", path: "/runs/{id}", tag: tag, summary: "Show a run", needs: account.Viewer}, a.run)
	register(a, operation{method: "POST", path: "/runs/{id}/kill", tag: tag, summary: "Kill a run", needs: account.Operator, status: 202,
		description: "Works in every unfinished state. It is cancelled once its handler has returned or its process is gone."}, a.kill)
	register(a, operation{method: "POST", path: "/runs/{id}/retry", tag: tag, summary: "Run a final run again", needs: account.Operator, status: 202,
		description: "Makes a new run."}, a.retry)
}

func (a *API) runs(ctx context.Context, id auth.Identity, in *struct {
	List
	RunQuery
}) (*output[page[domain.Run]], error) {
	f, err := in.filter(id)
	if err != nil {
		return nil, err
	}
	f.Limit = in.Limit
	key, err := decodeCursor("run", in.Cursor)
	if err == nil && key != "" {
		if f.Before, err = domain.ParseRunID(key); err != nil {
			err = badCursor()
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
		if err := a.checkGroup(ctx, id, in.Group); err != nil {
			return nil, err
		}
	}
	p := page[domain.Run]{Items: runs}
	if !next.IsZero() {
		p.NextCursor = encodeCursor("run", next.String())
	}
	return &output[page[domain.Run]]{p}, nil
}

// runDetail is a run that always has its list of attempts.
type runDetail struct {
	domain.Run
	Attempts []domain.Attempt `json:"attempts" nullable:"false"`
	Children []relative       `json:"children" nullable:"false" doc:"Runs that its end has caused, up to 100"`
}

func (a *API) run(ctx context.Context, id auth.Identity, in *RunPath) (*output[runDetail], error) {
	r, err := a.Views.Run(ctx, in.ID)
	if err == nil {
		err = may(id, r.Group, noRun)
	}
	if err != nil {
		return nil, err
	}
	children, err := a.relatives(ctx, id, r)
	return &output[runDetail]{runDetail{r, append([]domain.Attempt{}, r.Attempts...), children}}, err
}

// maySee returns nil for a run that the caller may see, NotFound for any other.
func (a *API) maySee(ctx context.Context, id auth.Identity, run domain.RunID) error {
	s, err := a.Views.State(ctx, run)
	if err != nil {
		return err
	}
	return may(id, s.Group, noRun)
}

// accepted names the runs that an action made, or that it is under way for.
type accepted struct {
	RunIDs []domain.RunID `json:"run_ids" nullable:"false"`
}

func (a *API) kill(ctx context.Context, id auth.Identity, in *RunPath) (*output[accepted], error) {
	if err := a.maySee(ctx, id, in.ID); err != nil {
		return nil, err
	}
	if err := a.Dispatcher.Kill(ctx, in.ID, id.Actor()); err != nil {
		return nil, err
	}
	a.audit(ctx, id, "run.kill", "run/"+in.ID.String(), nil, nil)
	return &output[accepted]{accepted{[]domain.RunID{in.ID}}}, nil
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

func (a *API) retry(ctx context.Context, id auth.Identity, in *RunPath) (*output[accepted], error) {
	old, err := a.Views.Run(ctx, in.ID)
	if err == nil {
		err = may(id, old.Group, noRun)
	}
	if err != nil {
		return nil, err
	}
	run, err := a.retryRun(ctx, id, &old)
	if err != nil {
		return nil, err
	}
	answer := accepted{[]domain.RunID{run}}
	a.audit(ctx, id, "run.retry", "run/"+in.ID.String(), nil, answer)
	return &output[accepted]{answer}, nil
}
