package api

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/belfryhq/belfry/console/api/problem"
	"github.com/belfryhq/belfry/console/api/rest"
	"github.com/belfryhq/belfry/console/api/strict"
	"github.com/belfryhq/belfry/console/api/visible"
	"github.com/belfryhq/belfry/console/auth"
	"github.com/belfryhq/belfry/internal/domain"
	"github.com/belfryhq/belfry/internal/store/account"
	"github.com/belfryhq/belfry/internal/store/view"
)

type jobsInput struct {
	rest.List
	Group    string              `query:"group" doc:"Only jobs of this group"`
	Q        string              `query:"q" maxLength:"128" doc:"Occurs in name, description or handler"`
	Tag      string              `query:"tag"`
	Enabled  string              `query:"enabled" enum:"true,false"`
	Kind     domain.ScheduleKind `query:"kind" enum:"none,cron,fixed_rate,fixed_delay,once"`
	ChildID  domain.JobID        `query:"child_id" minimum:"1" doc:"Only jobs that have this one as a child"`
	Calendar string              `query:"calendar" maxLength:"63" doc:"Only jobs whose schedule names this calendar"`

	LastRuns int `query:"last_runs" minimum:"0" maximum:"20" default:"0" doc:"How many of its last runs each job shows"`
}

// versioned is the answer that is a job.
type versioned struct {
	ETag string `header:"ETag" doc:"The job's version, for If-Match"`
	Body domain.Job
}

// listedJob is a job in the list.
type listedJob struct {
	domain.Job
	LastRuns []lastRun `json:"last_runs,omitzero" required:"false" doc:"Newest first, as many as last_runs asks for; a broadcast is one. Without those that are not yet due"`
}

// missedState stands in lists where others have the state of a run.
const missedState = "missed"

// lastRun is a run of a job, a broadcast as a whole, or fire times that the missed ledger has.
type lastRun struct {
	ID         *domain.RunID  `json:"id" doc:"Of a broadcast its first shard in that state; null where state is missed"`
	At         domain.Instant `json:"at" doc:"The fire time; of what has none when it was made; the last of several that were missed"`
	State      string         `json:"state" doc:"Of a broadcast that of the worst shard"`
	Reason     domain.Reason  `json:"reason"`
	Cause      domain.Cause   `json:"cause" doc:"Empty where state is missed"`
	DurationMS *int64         `json:"duration_ms" doc:"Of the last attempt; null before the end"`
	Shards     int            `json:"shards,omitempty" doc:"Of a broadcast"`
	Count      int64          `json:"count,omitempty" doc:"Fire times that were missed"`
	Why        string         `json:"why,omitempty" doc:"They were missed"`
}

func lastRunOf(r view.LastRun) lastRun {
	out := lastRun{At: domain.At(r.At), State: string(r.State), Reason: r.Reason, Cause: r.Cause, Shards: r.Shards, Count: r.Missed, Why: r.Why}
	switch {
	case r.Missed > 0:
		out.State = missedState
		return out
	case r.Ended:
		ms := r.Duration.Milliseconds()
		out.DurationMS = &ms
	}
	out.ID = &r.ID
	return out
}

