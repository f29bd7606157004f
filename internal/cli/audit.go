package cli

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/belfryhq/belfry/internal/client"
	"github.com/belfryhq/belfry/internal/domain"
	"github.com/belfryhq/belfry/internal/firecheck"
)

type auditCmd struct {
	connection
	Since time.Duration   `env:"BELFRY_SINCE" default:"24h" help:"Length of the span, back from --until."`
	Until *domain.Instant `env:"BELFRY_UNTIL" placeholder:"INSTANT" help:"End of the span, in RFC 3339; by default now."`
	Job   string          `env:"BELFRY_JOB" placeholder:"JOB" help:"Only this job: its id, or group/name."`
	All   bool            `env:"BELFRY_AUDIT_ALL" help:"List all fire times that did not run, including those of disabled or edited jobs."`
	Limit int             `env:"BELFRY_LIMIT" default:"1000" help:"Maximum number of findings to list; unexplained ones are always listed."`
}

func (*auditCmd) Help() string {
	return "This is the fire check; `belfry check` is the same command. It computes every fire time from the versions of the jobs and compares it with the runs and the missed ledger. " +
		"If a fire time has no run and no reason, or has two runs, the exit code is 1. Fire times that are uncertain after a restore of the database are listed.\n\nExamples:\n\n" +
		"    belfry audit\n    belfry audit --since 1h --job default/report --all\n    belfry audit --since 168h -o json"
}

func (c *auditCmd) Run(a *app, cl *client.Client) error {
	if c.Since <= 0 {
		return &usageError{fmt.Sprintf("--since: %s is not positive; give a duration such as 24h", c.Since)}
	}
	scope := client.FireScope{}
	end := time.Now()
	if c.Until != nil {
		scope.Until, end = *c.Until, c.Until.Time
	}
	scope.Since = domain.At(end.Add(-c.Since))
	var err error
	if c.Job != "" {
		if scope.Job, err = jobID(a, cl, c.Job); err != nil {
			return err
		}
	}
	whole, dropped, err := c.pages(a, cl, scope)
	if err != nil {
		return err
	}
	if err := a.print(c.Output, whole, func(t *table) { auditTable(t, whole) }); err != nil {
		return err
	}
	if dropped > 0 {
		fmt.Fprintf(a.stderr, "Listed the first %d findings; %d more exist (--limit).\n", len(whole.Items), dropped)
	}
	if whole.Counts[firecheck.FateUnexplained]+whole.Counts[firecheck.FateDoubled] > 0 {
		return errReported
	}
	return nil
}

// pages reads all pages of the fire check. On a terminal it shows its progress.
func (c *auditCmd) pages(a *app, cl *client.Client, scope client.FireScope) (whole firecheck.Page, dropped int, err error) {
	_, terminal := fileOf(a.stderr)
	whole = firecheck.Page{Counts: make(map[firecheck.Fate]int), Items: []firecheck.Item{}}
	for cursor, first := "", true; first || cursor != ""; first = false {
		page, err := cl.AuditFires(a.ctx, scope, cursor)
		if err != nil {
			return whole, dropped, err
		}
		if first {
			whole.Since, whole.Until, whole.OfJobs = page.Since, page.Until, page.OfJobs
			scope.Since, scope.Until = page.Since, page.Until
		}
		for fate, n := range page.Counts {
			whole.Counts[fate] += n
		}
		whole.Jobs += page.Jobs
		for _, f := range page.Items {
			dropped += c.keep(&whole, f)
		}
		if cursor = page.Next; terminal && cursor != "" {
			fmt.Fprintf(a.stderr, "\r%d of %d jobs, %d fire times", whole.Jobs, whole.OfJobs, total(whole.Counts))
		}
	}
	if terminal {
		fmt.Fprint(a.stderr, "\r\x1b[K")
	}
	return whole, dropped, nil
}

// keep adds a requested finding. It returns 1 if the finding exceeds the limit.
func (c *auditCmd) keep(whole *firecheck.Page, f firecheck.Item) int {
	grave := f.Fate == firecheck.FateUnexplained || f.Fate == firecheck.FateDoubled
	if !c.All && !grave && !noteworthy(f.Fate) {
		return 0
	}
	if len(whole.Items) >= c.Limit && !grave {
		return 1
	}
	whole.Items = append(whole.Items, f)
	return 0
}

// noteworthy reports whether fire times of this fate are listed without --all.
func noteworthy(f firecheck.Fate) bool {
	return slices.Contains([]firecheck.Fate{firecheck.FateUncertain, firecheck.FateMissed, firecheck.FateSchedulerAway, firecheck.FateNotStarted, firecheck.FateLate}, f)
}

func total(counts map[firecheck.Fate]int) (n int) {
	for _, c := range counts {
		n += c
	}
	return n
}

func auditTable(t *table, whole firecheck.Page) {
	t.row(fmt.Sprintf("%d fire times of %d jobs, due from %s to %s", total(whole.Counts), whole.Jobs, people(whole.Since.Time), people(whole.Until.Time)))
	t.row("")
	t.row("FATE", "FIRE TIMES")
	for _, fate := range firecheck.Fates {
		if n := whole.Counts[fate]; n > 0 {
			t.row(words(fate), n)
		}
	}
	if len(whole.Items) == 0 {
		return
	}
	t.row("")
	t.row("FATE", "JOB", "FIRST", "LAST", "COUNT", "WHY")
	for _, f := range whole.Items {
		t.row(words(f.Fate), shown(f.Group+"/"+f.JobName, 60), f.First, f.Last, f.Count, f.Text)
	}
}

func words(f firecheck.Fate) string { return strings.ReplaceAll(string(f), "_", " ") }

type jobWhyCmd struct {
	Job string `arg:"" help:"The job's id, or group/name. A deleted job needs its id."`
	At  string `required:"" env:"BELFRY_AT" placeholder:"TIME" help:"The instant, in RFC 3339 or as a local time in the job's zone such as 2026-03-29T02:30."`
}

func (*jobWhyCmd) Help() string {
	return "The command prints whether the instant is a fire time of the job, and whether it ran, was missed or was dropped.\n\nExamples:\n\n" +
		"    belfry job why default/report --at 2026-03-29T02:30\n    belfry job why 7 --at 2026-03-29T00:30:00Z -o json"
}

func (c *jobWhyCmd) Run(a *app, parent *jobCmd, cl *client.Client) error {
	id, err := jobID(a, cl, c.Job)
	if err != nil {
		return err
	}
	w, err := cl.Why(a.ctx, id, c.At)
	if err != nil {
		return err
	}
	return a.print(parent.Output, w, func(t *table) {
		t.row(w.Answer)
		if w.RunID != nil {
			t.row("See: belfry run get " + w.RunID.String())
		}
	})
}
