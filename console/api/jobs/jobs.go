// Package jobs is the REST API of jobs: their definitions, triggers, backfills and missed fire times.
package jobs

import (
	"context"
	"fmt"
	"time"

	"github.com/belfryhq/belfry/console/api/rest"
	"github.com/belfryhq/belfry/console/api/schedules"
	"github.com/belfryhq/belfry/console/api/strict"
	"github.com/belfryhq/belfry/console/api/visible"
	"github.com/belfryhq/belfry/console/auth"
	"github.com/belfryhq/belfry/internal/domain"
	"github.com/belfryhq/belfry/internal/explain"
	"github.com/belfryhq/belfry/internal/store/account"
	"github.com/belfryhq/belfry/internal/store/view"
)

// API serves jobs. All fields must be set.
type API struct {
	Store     Store
	Pauses    Pauses
	Lists     Lists
	Instances Instances
	Channels  Channels
	Visible   *visible.Reader
	Audit     *rest.Audit
	Zone      *time.Location // of schedules that name none
}

// Store changes jobs and plans runs. Invalid names the faulty fields. Conflict: the version is stale, or the name is taken.
type Store interface {
	CreateJob(ctx context.Context, spec domain.JobSpec, by string) (domain.Job, error)
	// EditJob changes the spec by edit, under the job's lock. Version 0 is any version.
	EditJob(ctx context.Context, id domain.JobID, version int, by string, edit func(*domain.JobSpec) error) (before, after domain.Job, err error)
	SetEnabled(ctx context.Context, id domain.JobID, enabled bool, version int, by string) (before, after domain.Job, err error)
	DeleteJob(ctx context.Context, id domain.JobID, version int, by string) (domain.Job, error)
	Trigger(ctx context.Context, id domain.JobID, t domain.Trigger) ([]domain.RunID, error)
	// Backfill plans a run for each fire time of a range.
	Backfill(ctx context.Context, id domain.JobID, b domain.Backfill) (domain.Backfilled, error)
}

// Pauses pauses the schedules of jobs.
type Pauses interface {
	// PauseJob starts a pause, or changes the reason and the end of the current one.
	PauseJob(ctx context.Context, id domain.JobID, reason string, until *time.Time, by string) (domain.Pause, error)
	// ResumeJob ends a pause. Conflict: the job itself is not paused.
	ResumeJob(ctx context.Context, id domain.JobID, by string) (domain.Pause, error)
}

// Lists reads lists of jobs, runs and missed fire times.
type Lists interface {
	// Jobs returns also the job after which the next page begins, 0 if there is none.
	Jobs(ctx context.Context, f view.JobFilter) ([]domain.Job, domain.JobID, error)
	LastRuns(ctx context.Context, jobs []domain.Job, only []string, most int) (map[domain.JobID][]view.LastRun, error)
	Missed(ctx context.Context, job domain.JobID, before int64, limit int) ([]view.MissedEntry, error)
	Health
}

// Instances knows the live instances of a group.
type Instances interface {
	Instances(group string) []domain.Instance
}

