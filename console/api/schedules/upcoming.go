package schedules

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/belfryhq/belfry/console/api/problem"
	"github.com/belfryhq/belfry/console/api/rest"
	"github.com/belfryhq/belfry/console/auth"
	"github.com/belfryhq/belfry/internal/domain"
	"github.com/belfryhq/belfry/internal/schedule"
	"github.com/belfryhq/belfry/internal/store/view"
)

// maxWithin bounds how far ahead a request looks.
const maxWithin = 31 * 24 * time.Hour

type upcomingInput struct {
	Within string `query:"within" default:"1h" doc:"How far to look ahead, such as 90s or 24h; at most 744h"`
	Group  string `query:"group"`
	Limit  int    `query:"limit" minimum:"1" maximum:"500" default:"100" doc:"The maximum number of fire times"`
}

// upcomingFire is a future fire time.
type upcomingFire struct {
	FireTime domain.Instant `json:"fire_time"`
	DueAt    domain.Instant `json:"due_at"`
	JobID    domain.JobID   `json:"job_id"`
	JobName  string         `json:"job_name"`
	Group    string         `json:"group"`
	RunID    *domain.RunID  `json:"run_id" doc:"The run, if the fire time is already planned"`
}

type upcomingAnswer struct {
	From    domain.Instant `json:"from"`
	Until   domain.Instant `json:"until"`
	Through domain.Instant `json:"through" doc:"The list is complete up to this instant. It is before until if there are more fire times than limit"`
	Cut     bool           `json:"cut" doc:"Whether there are more fire times before until"`
	Items   []upcomingFire `json:"items" nullable:"false" doc:"Ordered by due instant"`
}

func (a *API) upcoming(ctx context.Context, id auth.Identity, in *upcomingInput) (*rest.Output[upcomingAnswer], error) {
	within, err := time.ParseDuration(in.Within)
	if err != nil || within < time.Second || within > maxWithin {
		return nil, problem.Invalid("within", "must be a duration from 1s to 744h, such as 90s or 24h")
	}
	groups, err := a.Visible.Scope(ctx, id, in.Group)
	if err != nil {
		return nil, err
	}
	found, err := a.Lists.Upcoming(ctx, groups, within, in.Limit)
	if err != nil {
		return nil, err
	}
	until := found.Now.Add(within)
	fires := a.fires(&found, in.Limit)
	out := upcomingAnswer{
		From: domain.At(found.Now), Until: domain.At(until), Through: domain.At(found.Through), Items: fires, Cut: found.Through.Before(until),
	}
	if len(fires) > in.Limit {
		out.Cut, out.Through, out.Items = true, fires[in.Limit-1].DueAt, fires[:in.Limit]
	}
	return rest.Answer(out), nil
}

// fires lists the fire times by due instant, up to the last instant for which all of them are known. If there are more than
// limit, it returns more than limit.
func (a *API) fires(u *view.Upcoming, limit int) []upcomingFire {
	out := []upcomingFire{}
	for _, r := range u.Runs {
		out = append(out, upcomingFire{domain.At(r.FireTime), domain.At(r.DueTime), r.JobID, r.JobName, r.Group, &r.ID})
	}
	pauses := domain.IndexPauses(u.Pauses)
	for _, j := range u.Jobs {
		compiled, err := Compile(j.Schedule, a.Zone, j.CreatedAt)
		if err != nil {
			continue // the job's note reports it
		}
		for _, fire := range jobFires(&j, compiled, pauses.Of(j.ID, j.Group), u.Now, u.Through, limit+1) {
			out = append(out, upcomingFire{domain.At(fire), domain.At(compiled.Due(j.ID, fire)), j.ID, j.Name, j.Group, nil})
		}
	}
	slices.SortFunc(out, func(a, b upcomingFire) int {
		if c := a.DueAt.Compare(b.DueAt.Time); c != 0 {
			return c
		}
		return cmp.Compare(a.JobID, b.JobID)
	})
	return slices.DeleteFunc(out, func(f upcomingFire) bool { return f.DueAt.After(u.Through) })
}

// jobFires returns up to limit fire times of a job that are due after now and up to through, without those in a pause.
func jobFires(j *view.DueJob, s *schedule.Schedule, pauses []domain.Pause, now, through time.Time, limit int) (out []time.Time) {
	next := func(after time.Time) time.Time {
		t, ok := s.Next(after)
		if !ok {
			return time.Time{}
		}
		return t
	}
	for fire := j.NextFire; !fire.IsZero() && len(out) < limit; {
		due := s.Due(j.ID, fire)
		pause := domain.PauseAt(pauses, due)
		switch {
		case due.After(through), pause != nil && pause.To.IsZero():
			return out
		case pause != nil:
			fire = next(latest(fire, pause.To.Add(-j.Schedule.Jitter.Std()-time.Millisecond)))
			continue
		case !due.After(now): // a pause covers now, or the scheduler is about to plan it
			if held := domain.PauseAt(pauses, now); held != nil && held.To.IsZero() {
				return out
			}
			fire = next(latest(fire, now.Add(-j.Schedule.Jitter.Std()-time.Millisecond)))
			continue
		}
		out = append(out, fire)
		fire = next(fire)
	}
	return out
}

func latest(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}
