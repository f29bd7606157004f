package cli

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/belfryhq/belfry/internal/client"
	"github.com/belfryhq/belfry/internal/domain"
	"github.com/belfryhq/belfry/internal/jobfile"
)

// The results of applying a job.
const (
	created   = "created"
	updated   = "updated"
	unchanged = "unchanged"
	deleted   = "deleted"
	refused   = "refused"
)

// applied is one row of the output of job apply and import.
type applied struct {
	Action string       `json:"action"`
	ID     domain.JobID `json:"id,omitempty"`
	Group  string       `json:"group"`
	Name   string       `json:"name"`
	Source string       `json:"source"`
	// Changes are the changed fields of an updated job.
	Changes []jobfile.Difference `json:"changes,omitempty"`
	Error   string               `json:"error,omitempty"`
}

type jobApplyCmd struct {
	Files    []string `short:"f" name:"file" env:"BELFRY_FILES" required:"" placeholder:"FILE" help:"Files with jobs in YAML or JSON, or directories of such files; - is standard input."`
	DryRun   bool     `env:"BELFRY_DRY_RUN" help:"Print what would change, and change nothing."`
	ExitCode bool     `env:"BELFRY_EXIT_CODE" help:"With --dry-run: exit with 1 if anything would change."`
	Prune    []string `env:"BELFRY_PRUNE" placeholder:"GROUP" help:"Delete the jobs of these groups that are not in the files."`
	PruneTag string   `env:"BELFRY_PRUNE_TAG" placeholder:"TAG" help:"With --prune: only jobs with this tag."`
	Yes      bool     `short:"y" env:"BELFRY_YES" help:"Delete without asking."`
}

func (*jobApplyCmd) Help() string {
	return "A file holds one or several YAML documents, each a job or a list of jobs, as belfry job get -o yaml and job list -o yaml print them, or an export. " +
		"A job is identified by its group and name. The command creates it, updates it, or leaves it unchanged. Fields that a file leaves out get their defaults. " +
		"Children may be given as group/name: children: [{job: default/next}]. The command reads all files before it changes anything.\n\nExamples:\n\n" +
		"    belfry job apply -f jobs.yaml --dry-run\n    belfry job get default/report -o yaml | sed s/02:00/03:00/ | belfry job apply -f -\n" +
		"    belfry job apply -f jobs/ --prune default --yes"
}

func (c *jobApplyCmd) Run(a *app, parent *jobCmd, cl *client.Client) error {
	for _, group := range c.Prune {
		if !domain.ValidGroupName(group) {
			return &usageError{"--prune: " + domain.GroupNameRule}
		}
	}
	if c.PruneTag != "" && len(c.Prune) == 0 {
		return &usageError{"--prune-tag needs --prune with the groups"}
	}
	file, err := a.readJobFiles(c.Files)
	if err != nil {
		return err
	}
	if n := len(file.Triggers) + len(file.Channels) + len(file.Calendars); n > 0 {
		fmt.Fprintf(a.stderr, "Skipped %d calendars, event triggers and alert channels; import them with \"belfry import\".\n", n)
	}
	results, failed, err := c.apply(a, cl, file)
	if err != nil {
		return err
	}
	pruned, refusals, err := c.prune(a, cl, file)
	if err != nil {
		return err
	}
	results, failed = append(results, pruned...), failed || refusals
	if err := a.printApplied(parent.Output, results, results, c.DryRun); err != nil {
		return err
	}
	differs := slices.ContainsFunc(results, func(r applied) bool { return r.Action != unchanged })
	if failed || c.DryRun && c.ExitCode && differs {
		return errReported
	}
	return nil
}

