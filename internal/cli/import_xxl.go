package cli

import (
	"fmt"
	"strings"
	"time"

	"github.com/belfryhq/belfry/internal/client"
	"github.com/belfryhq/belfry/internal/config"
	"github.com/belfryhq/belfry/internal/domain"
	"github.com/belfryhq/belfry/internal/xxl/importer"
	"github.com/belfryhq/belfry/internal/xxl/source"
)

type importXXLJobCmd struct {
	DSN      config.Secret `name:"dsn" env:"BELFRY_XXL_JOB_DSN" required:"" placeholder:"URL" help:"Database of XXL-JOB: mysql://user:password@host:port/database or postgres://…. Prefer the environment variable, because other users of the machine can see flags."`
	Group    string        `short:"g" env:"BELFRY_XXL_JOB_GROUP" placeholder:"APP" help:"Only the executor with this AppName, and no users."`
	CronZone string        `env:"BELFRY_XXL_JOB_CRON_ZONE" placeholder:"ZONE" help:"IANA time zone of the admin's JVM, in which cron expressions are evaluated; by default inferred."`
	DBZone   string        `name:"db-zone" env:"BELFRY_XXL_JOB_DB_ZONE" placeholder:"ZONE" help:"IANA time zone of DATETIME columns (serverTimezone in the admin's JDBC URL); by default inferred."`
	Source   string        `env:"BELFRY_XXL_JOB_SOURCE" placeholder:"NAME" help:"Name of the database, by which a later import recognizes its jobs; by default host:port/database."`
	DryRun   bool          `env:"BELFRY_DRY_RUN" help:"Print the report, and change nothing. Without a console, the report compares with nothing."`
}

func (*importXXLJobCmd) Help() string {
	return "The command reads a living XXL-JOB database, version 2.1 to 3.5, without changing it, and creates groups, jobs, alert channels and users. " +
		"Jobs and users are created disabled, and users without a usable password. " +
		"The report has a row for each job: exact, differs (how) or impossible (why), and the next ten fire times in both systems. " +
		"If you import again, the command updates the jobs that the first import made, and keeps what people have changed in Belfry. See docs/xxl-job.md.\n\nExamples:\n\n" +
		"    BELFRY_XXL_JOB_DSN=mysql://belfry:secret@db:3306/xxl_job belfry import xxl-job --dry-run\n" +
		"    belfry import xxl-job --dsn postgres://belfry@db/xxl_job --group billing --cron-zone Asia/Shanghai --db-zone Asia/Shanghai -o json"
}

// xxlReport is the output in the JSON and YAML forms.
type xxlReport struct {
	Source   string             `json:"source"`
	Engine   string             `json:"engine"`
	Version  string             `json:"xxl_job_version"`
	Quartz   string             `json:"quartz_version"`
	ReadAt   domain.Instant     `json:"read_at"`
	CronZone importer.ZoneGuess `json:"cron_zone"`
	DBZone   importer.ZoneGuess `json:"db_zone"`
	DryRun   bool               `json:"dry_run"`
	Exact    int                `json:"exact"`
	Differ   int                `json:"differs"`
	Cannot   int                `json:"impossible"`
	Groups   []xxlGroup         `json:"groups"`
	Jobs     []xxlJob           `json:"jobs"`
	Channels []xxlChannel       `json:"alert_channels"`
	Users    []xxlUser          `json:"users"`
}

type xxlGroup struct {
	importer.Group
	Action string `json:"action"`
	Error  string `json:"error,omitempty"`
}

type xxlChannel struct {
	importer.Channel
	Action string `json:"action"`
	Error  string `json:"error,omitempty"`
}

type xxlUser struct {
	importer.User
	Action string `json:"action"`
	Error  string `json:"error,omitempty"`
}

// xxlJob is the row of a job.
type xxlJob struct {
	XXLID       int64            `json:"xxl_job_id"`
	AppName     string           `json:"app_name"`
	ID          domain.JobID     `json:"id,omitempty"`
	Group       string           `json:"group"`
	Name        string           `json:"name"`
	Verdict     importer.Verdict `json:"verdict"`
	Differences []string         `json:"differences"`
	Reason      string           `json:"reason,omitempty"`
	Action      string           `json:"action"`
	Updated     []string         `json:"updated"`
	Kept        []importer.Kept  `json:"kept"`
	Enabled     bool             `json:"enabled_in_xxl_job"`
	NextTrigger *domain.Instant  `json:"next_trigger_time"`
	FireTimes   xxlFireTimes     `json:"fire_times"`
}

// xxlFireTimes are the next ten fire times in both systems.
type xxlFireTimes struct {
	XXLJob []domain.Instant `json:"xxl_job"`
	Belfry []domain.Instant `json:"belfry"`
}

