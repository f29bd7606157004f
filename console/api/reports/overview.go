// Package reports is the REST API of run statistics: the overview, also as a stream, and counts of finished runs over time.
package reports

import (
	"context"
	"log/slog"
	"reflect"
	"time"

	"github.com/belfryhq/belfry/console/api/rest"
	"github.com/belfryhq/belfry/console/api/stream"
	"github.com/belfryhq/belfry/console/api/visible"
	"github.com/belfryhq/belfry/console/auth"
	"github.com/belfryhq/belfry/console/live"
	"github.com/belfryhq/belfry/internal/domain"
	"github.com/belfryhq/belfry/internal/explain"
	"github.com/belfryhq/belfry/internal/runstats"
	"github.com/belfryhq/belfry/internal/store/account"
	statstore "github.com/belfryhq/belfry/internal/store/runstats"
	"github.com/belfryhq/belfry/internal/store/view"
)

// API serves run statistics. All exported fields must be set.
type API struct {
	Store     Store
	Lists     Lists
	Groups    Groups
	Instances Instances
	Hub       *live.Hub
	Streams   *stream.Streams
	Visible   *visible.Reader
	Log       *slog.Logger

	gauges gauges
}

// Store counts runs and jobs.
type Store interface {
	Totals(ctx context.Context, scope statstore.Scope) (statstore.Counts, error)
	Series(ctx context.Context, scope statstore.Scope, step time.Duration) (statstore.Counts, error)
	Present(ctx context.Context, only []string) (statstore.Present, error)
}

// Lists reads the newest failures and missed fire times.
type Lists interface {
	Runs(ctx context.Context, f view.RunFilter) ([]domain.Run, domain.RunID, error)
	LatestMissed(ctx context.Context, only []string, from, to time.Time, limit int) ([]runstats.RecentMissed, error)
}

// Groups lists groups by name.
type Groups interface {
	Groups(ctx context.Context, only []string, after string, limit int) ([]domain.Group, error)
}

// Instances knows the live instances of a group.
type Instances interface {
	Instances(group string) []domain.Instance
}

// Register adds the operations.
func (a *API) Register(r *rest.Router) {
	const tag = "Reports"
	rest.Register(r, rest.Operation{Method: "GET", Path: "/overview", Tag: tag, Summary: "Show the overview", Needs: account.Viewer, Description: countsDoc}, a.overview)
	rest.Register(r, rest.Operation{Method: "GET", Path: "/reports/runs", Tag: tag, Summary: "Count finished runs over time", Needs: account.Viewer,
		Description: countsDoc + " Steps start at multiples of step since 1970 in UTC. There are at most 1,500."}, a.runReport)
	rest.Register(r, rest.Operation{Method: "GET", Path: "/overview/stream", Tag: tag, Summary: "Follow the overview", Needs: account.Viewer,
		Description: "Server-sent events. overview: the answer of GET /overview for a span that ends now, at first and when its numbers change, at most once a second.",
		Responses:   stream.Response(r, map[string]reflect.Type{"overview": reflect.TypeFor[runstats.Overview]()})}, a.stream)
}

const (
	reportSpan     = 24 * time.Hour // if there is no from
	maxPoints      = 1500
	recentFailures = 10
	recentMissed   = 10
	failureText    = 300 // characters of a failure's message, or of the reason of missed fire times
)

// Span is embedded by the inputs of run statistics.
type Span struct {
	From  domain.Instant `query:"from" doc:"Runs that finished from this instant on; default: 24 hours before to"`
	To    domain.Instant `query:"to" doc:"Runs that finished before this instant; default: now"`
	Group string         `query:"group" doc:"Only runs of this group"`
}

const countsDoc = "Each run is counted at the time when it finished. success_rate is succeeded divided by the sum of succeeded and failed. Lateness is " +
	"the first start minus the due instant. It comes from a histogram with bounds 20 % apart, so it is at most 20 % too high. All runs that were " +
	"settled before counted_through are counted. Counts are kept by minute for 72 hours and by hour for 400 days. from and to are rounded outwards " +
	"to whole minutes or hours."

