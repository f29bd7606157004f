// Package calendars is the REST API of calendars: named sets of days on which jobs do not fire.
package calendars

import (
	"context"

	"github.com/belfryhq/belfry/console/api/rest"
	"github.com/belfryhq/belfry/console/api/strict"
	"github.com/belfryhq/belfry/console/auth"
	"github.com/belfryhq/belfry/internal/domain"
	"github.com/belfryhq/belfry/internal/store/account"
)

// API serves calendars. All fields must be set.
type API struct {
	Store Store
	Audit *rest.Audit
}

// Store keeps calendars. Invalid names the faulty fields. Conflict: the version is stale, or the name is taken.
type Store interface {
	Calendars(ctx context.Context, after string, limit int) ([]domain.Calendar, error)
	Calendar(ctx context.Context, name string) (domain.Calendar, error)
	CreateCalendar(ctx context.Context, spec domain.CalendarSpec, by string) (domain.Calendar, error)
	// EditCalendar changes a calendar by edit, which may be called several times. Version 0 is any version.
	EditCalendar(ctx context.Context, name string, version int, by string, edit func(*domain.CalendarSpec) error) (before, after domain.Calendar, err error)
	// DeleteCalendar deletes a calendar. Conflict: jobs use it.
	DeleteCalendar(ctx context.Context, name string, version int) (domain.Calendar, error)
}

// Register adds the operations.
func (a *API) Register(r *rest.Router) {
	const tag = "Calendars"
	rest.Register(r, rest.Operation{Method: "GET", Path: "/calendars", Tag: tag, Summary: "List calendars", Needs: account.Viewer,
		Description: "Ordered by name. A calendar is a named set of days off: weekdays and dates. A job whose schedule names a calendar does not fire on these days, in the job's time zone."}, a.list)
	rest.Register(r, rest.Operation{Method: "POST", Path: "/calendars", Tag: tag, Summary: "Create a calendar", Needs: account.Admin,
		Status: 201, Body: rest.BodyOf[calendarBody]()}, a.create)
	rest.Register(r, rest.Operation{Method: "GET", Path: "/calendars/{name}", Tag: tag, Summary: "Show a calendar", Needs: account.Viewer}, a.show)
	rest.Register(r, rest.Operation{Method: "PUT", Path: "/calendars/{name}", Tag: tag, Summary: "Replace a calendar", Needs: account.Admin,
		Description: "Absent fields get their defaults. Read-only fields may be present. They are ignored, except version: for another version the answer is 409. " +
			"New days off take effect at once for all jobs that use the calendar, and each of these jobs gets a new version.",
		Body: rest.BodyOf[calendarChange]()}, a.replace)
	rest.Register(r, rest.Operation{Method: "DELETE", Path: "/calendars/{name}", Tag: tag, Summary: "Delete a calendar", Needs: account.Admin,
		Description: "If jobs use the calendar, the answer is 409."}, a.remove)
}

// calendarBody is the body of a new calendar in the contract.
type calendarBody struct {
	Name        string           `json:"name" doc:"1 to 63 characters, a-z, 0-9, _ or -; cannot be changed" example:"holidays"`
	Description string           `json:"description,omitempty" maxLength:"1024"`
	Weekdays    []domain.Weekday `json:"weekdays,omitempty" maxItems:"6" nullable:"false" doc:"Weekdays that are days off, at most six" example:"[\"saturday\",\"sunday\"]"`
	Dates       []domain.Date    `json:"dates,omitempty" maxItems:"1000" nullable:"false" doc:"Dates that are days off, at most 1,000, in the years 1970 to 2199" example:"[\"2026-12-25\"]"`
}

