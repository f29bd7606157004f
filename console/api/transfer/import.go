package transfer

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"mime"
	"net/http"
	"slices"
	"strings"

	"github.com/belfryhq/belfry/console/api/groups"
	"github.com/belfryhq/belfry/console/api/jobs"
	"github.com/belfryhq/belfry/console/api/problem"
	"github.com/belfryhq/belfry/console/api/rest"
	"github.com/belfryhq/belfry/console/api/strict"
	"github.com/belfryhq/belfry/console/api/triggers"
	"github.com/belfryhq/belfry/console/api/visible"
	"github.com/belfryhq/belfry/console/auth"
	"github.com/belfryhq/belfry/internal/domain"
	"github.com/belfryhq/belfry/internal/event"
	"github.com/belfryhq/belfry/internal/event/match"
	"github.com/belfryhq/belfry/internal/jobfile"
	"github.com/belfryhq/belfry/internal/store/account"
	"github.com/belfryhq/belfry/internal/store/view"
)

// The actions of an import.
const (
	actionCreated   = "created"
	actionUpdated   = "updated"
	actionUnchanged = "unchanged"
)

type importItem struct {
	Kind    string               `json:"kind" enum:"group,calendar,job,event_trigger,alert_channel"`
	Group   string               `json:"group"`
	Name    string               `json:"name" doc:"The name of the job, the calendar or the alert channel, or the pattern of the event trigger; empty for a group"`
	ID      domain.JobID         `json:"id,omitempty"`
	Action  string               `json:"action" enum:"created,updated,unchanged,failed"`
	Changes []jobfile.Difference `json:"changes" nullable:"false" doc:"The differences from the existing item"`
	Error   string               `json:"error,omitempty"`
}

type importResult struct {
	DryRun    bool         `json:"dry_run"`
	Created   int          `json:"created"`
	Updated   int          `json:"updated"`
	Unchanged int          `json:"unchanged"`
	Failed    int          `json:"failed"`
	Items     []importItem `json:"items" nullable:"false"`
}

func (r *importResult) add(i importItem) {
	if i.Changes == nil {
		i.Changes = []jobfile.Difference{}
	}
	switch {
	case i.Error != "":
		i.Action = "failed"
		r.Failed++
	case i.Action == actionCreated:
		r.Created++
	case i.Action == actionUpdated:
		r.Updated++
	default:
		r.Unchanged++
	}
	r.Items = append(r.Items, i)
}

// importing is one import: the existing resources, and those of the file.
type importing struct {
	api    *API
	id     auth.Identity
	file   *jobfile.File
	groups map[string]*domain.Group   // existing ones by name; nil: to be created
	jobs   map[string]domain.Job      // existing ones by group/name
	index  map[string]int             // of the file's jobs, by group/name
	there  map[string][]event.Trigger // existing ones by job and pattern; matched ones are removed
	specs  []domain.JobSpec           // of the file's jobs, with the ids of known children
	faults domain.Faults

	calendars     map[string]*domain.Calendar // existing ones by name; nil: to be created
	calendarSpecs []domain.CalendarSpec       // of the file
}

func (a *API) importFile(ctx context.Context, id auth.Identity, in *struct {
	DryRun      bool   `query:"dry_run" doc:"Only report what would be changed"`
	ContentType string `header:"Content-Type" hidden:"true"`
	RawBody     []byte `contentType:"application/yaml"`
}) (*rest.Output[importResult], error) {
	if !yamlOrJSON(in.ContentType) {
		return nil, problem.New(http.StatusUnsupportedMediaType, "the body must be application/yaml",
			domain.FieldError{Location: "Content-Type", Message: "must be application/yaml or application/json"})
	}
	file, err := jobfile.Parse("body", in.RawBody)
	if err != nil {
		return nil, problem.New(http.StatusBadRequest, "the body is not a job file", domain.FieldError{Location: "body", Message: problem.Clip(err.Error())})
	}
	if len(file.Groups)+len(file.Jobs)+len(file.Triggers)+len(file.Channels)+len(file.Calendars) == 0 {
		return nil, problem.Invalid("body", "is empty; add a group, calendar, job, event trigger or alert channel")
	}
	m := &importing{api: a, id: id, file: file, groups: map[string]*domain.Group{}, jobs: map[string]domain.Job{}, index: map[string]int{}}
	if err := m.read(ctx); err != nil {
		return nil, err
	}
	if err := m.check(ctx); err != nil {
		return nil, err
	}
	out := importResult{DryRun: in.DryRun, Items: []importItem{}}
	m.putGroups(ctx, in.DryRun, &out)
	m.putCalendars(ctx, in.DryRun, &out)
	m.putJobs(ctx, in.DryRun, &out)
	m.putTriggers(ctx, in.DryRun, &out)
	for _, c := range file.Channels {
		out.add(importItem{Kind: "alert_channel", Name: c.Name, Action: actionUnchanged})
	}
	return rest.Answer(out), nil
}

