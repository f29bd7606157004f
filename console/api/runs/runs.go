// Package runs is the REST API of runs: lists, details, kills, retries, and a stream of changes.
package runs

import (
	"context"
	"reflect"
	"slices"

	"github.com/belfryhq/belfry/console/api/jobs"
	"github.com/belfryhq/belfry/console/api/problem"
	"github.com/belfryhq/belfry/console/api/rest"
	"github.com/belfryhq/belfry/console/api/stream"
	"github.com/belfryhq/belfry/console/api/visible"
	"github.com/belfryhq/belfry/console/auth"
	"github.com/belfryhq/belfry/console/live"
	"github.com/belfryhq/belfry/internal/domain"
	"github.com/belfryhq/belfry/internal/explain"
	"github.com/belfryhq/belfry/internal/store/account"
	"github.com/belfryhq/belfry/internal/store/view"
)

// API serves runs. All fields must be set.
type API struct {
	Views Views
	Jobs  Jobs
	Fleet Fleet
	// Instances knows the live instances, for retries on a given instance.
	Instances jobs.Instances
	Sends     Sends

	Hub     *live.Hub
	Streams *stream.Streams
	Visible *visible.Reader
	Audit   *rest.Audit
}

// Views reads runs.
type Views interface {
	// Runs returns also the run after which the next page begins, the nil id if there is none.
	Runs(ctx context.Context, f view.RunFilter) ([]domain.Run, domain.RunID, error)
	// SearchRuns returns the runs of a page that contain a text. Limited: too many searches run.
	SearchRuns(ctx context.Context, f view.RunFilter, q view.RunSearch) (view.FoundRuns, error)
	Run(ctx context.Context, id domain.RunID) (domain.Run, error)
	RunsByID(ctx context.Context, ids []domain.RunID) ([]domain.Run, error)
	// Shards returns all shards of the broadcast that a run belongs to, none if the run is not a shard.
	Shards(ctx context.Context, id domain.RunID) ([]domain.Run, error)
	// Children returns the runs that the end of a run has caused.
	Children(ctx context.Context, run domain.Run) ([]domain.Run, error)
	// SinceSuccess returns the last success of the job before a failed run, and the changes since then. The success is nil if none is known.
	SinceSuccess(ctx context.Context, run domain.Run) (*domain.LastSuccess, []explain.Explanation, error)
}

// Jobs reads jobs and plans retries.
type Jobs interface {
	Job(ctx context.Context, id domain.JobID) (domain.Job, error)
	// RetryRun makes a new run of a final one.
	RetryRun(ctx context.Context, id domain.RunID, by string) (domain.RunID, error)
	RetryRunWith(ctx context.Context, id domain.RunID, by string, retry domain.Retry) (domain.RunID, error)
}

// Fleet reaches the instances.
type Fleet interface {
	// Kill requests the end of an unfinished run. Conflict: the run is final. NotFound: there is no such run.
	Kill(ctx context.Context, id domain.RunID, by string) error
}

// Sends knows which attempts were sent to executors of XXL-JOB.
type Sends interface {
	// Shown reports whether a group is open for such executors, and whether an attempt was sent to one that has not answered.
	Shown(ctx context.Context, group string, run domain.RunID, attempt int) (open, unanswered bool, err error)
}