// Register adds the operations.
func (a *API) Register(r *rest.Router) {
	const tag = "Jobs"
	rest.Register(r, rest.Operation{Method: "GET", Path: "/jobs", Tag: tag, Summary: "List jobs", Needs: account.Viewer,
		Description: "Ordered by id, or by sort. A page examines at most 10,000 jobs. If few of them match q, enabled, kind, child_id, calendar or health, the page " +
			"can be short or empty and still have a next_cursor."}, a.list)
	rest.Register(r, rest.Operation{Method: "POST", Path: "/jobs", Tag: tag, Summary: "Create a job", Needs: account.Operator,
		Status: 201, Body: rest.DerivedBody[domain.Job]("JobInput", "group", "name", "schedule")}, a.create)
	rest.Register(r, rest.Operation{Method: "GET", Path: "/jobs/{id}", Tag: tag, Summary: "Show a job", Needs: account.Viewer}, a.show)
	rest.Register(r, rest.Operation{Method: "PUT", Path: "/jobs/{id}", Tag: tag, Summary: "Replace a job", Needs: account.Operator,
		Description: "Absent fields get their defaults. Read-only fields may be present. They are ignored, except id and version: " +
			"for another id the answer is 422, for another version 409.",
		Body: rest.DerivedBody[domain.Job]("JobInput", "group", "name", "schedule")}, a.replace)
	rest.Register(r, rest.Operation{Method: "PATCH", Path: "/jobs/{id}", Tag: tag, Summary: "Change a job", Needs: account.Operator,
		Description: "A JSON merge patch (RFC 7396): absent fields stay as they are, and null resets a field to its default.",
		Body:        rest.DerivedBody[domain.Job]("JobPatch")}, a.patch)
	rest.Register(r, rest.Operation{Method: "DELETE", Path: "/jobs/{id}", Tag: tag, Summary: "Delete a job", Needs: account.Operator,
		Description: "The job's held, waiting and retrying runs are cancelled. Running ones finish."}, a.remove)
	rest.Register(r, rest.Operation{Method: "POST", Path: "/jobs/{id}/enable", Tag: tag, Summary: "Enable a job", Needs: account.Operator}, a.enable)
	rest.Register(r, rest.Operation{Method: "POST", Path: "/jobs/{id}/disable", Tag: tag, Summary: "Disable a job", Needs: account.Operator,
		Description: "The job no longer fires by its schedule. Its held, waiting and retrying runs stay."}, a.disable)
	rest.Register(r, rest.Operation{Method: "POST", Path: "/jobs/{id}/pause", Tag: tag, Summary: "Pause the schedule of a job",
		Description: "Until the pause ends, the job does not fire by its schedule. Then its misfire policy applies to the missed fire times. " +
			"Manual, API, event and child runs, retries and running runs are not affected. If the job is already paused, " +
			"the pause gets the new reason and end. A pause of the job's group is independent of it: the job fires again when neither lasts.",
		Needs: account.Operator, Body: rest.BodyOf[rest.PauseBody]()}, a.pause)
	rest.Register(r, rest.Operation{Method: "POST", Path: "/jobs/{id}/resume", Tag: tag, Summary: "End the pause of a job",
		Description: "If the job itself is not paused, the answer is 409. A pause of its group stays.", Needs: account.Operator}, a.resume)
	rest.Register(r, rest.Operation{Method: "POST", Path: "/jobs/{id}/trigger", Tag: tag, Summary: "Run a job now", Needs: account.Operator,
		Status: 202, Body: rest.BodyOf[triggerBody](), BodyOptional: true}, a.trigger)
	rest.Register(r, rest.Operation{Method: "GET", Path: "/jobs/{id}/missed", Tag: tag, Summary: "List a job's missed fire times, newest first", Needs: account.Viewer}, a.missed)
	rest.Register(r, rest.Operation{Method: "POST", Path: "/jobs/{id}/backfill", Tag: tag, Summary: "Run a job for past fire times", Status: 202,
		Description: "Plans one run with the cause backfill for each fire time that the job's current schedule has in the range: all of them or none. " +
			"A fire time that already has a run gets another one. The runs come due in order, and the job's block policy applies to them. " +
			"If the range has more than max fire times, next_from is the first remaining one.",
		Needs: account.Operator, Body: rest.BodyOf[backfillBody]()}, a.backfill)
}

type jobsInput struct {
	rest.List
	rest.Reader
	Group    string              `query:"group" doc:"Only jobs of this group"`
	Q        string              `query:"q" maxLength:"128" doc:"Only jobs with this text in the name, description or handler"`
	Tag      string              `query:"tag"`
	Enabled  string              `query:"enabled" enum:"true,false"`
	Kind     domain.ScheduleKind `query:"kind" enum:"none,cron,fixed_rate,fixed_delay,once"`
	ChildID  domain.JobID        `query:"child_id" minimum:"1" doc:"Only jobs that have this job as a child"`
	Calendar string              `query:"calendar" maxLength:"63" doc:"Only jobs whose schedule names this calendar"`
	Health   domain.HealthState  `query:"health" enum:"ok,failing,unknown" doc:"Only jobs with this state of health"`
	Sort     view.JobSort        `query:"sort" enum:"name,next_fire_time,last_failure,failing_since,p95_ms" doc:"The order. name: alphabetical. next_fire_time: the soonest first; fire times that are planned already, up to some seconds ahead, do not count. last_failure: the newest first. failing_since: the longest failing first. p95_ms: the slowest first, in steps of 9 percent. Jobs without a value come last. Default: by id"`

	LastRuns int `query:"last_runs" minimum:"0" maximum:"20" default:"0" doc:"The number of latest runs to include with each job"`
}

// versioned is an answer that consists of a job.
type versioned struct {
	ETag string `header:"ETag" doc:"The job's version, for If-Match"`
	Body domain.Job
}

// listedJob is a job in a list.
type listedJob struct {
	domain.Job
	LastRuns []lastRun `json:"last_runs,omitzero" required:"false" doc:"The latest runs, newest first, at most as many as the parameter last_runs. A broadcast counts as one run. Runs that are not due yet are left out"`
}

