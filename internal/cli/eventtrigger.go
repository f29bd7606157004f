package cli

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"

	"github.com/goccy/go-yaml"

	"github.com/belfryhq/belfry/internal/client"
	"github.com/belfryhq/belfry/internal/event"
)

type eventTriggerCmd struct {
	connection
	List   eventTriggerListCmd   `cmd:"" help:"List event triggers."`
	Get    eventTriggerGetCmd    `cmd:"" help:"Show one event trigger."`
	Apply  eventTriggerApplyCmd  `cmd:"" help:"Create or update event triggers from files."`
	Delete eventTriggerDeleteCmd `cmd:"" help:"Delete event triggers."`
}

type eventTriggerListCmd struct {
	Group string `short:"g" env:"BELFRY_EVENT_TRIGGER_GROUP" placeholder:"NAME" help:"Only triggers of this group's jobs."`
	Job   string `env:"BELFRY_EVENT_TRIGGER_JOB" placeholder:"JOB" help:"Only triggers of this job: its id, or group/name."`
}

func (*eventTriggerListCmd) Help() string {
	return "Example:\n\n    belfry event-trigger list --job default/report"
}

func (c *eventTriggerListCmd) Run(a *app, parent *eventTriggerCmd, cl *client.Client) error {
	f := client.EventTriggerFilter{Group: c.Group}
	var err error
	if c.Job != "" {
		if f.JobID, err = jobID(a, cl, c.Job); err != nil {
			return err
		}
	}
	triggers, err := cl.EventTriggers(a.ctx, f, mostListed)
	if err != nil {
		return err
	}
	return a.print(parent.Output, triggers, func(t *table) {
		t.row("ID", "EVENTS", "JOB", "ENABLED", "FILTER", "PARAM")
		for _, tr := range triggers {
			t.row(tr.ID, tr.Name, tr.Group+"/"+tr.JobName, tr.Enabled, shown(tr.Filter, 60), shown(tr.Param, 40))
		}
	})
}

// triggerID parses the id of an event trigger.
func triggerID(ref string) (int64, error) {
	id, err := strconv.ParseInt(ref, 10, 64)
	if err != nil || id <= 0 {
		return 0, &usageError{fmt.Sprintf("%q is not the id of an event trigger", ref)}
	}
	return id, nil
}

type eventTriggerGetCmd struct {
	ID string `arg:"" help:"The trigger's id."`
}

func (*eventTriggerGetCmd) Help() string {
	return "Example:\n\n    belfry event-trigger get 3 -o yaml"
}

func (c *eventTriggerGetCmd) Run(a *app, parent *eventTriggerCmd, cl *client.Client) error {
	id, err := triggerID(c.ID)
	if err != nil {
		return err
	}
	tr, err := cl.EventTrigger(a.ctx, id)
	if err != nil {
		return err
	}
	return a.print(parent.Output, tr, func(t *table) {
		t.pair("id", tr.ID)
		t.pair("events", tr.Name)
		t.pair("job", fmt.Sprintf("%s/%s (%d)", tr.Group, tr.JobName, tr.JobID))
		t.pair("enabled", tr.Enabled)
		t.pair("filter", tr.Filter)
		t.pair("param", tr.Param)
		t.pair("version", tr.Version)
		t.pair("created", tr.CreatedAt)
		t.pair("updated", tr.UpdatedAt)
	})
}

type eventTriggerDeleteCmd struct {
	IDs []string `arg:"" name:"id" help:"Ids of event triggers."`
}

func (*eventTriggerDeleteCmd) Help() string {
	return "Example:\n\n    belfry event-trigger delete 3"
}

func (c *eventTriggerDeleteCmd) Run(a *app, parent *eventTriggerCmd, cl *client.Client) error {
	return a.each(c.IDs, func(ref string) error {
		id, err := triggerID(ref)
		if err != nil {
			return err
		}
		if err := cl.DeleteEventTrigger(a.ctx, id); err != nil {
			return err
		}
		fmt.Fprintf(a.stdout, "%d deleted\n", id)
		return nil
	})
}

type eventTriggerApplyCmd struct {
	Files  []string `short:"f" name:"file" env:"BELFRY_FILES" required:"" placeholder:"FILE" help:"Files with event triggers in YAML or JSON; - is standard input."`
	DryRun bool     `env:"BELFRY_DRY_RUN" help:"Print what would change, and change nothing."`
}

func (*eventTriggerApplyCmd) Help() string {
	return "A file holds one or several YAML documents, each an event trigger or a list of them: name, job (group/name, or job_id), filter, param, enabled. " +
		"A trigger is identified by its job and name. The command creates it, updates it, or leaves it unchanged. Fields that a file leaves out get their defaults.\n\nExamples:\n\n" +
		"    belfry event-trigger apply -f triggers.yaml --dry-run\n    belfry event-trigger get 3 -o yaml | sed s/100/200/ | belfry event-trigger apply -f -"
}

