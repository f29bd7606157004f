package api

import (
	"context"
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/belfryhq/belfry/console/auth"
	"github.com/belfryhq/belfry/internal/domain"
	"github.com/belfryhq/belfry/internal/store/account"
	"github.com/belfryhq/belfry/internal/store/view"
)

const noJob = "there is no such job"

// JobPath names a job in the path.
type JobPath struct {
	ID domain.JobID `path:"id" minimum:"1"`
}

// Conditional is embedded by the inputs of changes to a job.
type Conditional struct {
	IfMatch string `header:"If-Match" doc:"The version that the change is meant for, as the ETag said; another one answers 409"`
}

// version returns the version in If-Match, 0 for any. ETags of jobs are their versions in quotes.
func (c Conditional) version() (int, error) {
	s := strings.TrimSpace(c.IfMatch)
	if s == "" || s == "*" {
		return 0, nil
	}
	v, err := strconv.Atoi(strings.Trim(strings.TrimPrefix(s, "W/"), `"`))
	if err != nil || v < 1 {
		return 0, invalidField("If-Match", `must be a job's version, such as "3"`)
	}
	return v, nil
}

type jobsInput struct {
	List
	Group    string              `query:"group" doc:"Only jobs of this group"`
	Q        string              `query:"q" maxLength:"128" doc:"Occurs in name, description or handler"`
	Tag      string              `query:"tag"`
	Enabled  string              `query:"enabled" enum:"true,false"`
	Kind     domain.ScheduleKind `query:"kind" enum:"none,cron,fixed_rate,fixed_delay,once"`
	ChildID  domain.JobID        `query:"child_id" minimum:"1" doc:"Only jobs that have this one as a child"`
	Calendar string              `query:"calendar" maxLength:"63" doc:"Only jobs whose schedule names this calendar"`

	LastRuns int `query:"last_runs" minimum:"0" maximum:"20" default:"0" doc:"How many of its last runs each job shows"`
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
	register(a, operation{method: "GET", path: "/jobs", tag: tag, summary: "List jobs", needs: account.Viewer,
		description: "By id. A page looks at 10,000 jobs: where q, enabled, kind, child_id or calendar lets little through, it may be short or empty and still have a next_cursor."}, a.jobs)
	register(a, operation{method: "POST", path: "/jobs", tag: tag, summary: "Create a job", needs: account.Operator,
		status: 201, body: jobBody}, a.createJob)
	register(a, operation{method: "GET", path: "/jobs/{id}", tag: tag, summary: "Show a job", needs: account.Viewer}, a.job)
	register(a, operation{method: "PUT", path: "/jobs/{id}", tag: tag, summary: "Replace a job", needs: account.Operator,
		description: "Absent fields get their defaults. Read-only fields may be there and are ignored, save version: another one than the job's answers 409.",
		body:        jobBody}, a.replaceJob)
	register(a, operation{method: "PATCH", path: "/jobs/{id}", tag: tag, summary: "Change a job", needs: account.Operator,
		description: "A JSON merge patch (RFC 7396): absent fields stay, null gives a field its default.",
		body:        jobPatch}, a.patchJob)
	register(a, operation{method: "DELETE", path: "/jobs/{id}", tag: tag, summary: "Delete a job", needs: account.Operator,
		description: "Its held, waiting and retrying runs are cancelled; running ones finish."}, a.deleteJob)
	register(a, operation{method: "POST", path: "/jobs/{id}/enable", tag: tag, summary: "Enable a job", needs: account.Operator}, a.enable)
	register(a, operation{method: "POST", path: "/jobs/{id}/disable", tag: tag, summary: "Disable a job", needs: account.Operator,
		description: "It fires no more by its schedule; its held, waiting and retrying runs stay."}, a.disable)
	register(a, operation{method: "POST", path: "/jobs/{id}/trigger", tag: tag, summary: "Run a job now", needs: account.Operator,
		status: 202, body: reflect.TypeFor[triggerBody](), bodyOptional: true}, a.trigger)
	register(a, operation{method: "GET", path: "/jobs/{id}/missed", tag: tag, summary: "List a job's missed fire times, newest first", needs: account.Viewer}, a.missed)
}

// readJob returns a job that the caller may see, NotFound for any other.
func (a *API) readJob(ctx context.Context, id auth.Identity, job domain.JobID) (domain.Job, error) {
	j, err := a.Engine.Job(ctx, job)
	switch {
	case err == nil:
		return j, may(id, j.Group, noJob)
	case domain.CodeOf(err) == domain.NotFound:
		return j, domain.WrapError(domain.NotFound, noJob, err)
	}
	return j, err
}

func answerJob(j domain.Job) *versioned {
	return &versioned{ETag: strconv.Quote(strconv.Itoa(j.Version)), Body: j}
}

func jobObject(id domain.JobID) string { return fmt.Sprintf("job/%d", id) }

