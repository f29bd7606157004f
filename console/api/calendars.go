package api

import (
	"context"
	"fmt"
	"reflect"
	"strconv"

	"github.com/belfryhq/belfry/console/auth"
	"github.com/belfryhq/belfry/internal/domain"
	"github.com/belfryhq/belfry/internal/store/account"
)

// Calendars keeps calendars. Errors are domain errors, as those of Engine.
type Calendars interface {
	Calendars(ctx context.Context, after string, limit int) ([]domain.Calendar, error)
	Calendar(ctx context.Context, name string) (domain.Calendar, error)
	CreateCalendar(ctx context.Context, spec domain.CalendarSpec, by string) (domain.Calendar, error)
	// EditCalendar lets edit, which may be called several times, change a calendar. Version 0 is any version.
	EditCalendar(ctx context.Context, name string, version int, by string, edit func(*domain.CalendarSpec) error) (before, after domain.Calendar, err error)
	// DeleteCalendar deletes a calendar. Conflict: jobs use it.
	DeleteCalendar(ctx context.Context, name string, version int) (domain.Calendar, error)
}

// calendarBody is how the contract shows what is written.
type calendarBody struct {
	Name        string           `json:"name" doc:"1 to 63 characters, a-z, 0-9, _ or -; cannot be changed" example:"holidays"`
	Description string           `json:"description,omitempty" maxLength:"1024"`
	Weekdays    []domain.Weekday `json:"weekdays,omitempty" maxItems:"6" nullable:"false" doc:"Days of the week that are off, six at most" example:"[\"saturday\",\"sunday\"]"`
	Dates       []domain.Date    `json:"dates,omitempty" maxItems:"1000" nullable:"false" doc:"Dates that are off, 1,000 at most, of the years 1970 to 2199" example:"[\"2026-12-25\"]"`
}

// calendarChange is likewise what replaces one.
type calendarChange struct {
	Description string           `json:"description,omitempty" maxLength:"1024"`
	Weekdays    []domain.Weekday `json:"weekdays,omitempty" maxItems:"6" nullable:"false"`
	Dates       []domain.Date    `json:"dates,omitempty" maxItems:"1000" nullable:"false"`
	Name        string           `json:"name,omitempty" doc:"May be left out, and must be the calendar's"`
	Version     int              `json:"version,omitempty" doc:"Of the calendar that the change is meant for; another one answers 409"`
}

// calendarOutput is the answer that is one calendar.
type calendarOutput struct {
	ETag string `header:"ETag" doc:"The calendar's version, for If-Match"`
	Body domain.Calendar
}

// CalendarPath names a calendar in the path.
type CalendarPath struct {
	Name string `path:"name"`
}

func (a *API) registerCalendars() {
	const tag = "Calendars"
	register(a, operation{method: "GET", path: "/calendars", tag: tag, summary: "List calendars", needs: account.Viewer,
		description: "By name. A calendar is a named set of days off: days of the week, and dates. A job whose schedule names one does not fire on these days of its time zone."}, a.calendars)
	register(a, operation{method: "POST", path: "/calendars", tag: tag, summary: "Create a calendar", needs: account.Admin,
		status: 201, body: reflect.TypeFor[calendarBody]()}, a.createCalendar)
	register(a, operation{method: "GET", path: "/calendars/{name}", tag: tag, summary: "Show a calendar", needs: account.Viewer}, a.showCalendar)
	register(a, operation{method: "PUT", path: "/calendars/{name}", tag: tag, summary: "Replace a calendar", needs: account.Admin,
		description: "Absent fields get their defaults. Read-only fields may be there and are ignored, save version. New days hold at once for all jobs that use it, each of which gets a next version.",
		body:        reflect.TypeFor[calendarChange]()}, a.replaceCalendar)
	register(a, operation{method: "DELETE", path: "/calendars/{name}", tag: tag, summary: "Delete a calendar", needs: account.Admin,
		description: "One that jobs use is not deleted (409)."}, a.deleteCalendar)
}