func (c *eventTriggerApplyCmd) Run(a *app, parent *eventTriggerCmd, cl *client.Client) error {
	var triggers []fileTrigger
	for _, file := range c.Files {
		data, err := a.readFile(file)
		if err != nil {
			return err
		}
		found, err := readTriggers(file, data)
		if err != nil {
			return err
		}
		triggers = append(triggers, found...)
	}
	if len(triggers) == 0 {
		return errors.New("the files contain no event trigger")
	}
	results := []appliedTrigger{}
	failed := false
	for _, t := range triggers {
		r, err := a.applyTrigger(cl, t, c.DryRun)
		if err != nil {
			if a.ctx.Err() != nil {
				return err
			}
			failed, r.Action, r.Error = true, refused, err.Error()
			a.printError(fmt.Errorf("%s: %s: %w", t.source, r.Name, err))
		}
		results = append(results, r)
	}
	if c.DryRun {
		fmt.Fprintln(a.stderr, "Nothing was changed. Without --dry-run:")
	}
	err := a.print(parent.Output, results, func(t *table) {
		for _, r := range results {
			t.row(r.Action, shown(r.Name, 130), r.Job, r.Source)
		}
	})
	if err == nil && failed {
		err = errReported
	}
	return err
}

// appliedTrigger is one row of the output of event-trigger apply.
type appliedTrigger struct {
	Action string `json:"action"`
	ID     int64  `json:"id,omitempty"`
	Name   string `json:"name"`
	Job    string `json:"job"`
	Source string `json:"source"`
	Error  string `json:"error,omitempty"`
}

// fileTrigger is an event trigger of a file. fields goes to the server unchanged, so that the server checks it.
type fileTrigger struct {
	source string
	job    string // an id, or group/name
	fields map[string]any
}

func readTriggers(file string, data []byte) ([]fileTrigger, error) {
	var triggers []fileTrigger
	d := yaml.NewDecoder(bytes.NewReader(data))
	for document := 1; ; document++ {
		source := file
		if document > 1 {
			source = fmt.Sprintf("%s, document %d", file, document)
		}
		var v any
		if err := d.Decode(&v); errors.Is(err, io.EOF) {
			return triggers, nil
		} else if err != nil {
			return nil, fmt.Errorf("%s: %s", source, yaml.FormatError(err, false, false))
		}
		items, isList := v.([]any)
		if !isList {
			if v == nil {
				continue
			}
			items = []any{v}
		}
		for i, item := range items {
			at := source
			if isList {
				at = fmt.Sprintf("%s, item %d", source, i+1)
			}
			t, err := triggerOf(at, item)
			if err != nil {
				return nil, err
			}
			triggers = append(triggers, t)
		}
	}
}

// triggerOf reads one event trigger. The job is given by the field job, or by the fields that belfry event-trigger get prints.
func triggerOf(source string, item any) (fileTrigger, error) {
	fields, ok := item.(map[string]any)
	if !ok {
		return fileTrigger{}, fmt.Errorf("%s: not an event trigger: expected a mapping with fields such as name and job", source)
	}
	t := fileTrigger{source: source, fields: fields}
	text := func(name string) string {
		s, _ := fields[name].(string)
		return s
	}
	switch {
	case text("job") != "":
		t.job = text("job")
	case text("group") != "" && text("job_name") != "":
		t.job = text("group") + "/" + text("job_name")
	case fields["job_id"] != nil:
		t.job = fmt.Sprint(fields["job_id"])
	}
	if t.job == "" || text("name") == "" {
		return t, fmt.Errorf("%s: an event trigger needs a name and a job", source)
	}
	for _, f := range []string{"id", "job", "job_name", "group", "created_at", "updated_at", "version"} {
		delete(fields, f)
	}
	return t, nil
}

// applyTrigger creates or updates one event trigger and returns which of these it did.
func (a *app) applyTrigger(cl *client.Client, t fileTrigger, dryRun bool) (appliedTrigger, error) {
	name, _ := t.fields["name"].(string)
	r := appliedTrigger{Name: name, Job: t.job, Source: t.source}
	job, err := findJob(a.ctx, cl, t.job)
	if err != nil {
		return r, err
	}
	t.fields["job_id"] = job.ID
	existing, err := cl.EventTriggers(a.ctx, client.EventTriggerFilter{JobID: job.ID, Name: name}, mostListed)
	if err != nil {
		return r, err
	}
	for _, e := range existing {
		if sameTrigger(e.TriggerSpec, t.fields) {
			r.Action, r.ID = unchanged, e.ID
			return r, nil
		}
	}
	switch len(existing) {
	case 0:
		if r.Action = created; dryRun {
			return r, nil
		}
		made, err := cl.CreateEventTrigger(a.ctx, t.fields)
		r.ID = made.ID
		return r, err
	case 1:
		r.Action, r.ID = updated, existing[0].ID
		if dryRun {
			return r, nil
		}
		t.fields["version"] = existing[0].Version
		_, err := cl.ReplaceEventTrigger(a.ctx, r.ID, t.fields)
		return r, err
	}
	return r, fmt.Errorf("the job has %d triggers of this name; change or delete them by their id", len(existing))
}

// sameTrigger reports whether fields, completed by defaults, equal the trigger.
func sameTrigger(spec event.TriggerSpec, fields map[string]any) bool {
	data, err := json.Marshal(fields)
	if err != nil {
		return false
	}
	want := event.DefaultTriggerSpec()
	d := json.NewDecoder(bytes.NewReader(data))
	d.DisallowUnknownFields()
	return d.Decode(&want) == nil && want == spec
}