// MissedState is the state of missed fire times in a list of runs.
const MissedState = "missed"

// lastRun is a run of a job, a whole broadcast, or missed fire times.
type lastRun struct {
	ID         *domain.RunID        `json:"id" doc:"The run. For a broadcast: the first shard in that state; for missed fire times: null"`
	At         domain.Instant       `json:"at" doc:"The fire time, or the time of creation if the run has none. For missed fire times: the last one"`
	State      string               `json:"state" doc:"The state of the run, or missed. For a broadcast: the state of the worst shard"`
	Reason     domain.Reason        `json:"reason"`
	Cause      domain.Cause         `json:"cause" doc:"Empty for missed fire times"`
	DurationMS *int64               `json:"duration_ms" doc:"The duration of the last attempt; null until the run has ended"`
	Shards     int                  `json:"shards,omitempty" doc:"For a broadcast: the number of shards"`
	Count      int64                `json:"count,omitempty" doc:"The number of missed fire times"`
	Why        *explain.Explanation `json:"why,omitempty" doc:"Why the fire times were missed"`
}

func lastRunOf(r view.LastRun) lastRun {
	out := lastRun{At: domain.At(r.At), State: string(r.State), Reason: r.Reason, Cause: r.Cause, Shards: r.Shards, Count: r.Missed, Why: r.Why}
	switch {
	case r.Missed > 0:
		out.State = MissedState
		return out
	case r.Ended:
		ms := r.Duration.Milliseconds()
		out.DurationMS = &ms
	}
	out.ID = &r.ID
	return out
}

func (a *API) answer(j domain.Job, r *rest.Reader) *versioned {
	if r.Language() != explain.English {
		j.Note = a.note(j, r.Language())
	}
	j.ScheduleDescription = a.describe(j, r.Language())
	return &versioned{ETag: rest.ETag(j.Version), Body: j}
}

