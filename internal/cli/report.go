package cli

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/belfryhq/belfry/internal/client"
	"github.com/belfryhq/belfry/internal/domain"
	"github.com/belfryhq/belfry/internal/runstats"
)

// reportSpan holds the flags that select finished runs.
type reportSpan struct {
	Group string          `short:"g" env:"BELFRY_REPORT_GROUP" placeholder:"NAME" help:"Only runs of this group."`
	Since time.Duration   `env:"BELFRY_REPORT_SINCE" default:"24h" help:"Only runs that finished within this duration before now."`
	From  *domain.Instant `env:"BELFRY_REPORT_FROM" placeholder:"INSTANT" help:"Only runs that finished at or after this instant, in RFC 3339, instead of --since."`
	To    *domain.Instant `env:"BELFRY_REPORT_TO" placeholder:"INSTANT" help:"Only runs that finished before this instant; by default now."`
}

func (s *reportSpan) span() client.Span {
	out := client.Span{Group: s.Group, From: s.From, To: s.To}
	if s.From == nil {
		end := time.Now()
		if s.To != nil {
			end = s.To.Time
		}
		from := domain.At(end.Add(-s.Since))
		out.From = &from
	}
	return out
}

type overviewCmd struct {
	connection
	reportSpan
}

func (*overviewCmd) Help() string {
	return "The overview begins with the servers and roles of the engine that are missing, as `belfry attention` lists them.\n\nExamples:\n\n    belfry overview\n    belfry overview --since 1h --group default -o json"
}

func (c *overviewCmd) Run(a *app, cl *client.Client) error {
	o, err := cl.Overview(a.ctx, c.span())
	if c.Output != "table" {
		if err != nil {
			return err
		}
		return a.print(c.Output, o, nil)
	}
	list, unknown := cl.Attention(a.ctx)
	printed := a.print(c.Output, nil, func(t *table) {
		t.missing(list.Items)
		if err == nil {
			overviewTable(t, o)
		}
	})
	return cmp.Or(err, unknown, printed)
}

func overviewTable(t *table, o runstats.Overview) {
	n := o.Now
	t.pair("now", fmt.Sprintf("%d running, %d queued, %d held, %d retrying", n.Running, n.Queued, n.Held, n.Retrying))
	t.pair("instances", fmt.Sprintf("%d in %d groups, %d of %d slots used", n.Instances, n.Groups, n.SlotsUsed, n.Slots))
	t.pair("jobs", fmt.Sprintf("%d, %d enabled", n.Jobs, n.Enabled))
	t.pair("from", o.From)
	t.pair("to", o.To)
	t.pair("finished", o.Counts.Runs)
	t.pair("succeeded", o.Counts.Succeeded)
	t.pair("failed", o.Counts.Failed)
	t.pair("cancelled", o.Counts.Cancelled)
	t.pair("skipped", o.Counts.Skipped)
	t.pair("success rate", percent(o.Counts.SuccessRate))
	t.pair("reasons", reasonsText(o.Counts.Reasons))
	t.pair("lateness p50, p99", milliseconds(o.Counts.LatenessP50MS)+", "+milliseconds(o.Counts.LatenessP99MS))
	t.pair("missed fire times", o.Missed)
	for _, f := range o.RecentFailures {
		t.row("failed", fmt.Sprintf("%s %s %s/%s: %s", cell(f.FinishedAt), f.RunID, f.Group, shown(f.JobName, 60), f.Reason), shown(f.Message, 80))
	}
	for _, m := range o.RecentMissed {
		t.row("missed", fmt.Sprintf("%s %s/%s (job %d): %d", cell(m.Last), m.Group, shown(m.JobName, 60), m.JobID, m.Count), shown(m.Why.String(), 80))
	}
}

func percent(rate *float64) string {
	if rate == nil {
		return ""
	}
	return fmt.Sprintf("%.2f %%", 100**rate)
}

func reasonsText(reasons map[string]int64) string {
	var parts []string
	for _, r := range slices.Sorted(maps.Keys(reasons)) {
		parts = append(parts, fmt.Sprintf("%s %d", r, reasons[r]))
	}
	return strings.Join(parts, ", ")
}

type reportCmd struct {
	connection
	reportSpan
	Step string `env:"BELFRY_REPORT_STEP" default:"1h" help:"Length of a step: 1m to 30m for the last 72 hours, or whole hours."`
}

func (*reportCmd) Help() string {
	return "Each run counts in the step in which it finished.\n\nExamples:\n\n    belfry report\n    belfry report --since 168h --step 24h -o json"
}

func (c *reportCmd) Run(a *app, cl *client.Client) error {
	r, err := cl.RunReport(a.ctx, c.span(), c.Step)
	if err != nil {
		return err
	}
	return a.print(c.Output, r, func(t *table) {
		t.row("FROM", "FINISHED", "SUCCEEDED", "FAILED", "CANCELLED", "SKIPPED", "SUCCESS", "LATENESS P50", "P99", "MEAN DURATION")
		line := func(at any, n runstats.Counts) {
			t.row(at, n.Runs, n.Succeeded, n.Failed, n.Cancelled, n.Skipped, percent(n.SuccessRate),
				milliseconds(n.LatenessP50MS), milliseconds(n.LatenessP99MS), milliseconds(n.MeanDurationMS))
		}
		for _, p := range r.Points {
			line(p.At, p.Counts)
		}
		line("total", r.Total)
	})
}
