package cli

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/belfryhq/belfry/internal/client"
	"github.com/belfryhq/belfry/internal/crontab"
	"github.com/belfryhq/belfry/internal/domain"
	"github.com/belfryhq/belfry/internal/jobfile"
)

type importCmd struct {
	connection
	Crontab importCrontabCmd `cmd:"" help:"Create jobs from crontabs."`
	XXLJob  importXXLJobCmd  `cmd:"" name:"xxl-job" help:"Create groups, jobs and users from a database of XXL-JOB."`
	File    importFileCmd    `cmd:"" default:"withargs" help:"Import the groups and jobs of an export."`
}

type importCrontabCmd struct {
	Files    []string `arg:"" name:"file" help:"Crontabs, such as /etc/crontab and /etc/cron.d/*; - is standard input."`
	Group    string   `short:"g" env:"BELFRY_IMPORT_GROUP" default:"default" help:"Group of the jobs; its executors need --allow-command."`
	User     string   `env:"BELFRY_IMPORT_USER" default:"root" help:"User that the group's executors run as; entries of other users are not imported."`
	Kind     string   `env:"BELFRY_IMPORT_KIND" enum:"auto,system,user" default:"auto" help:"system: entries have a user field; user: entries have none; auto: decide by the path."`
	TimeZone string   `env:"BELFRY_IMPORT_TIME_ZONE" placeholder:"ZONE" help:"IANA time zone of entries without CRON_TZ, such as the zone of cron's machine; by default the server's zone."`
	Disabled bool     `env:"BELFRY_IMPORT_DISABLED" help:"Create the jobs disabled."`
	DryRun   bool     `env:"BELFRY_DRY_RUN" help:"Print the jobs of the files, without a connection to a console."`
}

func (*importCrontabCmd) Help() string {
	return "The command creates a job with the handler command for each entry. If you import a file again, it updates the schedules and commands of the jobs, and keeps other edits. " +
		"It reports entries that it cannot import, such as another user's entry, @reboot or MAILTO, with file, line and reason. " +
		"Cron keeps running its entries until you remove them from the crontab.\n\nExamples:\n\n" +
		"    belfry import crontab /etc/crontab /etc/cron.d/* --dry-run\n    crontab -l | belfry import crontab - --user ann --group ann-hosts"
}

// imported is the output in the JSON and YAML forms.
type imported struct {
	Jobs     []applied         `json:"jobs"`
	Problems []crontab.Problem `json:"problems"`
}

func (c *importCrontabCmd) Run(a *app, parent *importCmd) error {
	if !domain.ValidGroupName(c.Group) {
		return &usageError{"--group: " + domain.GroupNameRule}
	}
	out := imported{Jobs: []applied{}, Problems: []crontab.Problem{}}
	var jobs []crontab.Job
	from := make(map[string]string) // source by job name
	failed, read := false, 0
	for _, file := range c.Files {
		r, err := c.parse(a, file)
		if err != nil { // such as a missing /etc/crontab; the other files are imported anyway
			failed = true
			a.printError(err)
			continue
		}
		read++
		out.Problems = append(out.Problems, r.Problems...)
		for _, j := range r.Jobs {
			source := fmt.Sprintf("%s:%d", file, j.Line)
			if first, twice := from[j.Spec.Name]; twice {
				out.Problems = append(out.Problems, crontab.Problem{File: file, Line: j.Line, Text: j.Spec.Description,
					Reason: "is the same entry as " + first + " (same file name and command)"})
				continue
			}
			from[j.Spec.Name] = source
			jobs = append(jobs, j)
			out.Jobs = append(out.Jobs, applied{Action: "found", Group: c.Group, Name: j.Spec.Name, Source: source})
		}
	}
	if read == 0 {
		return errReported
	}
	if !c.DryRun && len(jobs) > 0 {
		refusals, err := c.apply(a, parent, jobs, out.Jobs)
		if err != nil {
			return err
		}
		failed = failed || refusals
	}
	if err := a.printApplied(parent.Output, out, out.Jobs, c.DryRun); err != nil {
		return err
	}
	if parent.Output == "table" {
		a.printProblems(out.Problems)
	}
	if failed {
		return errReported
	}
	return nil
}

func (c *importCrontabCmd) parse(a *app, file string) (crontab.Result, error) {
	data, err := a.readFile(file)
	if err != nil {
		return crontab.Result{}, err
	}
	o := crontab.Options{Group: c.Group, AgentUser: c.User, TimeZone: c.TimeZone}
	switch c.Kind {
	case "system":
		o.Kind = crontab.System
	case "user":
		o.Kind = crontab.User
	}
	path := file
	if file == "-" {
		path = "stdin"
	}
	return crontab.Parse(path, data, o), nil
}

// apply creates and updates jobs and writes the outcome of each into results.
func (c *importCrontabCmd) apply(a *app, parent *importCmd, jobs []crontab.Job, results []applied) (failed bool, err error) {
	cl, err := parent.ProvideClient(a)
	if err != nil {
		return false, err
	}
	index := newJobIndex(cl, jobfile.New())
	index.wanted[c.Group] = len(jobs)
	for i, j := range jobs {
		r := &results[i]
		r.Action, r.ID, err = c.applyJob(a, cl, index, j.Spec)
		if err != nil {
			if a.ctx.Err() != nil {
				return true, err
			}
			err = fmt.Errorf("%s: %w", r.Source, err)
			if status := client.StatusOf(err); status == 0 || status == 401 || status == 403 {
				return true, err // the other jobs would fail too
			}
			failed, r.Action, r.Error = true, refused, err.Error()
			a.printError(err)
		}
	}
	return failed, nil
}

// applyJob updates the fields of the job that the crontab defines, and keeps the other fields.
func (c *importCrontabCmd) applyJob(a *app, cl *client.Client, index *jobIndex, spec domain.JobSpec) (string, domain.JobID, error) {
	existing, err := index.find(a.ctx, spec.Group, spec.Name)
	known := &existing
	switch {
	case err == nil:
		merged := existing.JobSpec
		merged.Description, merged.Handler, merged.Script, merged.Param = spec.Description, spec.Handler, nil, spec.Param
		s := merged.Schedule
		merged.Schedule = spec.Schedule
		merged.Schedule.StartAt, merged.Schedule.EndAt, merged.Schedule.Jitter = s.StartAt, s.EndAt, s.Jitter
		spec = merged
	case errors.Is(err, client.ErrNoJob):
		known = nil
		spec.Enabled = !c.Disabled
	default:
		return "", 0, err
	}
	fields, err := toFields(spec)
	if err != nil {
		return "", 0, err
	}
	return a.writeJob(cl, index, known, fields, false)
}

func toFields(spec domain.JobSpec) (map[string]any, error) {
	data, err := json.Marshal(spec)
	if err != nil {
		return nil, err
	}
	var fields map[string]any
	d := json.NewDecoder(bytes.NewReader(data))
	d.UseNumber()
	err = d.Decode(&fields)
	return fields, err
}

// printProblems prints the entries that were not imported, and those that were imported with a change.
func (a *app) printProblems(problems []crontab.Problem) {
	for _, kept := range []bool{false, true} {
		titled := false
		for _, p := range problems {
			if p.Kept != kept {
				continue
			}
			if !titled {
				titled = true
				title := "Not imported:"
				if kept {
					title = "Imported with a change:"
				}
				fmt.Fprintln(a.stderr, title)
			}
			fmt.Fprintf(a.stderr, "  %s:%d: %s\n      %s\n", printable(p.File), p.Line, printable(p.Reason), printable(shown(p.Text, 120)))
		}
	}
}
