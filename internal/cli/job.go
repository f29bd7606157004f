package cli

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/belfryhq/belfry/internal/client"
	"github.com/belfryhq/belfry/internal/domain"
)

type jobCmd struct {
	connection
	List     jobListCmd     `cmd:"" help:"List jobs."`
	Get      jobGetCmd      `cmd:"" help:"Show one job."`
	Apply    jobApplyCmd    `cmd:"" help:"Create or update jobs from files."`
	Enable   jobEnableCmd   `cmd:"" help:"Enable jobs: they fire by their schedule."`
	Disable  jobDisableCmd  `cmd:"" help:"Disable jobs: they no longer fire by their schedule."`
	Pause    jobPauseCmd    `cmd:"" help:"Pause the schedules of jobs."`
	Resume   jobResumeCmd   `cmd:"" help:"End the pauses of jobs."`
	Trigger  jobTriggerCmd  `cmd:"" help:"Run a job now."`
	Backfill jobBackfillCmd `cmd:"" help:"Run a job for past fire times."`
	Next     jobNextCmd     `cmd:"" help:"Show a job's next fire times."`
	Upcoming jobUpcomingCmd `cmd:"" help:"List the next fire times of all jobs."`
	Why      jobWhyCmd      `cmd:"" help:"Explain why a job ran, or did not run, at an instant."`
	Script   jobScriptCmd   `cmd:"" help:"Show and change a job's script."`
	Delete   jobDeleteCmd   `cmd:"" help:"Delete jobs."`
}

// findJob returns the job that ref names: an id, or group/name.
func findJob(ctx context.Context, cl *client.Client, ref string) (domain.Job, error) {
	id, err := strconv.ParseInt(ref, 10, 64)
	if err == nil && id > 0 {
		return cl.Job(ctx, domain.JobID(id))
	}
	group, name, found := strings.Cut(ref, "/")
	if !found || group == "" || name == "" {
		return domain.Job{}, &usageError{fmt.Sprintf("%q is not a job; give its id, or group/name", ref)}
	}
	return cl.JobByName(ctx, group, name)
}

// jobID returns the id of the job that ref names. It does not look up an id, so that ref may be the id of a deleted job.
func jobID(a *app, cl *client.Client, ref string) (domain.JobID, error) {
	if id, err := strconv.ParseInt(ref, 10, 64); err == nil && id > 0 {
		return domain.JobID(id), nil
	}
	job, err := findJob(a.ctx, cl, ref)
	return job.ID, err
}

// eachJob calls do for each job that refs name. It tries all jobs and prints each failure.
func (a *app) eachJob(cl *client.Client, refs []string, do func(domain.Job) (done string, err error)) error {
	return a.each(refs, func(ref string) error {
		job, err := findJob(a.ctx, cl, ref)
		if err != nil {
			return err
		}
		done, err := do(job)
		if err == nil {
			fmt.Fprintf(a.stdout, "%s/%s %s\n", job.Group, printable(job.Name), done)
		}
		return err
	})
}

// each calls do for all refs. For a single ref it returns the error; for several it prints each error.
func (a *app) each(refs []string, do func(ref string) error) error {
	if len(refs) == 1 {
		return do(refs[0])
	}
	failed := false
	for _, ref := range refs {
		err := do(ref)
		if err != nil && a.ctx.Err() != nil || errors.As(err, new(*usageError)) {
			return err
		}
		if err != nil {
			failed = true
			a.printError(fmt.Errorf("%s: %w", ref, err))
		}
	}
	if failed {
		return errReported
	}
	return nil
}