func (a *API) jobs(ctx context.Context, id auth.Identity, in *jobsInput) (*output[page[listedJob]], error) {
	after, err := decodeNumberCursor("job", in.Cursor)
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
		if err := a.checkGroup(ctx, id, in.Group); err != nil {
			return nil, err
		}
	}
	out := page[listedJob]{}
	if next != 0 {
		out.NextCursor = numberCursor("job", int64(next))
	}
	last := map[domain.JobID][]view.LastRun{}
	if in.LastRuns > 0 {
		if last, err = a.Views.LastRuns(ctx, jobs, id.Only(), in.LastRuns); err != nil {
			return nil, err
		}
	}
	out.Items = each(jobs, func(j domain.Job) listedJob {
		item := listedJob{Job: j}
		if in.LastRuns > 0 {
			item.LastRuns = each(last[j.ID], lastRunOf)
		}
		return item
	})
	return &output[page[listedJob]]{out}, nil
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

func (a *API) job(ctx context.Context, id auth.Identity, in *JobPath) (*versioned, error) {
	j, err := a.readJob(ctx, id, in.ID)
	return answerJob(j), err
}

func (a *API) createJob(ctx context.Context, id auth.Identity, in *struct{ JSONBody }) (*versioned, error) {
	spec := domain.DefaultJobSpec()
	if err := in.decode(&spec); err != nil {
		return nil, alsoFaulty(err, a.checkSpec(err, spec))
	}
	if !id.Sees(spec.Group) && domain.ValidGroupName(spec.Group) {
		return nil, unknownGroup(spec.Group)
	}
	if err := a.checkChildren(ctx, id, spec.Children); err != nil {
		return nil, err
	}
	j, err := a.Engine.CreateJob(ctx, spec, id.Actor())
	if err != nil {
		return nil, err
	}
	a.audit(ctx, id, "job.create", jobObject(j.ID), nil, j)
	return answerJob(j), nil
}

// checkSpec returns what is wrong with the values of a spec, as far as can be said without the database. It is for
// bodies of which some fields have the wrong shape, as that error says; the engine checks all others, and in whole.
func (a *API) checkSpec(shape error, spec domain.JobSpec) error {
	var f domain.Faults
	if namesFault(shape, "script") { // it is there, whatever it is, so that no handler is missed
		spec.Script = &domain.Script{Language: "sh", Code: ":"}
	}
	spec.Normalize()
	f.AddAll("", spec.Validate())
	if !namesFault(shape, "schedule.kind") { // without it no other field of a schedule means anything
		_, err := a.compile(spec.Schedule, time.Now())
		f.AddAll("schedule", err)
	}
	return f.Err("the job is not valid")
}

// unknownGroup answers a group that is not there and one that the caller may not see alike.
func unknownGroup(name string) error {
	return invalidField("group", unknownGroupText(name))
}

func unknownGroupText(name string) string { return fmt.Sprintf("there is no group %q", clip(name)) }

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
		_, err := a.readJob(ctx, id, c.JobID)
		if err != nil && domain.CodeOf(err) != domain.NotFound {
			return err
		}
		if err != nil {
			f.Add(fmt.Sprintf("children[%d].job_id", i), noJob)
		}
	}
	return f.Err("the job is not valid")
}

func (a *API) replaceJob(ctx context.Context, id auth.Identity, in *struct {
	JobPath
	Conditional
	JSONBody
}) (*versioned, error) {
	if err := in.check(); err != nil {
		return nil, err
	}
	return a.edit(ctx, id, in.ID, in.Conditional, in.RawBody, func(_ domain.JobSpec, sent json.RawMessage) (json.RawMessage, error) {
		return sent, nil
	})
}

func (a *API) patchJob(ctx context.Context, id auth.Identity, in *struct {
	JobPath
	Conditional
	JSONBody
}) (*versioned, error) {
	if err := in.check(); err != nil {
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
		return mergePatch(doc, sent), nil
	})
}

// edit changes a job to the document that next makes of its present spec and of what the client sent. The shape of
// that is checked first, so that also a null at an unknown name is refused, and its version and children are read.
func (a *API) edit(ctx context.Context, id auth.Identity, job domain.JobID, c Conditional, sent json.RawMessage,
	next func(now domain.JobSpec, sent json.RawMessage) (json.RawMessage, error)) (*versioned, error) {
	present, err := a.readJob(ctx, id, job)
	if err != nil {
		return nil, err
	}
	var asked domain.Job
	sound, err := decodeStrict(sent, &asked)
	if err != nil && sound == nil {
		return nil, err // it is no JSON
	}
	if err != nil {
		spec, _ := edited(present.JobSpec, sound, next)
		return nil, alsoFaulty(err, a.checkSpec(err, spec))
	}
	version, err := oneVersion(c, asked.Version)
	if err != nil {
		return nil, err
	}
	if err := sameID(asked.ID, job, "job"); err != nil {
		return nil, err
	}
	if err := a.checkChildren(ctx, id, asked.Children); err != nil {
		return nil, err
	}
	before, after, err := a.Engine.EditJob(ctx, job, version, id.Actor(), func(spec *domain.JobSpec) error {
		if err := may(id, spec.Group, noJob); err != nil { // it may have moved since it was read
			return err
		}
		changed, err := edited(*spec, sent, next)
		if err != nil {
			return err
		}
		if !id.Sees(changed.Group) && domain.ValidGroupName(changed.Group) {
			return unknownGroup(changed.Group)
		}
		*spec = changed
		return nil
	})
	if err != nil {
		return nil, err
	}
	if before.Version != after.Version { // an edit that changes nothing makes no version
		a.audit(ctx, id, "job.update", jobObject(job), before, after)
	}
	return answerJob(after), nil
}

