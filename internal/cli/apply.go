package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/goccy/go-yaml"

	"github.com/belfryhq/belfry/internal/client"
	"github.com/belfryhq/belfry/internal/domain"
)

// What became of a job that was applied.
const (
	created   = "created"
	updated   = "updated"
	unchanged = "unchanged"
	refused   = "refused"
)

// applied is one line of the answer of job apply and import.
type applied struct {
	Action string       `json:"action"`
	ID     domain.JobID `json:"id,omitempty"`
	Group  string       `json:"group"`
	Name   string       `json:"name"`
	Source string       `json:"source"`
	Error  string       `json:"error,omitempty"`
}

type jobApplyCmd struct {
	Files  []string `short:"f" name:"file" env:"BELFRY_FILES" required:"" placeholder:"FILE" help:"Files with jobs in YAML or JSON; - is standard input."`
	DryRun bool     `env:"BELFRY_DRY_RUN" help:"Say what would be done, and do nothing."`
}

func (*jobApplyCmd) Help() string {
	return "A file holds one or several YAML documents, each a job or a list of jobs, as belfry job get -o yaml and job list -o yaml print them. " +
		"A job is known by its group and name: it is created, updated or left unchanged. Fields that a file leaves out get their defaults. " +
		"All files are read before anything is done.\n\nExamples:\n\n" +
		"    belfry job apply -f jobs.yaml --dry-run\n    belfry job get default/report -o yaml | sed s/02:00/03:00/ | belfry job apply -f -"
}

func (c *jobApplyCmd) Run(a *app, parent *jobCmd) error {
	var specs []fileSpec
	for _, file := range c.Files {
		found, err := a.readSpecs(file)
		if err != nil {
			return err
		}
		specs = append(specs, found...)
	}
	if len(specs) == 0 {
		return errors.New("the files hold no job")
	}
	cl, err := parent.dial()
	if err != nil {
		return err
	}
	defer cl.Close()
	jobs := newJobIndex(cl, specs)
	var results []applied
	failed := false
	for _, s := range specs {
		r := applied{Group: s.group, Name: s.name, Source: s.source}
		r.Action, r.ID, err = a.applySpec(cl, jobs, s, c.DryRun)
		if err != nil {
			if a.ctx.Err() != nil {
				return err
			}
			failed, r.Action, r.Error = true, refused, err.Error()
			a.printError(fmt.Errorf("%s: %s/%s: %w", s.source, s.group, s.name, err))
		}
		results = append(results, r)
	}
	if err := a.printApplied(parent.Output, results, results, c.DryRun); err != nil {
		return err
	}
	if failed {
		return errReported
	}
	return nil
}

// printApplied prints results, for programs as v.
func (a *app) printApplied(form string, v any, results []applied, dryRun bool) error {
	if dryRun {
		fmt.Fprintln(a.stderr, "Nothing was done; without --dry-run:")
	}
	return a.print(form, v, func(t *table) {
		for _, r := range results {
			t.row(r.Action, shown(r.Group+"/"+r.Name, 130), r.Source)
		}
	})
}

// fileSpec is a job as a file has it. fields goes to the server as it is, so that the server judges every field.
type fileSpec struct {
	source      string
	group, name string
	fields      map[string]any
}

// maxFileBytes bounds a file of jobs, or a crontab.
const maxFileBytes = 16 << 20

func (a *app) readFile(file string) ([]byte, error) {
	r := a.stdin
	if file != "-" {
		f, err := os.Open(file)
		if err != nil {
			return nil, err
		}
		defer f.Close()
		r = f
	}
	data, err := io.ReadAll(io.LimitReader(r, maxFileBytes+1))
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", file, err)
	}
	if len(data) > maxFileBytes {
		return nil, fmt.Errorf("%s is over %d MiB", file, maxFileBytes>>20)
	}
	return data, nil
}

// readOnly are the fields that the server adds to a job. They may stand in a file that it wrote.
var readOnly = []string{"id", "last_fire_time", "next_fire_time", "created_at", "updated_at", "version", "note"}

// readSpecs reads the jobs of a file.
func (a *app) readSpecs(file string) ([]fileSpec, error) {
	data, err := a.readFile(file)
	if err != nil {
		return nil, err
	}
	var specs []fileSpec
	d := yaml.NewDecoder(bytes.NewReader(data))
	for document := 1; ; document++ {
		source := file
		if document > 1 {
			source = fmt.Sprintf("%s, document %d", file, document)
		}
		var v any
		if err := d.Decode(&v); errors.Is(err, io.EOF) {
			return specs, nil
		} else if err != nil {
			return nil, fmt.Errorf("%s: %s", source, yaml.FormatError(err, false, false))
		}
		found, err := specsOf(source, v)
		if err != nil {
			return nil, err
		}
		specs = append(specs, found...)
	}
}