// apply creates or updates the groups and jobs of a file, children before their parents, and returns the result of each.
func (c *jobApplyCmd) apply(a *app, cl *client.Client, file *jobfile.File) (results []applied, failed bool, err error) {
	note := func(r applied, err error) error {
		if err != nil {
			if a.ctx.Err() != nil {
				return err
			}
			failed, r.Action, r.Error = true, refused, err.Error()
			name := r.Group
			if r.Name != "" {
				name = jobfile.Key(r.Group, r.Name)
			}
			a.printError(fmt.Errorf("%s: %s: %w", r.Source, name, err))
		}
		results = append(results, r)
		return nil
	}
	for _, g := range file.Groups {
		r := applied{Group: g.Name, Source: g.Source}
		r.Action, err = a.applyGroup(cl, g, c.DryRun)
		if err := note(r, err); err != nil {
			return nil, true, err
		}
	}
	jobs := newJobIndex(cl, file)
	planned := make(map[string]bool) // jobs that a dry run would create
	for _, j := range file.InOrder() {
		r := applied{Group: j.Group, Name: j.Name, Source: j.Source}
		err := a.resolveChildren(jobs, j, planned)
		if err == nil {
			r, err = a.applyJob(cl, jobs, j, r, c.DryRun)
		}
		planned[j.Key()] = c.DryRun && r.Action == created
		if err := note(r, err); err != nil {
			return nil, true, err
		}
	}
	return results, failed, nil
}

func (a *app) applyGroup(cl *client.Client, g jobfile.Group, dryRun bool) (action string, err error) {
	_, err = cl.Group(a.ctx, g.Name)
	switch {
	case err == nil:
		return unchanged, nil
	case client.StatusOf(err) != 404:
		return "", err
	case !dryRun:
		_, err = cl.CreateGroup(a.ctx, g.Name, g.Description)
		return created, err
	}
	return created, nil
}

// notYet stands for the id of a child that a dry run does not create.
const notYet domain.JobID = 1 << 52

// resolveChildren replaces the names of children by ids.
func (a *app) resolveChildren(jobs *jobIndex, j *jobfile.Job, planned map[string]bool) (err error) {
	unknown := j.Resolve(func(name string) (domain.JobID, bool) {
		if planned[name] {
			return notYet, true
		}
		group, rest, _ := strings.Cut(name, "/")
		child, notFound := jobs.find(a.ctx, group, rest)
		if notFound != nil && !errors.Is(notFound, client.ErrNoJob) {
			err = notFound
		}
		return child.ID, notFound == nil
	})
	if err == nil && len(unknown) > 0 {
		err = fmt.Errorf("children: there is no job %s", strings.Join(unknown, ", "))
	}
	return err
}

// applyJob creates or updates the job of a file and returns which of these it did.
func (a *app) applyJob(cl *client.Client, jobs *jobIndex, j *jobfile.Job, r applied, dryRun bool) (applied, error) {
	existing, err := jobs.find(a.ctx, j.Group, j.Name)
	known := &existing
	if errors.Is(err, client.ErrNoJob) {
		known, err = nil, nil
	}
	if err != nil {
		return r, err
	}
	if known != nil {
		if spec, readable := specOf(j.Fields); readable {
			r.Changes = jobfile.Diff(known.JobSpec, spec)
		}
	}
	r.Action, r.ID, err = a.writeJob(cl, jobs, known, j.Fields, dryRun)
	return r, err
}