func (a *API) registerJobs() {
	const tag = "Jobs"
	rest.Register(a.rest, rest.Operation{Method: "GET", Path: "/jobs", Tag: tag, Summary: "List jobs", Needs: account.Viewer,
		Description: "By id. A page looks at 10,000 jobs: where q, enabled, kind, child_id or calendar lets little through, it may be short or empty and still have a next_cursor."}, a.jobs)
	rest.Register(a.rest, rest.Operation{Method: "POST", Path: "/jobs", Tag: tag, Summary: "Create a job", Needs: account.Operator,
		Status: 201, Body: rest.DerivedBody[domain.Job]("JobInput", "group", "name", "schedule")}, a.createJob)
	rest.Register(a.rest, rest.Operation{Method: "GET", Path: "/jobs/{id}", Tag: tag, Summary: "Show a job", Needs: account.Viewer}, a.job)
	rest.Register(a.rest, rest.Operation{Method: "PUT", Path: "/jobs/{id}", Tag: tag, Summary: "Replace a job", Needs: account.Operator,
		Description: "Absent fields get their defaults. Read-only fields may be there and are ignored, save version: another one than the job's answers 409.",
		Body:        rest.DerivedBody[domain.Job]("JobInput", "group", "name", "schedule")}, a.replaceJob)
	rest.Register(a.rest, rest.Operation{Method: "PATCH", Path: "/jobs/{id}", Tag: tag, Summary: "Change a job", Needs: account.Operator,
		Description: "A JSON merge patch (RFC 7396): absent fields stay, null gives a field its default.",
		Body:        rest.DerivedBody[domain.Job]("JobPatch")}, a.patchJob)
	rest.Register(a.rest, rest.Operation{Method: "DELETE", Path: "/jobs/{id}", Tag: tag, Summary: "Delete a job", Needs: account.Operator,
		Description: "Its held, waiting and retrying runs are cancelled; running ones finish."}, a.deleteJob)
	rest.Register(a.rest, rest.Operation{Method: "POST", Path: "/jobs/{id}/enable", Tag: tag, Summary: "Enable a job", Needs: account.Operator}, a.enable)
	rest.Register(a.rest, rest.Operation{Method: "POST", Path: "/jobs/{id}/disable", Tag: tag, Summary: "Disable a job", Needs: account.Operator,
		Description: "It fires no more by its schedule; its held, waiting and retrying runs stay."}, a.disable)
	rest.Register(a.rest, rest.Operation{Method: "POST", Path: "/jobs/{id}/trigger", Tag: tag, Summary: "Run a job now", Needs: account.Operator,
		Status: 202, Body: rest.BodyOf[triggerBody](), BodyOptional: true}, a.trigger)
	rest.Register(a.rest, rest.Operation{Method: "GET", Path: "/jobs/{id}/missed", Tag: tag, Summary: "List a job's missed fire times, newest first", Needs: account.Viewer}, a.missed)
}

func answerJob(j domain.Job) *versioned {
	return &versioned{ETag: rest.ETag(j.Version), Body: j}
}

func (a *API) jobs(ctx context.Context, id auth.Identity, in *jobsInput) (*rest.Output[rest.Page[listedJob]], error) {
	after, err := rest.DecodeNumberCursor("job", in.Cursor)
	if err != nil {
		return nil, err
	}
	f := view.JobFilter{Only: id.Only(), Group: in.Group, Query: in.Q, Tag: in.Tag, Kind: in.Kind, Child: in.ChildID, Calendar: in.Calendar,
		After: domain.JobID(after), Limit: in.Limit}
	if in.Enabled != "" {
		enabled := in.Enabled == "true"
		f.Enabled = &enabled
	}
	jobs, next, err := a.Views.Jobs(ctx, f)
	if err != nil {
		return nil, err
	}
	for i := range jobs {
		jobs[i].Note = a.note(jobs[i])
	}
	if len(jobs) == 0 && next == 0 && in.Cursor == "" {
		if err := a.visible.CheckGroup(ctx, id, in.Group); err != nil {
			return nil, err
		}
	}
	out := rest.Page[listedJob]{}
	if next != 0 {
		out.NextCursor = rest.NumberCursor("job", int64(next))
	}
	last := map[domain.JobID][]view.LastRun{}
	if in.LastRuns > 0 {
		if last, err = a.Views.LastRuns(ctx, jobs, id.Only(), in.LastRuns); err != nil {
			return nil, err
		}
	}
	out.Items = rest.Each(jobs, func(j domain.Job) listedJob {
		item := listedJob{Job: j}
		if in.LastRuns > 0 {
			item.LastRuns = rest.Each(last[j.ID], lastRunOf)
		}
		return item
	})
	return rest.Answer(out), nil
}

// note says why an enabled job has no next fire time, as the job itself does.
func (a *API) note(j domain.Job) string {
	if j.Note != "" || !j.Enabled || j.NextFireTime != nil {
		return j.Note
	}
	compiled, err := a.compile(j.Schedule, j.CreatedAt.Time)
	if err != nil {
		return "its schedule no longer compiles: " + err.Error()
	}
	return compiled.Note(time.Now())
}