// calendarChange is the body that replaces a calendar in the contract.
type calendarChange struct {
	Description string           `json:"description,omitempty" maxLength:"1024"`
	Weekdays    []domain.Weekday `json:"weekdays,omitempty" maxItems:"6" nullable:"false"`
	Dates       []domain.Date    `json:"dates,omitempty" maxItems:"1000" nullable:"false"`
	Name        string           `json:"name,omitempty" doc:"May be left out; otherwise it must be the calendar's name"`
	Version     int              `json:"version,omitempty" doc:"The version to change. If it is not the current version, the answer is 409"`
}

// calendarOutput is an answer that consists of a calendar.
type calendarOutput struct {
	ETag string `header:"ETag" doc:"The calendar's version, for If-Match"`
	Body domain.Calendar
}

// CalendarPath names a calendar in the path.
type CalendarPath struct {
	Name string `path:"name"`
}

func answer(c domain.Calendar) *calendarOutput {
	return &calendarOutput{ETag: rest.ETag(c.Version), Body: c}
}

func (a *API) list(ctx context.Context, _ auth.Identity, in *struct{ rest.List }) (*rest.Output[rest.Page[domain.Calendar]], error) {
	after, err := rest.DecodeCursor("calendar", in.Cursor)
	if err != nil {
		return nil, err
	}
	found, err := a.Store.Calendars(ctx, after, in.Limit+1)
	if err != nil {
		return nil, err
	}
	return rest.Answer(rest.Cut(found, in.Limit, func(c domain.Calendar) string { return rest.EncodeCursor("calendar", c.Name) })), nil
}

func (a *API) show(ctx context.Context, _ auth.Identity, in *CalendarPath) (*calendarOutput, error) {
	c, err := a.Store.Calendar(ctx, in.Name)
	return answer(c), err
}

func (a *API) create(ctx context.Context, id auth.Identity, in *struct{ rest.JSONBody }) (*calendarOutput, error) {
	var spec domain.CalendarSpec
	shape := in.Decode(&spec)
	if err := strict.AlsoFaulty(shape, spec.Validate()); err != nil {
		return nil, err
	}
	c, err := a.Store.CreateCalendar(ctx, spec, id.Actor())
	if err != nil {
		return nil, err
	}
	a.Audit.Record(ctx, id, "calendar.create", "calendar/"+c.Name, nil, c)
	return answer(c), nil
}

func (a *API) replace(ctx context.Context, id auth.Identity, in *struct {
	CalendarPath
	rest.Conditional
	rest.JSONBody
}) (*calendarOutput, error) {
	if _, err := a.Store.Calendar(ctx, in.Name); err != nil {
		return nil, err
	}
	asked := domain.Calendar{CalendarSpec: domain.CalendarSpec{Name: in.Name}}
	shape := in.Decode(&asked)
	spec := asked.CalendarSpec
	var f domain.Faults
	if spec.Name != in.Name {
		f.Add("name", "cannot be changed, because jobs refer to the calendar by its name")
		spec.Name = in.Name
	}
	f.AddAll("body", spec.Validate())
	if err := strict.AlsoFaulty(shape, f.Err("the calendar is not valid")); err != nil {
		return nil, err
	}
	version, err := rest.OneVersion(in.Conditional, asked.Version)
	if err != nil {
		return nil, err
	}
	before, after, err := a.Store.EditCalendar(ctx, in.Name, version, id.Actor(), func(c *domain.CalendarSpec) error {
		*c = spec
		return nil
	})
	if err != nil {
		return nil, err
	}
	if before.Version != after.Version {
		a.Audit.Record(ctx, id, "calendar.update", "calendar/"+in.Name, before, after)
	}
	return answer(after), nil
}

func (a *API) remove(ctx context.Context, id auth.Identity, in *struct {
	CalendarPath
	rest.Conditional
}) (*struct{}, error) {
	version, err := in.Match()
	if err != nil {
		return nil, err
	}
	before, err := a.Store.DeleteCalendar(ctx, in.Name, version)
	if err != nil {
		return nil, err
	}
	a.Audit.Record(ctx, id, "calendar.delete", "calendar/"+in.Name, before, nil)
	return nil, nil
}