// prune deletes the jobs of some groups that the file does not have. The server refuses to delete a child before its parents,
// so prune retries refused jobs as long as it deletes others.
func (c *jobApplyCmd) prune(a *app, cl *client.Client, file *jobfile.File) (results []applied, failed bool, err error) {
	kept := make(map[string]bool, len(file.Jobs))
	for i := range file.Jobs {
		kept[file.Jobs[i].Key()] = true
	}
	var doomed []domain.Job
	for _, group := range c.Prune {
		jobs, err := cl.Jobs(a.ctx, client.JobFilter{Group: group, Tag: c.PruneTag}, mostIndexed)
		if err != nil {
			return nil, false, err
		}
		doomed = append(doomed, slices.DeleteFunc(jobs, func(j domain.Job) bool { return kept[jobfile.Key(j.Group, j.Name)] })...)
	}
	if len(doomed) > 0 && !c.DryRun && !c.Yes && !a.agreed(doomed) {
		return nil, false, &usageError{fmt.Sprintf("--prune would delete %d jobs; add --yes to delete them, or --dry-run to list them", len(doomed))}
	}
	refusals := make(map[domain.JobID]error)
	for more := !c.DryRun; more; {
		more = false
		for _, j := range doomed {
			if last, tried := refusals[j.ID]; tried && last == nil {
				continue
			}
			err := cl.DeleteJob(a.ctx, j.ID)
			if a.ctx.Err() != nil {
				return nil, true, err
			}
			more = more || err == nil
			refusals[j.ID] = err
		}
		more = more && slices.ContainsFunc(doomed, func(j domain.Job) bool { return refusals[j.ID] != nil })
	}
	for _, j := range doomed {
		r := applied{Action: deleted, ID: j.ID, Group: j.Group, Name: j.Name, Source: "not in the files"}
		if err := refusals[j.ID]; err != nil {
			failed, r.Action, r.Error = true, refused, err.Error()
			a.printError(fmt.Errorf("delete %s/%s: %w", j.Group, j.Name, err))
		}
		results = append(results, r)
	}
	return results, failed, nil
}

// agreed asks on a terminal whether to delete jobs. Without a terminal it returns false.
func (a *app) agreed(doomed []domain.Job) bool {
	if _, terminal := fileOf(a.stdin); !terminal {
		return false
	}
	for _, j := range doomed {
		fmt.Fprintf(a.stderr, "delete %s/%s\n", j.Group, printable(j.Name))
	}
	return a.agrees(fmt.Sprintf("Delete these %d jobs?", len(doomed)))
}

// agrees asks a question on the terminal.
func (a *app) agrees(question string) bool {
	fmt.Fprintf(a.stderr, "%s [y/N] ", question)
	answer, _ := bufio.NewReader(a.stdin).ReadString('\n') // an incomplete answer counts as no
	answer = strings.ToLower(strings.TrimSpace(answer))
	return answer == "y" || answer == "yes"
}

// printApplied prints results. The JSON and YAML forms print v.
func (a *app) printApplied(form string, v any, results []applied, dryRun bool) error {
	if dryRun {
		fmt.Fprintln(a.stderr, "Nothing was changed. Without --dry-run:")
	}
	return a.print(form, v, func(t *table) {
		for _, r := range results {
			name := "group " + r.Group
			if r.Name != "" {
				name = jobfile.Key(r.Group, r.Name)
			}
			t.row(r.Action, shown(name, 130), r.Source)
			for _, c := range r.Changes {
				t.row("", fmt.Sprintf("  %s: %s", c.Field, change(c.From, c.To)))
			}
		}
	})
}

// change shows on one line how a value changes. For a text of several lines, such as a script, it shows the first line that
// differs.
func change(from, to string) string {
	at, more := "", ""
	if strings.Contains(from+to, "\n") {
		a, b := strings.Split(from, "\n"), strings.Split(to, "\n")
		n := 0
		for len(a) > 0 && len(b) > 0 && a[0] == b[0] {
			a, b, n = a[1:], b[1:], n+1
		}
		for len(a) > 0 && len(b) > 0 && a[len(a)-1] == b[len(b)-1] {
			a, b = a[:len(a)-1], b[:len(b)-1]
		}
		if rest := max(len(a), len(b)) - 1; rest > 0 {
			more = fmt.Sprintf(" (and %d more)", rest)
		}
		a, b = append(a, ""), append(b, "") // one text may be a prefix of the other
		from, to, at = a[0], b[0], fmt.Sprintf("line %d: ", n+1)
	}
	if from != to && brief(from) == brief(to) { // they differ only in the part that is cut off
		same := 0
		for same < len(from) && same < len(to) && from[same] == to[same] {
			same++
		}
		for same > 0 && same < len(from) && !utf8.RuneStart(from[same]) {
			same--
		}
		from, to = "…"+from[same:], "…"+to[same:]
	}
	return at + brief(from) + " → " + brief(to) + more
}