func (a *API) job(ctx context.Context, id auth.Identity, in *rest.JobPath) (*versioned, error) {
	j, err := a.visible.Job(ctx, id, in.ID)
	return answerJob(j), err
}

func (a *API) createJob(ctx context.Context, id auth.Identity, in *struct{ rest.JSONBody }) (*versioned, error) {
	spec := domain.DefaultJobSpec()
	if err := in.Decode(&spec); err != nil {
		return nil, strict.AlsoFaulty(err, a.checkSpec(err, spec))
	}
	if !id.Sees(spec.Group) && domain.ValidGroupName(spec.Group) {
		return nil, visible.UnknownGroup(spec.Group)
	}
	if err := a.checkChildren(ctx, id, spec.Children); err != nil {
		return nil, err
	}
	j, err := a.Engine.CreateJob(ctx, spec, id.Actor())
	if err != nil {
		return nil, err
	}
	a.audit.Record(ctx, id, "job.create", rest.JobObject(j.ID), nil, j)
	return answerJob(j), nil
}

// checkSpec returns what is wrong with the values of a spec, as far as can be said without the database. It is for
// bodies of which some fields have the wrong shape, as that error says; the engine checks all others, and in whole.
func (a *API) checkSpec(shape error, spec domain.JobSpec) error {
	var f domain.Faults
	if strict.NamesFault(shape, "script") { // it is there, whatever it is, so that no handler is missed
		spec.Script = &domain.Script{Language: "sh", Code: ":"}
	}
	spec.Normalize()
	f.AddAll("", spec.Validate())
	if !strict.NamesFault(shape, "schedule.kind") { // without it no other field of a schedule means anything
		_, err := a.compile(spec.Schedule, time.Now())
		f.AddAll("schedule", err)
	}
	return f.Err("the job is not valid")
}

// checkChildren refuses children that the caller may not see: to name one is to let it run.
func (a *API) checkChildren(ctx context.Context, id auth.Identity, children []domain.Child) error {
	if id.Role == account.Admin || len(children) > domain.MaxChildren {
		return nil // all may be seen, or the engine refuses the number
	}
	var f domain.Faults
	for i, c := range children {
		if c.JobID <= 0 {
			continue // the engine names it
		}
		_, err := a.visible.Job(ctx, id, c.JobID)
		if err != nil && domain.CodeOf(err) != domain.NotFound {
			return err
		}
		if err != nil {
			f.Add(fmt.Sprintf("children[%d].job_id", i), visible.NoJob)
		}
	}
	return f.Err("the job is not valid")
}

func (a *API) replaceJob(ctx context.Context, id auth.Identity, in *struct {
	rest.JobPath
	rest.Conditional
	rest.JSONBody
}) (*versioned, error) {
	if err := in.Check(); err != nil {
		return nil, err
	}
	return a.edit(ctx, id, in.ID, in.Conditional, in.RawBody, func(_ domain.JobSpec, sent json.RawMessage) (json.RawMessage, error) {
		return sent, nil
	})
}

func (a *API) patchJob(ctx context.Context, id auth.Identity, in *struct {
	rest.JobPath
	rest.Conditional
	rest.JSONBody
}) (*versioned, error) {
	if err := in.Check(); err != nil {
		return nil, err
	}
	return a.edit(ctx, id, in.ID, in.Conditional, in.RawBody, func(now domain.JobSpec, sent json.RawMessage) (json.RawMessage, error) {
		if now.Script != nil { // a remark is said of one version, and does not go over to the next by itself
			bare := *now.Script
			bare.Remark = ""
			now.Script = &bare
		}
		doc, err := json.Marshal(now)
		if err != nil {
			return nil, fmt.Errorf("encode the job as it stands: %w", err)
		}
		return strict.MergePatch(doc, sent), nil
	})
}

