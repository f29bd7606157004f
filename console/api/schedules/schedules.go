// Package schedules is the REST API of future fire times: for one job or schedule, for all jobs, and as a calendar.
package schedules

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"github.com/belfryhq/belfry/console/api/problem"
	"github.com/belfryhq/belfry/console/api/rest"
	"github.com/belfryhq/belfry/console/api/strict"
	"github.com/belfryhq/belfry/console/api/visible"
	"github.com/belfryhq/belfry/console/auth"
	"github.com/belfryhq/belfry/internal/domain"
	"github.com/belfryhq/belfry/internal/explain"
	"github.com/belfryhq/belfry/internal/schedule"
	"github.com/belfryhq/belfry/internal/store/account"
	statstore "github.com/belfryhq/belfry/internal/store/runstats"
	"github.com/belfryhq/belfry/internal/store/view"
)

// API serves future fire times. All fields must be set.
type API struct {
	Calendars Calendars
	Lists     Lists
	Reports   Reports
	Visible   *visible.Reader
	Zone      *time.Location // of schedules that name none
}

// Calendars reads one calendar.
type Calendars interface {
	Calendar(ctx context.Context, name string) (domain.Calendar, error)
}

// Lists reads the jobs that fire, by group. nil means all groups.
type Lists interface {
	Upcoming(ctx context.Context, groups []string, within time.Duration, limit int) (view.Upcoming, error)
	// Scheduled returns the jobs whose schedules fire, or an even sample of them.
	Scheduled(ctx context.Context, groups []string, most int) (view.Scheduled, error)
}

// Reports counts finished runs over time.
type Reports interface {
	Series(ctx context.Context, scope statstore.Scope, step time.Duration) (statstore.Counts, error)
}

// Register adds the operations.
func (a *API) Register(r *rest.Router) {
	const tag = "Schedules"
	rest.Register(r, rest.Operation{Method: "GET", Path: "/jobs/{id}/next", Tag: tag, Summary: "Show a job's next fire times", Needs: account.Viewer,
		Description: "The fire times of the job's schedule, also while the job is disabled. For the kind fixed_delay at most one is known."}, a.next)
	rest.Register(r, rest.Operation{Method: "POST", Path: "/schedules/preview", Tag: tag, Summary: "Show the fire times of a schedule", Needs: account.Viewer,
		Body: rest.BodyOf[previewBody]()}, a.preview)
	rest.Register(r, rest.Operation{Method: "GET", Path: "/upcoming", Tag: tag, Summary: "List the next fire times of all jobs", Needs: account.Viewer,
		Description: "Fire times of enabled jobs, ordered by due instant. Fire times in a pause are left out. For the kind fixed_delay at most one is known."}, a.upcoming)
	rest.Register(r, rest.Operation{Method: "GET", Path: "/calendar", Tag: tag, Summary: "Count runs and fire times over time", Needs: account.Viewer,
		Description: "Cells start at multiples of step since 1970 in UTC. There are at most 750. Past cells count finished runs. Future cells count fire times " +
			"of enabled jobs, without jitter and without fire times in a pause; for the kind fixed_delay at most one per job. " +
			"If there are more than 10,000 jobs, only a sample of them is computed. In each cell, at most 100 fire times of a schedule are computed. " +
			"Counts of runs are kept by minute for 72 hours and by hour for 400 days."}, a.calendar)
	rest.Register(r, rest.Operation{Method: "GET", Path: "/calendar/jobs", Tag: tag, Summary: "List the jobs that fire in a future span", Needs: account.Viewer,
		Description: "The jobs behind a cell of the calendar: fire times of enabled jobs, without jitter and without fire times in a pause."}, a.calendarJobs)
}

const maxPreview = 100 // fire times in one answer

type previewBody struct {
	Schedule domain.Schedule `json:"schedule"`
	Count    int             `json:"count,omitempty" minimum:"1" maximum:"100" doc:"Default: 5"`
	From     *domain.Instant `json:"from,omitempty" doc:"Default: now"`
}

type preview struct {
	FireTimes   []domain.Instant `json:"fire_times" nullable:"false"`
	Description string           `json:"description" example:"At 02:00 every day, Asia/Shanghai"`
	TimeZone    string           `json:"time_zone" doc:"The time zone of the computation: the schedule's, or the server's if the schedule names none"`
}

func (a *API) next(ctx context.Context, id auth.Identity, in *struct {
	rest.JobPath
	rest.Reader
	Count int `query:"count" minimum:"1" maximum:"100" default:"5"`
}) (*rest.Output[preview], error) {
	j, err := a.Visible.Job(ctx, id, in.ID)
	if err != nil {
		return nil, err
	}
	p, err := a.fireTimes(j.Schedule, j.CreatedAt.Time, time.Now(), in.Count, in.Language())
	if err != nil {
		return nil, err
	}
	if j.Schedule.Kind == domain.ScheduleFixedDelay && j.NextFireTime != nil {
		p.FireTimes = []domain.Instant{*j.NextFireTime}
	}
	return rest.Answer(p), nil
}

func (a *API) preview(ctx context.Context, _ auth.Identity, in *struct {
	rest.JSONBody
	rest.Reader
}) (*rest.Output[preview], error) {
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
		_, err := Compile(b.Schedule, a.Zone, from)
		f.AddAll("schedule", err)
	}
	if err := strict.AlsoFaulty(shape, f.Err("the preview is not valid")); err != nil {
		return nil, err
	}
	p, err := a.fireTimes(b.Schedule, from, from, b.Count, in.Language())
	if err != nil {
		return nil, err
	}
	return rest.Answer(p), nil
}

// Describe returns the description of a schedule in a language.
func Describe(s *schedule.Schedule, language explain.Language) string {
	if language == explain.Chinese {
		return s.DescribeChinese()
	}
	return s.Describe()
}

func (a *API) fireTimes(s domain.Schedule, createdAt, from time.Time, count int, language explain.Language) (preview, error) {
	p := preview{FireTimes: []domain.Instant{}, TimeZone: cmp.Or(s.TimeZone, a.Zone.String())}
	compiled, err := Compile(s, a.Zone, createdAt)
	if err != nil {
		return p, err
	}
	p.Description = Describe(compiled, language)
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

// Compile compiles a schedule, with standard cron as the default dialect.
func Compile(s domain.Schedule, zone *time.Location, createdAt time.Time) (*schedule.Schedule, error) {
	if s.Kind == domain.ScheduleCron && s.Dialect == "" {
		s.Dialect = domain.DialectStandard
	}
	return schedule.Compile(s, schedule.Options{DefaultZone: zone, CreatedAt: createdAt})
}

// withDaysOff gives a schedule that is not stored the days of the calendar that it names.
func (a *API) withDaysOff(ctx context.Context, s *domain.Schedule) error {
	if !domain.ValidCalendarName(s.Calendar) {
		return nil // the schedule names no calendar, or its compilation reports the faulty name
	}
	c, err := a.Calendars.Calendar(ctx, s.Calendar)
	if err == nil {
		s.DaysOff = &c.DaysOff
		return nil
	}
	if domain.CodeOf(err) == domain.NotFound {
		return problem.Invalid("schedule.calendar", fmt.Sprintf("there is no calendar %q", s.Calendar))
	}
	return err
}
