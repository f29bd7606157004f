package schedules

import (
	"cmp"
	"context"
	"math"
	"slices"
	"time"

	"github.com/belfryhq/belfry/console/api/rest"
	"github.com/belfryhq/belfry/console/auth"
	"github.com/belfryhq/belfry/internal/domain"
	"github.com/belfryhq/belfry/internal/store/view"
)

const calendarJobsShown = 50

type calendarJobsInput struct {
	From  domain.Instant `query:"from" required:"true"`
	To    domain.Instant `query:"to" required:"true" doc:"At most one day after from"`
	Group string         `query:"group"`
}

type calendarJob struct {
	JobID         domain.JobID   `json:"job_id"`
	JobName       string         `json:"job_name"`
	Group         string         `json:"group"`
	Planned       int64          `json:"planned" doc:"The number of future fire times; a number over 100 can be an estimate"`
	FirstFireTime domain.Instant `json:"first_fire_time"`
}

type calendarJobsAnswer struct {
	Jobs     int64         `json:"jobs" doc:"Computed jobs that fire in the span"`
	Computed int64         `json:"computed" doc:"Jobs whose fire times were computed. If there are more than 10,000 jobs, this is a sample of them"`
	Items    []calendarJob `json:"items" nullable:"false" doc:"The jobs with the most fire times, at most 50"`
}

func (in *calendarJobsInput) check(now time.Time) error {
	var f domain.Faults
	switch span := in.To.Sub(in.From.Time); {
	case span <= 0:
		f.Add("to", "must be after from")
	case span > 24*time.Hour:
		f.Add("to", "must be at most one day after from")
	case in.To.Sub(now) > 400*24*time.Hour:
		f.Add("to", "must be at most 400 days ahead")
	}
	return f.Err("the request is not valid")
}

func (a *API) calendarJobs(ctx context.Context, id auth.Identity, in *calendarJobsInput) (*rest.Output[calendarJobsAnswer], error) {
	if err := in.check(time.Now()); err != nil {
		return nil, err
	}
	groups, err := a.Visible.Scope(ctx, id, in.Group)
	if err != nil {
		return nil, err
	}
	found, err := a.Lists.Scheduled(ctx, groups, calendarJobs)
	if err != nil {
		return nil, err
	}
	out := calendarJobsAnswer{Items: []calendarJob{}}
	fires, computed := a.planEach(ctx, &found, in.From.Time, in.To.Time)
	out.Jobs, out.Computed = int64(len(fires)), computed
	for _, f := range fires[:min(len(fires), calendarJobsShown)] {
		j, err := a.Visible.Job(ctx, id, f.JobID)
		if domain.CodeOf(err) == domain.NotFound {
			continue // it was deleted meanwhile
		}
		if err != nil {
			return nil, err
		}
		f.JobName = j.Name
		out.Items = append(out.Items, f)
	}
	return rest.Answer(out), nil
}

// planEach counts the fire times of each job until the deadline of the computation. Jobs with the most fire times come first.
func (a *API) planEach(ctx context.Context, found *view.Scheduled, from, to time.Time) (out []calendarJob, computed int64) {
	deadline := time.Now().Add(calendarTime)
	start := latest(from, found.Now)
	pauses := domain.IndexPauses(found.Pauses)
	for i := range found.Jobs {
		if time.Now().After(deadline) || ctx.Err() != nil {
			break
		}
		computed++
		j := &found.Jobs[i]
		one := view.Scheduled{Now: found.Now, All: 1, Jobs: found.Jobs[i : i+1], Pauses: pauses.Of(j.ID, j.Group)}
		stretch := cells{from, to.Sub(from), make([]float64, 1)}
		a.plan(ctx, &one, &stretch)
		n := int64(math.Round(stretch.fires[0]))
		compiled, err := Compile(j.Schedule, a.Zone, j.CreatedAt)
		if n == 0 || err != nil {
			continue
		}
		first, ok := compiled.Next(start.Add(-time.Millisecond))
		if j.Schedule.Kind == domain.ScheduleFixedDelay {
			first, ok = j.NextFire, true
		}
		if ok {
			out = append(out, calendarJob{JobID: j.ID, Group: j.Group, Planned: n, FirstFireTime: domain.At(first)})
		}
	}
	slices.SortFunc(out, func(x, y calendarJob) int {
		return cmp.Or(cmp.Compare(y.Planned, x.Planned), x.FirstFireTime.Compare(y.FirstFireTime.Time), cmp.Compare(x.JobID, y.JobID))
	})
	return out, computed
}