type jobListCmd struct {
	Group    string `short:"g" env:"BELFRY_JOB_GROUP" placeholder:"NAME" help:"Only jobs of this group."`
	Query    string `short:"q" env:"BELFRY_JOB_QUERY" placeholder:"TEXT" help:"Only jobs whose name or description contains this text."`
	Tag      string `env:"BELFRY_JOB_TAG" placeholder:"TAG" help:"Only jobs with this tag."`
	Kind     string `env:"BELFRY_JOB_KIND" enum:",none,cron,fixed_rate,fixed_delay,once" default:"" help:"Only jobs with this kind of schedule: none, cron, fixed_rate, fixed_delay or once."`
	Enabled  bool   `env:"BELFRY_JOB_ENABLED" xor:"enabled" help:"Only enabled jobs."`
	Disabled bool   `env:"BELFRY_JOB_DISABLED" xor:"enabled" help:"Only disabled jobs."`
	Child    string `env:"BELFRY_JOB_CHILD" placeholder:"JOB" help:"Only jobs that have this job as a child: its id, or group/name."`
	Calendar string `env:"BELFRY_JOB_CALENDAR" placeholder:"NAME" help:"Only jobs whose schedule names this calendar."`
	Health   string `env:"BELFRY_JOB_HEALTH" enum:",ok,failing,unknown" default:"" help:"Only jobs with this state of health: ok, failing or unknown."`
	Sort     string `env:"BELFRY_JOB_SORT" enum:",name,next_fire_time,last_failure,failing_since,p95_ms" default:"" help:"Order: name, next_fire_time, last_failure, failing_since or p95_ms (the slowest first). By default, the order of creation."`
	Limit    int    `env:"BELFRY_LIMIT" default:"1000" help:"Maximum number of jobs to list."`
}

func (*jobListCmd) Help() string {
	return "Examples:\n\n    belfry job list\n    belfry job list --group default --tag crontab\n    belfry job list --child default/report\n    belfry job list --health failing --sort failing_since\n    belfry job list -o yaml > jobs.yaml"
}

func (c *jobListCmd) Run(a *app, parent *jobCmd, cl *client.Client) error {
	filter := client.JobFilter{Group: c.Group, Query: c.Query, Tag: c.Tag, Kind: c.Kind, Calendar: c.Calendar, Health: c.Health, Sort: c.Sort}
	if c.Enabled || c.Disabled {
		filter.Enabled = &c.Enabled
	}
	if c.Child != "" {
		child, err := findJob(a.ctx, cl, c.Child)
		if err != nil {
			return err
		}
		filter.Child = child.ID
	}
	jobs, err := cl.Jobs(a.ctx, filter, c.Limit)
	if err != nil {
		return err
	}
	a.noteLimit(len(jobs), c.Limit)
	return a.print(parent.Output, jobs, func(t *table) {
		t.row("ID", "GROUP", "NAME", "SCHEDULE", "ENABLED", "HEALTH", "P95", "LAST FIRE", "NEXT FIRE")
		for _, j := range jobs {
			t.row(j.ID, j.Group, shown(j.Name, 60), shown(scheduleText(j.Schedule), 40), j.Enabled, healthText(j.Health), p95Text(j.Health), j.LastFireTime, j.NextFireTime)
		}
	})
}

// noteLimit prints a note if a list may be incomplete.
func (a *app) noteLimit(got, limit int) {
	if got >= limit && got > 0 {
		fmt.Fprintf(a.stderr, "Listed the first %d; more may exist (--limit).\n", got)
	}
}

type jobGetCmd struct {
	Job string `arg:"" help:"The job's id, or group/name."`
}

func (*jobGetCmd) Help() string {
	return "Examples:\n\n    belfry job get 7\n    belfry job get default/report -o yaml"
}

func (c *jobGetCmd) Run(a *app, parent *jobCmd, cl *client.Client) error {
	j, err := findJob(a.ctx, cl, c.Job)
	if err != nil {
		return err
	}
	return a.print(parent.Output, j, func(t *table) { jobTable(t, j) })
}

func jobTable(t *table, j domain.Job) {
	t.pair("id", j.ID)
	t.pair("group", j.Group)
	t.pair("name", j.Name)
	t.pair("description", j.Description)
	t.pair("author", j.Author)
	if j.RunbookURL != "" {
		t.pair("runbook", j.RunbookURL)
	}
	t.pair("tags", j.Tags)
	t.pair("enabled", j.Enabled)
	if j.PausedAt != nil {
		t.pair("paused", "It "+pausePeriod(j.PauseState))
	}
	t.pair("schedule", scheduleText(j.Schedule))
	t.pair("misfire", j.Misfire)
	t.pair("handler", j.Handler)
	if j.Script != nil {
		t.pair("script", fmt.Sprintf("%s, version %d, %d bytes", j.Script.Language, j.Script.Version, len(j.Script.Code)))
	}
	t.pair("param", shown(j.Param, 200))
	t.pair("route", j.Route)
	t.pair("block", fmt.Sprintf("%s, %s", j.Block, j.BlockScope))
	if j.Timeout > 0 {
		t.pair("timeout", j.Timeout.Std())
	}
	t.pair("retries", j.Retries)
	for _, child := range j.Children {
		t.pair("child", fmt.Sprintf("job %d on %s", child.JobID, child.On))
	}
	t.pair("last fire", j.LastFireTime)
	t.pair("next fire", j.NextFireTime)
	healthPairs(t, j.Health)
	t.pair("version", j.Version)
	t.pair("updated", j.UpdatedAt)
	t.pair("note", j.Note)
}