// Register adds the operations.
func (a *API) Register(r *rest.Router) {
	const tag = "Runs"
	rest.Register(r, rest.Operation{Method: "GET", Path: "/runs", Tag: tag, Summary: "List runs, newest first", Needs: account.Viewer,
		Description: "Message, output and param are cut to 1,024 characters here; GET /runs/{id} has them in full. " +
			"If few runs match the filters, a page can be short or empty and still have a next_cursor. With q, a page searches at most 20,000 runs, or " +
			"for two seconds, so most pages are short: searched_back_to says how far the search has come, and next_cursor continues it. " +
			"Few searches run at the same time; others wait for some seconds and then get 429."}, a.list)
	rest.Register(r, rest.Operation{Method: "GET", Path: "/runs/{id}", Tag: tag, Summary: "Show a run", Needs: account.Viewer}, a.show)
	rest.Register(r, rest.Operation{Method: "POST", Path: "/runs/{id}/kill", Tag: tag, Summary: "Kill a run", Needs: account.Operator, Status: 202,
		Description: "Works in every unfinished state. A running run becomes cancelled when its handler has returned or its process is gone."}, a.kill)
	rest.Register(r, rest.Operation{Method: "POST", Path: "/runs/{id}/retry", Tag: tag, Summary: "Run a final run again", Needs: account.Operator, Status: 202,
		Description: "Makes a new run of the job's current version, with the fire time of the old run. Absent fields of the body, or an absent body, " +
			"leave param and route as they were.", Body: rest.BodyOf[retryBody](), BodyOptional: true}, a.retry)
	rest.Register(r, rest.Operation{Method: "GET", Path: "/runs/{id}/shards", Tag: tag, Summary: "Show the broadcast of a run, with all its shards", Needs: account.Viewer}, a.shards)
	rest.Register(r, rest.Operation{Method: "GET", Path: "/runs/{id}/children", Tag: tag, Summary: "List the child runs of a run, oldest first",
		Description: "One page with at most 1,000 runs. Every shard of a broadcast has the children of the whole broadcast.", Needs: account.Viewer}, a.children)
	rest.Register(r, rest.Operation{Method: "GET", Path: "/runs/stream", Tag: tag, Summary: "Follow changes of runs", Needs: account.Viewer,
		Description: "Server-sent events. run: a run that matches the filters has changed; the data is the run as in the list. gone: a run that may have " +
			"matched has changed and does not match now. gap: changes are missing, because there were too many or the connection was interrupted; " +
			"read the list again. Every half second the stream sends the latest state of at most 100 changed runs. Read the list after " +
			"the stream is open, so that no change is lost in between. Delivery is best effort, and the stream leaves out planned runs that are " +
			"not due yet, so also read the list from time to time.",
		Responses: stream.Response(r, map[string]reflect.Type{
			"run": reflect.TypeFor[domain.Run](), "gone": reflect.TypeFor[runGone](), "gap": reflect.TypeFor[runGap]()})}, a.stream)
}

// RunQuery is embedded by the inputs of operations that select runs.
type RunQuery struct {
	JobID    domain.JobID   `query:"job_id" minimum:"1"`
	Group    string         `query:"group"`
	State    []string       `query:"state" enum:"pending,queued,running,retrying,succeeded,failed,cancelled,skipped" doc:"One or several, separated by commas"`
	Cause    domain.Cause   `query:"cause" enum:"schedule,misfire,manual,api,event,child,backfill"`
	Reason   domain.Reason  `query:"reason" enum:"handler_error,handler_panic,handler_not_found,timeout,lost,drained,no_executor,queue_full,killed,discarded,covered,job_deleted,bad_script,unsupported"`
	Instance string         `query:"instance"`
	From     domain.Instant `query:"from" doc:"Runs from this instant on, by fire time, or by creation for runs without a fire time"`
	To       domain.Instant `query:"to" doc:"Runs before this instant"`

	BroadcastID domain.RunID `query:"broadcast_id" format:"uuid" doc:"The shards of one broadcast"`
	ParentRunID domain.RunID `query:"parent_run_id" format:"uuid" doc:"The child runs of this run"`
}

// filter returns the filter of the query, limited to the groups that the caller may see.
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

type listInput struct {
	rest.List
	rest.Reader
	RunQuery
	Planned bool   `query:"planned" default:"true" doc:"false leaves out runs that are not due yet: those that are pending, due in the future, and not held"`
	Q       string `query:"q" minLength:"2" maxLength:"200" doc:"Only runs with this text in the message, the output or the param; case is ignored. Secrets that the caller does not see are not searched"`
	BulkID  int64  `query:"bulk_id" minimum:"1" doc:"The new runs of this bulk action"`
}

// runList is a page of runs.
type runList struct {
	rest.Page[domain.Run]
	SearchedBackTo *domain.Instant `json:"searched_back_to,omitempty" doc:"With q: all runs from this instant on (as for from) are searched. On the last page, it is from or the instant of the oldest run; it is absent if there is none"`
}

func (a *API) list(ctx context.Context, id auth.Identity, in *listInput) (*rest.Output[runList], error) {
	f, err := in.filter(id)
	if err != nil {
		return nil, err
	}
	if f.Before, err = rest.DecodeRunCursor("run", in.Cursor); err != nil {
		return nil, err
	}
	page, err := a.page(ctx, id, f, in.Q)
	if err != nil {
		return nil, err
	}
	if len(page.Runs) == 0 && page.Next.IsZero() && in.Cursor == "" {
		if err := a.Visible.CheckGroup(ctx, id, in.Group); err != nil {
			return nil, err
		}
	}
	writeNotes(page.Runs, in.Language())
	out := runList{Page: rest.Page[domain.Run]{Items: page.Runs}}
	if !page.Next.IsZero() {
		out.NextCursor = rest.EncodeCursor("run", page.Next.String())
	}
	if !page.SearchedBackTo.IsZero() {
		out.SearchedBackTo = domain.AtPtr(page.SearchedBackTo)
	}
	return rest.Answer(out), nil
}