func (c *importXXLJobCmd) Run(a *app, parent *importCmd) error {
	for flag, zone := range map[string]string{"--cron-zone": c.CronZone, "--db-zone": c.DBZone} {
		if _, err := time.LoadLocation(zone); err != nil || strings.EqualFold(zone, "local") {
			return &usageError{fmt.Sprintf("%s: %q is not an IANA time zone such as Asia/Shanghai", flag, zone)}
		}
	}
	db, err := source.Read(a.ctx, c.DSN.Reveal())
	if err != nil {
		return err
	}
	if c.Source == "" {
		c.Source = db.Name
	}
	eval := importer.CronZone(db, c.CronZone)
	dbZone := importer.DatabaseZone(db, eval.Zone.Zone)
	if c.DBZone != "" {
		if dbZone.Zone != c.DBZone {
			dbZone.Evidence += "; inferred: " + dbZone.Zone
		}
		dbZone.Zone, dbZone.Given = c.DBZone, true
	}
	fmt.Fprintf(a.stderr, "Read %s: XXL-JOB %s, %d executors, %d jobs, %d users.\n", printable(db.Name), db.Version, len(db.Groups), len(db.Jobs), len(db.Users))
	fmt.Fprintf(a.stderr, "Time zone of cron expressions: %s (%s).\n", eval.Zone.Zone, zoneText(eval.Zone))
	fmt.Fprintf(a.stderr, "Time zone of DATETIME columns: %s (%s).\n", dbZone.Zone, zoneText(dbZone))
	if !c.DryRun && (c.CronZone == "" || c.DBZone == "") && !a.confirmed() {
		return &usageError{fmt.Sprintf("the time zones are not confirmed; add --cron-zone %s --db-zone %s, or the right ones", eval.Zone.Zone, dbZone.Zone)}
	}
	plan := importer.Convert(db, importer.Options{Group: c.Group, CronZone: eval.Zone.Zone, Quartz: eval.Quartz})
	if c.Group != "" && len(plan.Groups) == 0 {
		return fmt.Errorf("XXL-JOB has no executor with the AppName %q", c.Group)
	}
	out := &xxlReport{Source: c.Source, Engine: db.Engine, Version: db.Version.String(), Quartz: string(eval.Quartz), ReadAt: domain.At(db.ReadAt),
		CronZone: eval.Zone, DBZone: dbZone, DryRun: c.DryRun, Groups: []xxlGroup{}, Jobs: []xxlJob{}, Channels: []xxlChannel{}, Users: []xxlUser{}}
	x := &xxlImport{a: a, dryRun: c.DryRun, source: c.Source, plan: plan, out: out}
	if x.cl, err = parent.ProvideClient(a); err != nil && !c.DryRun {
		return err
	}
	if _, err := x.groups(); err != nil {
		if !c.DryRun {
			return err
		}
		fmt.Fprintf(a.stderr, "No console answers (%s), so the report compares with nothing.\n", printable(err.Error()))
		x.cl = nil
	}
	if err := x.run(); err != nil {
		return err
	}
	for _, j := range out.Jobs {
		switch j.Verdict {
		case importer.Exact:
			out.Exact++
		case importer.Differs:
			out.Differ++
		case importer.Impossible:
			out.Cannot++
		}
	}
	if err := c.print(a, parent.Output, out); err != nil {
		return err
	}
	if x.failed {
		return errReported
	}
	return nil
}

func zoneText(z importer.ZoneGuess) string {
	if z.Given {
		return "given; " + z.Evidence
	}
	return "inferred; " + z.Evidence
}

// confirmed asks on a terminal whether the zones are right. Without a terminal it returns false.
func (a *app) confirmed() bool {
	if _, terminal := fileOf(a.stdin); !terminal {
		return false
	}
	return a.agrees("Are these time zones right?")
}

func (c *importXXLJobCmd) print(a *app, form string, out *xxlReport) error {
	if c.DryRun {
		fmt.Fprintln(a.stderr, "Nothing was changed. Without --dry-run:")
	}
	err := a.print(form, out, func(t *table) {
		for _, g := range out.Groups {
			t.row("", g.Action, "", "group "+g.Name)
			notes(t, append(g.Notes, g.Error))
		}
		for _, ch := range out.Channels {
			t.row("", ch.Action, "", "alert channel "+ch.Name)
			notes(t, []string{ch.Error})
		}
		for i := range out.Jobs {
			printXXLJob(t, &out.Jobs[i])
		}
		for _, u := range out.Users {
			t.row("", u.Action, "", "user "+u.Username+" ("+u.Role+" "+strings.Join(u.Groups, ", ")+")")
			notes(t, []string{u.Reason, u.Error})
		}
	})
	if err != nil {
		return err
	}
	fmt.Fprintf(a.stderr, "%d jobs: %d exact, %d differ, %d impossible.\n", len(out.Jobs), out.Exact, out.Differ, out.Cannot)
	if len(out.Channels) > 0 {
		fmt.Fprintln(a.stderr, "XXL-JOB keeps its mail server outside of the database. New alert channels have the host smtp.invalid: set host, port, from and log-in with belfry alert-channel.")
	}
	return nil
}

func notes(t *table, texts []string) {
	for _, text := range texts {
		if text != "" {
			t.row("", "", "", "  "+text)
		}
	}
}

func printXXLJob(t *table, j *xxlJob) {
	t.row(j.Verdict, j.Action, j.XXLID, shown(j.Group+"/"+j.Name, 130))
	notes(t, append(append([]string{}, j.Differences...), j.Reason))
	for _, k := range j.Kept {
		notes(t, []string{"kept " + k.String()})
	}
	theirs, ours := instantsText(j.FireTimes.XXLJob), instantsText(j.FireTimes.Belfry)
	if theirs == ours {
		notes(t, []string{prefixed("both fire at ", ours)})
		return
	}
	notes(t, []string{prefixed("XXL-JOB fires at ", theirs), prefixed("Belfry fires at ", ours)})
}

func prefixed(prefix, text string) string {
	if text == "" {
		return ""
	}
	return prefix + text
}

func instantsText(times []domain.Instant) string {
	texts := make([]string, len(times))
	for i, at := range times {
		texts[i] = people(at.Time)
	}
	return strings.Join(texts, ", ")
}

func instantsOf(times []time.Time) []domain.Instant {
	out := make([]domain.Instant, len(times))
	for i, at := range times {
		out[i] = domain.At(at)
	}
	return out
}

// authorized reports whether later requests can succeed after err.
func authorized(err error) bool {
	status := client.StatusOf(err)
	return status != 0 && status != 401
}