// brief shows a value of a job on one line.
func brief(text string) string {
	if text == "" {
		return `""`
	}
	return shown(text, 60)
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
		return nil, fmt.Errorf("%s is larger than %d MiB", file, maxFileBytes>>20)
	}
	return data, nil
}

// readJobFiles reads files and merges them. From directories it reads the files whose names end in .yaml, .yml or .json.
func (a *app) readJobFiles(names []string) (*jobfile.File, error) {
	all := jobfile.New()
	for _, name := range names {
		paths := []string{name}
		if info, err := os.Stat(name); name != "-" && err == nil && info.IsDir() {
			paths = nil
			for _, pattern := range []string{"*.yaml", "*.yml", "*.json"} {
				found, err := filepath.Glob(filepath.Join(name, pattern))
				if err != nil {
					return nil, err
				}
				paths = append(paths, found...)
			}
			slices.Sort(paths)
		}
		for _, path := range paths {
			data, err := a.readFile(path)
			if err != nil {
				return nil, err
			}
			before := len(all.Jobs)
			if err := all.Read(path, data); err != nil {
				return nil, err
			}
			if err := readCode(path, all.Jobs[before:]); err != nil {
				return nil, err
			}
		}
	}
	if len(all.Jobs)+len(all.Groups) == 0 {
		return nil, errors.New("the files contain no job")
	}
	return all, nil
}

// writeJob creates a job if existing is nil, else it updates that job if fields differ from it. The update names the version
// that was read, so that it cannot overwrite an edit made in between.
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

// same reports whether fields, completed by defaults, equal the job. If this version of the program cannot read the fields,
// same returns false, so that the server checks them.
func same(job domain.JobSpec, fields map[string]any) bool {
	spec, readable := specOf(fields)
	return readable && len(jobfile.Diff(job, spec)) == 0
}

// specOf converts fields to a job. It returns false if this version of the program cannot read them.
func specOf(fields map[string]any) (domain.JobSpec, bool) {
	spec := domain.DefaultJobSpec()
	data, err := json.Marshal(fields)
	if err != nil {
		return spec, false
	}
	d := json.NewDecoder(bytes.NewReader(data))
	d.DisallowUnknownFields()
	return spec, d.Decode(&spec) == nil
}

// jobIndex finds jobs by name. For many names of one group it lists the group once instead of requesting each job.
type jobIndex struct {
	cl     *client.Client
	wanted map[string]int                   // by group: the number of names to find
	groups map[string]map[string]domain.Job // by group and name; only listed groups
}

const (
	fewNames     = 10
	mostIndexed  = 200_000
	bigGroupNote = "the group has more than %d jobs; apply fewer jobs at once"
)

func newJobIndex(cl *client.Client, file *jobfile.File) *jobIndex {
	i := &jobIndex{cl: cl, wanted: make(map[string]int), groups: make(map[string]map[string]domain.Job)}
	for _, j := range file.Jobs {
		i.wanted[j.Group]++
	}
	return i
}

// find returns the job, or client.ErrNoJob.
func (i *jobIndex) find(ctx context.Context, group, name string) (domain.Job, error) {
	if i.wanted[group] <= fewNames {
		return i.cl.JobByName(ctx, group, name)
	}
	byName, listed := i.groups[group]
	if !listed {
		jobs, err := i.cl.Jobs(ctx, client.JobFilter{Group: group}, mostIndexed)
		if err != nil && !client.NoGroup(err) { // creating the job reports the missing group together with the other faults
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

// put stores a job that was just created or updated.
func (i *jobIndex) put(j domain.Job) {
	if byName, listed := i.groups[j.Group]; listed {
		byName[j.Name] = j
	}
}