func yamlOrJSON(contentType string) bool {
	t, _, err := mime.ParseMediaType(contentType)
	return err == nil && (slices.Contains([]string{yamlType, "application/x-yaml", "text/yaml", "text/x-yaml"}, t) || rest.IsJSON(contentType))
}

// read loads the groups that the file names, and their jobs.
func (m *importing) read(ctx context.Context) error {
	wanted := map[string]bool{}
	for i, j := range m.file.Jobs {
		m.index[j.Key()] = i
		wanted[j.Group] = true
		for _, name := range j.Children() {
			group, _, _ := strings.Cut(name, "/")
			wanted[group] = true
		}
	}
	for _, g := range m.file.Groups {
		wanted[g.Name] = true
	}
	for _, t := range m.file.Triggers {
		group, _, _ := strings.Cut(t.Job, "/")
		wanted[group] = true
	}
	for name := range maps.Keys(wanted) {
		if !domain.ValidGroupName(name) {
			continue
		}
		g, err := m.api.Counted.Read(ctx, m.id, name)
		if err != nil && domain.CodeOf(err) == domain.NotFound {
			continue
		}
		if err != nil {
			return err
		}
		m.groups[name] = &g
		jobs, err := m.api.allJobs(ctx, view.JobFilter{Only: []string{name}})
		if err != nil {
			return err
		}
		for _, j := range jobs {
			m.jobs[jobfile.Key(j.Group, j.Name)] = j
		}
	}
	return nil
}

// check finds every fault of the file before the first change.
func (m *importing) check(ctx context.Context) error {
	toCome := map[string]bool{}
	for i, g := range m.file.Groups {
		if m.groups[g.Name] == nil && m.id.Role != account.Admin {
			m.faults.Add(fmt.Sprintf("groups[%d].name", i), fmt.Sprintf("there is no group %q, and only admins can create groups", problem.Clip(g.Name)))
		}
		groups.CheckDescription(&m.faults, g.Description)
		toCome[g.Name] = true
	}
	m.specs = make([]domain.JobSpec, len(m.file.Jobs))
	for i := range m.file.Jobs {
		if err := m.checkJob(ctx, i, toCome); err != nil {
			return err
		}
	}
	m.checkCycles()
	if err := m.checkCalendars(ctx); err != nil {
		return err
	}
	if err := m.checkTriggers(ctx); err != nil {
		return err
	}
	if err := m.checkChannels(ctx); err != nil {
		return err
	}
	return m.faults.Err("the file is not valid")
}

// standIn is the first placeholder id of children that the same file creates.
const standIn = domain.JobID(1) << 52