// filter is that of the query, and the parameters that only lists have.
func (in *listInput) filter(id auth.Identity) (view.RunFilter, error) {
	f, err := in.RunQuery.filter(id)
	if in.BulkID != 0 && !(f.BroadcastID.IsZero() && f.ParentRunID.IsZero()) {
		return f, problem.Invalid("bulk_id", "cannot be combined with broadcast_id or parent_run_id")
	}
	f.Limit, f.Unplanned, f.BulkID = in.Limit, !in.Planned, in.BulkID
	return f, err
}

// page reads a page of the runs that match the filter and, if text is not empty, contain the text.
func (a *API) page(ctx context.Context, id auth.Identity, f view.RunFilter, text string) (page view.FoundRuns, err error) {
	if text != "" {
		return a.Views.SearchRuns(ctx, f, view.RunSearch{Text: text, Masked: rest.HidesSecrets(id)})
	}
	page.Runs, page.Next, err = a.Views.Runs(ctx, f)
	return page, err
}

// runDetail is a run that always has its list of attempts.
type runDetail struct {
	domain.Run
	Attempts []domain.Attempt `json:"attempts" nullable:"false"`
	Children []relative       `json:"children" nullable:"false" doc:"The child runs, at most 100"`
	XXLJob   *atXXLJob        `json:"xxl_job,omitempty" doc:"What is known of a run at executors of XXL-JOB; absent if the group is not open for them"`

	LastSuccess *domain.LastSuccess   `json:"last_success,omitempty" doc:"Of a failed run: the last success of the job before this run. Absent if there is none, or if over 1,000 runs of the job lie between and the job has succeeded since"`
	Changes     []explain.Explanation `json:"changes,omitempty" doc:"What changed between the last success and this run, as in the schema JobHealth. Absent if nothing is known to have changed"`
}

// atXXLJob is what a run page says about an executor of XXL-JOB.
type atXXLJob struct {
	Unanswered bool `json:"unanswered" doc:"The current attempt was sent, and the executor did not answer. The run counts as running, and is not sent again"`
	Shared     bool `json:"shared" doc:"Several processes seem to be behind the address of the instance, so a kill and the log may reach another one"`
}

func (a *API) show(ctx context.Context, id auth.Identity, in *struct {
	rest.RunPath
	rest.Reader
}) (*rest.Output[runDetail], error) {
	r, err := a.read(ctx, id, in.ID)
	if err != nil {
		return nil, err
	}
	r.Note = r.NoteIn(in.Language())
	out := runDetail{Run: r, Attempts: append([]domain.Attempt{}, r.Attempts...)}
	if out.Children, err = a.relatives(ctx, id, r); err != nil {
		return nil, err
	}
	if out.XXLJob, err = a.atXXLJob(ctx, &r); err == nil && r.State == domain.Failed {
		out.LastSuccess, out.Changes, err = a.Views.SinceSuccess(ctx, r)
	}
	return rest.Answer(out), err
}

// atXXLJob returns what is known of a run at executors of XXL-JOB, nil if its group is not open for them.
func (a *API) atXXLJob(ctx context.Context, r *domain.Run) (*atXXLJob, error) {
	open, unanswered, err := a.Sends.Shown(ctx, r.Group, r.ID, r.Attempt)
	if err != nil || !open {
		return nil, err
	}
	out := atXXLJob{Unanswered: unanswered && !r.State.Final()}
	for _, i := range a.Instances.Instances(r.Group) {
		out.Shared = out.Shared || i.ID == r.Instance && i.Labels["shared"] == "true"
	}
	return &out, nil
}

// writeNotes writes the notes of runs in the reader's language.
func writeNotes(runs []domain.Run, language explain.Language) {
	for i := range runs {
		runs[i].Note = runs[i].NoteIn(language)
	}
}

// read returns a run that the caller may see, NotFound for any other.
func (a *API) read(ctx context.Context, id auth.Identity, run domain.RunID) (domain.Run, error) {
	r, err := a.Views.Run(ctx, run)
	if err == nil {
		err = visible.Check(id, r.Group, visible.NoRun)
	}
	return r, err
}

func (a *API) kill(ctx context.Context, id auth.Identity, in *rest.RunPath) (*rest.Output[rest.Accepted], error) {
	if err := a.Visible.Run(ctx, id, in.ID); err != nil {
		return nil, err
	}
	if err := a.Fleet.Kill(ctx, in.ID, id.Actor()); err != nil {
		return nil, err
	}
	a.Audit.Record(ctx, id, "run.kill", "run/"+in.ID.String(), nil, nil)
	return rest.Answer(rest.Accepted{RunIDs: []domain.RunID{in.ID}}), nil
}