// edit changes a job to the document that next makes of its present spec and of what the client sent. The shape of
// that is checked first, so that also a null at an unknown name is refused, and its version and children are read.
func (a *API) edit(ctx context.Context, id auth.Identity, job domain.JobID, c rest.Conditional, sent json.RawMessage,
	next func(now domain.JobSpec, sent json.RawMessage) (json.RawMessage, error)) (*versioned, error) {
	present, err := a.visible.Job(ctx, id, job)
	if err != nil {
		return nil, err
	}
	var asked domain.Job
	sound, err := strict.Decode(sent, &asked)
	if err != nil && sound == nil {
		return nil, err // it is no JSON
	}
	if err != nil {
		spec, _ := edited(present.JobSpec, sound, next)
		return nil, strict.AlsoFaulty(err, a.checkSpec(err, spec))
	}
	version, err := rest.OneVersion(c, asked.Version)
	if err != nil {
		return nil, err
	}
	if err := strict.SameID(asked.ID, job, "job"); err != nil {
		return nil, err
	}
	if err := a.checkChildren(ctx, id, asked.Children); err != nil {
		return nil, err
	}
	before, after, err := a.Engine.EditJob(ctx, job, version, id.Actor(), func(spec *domain.JobSpec) error {
		if err := visible.Check(id, spec.Group, visible.NoJob); err != nil { // it may have moved since it was read
			return err
		}
		changed, err := edited(*spec, sent, next)
		if err != nil {
			return err
		}
		if !id.Sees(changed.Group) && domain.ValidGroupName(changed.Group) {
			return visible.UnknownGroup(changed.Group)
		}
		*spec = changed
		return nil
	})
	if err != nil {
		return nil, err
	}
	if before.Version != after.Version { // an edit that changes nothing makes no version
		a.audit.Record(ctx, id, "job.update", rest.JobObject(job), before, after)
	}
	return answerJob(after), nil
}

// edited returns the spec that the document of next says, over the defaults.
func edited(now domain.JobSpec, sent json.RawMessage,
	next func(domain.JobSpec, json.RawMessage) (json.RawMessage, error)) (domain.JobSpec, error) {
	j := domain.Job{JobSpec: domain.DefaultJobSpec()}
	doc, err := next(now, sent)
	if err == nil {
		_, err = strict.Decode(doc, &j)
	}
	return j.JobSpec, err
}

func (a *API) deleteJob(ctx context.Context, id auth.Identity, in *struct {
	rest.JobPath
	rest.Conditional
}) (*struct{}, error) {
	version, err := in.Match()
	if err != nil {
		return nil, err
	}
	if _, err := a.visible.Job(ctx, id, in.ID); err != nil {
		return nil, err
	}
	before, err := a.Engine.DeleteJob(ctx, in.ID, version, id.Actor())
	if err != nil {
		return nil, err
	}
	a.audit.Record(ctx, id, "job.delete", rest.JobObject(in.ID), before, nil)
	return nil, nil
}

type switchInput struct {
	rest.JobPath
	rest.Conditional
}

func (a *API) enable(ctx context.Context, id auth.Identity, in *switchInput) (*versioned, error) {
	return a.setEnabled(ctx, id, in, true, "job.enable")
}

func (a *API) disable(ctx context.Context, id auth.Identity, in *switchInput) (*versioned, error) {
	return a.setEnabled(ctx, id, in, false, "job.disable")
}

func (a *API) setEnabled(ctx context.Context, id auth.Identity, in *switchInput, enabled bool, action string) (*versioned, error) {
	version, err := in.Match()
	if err != nil {
		return nil, err
	}
	if _, err := a.visible.Job(ctx, id, in.ID); err != nil {
		return nil, err
	}
	before, after, err := a.Engine.SetEnabled(ctx, in.ID, enabled, version, id.Actor())
	if err != nil {
		return nil, err
	}
	if before.Version != after.Version {
		a.audit.Record(ctx, id, action, rest.JobObject(in.ID), before, after)
	}
	return answerJob(after), nil
}