func (m *importing) checkJob(ctx context.Context, i int, toCome map[string]bool) error {
	j := &m.file.Jobs[i]
	at := fmt.Sprintf("jobs[%d]", i)
	var f domain.Faults
	for n, name := range m.unknownChildren(j) {
		f.Add(fmt.Sprintf("children[%d].job", n), fmt.Sprintf("there is no job %q, neither on this server nor in the file", problem.Clip(name)))
	}
	spec, err := m.spec(j, func(name string) (domain.JobID, bool) {
		if there, known := m.jobs[name]; known {
			return there.ID, true
		}
		if n, here := m.index[name]; here {
			return standIn + domain.JobID(n), true
		}
		return standIn - 1, true // unknownChildren reports it
	})
	if err := strict.AlsoFaulty(err, jobs.CheckSpec(m.api.Zone, err, spec)); err != nil {
		f.AddAll("", err)
	}
	if m.groups[j.Group] == nil && !toCome[j.Group] && domain.ValidGroupName(j.Group) {
		f.AddAll("", visible.UnknownGroup(j.Group))
	}
	var byID []domain.Child
	for _, c := range spec.Children {
		if c.JobID < standIn-1 {
			byID = append(byID, c)
		}
	}
	for _, c := range byID {
		if _, err := m.api.Visible.Job(ctx, m.id, c.JobID); err != nil && domain.CodeOf(err) != domain.NotFound {
			return err
		} else if err != nil && c.JobID > 0 {
			f.Add("children", fmt.Sprintf("there is no job %d", c.JobID))
		}
	}
	if err := jobs.CheckChannels(ctx, m.api.Channels, m.id, m.stored(j), spec); err != nil && domain.CodeOf(err) != domain.Invalid {
		return err
	} else if err != nil {
		f.AddAll("", err)
	}
	m.specs[i] = spec
	if err := f.Err("the job is not valid"); err != nil {
		var faulty *domain.Error
		faulty, _ = err.(*domain.Error) //nolint:errorlint // made two lines above
		for _, field := range faulty.Fields {
			m.faults.Add(at+"."+field.Location, field.Message)
		}
	}
	return nil
}

// stored returns the spec of the file's job on the server, nil if there is no such job.
func (m *importing) stored(j *jobfile.Job) *domain.JobSpec {
	there, known := m.jobs[j.Key()]
	if !known {
		return nil
	}
	return &there.JobSpec
}

func (m *importing) unknownChildren(j *jobfile.Job) map[int]string {
	unknown := map[int]string{}
	for n, name := range j.Children() {
		_, there := m.jobs[name]
		if _, here := m.index[name]; !here && !there {
			unknown[n] = name
		}
	}
	return unknown
}

// spec returns a job of the file, with the ids that find returns for its children's names.
func (m *importing) spec(j *jobfile.Job, find func(string) (domain.JobID, bool)) (domain.JobSpec, error) {
	raw, err := json.Marshal(j.Fields)
	if err != nil {
		return domain.JobSpec{}, problem.Invalid("body", "cannot be written as JSON: "+problem.Clip(err.Error()))
	}
	var copied map[string]any
	d := json.NewDecoder(strings.NewReader(string(raw)))
	d.UseNumber()
	if err := d.Decode(&copied); err != nil {
		return domain.JobSpec{}, fmt.Errorf("copy a job: %w", err)
	}
	resolved := jobfile.Job{Fields: copied}
	resolved.Resolve(find)
	if raw, err = json.Marshal(copied); err != nil {
		return domain.JobSpec{}, fmt.Errorf("encode a job: %w", err)
	}
	spec := domain.DefaultJobSpec()
	if _, err = strict.Decode(raw, &spec); err != nil {
		return spec, err
	}
	return spec, jobs.Unmask(&spec, m.stored(j))
}

// checkCycles finds cycles of child jobs that the import would create.
func (m *importing) checkCycles() {
	keys := make(map[domain.JobID]string, len(m.jobs))
	for key, j := range m.jobs {
		keys[j.ID] = key
	}
	for key, i := range m.index {
		if _, there := m.jobs[key]; !there {
			keys[standIn+domain.JobID(i)] = key
		}
	}
	next := func(key string) []domain.Child {
		if i, here := m.index[key]; here {
			return m.specs[i].Children
		}
		return m.jobs[key].Children
	}
	done := map[string]bool{}
	var path []string
	var visit func(key string)
	visit = func(key string) {
		if at := slices.Index(path, key); at >= 0 {
			for _, on := range path[at:] {
				if i, here := m.index[on]; here {
					m.faults.Add(fmt.Sprintf("jobs[%d].children", i), "closes a cycle: "+strings.Join(append(path[at:], key), " → "))
					return
				}
			}
			return
		}
		if done[key] {
			return
		}
		done[key] = true
		path = append(path, key)
		for _, c := range next(key) {
			if child, known := keys[c.JobID]; known {
				visit(child)
			}
		}
		path = path[:len(path)-1]
	}
	for i := range m.file.Jobs {
		visit(m.file.Jobs[i].Key())
	}
}