// scope checks a span and returns the runs to count.
func (a *API) scope(ctx context.Context, id auth.Identity, in Span, f *domain.Faults) (statstore.Scope, error) {
	now := time.Now()
	s := statstore.Scope{Only: id.Only(), From: in.From.Time, To: in.To.Time}
	if s.To.IsZero() {
		s.To = now
	}
	if s.From.IsZero() {
		s.From = s.To.Add(-reportSpan)
	}
	switch {
	case in.To.IsZero() && s.From.After(now):
		f.Add("from", "must not be in the future")
	case !s.From.Before(s.To):
		f.Add("to", "must be after from")
	case now.Sub(s.From) > statstore.HoursKept:
		f.Add("from", "must be at most 400 days ago, because counts are kept that long")
	case s.To.Sub(now) > reportSpan:
		f.Add("to", "must be at most one day in the future")
	}
	if in.Group == "" {
		return s, nil
	}
	if _, err := a.Visible.Group(ctx, id, in.Group); err != nil {
		if domain.CodeOf(err) != domain.NotFound {
			return s, err
		}
		f.AddAll("", visible.UnknownGroup(in.Group))
	}
	s.Only = []string{in.Group}
	return s, nil
}

func (a *API) overview(ctx context.Context, id auth.Identity, in *struct{ Span }) (*rest.Output[runstats.Overview], error) {
	var f domain.Faults
	scope, err := a.scope(ctx, id, in.Span, &f)
	if err == nil {
		err = f.Err("the request is not valid")
	}
	if err != nil {
		return nil, err
	}
	out, err := a.look(ctx, scope)
	return rest.Answer(out), err
}

// look reads the overview.
func (a *API) look(ctx context.Context, scope statstore.Scope) (runstats.Overview, error) {
	totals, err := a.Store.Totals(ctx, scope)
	if err != nil {
		return runstats.Overview{}, err
	}
	present, err := a.Store.Present(ctx, scope.Only)
	if err != nil {
		return runstats.Overview{}, err
	}
	out := runstats.Overview{
		From: domain.At(totals.From), To: domain.At(totals.To), CountedThrough: domain.At(totals.Through), Missed: totals.Missed,
		Counts: countsOf(total(totals.Steps)), RecentFailures: []runstats.RecentFailure{},
		Now: runstats.Live{Pending: present.Pending, Held: present.Held, Queued: present.Queued, Running: present.Running,
			Retrying: present.Retrying, Jobs: present.Jobs, Enabled: present.Enabled},
	}
	if err := a.countInstances(ctx, scope, &out.Now); err != nil {
		return out, err
	}
	// Ids are ordered by fire time, and a run may finish long after its fire time. So this reads the newest failures without a lower bound.
	failed, _, err := a.Lists.Runs(ctx, view.RunFilter{Only: scope.Only, States: []domain.State{domain.Failed}, To: scope.To, Limit: recentFailures})
	if err != nil {
		return out, err
	}
	for _, r := range failed {
		out.RecentFailures = append(out.RecentFailures, runstats.RecentFailure{
			RunID: r.ID, JobID: r.JobID, JobName: r.JobName, Group: r.Group, Reason: r.Reason, Message: shorten(r.Message), FinishedAt: r.FinishedAt,
			MessageParts: shortenParts(r.MessageParts),
		})
	}
	if out.RecentMissed, err = a.Lists.LatestMissed(ctx, scope.Only, totals.From, totals.To, recentMissed); err != nil {
		return out, err
	}
	for i := range out.RecentMissed {
		why := *out.RecentMissed[i].Why
		why.Text = shorten(why.Text)
		out.RecentMissed[i].Why = &why
	}
	return out, nil
}

func shorten(s string) string {
	if r := []rune(s); len(r) > failureText {
		return string(r[:failureText-1]) + "…"
	}
	return s
}

// shortenParts shortens the handler's own words. The other parts are short.
func shortenParts(parts []explain.Explanation) []explain.Explanation {
	for i := range parts {
		parts[i].Text = shorten(parts[i].Text)
	}
	return parts
}