type triggerBody struct {
	Param    *string         `json:"param,omitempty" doc:"Default: the job's"`
	Instance string          `json:"instance,omitempty" doc:"The only instance that may run it"`
	FireTime *domain.Instant `json:"fire_time,omitempty" doc:"The nominal instant that the handler sees; default: now"`
}

func (a *API) trigger(ctx context.Context, id auth.Identity, in *struct {
	rest.JobPath
	rest.JSONBody
}) (*rest.Output[rest.Accepted], error) {
	j, err := a.visible.Job(ctx, id, in.ID)
	if err != nil {
		return nil, err
	}
	var b triggerBody
	if len(in.RawBody) > 0 {
		err = in.Decode(&b)
	}
	if err := strict.AlsoFaulty(err, a.checkTrigger(&j.JobSpec, b)); err != nil {
		return nil, err
	}
	t := domain.Trigger{Param: b.Param, Instance: b.Instance, Cause: domain.CauseAPI}
	if id.Interactive() {
		t.Cause = domain.CauseManual
	}
	if b.FireTime != nil {
		t.FireTime = &b.FireTime.Time
	}
	runs, err := a.Engine.Trigger(ctx, in.ID, t)
	if err != nil {
		return nil, err
	}
	answer := rest.Accepted{RunIDs: append([]domain.RunID{}, runs...)}
	a.audit.Record(ctx, id, "job.trigger", rest.JobObject(in.ID), nil, answer)
	return rest.Answer(answer), nil
}

func (a *API) checkTrigger(job *domain.JobSpec, b triggerBody) error {
	var f domain.Faults
	switch {
	case b.Param == nil:
	case len(*b.Param) > domain.MaxParamBytes:
		f.Add("param", fmt.Sprintf("is %d bytes long; at most %d are allowed", len(*b.Param), domain.MaxParamBytes))
	case strings.ContainsRune(*b.Param, 0):
		f.Add("param", "must not have a NUL")
	}
	if b.Instance != "" {
		a.checkInstance(&f, job, b.Instance)
	}
	return f.Err("the trigger is not valid")
}

// checkInstance refuses an instance that is not there or cannot run the job: its run would wait for it until the start
// deadline, and all runs of a serial job behind that one.
func (a *API) checkInstance(f *domain.Faults, job *domain.JobSpec, instance string) {
	const most = 10
	all := a.Dispatcher.Instances(job.Group)
	if at := slices.IndexFunc(all, func(i domain.Instance) bool { return i.ID == instance }); at >= 0 {
		if !all[at].Offers(job.Target()) {
			f.Add("instance", fmt.Sprintf("%s is live, but does not offer %s", instance, job.Target()))
		} else if all[at].Draining {
			f.Add("instance", instance+" is draining and takes no new runs")
		}
		return
	}
	live := rest.Each(all, func(i domain.Instance) string { return i.ID })
	slices.Sort(live)
	text := fmt.Sprintf("group %s has no live instance %q; ", job.Group, problem.Clip(instance))
	switch n := len(live); {
	case n == 0:
		text += "none is live"
	case n > most:
		text += fmt.Sprintf("live are %s and %d more", strings.Join(live[:most], ", "), n-most)
	default:
		text += "live: " + strings.Join(live, ", ")
	}
	f.Add("instance", text)
}

func (a *API) missed(ctx context.Context, id auth.Identity, in *struct {
	rest.JobPath
	rest.List
}) (*rest.Output[rest.Page[domain.Missed]], error) {
	before, err := rest.DecodeNumberCursor("missed", in.Cursor)
	if err != nil {
		return nil, err
	}
	if _, err := a.visible.Job(ctx, id, in.ID); err != nil {
		return nil, err
	}
	rows, err := a.Views.Missed(ctx, in.ID, before, in.Limit+1)
	if err != nil {
		return nil, err
	}
	p := rest.Cut(rows, in.Limit, func(m view.MissedEntry) string { return rest.NumberCursor("missed", m.ID) })
	items := rest.Each(p.Items, func(m view.MissedEntry) domain.Missed { return m.Missed })
	return rest.Answer(rest.Page[domain.Missed]{Items: items, NextCursor: p.NextCursor}), nil
}