// edited returns the spec that the document of next says, over the defaults.
func edited(now domain.JobSpec, sent json.RawMessage,
	next func(domain.JobSpec, json.RawMessage) (json.RawMessage, error)) (domain.JobSpec, error) {
	j := domain.Job{JobSpec: domain.DefaultJobSpec()}
	doc, err := next(now, sent)
	if err == nil {
		_, err = decodeStrict(doc, &j)
	}
	return j.JobSpec, err
}

// oneVersion returns the version that a change is meant for, from the header or the body, 0 for any.
func oneVersion(c Conditional, inBody int) (int, error) {
	version, err := c.version()
	switch {
	case err != nil:
		return 0, err
	case inBody < 0:
		return 0, invalidField("version", "must be a job's version")
	case version != 0 && inBody != 0 && version != inBody:
		return 0, invalidField("version", "is another one than If-Match says")
	}
	return max(version, inBody), nil
}

func (a *API) deleteJob(ctx context.Context, id auth.Identity, in *struct {
	JobPath
	Conditional
}) (*struct{}, error) {
	version, err := in.version()
	if err != nil {
		return nil, err
	}
	if _, err := a.readJob(ctx, id, in.ID); err != nil {
		return nil, err
	}
	before, err := a.Engine.DeleteJob(ctx, in.ID, version, id.Actor())
	if err != nil {
		return nil, err
	}
	a.audit(ctx, id, "job.delete", jobObject(in.ID), before, nil)
	return nil, nil
}

type switchInput struct {
	JobPath
	Conditional
}

func (a *API) enable(ctx context.Context, id auth.Identity, in *switchInput) (*versioned, error) {
	return a.setEnabled(ctx, id, in, true, "job.enable")
}

func (a *API) disable(ctx context.Context, id auth.Identity, in *switchInput) (*versioned, error) {
	return a.setEnabled(ctx, id, in, false, "job.disable")
}

func (a *API) setEnabled(ctx context.Context, id auth.Identity, in *switchInput, enabled bool, action string) (*versioned, error) {
	version, err := in.version()
	if err != nil {
		return nil, err
	}
	if _, err := a.readJob(ctx, id, in.ID); err != nil {
		return nil, err
	}
	before, after, err := a.Engine.SetEnabled(ctx, in.ID, enabled, version, id.Actor())
	if err != nil {
		return nil, err
	}
	if before.Version != after.Version {
		a.audit(ctx, id, action, jobObject(in.ID), before, after)
	}
	return answerJob(after), nil
}

type triggerBody struct {
	Param    *string         `json:"param,omitempty" doc:"Default: the job's"`
	Instance string          `json:"instance,omitempty" doc:"The only instance that may run it"`
	FireTime *domain.Instant `json:"fire_time,omitempty" doc:"The nominal instant that the handler sees; default: now"`
}

func (a *API) trigger(ctx context.Context, id auth.Identity, in *struct {
	JobPath
	JSONBody
}) (*output[accepted], error) {
	j, err := a.readJob(ctx, id, in.ID)
	if err != nil {
		return nil, err
	}
	var b triggerBody
	if len(in.RawBody) > 0 {
		err = in.decode(&b)
	}
	if err := alsoFaulty(err, a.checkTrigger(&j.JobSpec, b)); err != nil {
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
	answer := accepted{RunIDs: append([]domain.RunID{}, runs...)}
	a.audit(ctx, id, "job.trigger", jobObject(in.ID), nil, answer)
	return &output[accepted]{answer}, nil
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
	live := each(all, func(i domain.Instance) string { return i.ID })
	slices.Sort(live)
	text := fmt.Sprintf("group %s has no live instance %q; ", job.Group, clip(instance))
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
	JobPath
	List
}) (*output[page[domain.Missed]], error) {
	before, err := decodeNumberCursor("missed", in.Cursor)
	if err != nil {
		return nil, err
	}
	if _, err := a.readJob(ctx, id, in.ID); err != nil {
		return nil, err
	}
	rows, err := a.Views.Missed(ctx, in.ID, before, in.Limit+1)
	if err != nil {
		return nil, err
	}
	p := cut(rows, in.Limit, func(m view.MissedEntry) string { return numberCursor("missed", m.ID) })
	items := each(p.Items, func(m view.MissedEntry) domain.Missed { return m.Missed })
	return &output[page[domain.Missed]]{page[domain.Missed]{items, p.NextCursor}}, nil
}