func (m *importing) putGroups(ctx context.Context, dryRun bool, out *importResult) {
	for _, g := range m.file.Groups {
		item := importItem{Kind: "group", Group: g.Name, Action: actionUnchanged}
		there := m.groups[g.Name]
		var err error
		switch {
		case there == nil:
			item.Action = actionCreated
			if !dryRun {
				var made domain.Group
				if made, _, err = m.api.Groups.CreateGroup(ctx, g.Name, g.Description); err == nil {
					m.api.Audit.Record(ctx, m.id, "group.create", "group/"+g.Name, nil, made)
				}
			}
		case there.Description != g.Description && m.id.Role == account.Admin:
			item.Action = actionUpdated
			item.Changes = []jobfile.Difference{{Field: "description", From: there.Description, To: g.Description}}
			if !dryRun {
				if err = m.api.Groups.DescribeGroup(ctx, g.Name, g.Description); err == nil {
					after := *there
					after.Description = g.Description
					m.api.Audit.Record(ctx, m.id, "group.update", "group/"+g.Name, there, after)
				}
			}
		}
		item.Error = m.errorText(ctx, err)
		out.add(item)
	}
}

// putJobs creates and changes jobs. Children come first, because their parents need their ids.
func (m *importing) putJobs(ctx context.Context, dryRun bool, out *importResult) {
	for _, j := range m.file.InOrder() {
		item := importItem{Kind: "job", Group: j.Group, Name: j.Name, Action: actionUnchanged}
		there, known := m.jobs[j.Key()]
		spec := m.specs[m.index[j.Key()]]
		item.ID = there.ID
		if known {
			item.Changes = jobfile.Diff(there.JobSpec, spec)
		}
		switch {
		case !known:
			item.Action = actionCreated
		case len(item.Changes) > 0:
			item.Action = actionUpdated
		}
		if !dryRun && item.Action != actionUnchanged {
			after, err := m.put(ctx, j, there, known)
			if item.Error = m.errorText(ctx, err); err == nil {
				item.ID = after.ID
				m.jobs[j.Key()] = after
			}
		}
		out.add(item)
	}
}

func (m *importing) put(ctx context.Context, j *jobfile.Job, there domain.Job, known bool) (after domain.Job, err error) {
	missing := ""
	spec, err := m.spec(j, func(name string) (domain.JobID, bool) {
		child, made := m.jobs[name]
		if !made {
			missing = name
		}
		return child.ID, true
	})
	switch {
	case err != nil:
		return after, err
	case missing != "":
		return after, domain.NewError(domain.Conflict, "its child "+missing+" could not be created")
	case !known:
		if after, err = m.api.Jobs.CreateJob(ctx, spec, m.id.Actor()); err == nil {
			m.api.Audit.Record(ctx, m.id, "job.create", rest.JobObject(after.ID), nil, after)
		}
		return after, err
	}
	before, after, err := m.api.Jobs.EditJob(ctx, there.ID, there.Version, m.id.Actor(), func(s *domain.JobSpec) error {
		*s = spec
		return nil
	})
	if err == nil && before.Version != after.Version {
		m.api.Audit.Record(ctx, m.id, "job.update", rest.JobObject(after.ID), before, after)
	}
	return after, err
}

// errorText returns the text of an error for the client.
func (m *importing) errorText(ctx context.Context, err error) string {
	if err == nil {
		return ""
	}
	p := problem.From(ctx, m.api.Log, err)
	text := p.Title
	if p.Detail != "" && p.Detail != p.Title {
		text = p.Detail
	}
	for _, e := range p.Errors {
		text += "; " + e.Location + ": " + e.Message
	}
	if r := []rune(text); len(r) > maxImportErr {
		text = string(r[:maxImportErr-1]) + "…"
	}
	return text
}