// countInstances adds the groups of the scope and their instances.
func (a *API) countInstances(ctx context.Context, scope statstore.Scope, now *runstats.Live) error {
	const batch = 500
	for after := ""; ; {
		groups, err := a.Groups.Groups(ctx, scope.Only, after, batch)
		if err != nil {
			return err
		}
		for _, g := range groups {
			now.Groups++
			for _, i := range a.Instances.Instances(g.Name) {
				now.Instances++
				now.Slots += i.Capacity
				now.SlotsUsed += i.Running
				if i.Draining {
					now.Draining++
				}
			}
			after = g.Name
		}
		if len(groups) < batch {
			return nil
		}
	}
}

func (a *API) runReport(ctx context.Context, id auth.Identity, in *struct {
	Span
	Step string `query:"step" default:"1h" doc:"A duration: 1m to 30m within the last 72 hours, or whole hours"`
}) (*rest.Output[runstats.Series], error) {
	var f domain.Faults
	scope, err := a.scope(ctx, id, in.Span, &f)
	if err != nil {
		return nil, err
	}
	step, err := time.ParseDuration(in.Step)
	switch {
	case err != nil:
		f.Add("step", "must be a duration such as 5m or 24h")
	case step < time.Minute || step%time.Minute != 0 || step > time.Hour && step%time.Hour != 0:
		f.Add("step", "must be whole minutes, such as 5m, or whole hours, such as 24h")
	case time.Hour%step != 0 && step < time.Hour:
		f.Add("step", "must divide an hour: 1m, 2m, 3m, 4m, 5m, 6m, 10m, 12m, 15m, 20m or 30m")
	case step < time.Hour && time.Since(scope.From) > statstore.MinutesKept:
		f.Add("step", "is too short, because counts by minute are kept for 72 hours; use 1h or more, or a later from")
	case scope.To.Sub(scope.From)/step > maxPoints:
		f.Add("step", "makes more than 1500 points; use a longer step or a shorter span")
	}
	if err := f.Err("the request is not valid"); err != nil {
		return nil, err
	}
	counts, err := a.Store.Series(ctx, scope, step)
	if err != nil {
		return nil, err
	}
	out := runstats.Series{From: domain.At(counts.From), To: domain.At(counts.To), Step: domain.Duration(step), CountedThrough: domain.At(counts.Through),
		Total: countsOf(total(counts.Steps)), Points: []runstats.Point{}}
	found := counts.Steps
	for at := counts.From; at.Before(counts.To); at = at.Add(step) {
		p := runstats.Point{At: domain.At(at), Counts: countsOf(nil)}
		if len(found) > 0 && found[0].At.Equal(at) {
			p.Counts = countsOf(found[0])
			found = found[1:]
		}
		out.Points = append(out.Points, p)
	}
	return rest.Answer(out), nil
}

// total adds up steps. The total of no steps is nil.
func total(steps []*statstore.Count) *statstore.Count {
	if len(steps) == 0 {
		return nil
	}
	sum := statstore.NewCount(steps[0].At)
	for _, s := range steps {
		sum.Merge(s)
	}
	return sum
}

func countsOf(c *statstore.Count) runstats.Counts {
	out := runstats.Counts{Reasons: map[string]int64{}}
	if c == nil {
		return out
	}
	out.Runs = c.All()
	out.Succeeded, out.Failed = c.Runs[domain.Succeeded], c.Runs[domain.Failed]
	out.Cancelled, out.Skipped = c.Runs[domain.Cancelled], c.Runs[domain.Skipped]
	if n := out.Succeeded + out.Failed; n > 0 {
		rate := float64(out.Succeeded) / float64(n)
		out.SuccessRate = &rate
	}
	out.LatenessP50MS, out.LatenessP99MS = c.Late(0.5), c.Late(0.99)
	for reason, n := range c.Reasons {
		out.Reasons[string(reason)] = n
	}
	if out.Runs > 0 {
		ms := c.Duration.Milliseconds() / out.Runs
		out.MeanDurationMS = &ms
	}
	return out
}