func (a *API) list(ctx context.Context, id auth.Identity, in *jobsInput) (*rest.Output[rest.Page[listedJob]], error) {
	f := view.JobFilter{Only: id.Only(), Group: in.Group, Query: in.Q, Tag: in.Tag, Kind: in.Kind, Child: in.ChildID, Calendar: in.Calendar, Limit: in.Limit}
	if in.Enabled != "" {
		enabled := in.Enabled == "true"
		f.Enabled = &enabled
	}
	jobs, next, err := a.page(ctx, f, in)
	if err != nil {
		return nil, err
	}
	for i := range jobs {
		jobs[i].Note = a.note(jobs[i], in.Language())
		jobs[i].ScheduleDescription = a.describe(jobs[i], in.Language())
	}
	if len(jobs) == 0 && next == "" && in.Cursor == "" {
		if err := a.Visible.CheckGroup(ctx, id, in.Group); err != nil {
			return nil, err
		}
	}
	out := rest.Page[listedJob]{NextCursor: next}
	last := map[domain.JobID][]view.LastRun{}
	if in.LastRuns > 0 {
		if last, err = a.Lists.LastRuns(ctx, jobs, id.Only(), in.LastRuns); err != nil {
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

// note says why an enabled job has no next fire time.
func (a *API) note(j domain.Job, language explain.Language) string {
	switch {
	case j.NotedPauses != nil:
		return j.PauseNote(language)
	case !j.Enabled || j.NextFireTime != nil:
		return j.Note
	}
	compiled, err := schedules.Compile(j.Schedule, a.Zone, j.CreatedAt.Time)
	if err != nil {
		return language.Format("its schedule no longer compiles: %v", "调度已无法编译：%v", err)
	}
	return compiled.NoteIn(language, time.Now())
}

// describe returns the description of a job's schedule, or "" if the schedule no longer compiles.
func (a *API) describe(j domain.Job, language explain.Language) string {
	compiled, err := schedules.Compile(j.Schedule, a.Zone, j.CreatedAt.Time)
	if err != nil {
		return ""
	}
	return schedules.Describe(compiled, language)
}

func (a *API) show(ctx context.Context, id auth.Identity, in *struct {
	rest.JobPath
	rest.Reader
}) (*versioned, error) {
	j, err := a.Visible.Job(ctx, id, in.ID)
	if err != nil {
		return nil, err
	}
	shown := []domain.Job{j}
	if err := a.Lists.AddHealth(ctx, shown); err != nil {
		return nil, err
	}
	err = a.Lists.AddChanges(ctx, &shown[0])
	return a.answer(shown[0], &in.Reader), err
}

func (a *API) create(ctx context.Context, id auth.Identity, in *struct {
	rest.JSONBody
	rest.Reader
}) (*versioned, error) {
	spec := domain.DefaultJobSpec()
	if err := in.Decode(&spec); err != nil {
		return nil, strict.AlsoFaulty(err, CheckSpec(a.Zone, err, spec))
	}
	if !id.Sees(spec.Group) && domain.ValidGroupName(spec.Group) {
		return nil, visible.UnknownGroup(spec.Group)
	}
	if err := a.checkChildren(ctx, id, spec.Children); err != nil {
		return nil, err
	}
	if err := Unmask(&spec, nil); err != nil {
		return nil, err
	}
	if err := CheckChannels(ctx, a.Channels, id, nil, spec); err != nil {
		return nil, err
	}
	j, err := a.Store.CreateJob(ctx, spec, id.Actor())
	if err != nil {
		return nil, err
	}
	a.Audit.Record(ctx, id, "job.create", rest.JobObject(j.ID), nil, j)
	return a.answer(j, &in.Reader), nil
}

// CheckSpec returns the faults of a spec's values that can be found without the database. Use it for a body whose fields partly
// have the wrong type, as the error shape reports. The store checks all other specs.
func CheckSpec(zone *time.Location, shape error, spec domain.JobSpec) error {
	var f domain.Faults
	if strict.NamesFault(shape, "script") { // the body has a script, so the handler is not missing
		spec.Script = &domain.Script{Language: "sh", Code: ":"}
	}
	spec.Normalize()
	f.AddAll("", spec.Validate())
	if !strict.NamesFault(shape, "schedule.kind") { // the other fields of a schedule depend on the kind
		_, err := schedules.Compile(spec.Schedule, zone, time.Now())
		f.AddAll("schedule", err)
	}
	return f.Err("the job is not valid")
}

// checkChildren refuses children that the caller may not see, because a child runs after its parent.
func (a *API) checkChildren(ctx context.Context, id auth.Identity, children []domain.Child) error {
	if id.Role == account.Admin || len(children) > domain.MaxChildren {
		return nil // an admin may see all jobs; the store refuses too many children
	}
	var f domain.Faults
	for i, c := range children {
		if c.JobID <= 0 {
			continue // the store reports it
		}
		_, err := a.Visible.Job(ctx, id, c.JobID)
		if err != nil && domain.CodeOf(err) != domain.NotFound {
			return err
		}
		if err != nil {
			f.Add(fmt.Sprintf("children[%d].job_id", i), visible.NoJob)
		}
	}
	return f.Err("the job is not valid")
}

func (a *API) remove(ctx context.Context, id auth.Identity, in *struct {
	rest.JobPath
	rest.Conditional
}) (*struct{}, error) {
	version, err := in.Match()
	if err != nil {
		return nil, err
	}
	if _, err := a.Visible.Job(ctx, id, in.ID); err != nil {
		return nil, err
	}
	before, err := a.Store.DeleteJob(ctx, in.ID, version, id.Actor())
	if err != nil {
		return nil, err
	}
	a.Audit.Record(ctx, id, "job.delete", rest.JobObject(in.ID), before, nil)
	return nil, nil
}

type switchInput struct {
	rest.JobPath
	rest.Conditional
	rest.Reader
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
	if _, err := a.Visible.Job(ctx, id, in.ID); err != nil {
		return nil, err
	}
	before, after, err := a.Store.SetEnabled(ctx, in.ID, enabled, version, id.Actor())
	if err != nil {
		return nil, err
	}
	if before.Version != after.Version {
		a.Audit.Record(ctx, id, action, rest.JobObject(in.ID), before, after)
	}
	return a.answer(after, &in.Reader), nil
}

func (a *API) missed(ctx context.Context, id auth.Identity, in *struct {
	rest.JobPath
	rest.List
}) (*rest.Output[rest.Page[domain.Missed]], error) {
	before, err := rest.DecodeNumberCursor("missed", in.Cursor)
	if err != nil {
		return nil, err
	}
	if _, err := a.Visible.Job(ctx, id, in.ID); err != nil {
		return nil, err
	}
	rows, err := a.Lists.Missed(ctx, in.ID, before, in.Limit+1)
	if err != nil {
		return nil, err
	}
	p := rest.Cut(rows, in.Limit, func(m view.MissedEntry) string { return rest.NumberCursor("missed", m.ID) })
	items := rest.Each(p.Items, func(m view.MissedEntry) domain.Missed { return m.Missed })
	return rest.Answer(rest.Page[domain.Missed]{Items: items, NextCursor: p.NextCursor}), nil
}