func answerCalendar(c domain.Calendar) *calendarOutput {
	return &calendarOutput{ETag: strconv.Quote(strconv.Itoa(c.Version)), Body: c}
}

func (a *API) calendars(ctx context.Context, _ auth.Identity, in *struct{ List }) (*output[page[domain.Calendar]], error) {
	after, err := decodeCursor("calendar", in.Cursor)
	if err != nil {
		return nil, err
	}
	found, err := a.Engine.Calendars(ctx, after, in.Limit+1)
	if err != nil {
		return nil, err
	}
	return &output[page[domain.Calendar]]{cut(found, in.Limit, func(c domain.Calendar) string { return encodeCursor("calendar", c.Name) })}, nil
}

func (a *API) showCalendar(ctx context.Context, _ auth.Identity, in *CalendarPath) (*calendarOutput, error) {
	c, err := a.Engine.Calendar(ctx, in.Name)
	return answerCalendar(c), err
}

func (a *API) createCalendar(ctx context.Context, id auth.Identity, in *struct{ JSONBody }) (*calendarOutput, error) {
	var spec domain.CalendarSpec
	shape := in.decode(&spec)
	if err := alsoFaulty(shape, spec.Validate()); err != nil {
		return nil, err
	}
	c, err := a.Engine.CreateCalendar(ctx, spec, id.Actor())
	if err != nil {
		return nil, err
	}
	a.audit(ctx, id, "calendar.create", "calendar/"+c.Name, nil, c)
	return answerCalendar(c), nil
}

func (a *API) replaceCalendar(ctx context.Context, id auth.Identity, in *struct {
	CalendarPath
	Conditional
	JSONBody
}) (*calendarOutput, error) {
	if _, err := a.Engine.Calendar(ctx, in.Name); err != nil {
		return nil, err
	}
	asked := domain.Calendar{CalendarSpec: domain.CalendarSpec{Name: in.Name}}
	shape := in.decode(&asked)
	spec := asked.CalendarSpec
	var f domain.Faults
	if spec.Name != in.Name {
		f.Add("name", "cannot be changed: jobs know the calendar by it")
		spec.Name = in.Name
	}
	f.AddAll("body", spec.Validate())
	if err := alsoFaulty(shape, f.Err("the calendar is not valid")); err != nil {
		return nil, err
	}
	version, err := oneVersion(in.Conditional, asked.Version)
	if err != nil {
		return nil, err
	}
	before, after, err := a.Engine.EditCalendar(ctx, in.Name, version, id.Actor(), func(c *domain.CalendarSpec) error {
		*c = spec
		return nil
	})
	if err != nil {
		return nil, err
	}
	if before.Version != after.Version {
		a.audit(ctx, id, "calendar.update", "calendar/"+in.Name, before, after)
	}
	return answerCalendar(after), nil
}

func (a *API) deleteCalendar(ctx context.Context, id auth.Identity, in *struct {
	CalendarPath
	Conditional
}) (*struct{}, error) {
	version, err := in.version()
	if err != nil {
		return nil, err
	}
	before, err := a.Engine.DeleteCalendar(ctx, in.Name, version)
	if err != nil {
		return nil, err
	}
	a.audit(ctx, id, "calendar.delete", "calendar/"+in.Name, before, nil)
	return nil, nil
}

// withDaysOff gives a schedule that is not stored the days of the calendar that it names.
func (a *API) withDaysOff(ctx context.Context, s *domain.Schedule) error {
	if !domain.ValidCalendarName(s.Calendar) {
		return nil // there is none, or compiling the schedule says what is wrong with the name
	}
	c, err := a.Engine.Calendar(ctx, s.Calendar)
	if err == nil {
		s.DaysOff = &c.DaysOff
		return nil
	}
	if domain.CodeOf(err) == domain.NotFound {
		return invalidField("schedule.calendar", fmt.Sprintf("there is no calendar %q", s.Calendar))
	}
	return err
}