// checkTriggers finds faults of the file's event triggers, and reads the existing ones.
func (m *importing) checkTriggers(ctx context.Context) error {
	m.there = map[string][]event.Trigger{}
	groups := map[string]bool{}
	for i, t := range m.file.Triggers {
		at := fmt.Sprintf("event_triggers[%d].", i)
		group, _, _ := strings.Cut(t.Job, "/")
		groups[group] = true
		var f domain.Faults
		_, there := m.jobs[t.Job]
		if _, here := m.index[t.Job]; !here && !there {
			f.Add("job", fmt.Sprintf("there is no job %q, neither on this server nor in the file", problem.Clip(t.Job)))
		}
		spec, shape := m.trigger(&t, 1)
		f.AddAll("", strict.AlsoFaulty(shape, match.Check(&spec)))
		var faulty *domain.Error
		if errors.As(f.Err("the event trigger is not valid"), &faulty) {
			for _, field := range faulty.Fields {
				m.faults.Add(at+field.Location, field.Message)
			}
		}
	}
	for group := range groups {
		if m.groups[group] == nil {
			continue
		}
		triggers, err := m.api.allTriggers(ctx, []string{group})
		if err != nil {
			return err
		}
		for _, t := range triggers {
			key := jobfile.Key(t.Group, t.JobName) + " " + t.Name
			m.there[key] = append(m.there[key], t)
		}
	}
	return nil
}

func (m *importing) trigger(t *jobfile.Trigger, job domain.JobID) (event.TriggerSpec, error) {
	fields := maps.Clone(t.Fields)
	fields["job_id"] = int64(job)
	spec := event.DefaultTriggerSpec()
	raw, err := json.Marshal(fields)
	if err != nil {
		return spec, problem.Invalid("body", "cannot be written as JSON: "+problem.Clip(err.Error()))
	}
	_, err = strict.Decode(raw, &spec)
	return spec, err
}

// checkChannels refuses channels that do not exist. A file cannot create one, because files have no secrets.
func (m *importing) checkChannels(ctx context.Context) error {
	for i, c := range m.file.Channels {
		_, err := m.api.Channels.Channel(ctx, c.Name)
		if err != nil && domain.CodeOf(err) != domain.NotFound {
			return err
		}
		if err != nil {
			m.faults.Add(fmt.Sprintf("alert_channels[%d].name", i), fmt.Sprintf(
				"there is no alert channel %q; create it first or leave it out, because files do not contain the secret addresses of channels", problem.Clip(c.Name)))
		}
	}
	return nil
}

func (m *importing) putTriggers(ctx context.Context, dryRun bool, out *importResult) {
	for _, t := range m.file.Triggers {
		group, _, _ := strings.Cut(t.Job, "/")
		item := importItem{Kind: "event_trigger", Group: group, Name: t.Name, Action: actionUnchanged}
		job, made := m.jobs[t.Job]
		spec, err := m.trigger(&t, job.ID)
		key := t.Job + " " + t.Name
		if err == nil {
			stored := ""
			if there := m.there[key]; len(there) > 0 {
				stored = there[0].Param
			}
			spec.Param, err = domain.Unmask("param", spec.Param, stored)
		}
		switch there := m.there[key]; {
		case err != nil:
		case len(there) == 0:
			item.Action = actionCreated
			if dryRun {
				break
			}
			if !made {
				err = domain.NewError(domain.Conflict, "its job could not be created")
				break
			}
			var after event.Trigger
			if after, err = m.api.Triggers.CreateTrigger(ctx, spec); err == nil {
				m.api.Audit.Record(ctx, m.id, "event-trigger.create", triggers.Object(after.ID), nil, after)
			}
		default:
			m.there[key] = there[1:]
			if there[0].TriggerSpec == spec {
				break
			}
			item.Action, item.Changes = actionUpdated, triggerChanges(there[0].TriggerSpec, spec)
			if dryRun {
				break
			}
			var before, after event.Trigger
			before, after, err = m.api.Triggers.EditTrigger(ctx, there[0].ID, there[0].Version, func(s *event.TriggerSpec) error { *s = spec; return nil })
			if err == nil {
				m.api.Audit.Record(ctx, m.id, "event-trigger.update", triggers.Object(after.ID), before, after)
			}
		}
		item.Error = m.errorText(ctx, err)
		out.add(item)
	}
}

func triggerChanges(from, to event.TriggerSpec) (changes []jobfile.Difference) {
	for _, c := range []jobfile.Difference{
		{Field: "filter", From: from.Filter, To: to.Filter}, {Field: "param", From: from.Param, To: to.Param},
		{Field: "enabled", From: fmt.Sprint(from.Enabled), To: fmt.Sprint(to.Enabled)},
	} {
		if c.From != c.To {
			changes = append(changes, c)
		}
	}
	return changes
}