type jobEnableCmd struct {
	Jobs []string `arg:"" name:"job" help:"Ids, or group/name."`
}

func (*jobEnableCmd) Help() string {
	return "Example:\n\n    belfry job enable default/report"
}

func (c *jobEnableCmd) Run(a *app, cl *client.Client) error {
	return a.eachJob(cl, c.Jobs, func(j domain.Job) (string, error) {
		return "enabled", cl.SetJobEnabled(a.ctx, j.ID, true)
	})
}

type jobDisableCmd struct {
	Jobs []string `arg:"" name:"job" help:"Ids, or group/name."`
}

func (*jobDisableCmd) Help() string {
	return "A disabled job can still be triggered. Its waiting and running runs continue.\n\nExample:\n\n    belfry job disable 7 8 default/report"
}

func (c *jobDisableCmd) Run(a *app, cl *client.Client) error {
	return a.eachJob(cl, c.Jobs, func(j domain.Job) (string, error) {
		return "disabled", cl.SetJobEnabled(a.ctx, j.ID, false)
	})
}

type jobDeleteCmd struct {
	Jobs []string `arg:"" name:"job" help:"Ids, or group/name."`
}

func (*jobDeleteCmd) Help() string {
	return "Waiting runs are cancelled, and running ones finish. Finished runs are kept until their retention ends.\n\nExample:\n\n    belfry job delete default/report"
}

func (c *jobDeleteCmd) Run(a *app, cl *client.Client) error {
	return a.eachJob(cl, c.Jobs, func(j domain.Job) (string, error) {
		return "deleted", cl.DeleteJob(a.ctx, j.ID)
	})
}

type jobNextCmd struct {
	Job   string `arg:"" help:"The job's id, or group/name."`
	Count int    `short:"n" env:"BELFRY_COUNT" default:"5" help:"Number of fire times."`
}

func (*jobNextCmd) Help() string {
	return "Example:\n\n    belfry job next default/report --count 10"
}

func (c *jobNextCmd) Run(a *app, parent *jobCmd, cl *client.Client) error {
	job, err := findJob(a.ctx, cl, c.Job)
	if err != nil {
		return err
	}
	p, err := cl.NextFireTimes(a.ctx, job.ID, c.Count)
	if err != nil {
		return err
	}
	return a.print(parent.Output, p, func(t *table) {
		t.row(p.Description)
		for _, at := range p.FireTimes {
			t.row(at)
		}
	})
}

type jobTriggerCmd struct {
	Job      string          `arg:"" help:"The job's id, or group/name."`
	Param    *string         `short:"p" env:"BELFRY_TRIGGER_PARAM" placeholder:"TEXT" help:"Parameter of this run; by default the job's parameter."`
	Instance string          `env:"BELFRY_TRIGGER_INSTANCE" placeholder:"NAME" help:"Instance that must run the job."`
	FireTime *domain.Instant `env:"BELFRY_TRIGGER_FIRE_TIME" placeholder:"INSTANT" help:"Fire time that the handler receives, in RFC 3339; by default now."`
	waiting
}

func (*jobTriggerCmd) Help() string {
	return "The command prints the run's id. With --wait, the exit code is 0 only if every run succeeds.\n\nExamples:\n\n" +
		"    belfry job trigger 7\n    belfry job trigger default/report --param 2026-03 --follow"
}

func (c *jobTriggerCmd) Run(a *app, parent *jobCmd, cl *client.Client) error {
	job, err := findJob(a.ctx, cl, c.Job)
	if err != nil {
		return err
	}
	ids, err := cl.TriggerJob(a.ctx, job.ID, client.Trigger{Param: c.Param, Instance: c.Instance, FireTime: c.FireTime})
	if err != nil {
		return err
	}
	return a.await(cl, parent.Output, ids, c.waiting)
}
