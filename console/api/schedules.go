package api

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"github.com/belfryhq/belfry/console/api/problem"
	"github.com/belfryhq/belfry/console/api/rest"
	"github.com/belfryhq/belfry/console/api/strict"
	"github.com/belfryhq/belfry/console/auth"
	"github.com/belfryhq/belfry/internal/domain"
	"github.com/belfryhq/belfry/internal/schedule"
	"github.com/belfryhq/belfry/internal/store/account"
)

const maxPreview = 100 // fire times in one answer

type previewBody struct {
	Schedule domain.Schedule `json:"schedule"`
	Count    int             `json:"count,omitempty" minimum:"1" maximum:"100" doc:"Default: 5"`
	From     *domain.Instant `json:"from,omitempty" doc:"Default: now"`
}

type preview struct {
	FireTimes   []domain.Instant `json:"fire_times" nullable:"false"`
	Description string           `json:"description" example:"At 02:00 every day, Asia/Shanghai"`
	TimeZone    string           `json:"time_zone" doc:"By which it was computed: the schedule's, or else the server's"`
}

func (a *API) registerSchedules() {
	const tag = "Schedules"
	rest.Register(a.rest, rest.Operation{Method: "GET", Path: "/jobs/{id}/next", Tag: tag, Summary: "Show a job's next fire times", Needs: account.Viewer,
		Description: "Those of its schedule, also while it is disabled. Of kind fixed_delay at most one is known."}, a.next)
	rest.Register(a.rest, rest.Operation{Method: "POST", Path: "/schedules/preview", Tag: tag, Summary: "Show the fire times of a schedule", Needs: account.Viewer,
		Body: rest.BodyOf[previewBody]()}, a.preview)
}

func (a *API) next(ctx context.Context, id auth.Identity, in *struct {
	rest.JobPath
	Count int `query:"count" minimum:"1" maximum:"100" default:"5"`
}) (*rest.Output[preview], error) {
	j, err := a.visible.Job(ctx, id, in.ID)
	if err != nil {
		return nil, err
	}
	p, err := a.fireTimes(j.Schedule, j.CreatedAt.Time, time.Now(), in.Count)
	if err != nil {
		return nil, err
	}
	if j.Schedule.Kind == domain.ScheduleFixedDelay && j.NextFireTime != nil {
		p.FireTimes = []domain.Instant{*j.NextFireTime}
	}
	return rest.Answer(p), nil
}

func (a *API) preview(ctx context.Context, _ auth.Identity, in *struct{ rest.JSONBody }) (*rest.Output[preview], error) {
	b := previewBody{Count: 5}
	shape := in.Decode(&b)
	from := time.Now()
	if b.From != nil {
		from = b.From.Time
	}
	var f domain.Faults
	if b.Count < 1 || b.Count > maxPreview {
		f.Add("count", "must be 1 to 100")
	}
	if err := a.withDaysOff(ctx, &b.Schedule); domain.CodeOf(err) == domain.Invalid {
		f.AddAll("schedule", err)
	} else if err != nil {
		return nil, err
	}
	if !strict.NamesFault(shape, "schedule.kind") {
		_, err := a.compile(b.Schedule, from)
		f.AddAll("schedule", err)
	}
	if err := strict.AlsoFaulty(shape, f.Err("the preview is not valid")); err != nil {
		return nil, err
	}
	p, err := a.fireTimes(b.Schedule, from, from, b.Count)
	if err != nil {
		return nil, err
	}
	return rest.Answer(p), nil
}

func (a *API) fireTimes(s domain.Schedule, createdAt, from time.Time, count int) (preview, error) {
	p := preview{FireTimes: []domain.Instant{}, TimeZone: cmp.Or(s.TimeZone, a.Zone.String())}
	compiled, err := a.compile(s, createdAt)
	if err != nil {
		return p, err
	}
	p.Description = compiled.Describe()
	for t := from; len(p.FireTimes) < count; {
		next, ok := compiled.Next(t)
		if !ok {
			break
		}
		p.FireTimes = append(p.FireTimes, domain.At(next))
		t = next
	}
	return p, nil
}

func (a *API) compile(s domain.Schedule, createdAt time.Time) (*schedule.Schedule, error) {
	if s.Kind == domain.ScheduleCron && s.Dialect == "" {
		s.Dialect = domain.DialectStandard
	}
	return schedule.Compile(s, schedule.Options{DefaultZone: a.Zone, CreatedAt: createdAt})
}

// withDaysOff gives a schedule that is not stored the days of the calendar that it names.
func (a *API) withDaysOff(ctx context.Context, s *domain.Schedule) error {
	if !domain.ValidCalendarName(s.Calendar) {
		return nil // the schedule names no calendar, or its compilation reports the faulty name
	}
	c, err := a.Engine.Calendar(ctx, s.Calendar)
	if err == nil {
		s.DaysOff = &c.DaysOff
		return nil
	}
	if domain.CodeOf(err) == domain.NotFound {
		return problem.Invalid("schedule.calendar", fmt.Sprintf("there is no calendar %q", s.Calendar))
	}
	return err
}