func specsOf(source string, v any) ([]fileSpec, error) {
	switch v := v.(type) {
	case nil:
		return nil, nil // an empty document
	case []any:
		var specs []fileSpec
		for i, item := range v {
			if _, nested := item.([]any); nested || item == nil {
				return nil, fmt.Errorf("%s, item %d: is no job", source, i+1)
			}
			found, err := specsOf(fmt.Sprintf("%s, item %d", source, i+1), item)
			if err != nil {
				return nil, err
			}
			specs = append(specs, found...)
		}
		return specs, nil
	case map[string]any:
		s := fileSpec{source: source, fields: v}
		s.group, _ = v["group"].(string)
		s.name, _ = v["name"].(string)
		if s.group == "" || s.name == "" {
			return nil, fmt.Errorf("%s: a job needs a group and a name, by which it is known", source)
		}
		for _, field := range readOnly {
			delete(v, field)
		}
		return []fileSpec{s}, nil
	}
	return nil, fmt.Errorf("%s: is no job: a job is a mapping of fields such as group, name, schedule and handler", source)
}

// applySpec creates or updates the job of a spec and says which.
func (a *app) applySpec(cl *client.Client, jobs *jobIndex, s fileSpec, dryRun bool) (action string, id domain.JobID, err error) {
	existing, err := jobs.find(a.ctx, s.group, s.name)
	if errors.Is(err, client.ErrNoJob) {
		return a.writeJob(cl, jobs, nil, s.fields, dryRun)
	}
	if err != nil {
		return "", 0, err
	}
	return a.writeJob(cl, jobs, &existing, s.fields, dryRun)
}

// writeJob creates a job where existing is nil, else updates that one if fields differ from it. Against an edit
// by another in between, an update names the version that it read.
func (a *app) writeJob(cl *client.Client, jobs *jobIndex, existing *domain.Job, fields map[string]any, dryRun bool) (string, domain.JobID, error) {
	switch {
	case existing == nil && dryRun:
		return created, 0, nil
	case existing == nil:
		job, err := cl.CreateJob(a.ctx, fields)
		if err == nil {
			jobs.put(job)
		}
		return created, job.ID, err
	case same(existing.JobSpec, fields):
		return unchanged, existing.ID, nil
	case dryRun:
		return updated, existing.ID, nil
	}
	fields["version"] = existing.Version
	job, err := cl.ReplaceJob(a.ctx, existing.ID, fields)
	if err == nil {
		jobs.put(job)
	}
	return updated, existing.ID, err
}

// same reports whether fields, completed by defaults, say what the job already is. What this version of the
// program cannot read is not the same: the server shall judge it.
func same(job domain.JobSpec, fields map[string]any) bool {
	data, err := json.Marshal(fields)
	if err != nil {
		return false
	}
	spec := domain.DefaultJobSpec()
	d := json.NewDecoder(bytes.NewReader(data))
	d.DisallowUnknownFields()
	if d.Decode(&spec) != nil {
		return false
	}
	spec.Normalize()
	job.Normalize()
	one, errOne := json.Marshal(spec)
	two, errTwo := json.Marshal(job)
	return errOne == nil && errTwo == nil && bytes.Equal(one, two)
}

// jobIndex finds jobs by name. For many names of a group it lists the group once instead of asking for each.
type jobIndex struct {
	cl     *client.Client
	wanted map[string]int                   // group → how many names will be asked for
	groups map[string]map[string]domain.Job // of the groups that were listed
}

const (
	fewNames     = 10
	mostIndexed  = 200_000
	bigGroupNote = "the group has over %d jobs; apply fewer at once"
)

func newJobIndex(cl *client.Client, specs []fileSpec) *jobIndex {
	i := &jobIndex{cl: cl, wanted: make(map[string]int), groups: make(map[string]map[string]domain.Job)}
	for _, s := range specs {
		i.wanted[s.group]++
	}
	return i
}

// find returns the job, client.ErrNoJob if there is none.
func (i *jobIndex) find(ctx context.Context, group, name string) (domain.Job, error) {
	if i.wanted[group] <= fewNames {
		return i.cl.JobByName(ctx, group, name)
	}
	byName, listed := i.groups[group]
	if !listed {
		jobs, err := i.cl.Jobs(ctx, client.JobFilter{Group: group}, mostIndexed)
		if err != nil && !client.NoGroup(err) { // creating the job says so, with all else that is wrong with it
			return domain.Job{}, err
		}
		if len(jobs) == mostIndexed {
			return domain.Job{}, fmt.Errorf(bigGroupNote, mostIndexed)
		}
		byName = make(map[string]domain.Job, len(jobs))
		for _, j := range jobs {
			byName[j.Name] = j
		}
		i.groups[group] = byName
	}
	j, ok := byName[name]
	if !ok {
		return j, client.ErrNoJob
	}
	return j, nil
}

// put notes a job that was just created or updated.
func (i *jobIndex) put(j domain.Job) {
	if byName, listed := i.groups[j.Group]; listed {
		byName[j.Name] = j
	}
}
