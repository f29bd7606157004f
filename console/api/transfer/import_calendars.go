package transfer

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/belfryhq/belfry/console/api/problem"
	"github.com/belfryhq/belfry/console/api/strict"
	"github.com/belfryhq/belfry/internal/domain"
	"github.com/belfryhq/belfry/internal/jobfile"
	"github.com/belfryhq/belfry/internal/store/account"
)

// checkCalendars finds faults of the calendars in the file, and reads the existing calendars that the file names.
func (m *importing) checkCalendars(ctx context.Context) error {
	m.calendars = map[string]*domain.Calendar{}
	for i, c := range m.file.Calendars {
		at := fmt.Sprintf("calendars[%d].", i)
		if err := m.readCalendar(ctx, c.Name); err != nil {
			return err
		}
		var spec domain.CalendarSpec
		raw, err := json.Marshal(c.Fields)
		if err != nil {
			return problem.Invalid("body", "cannot be written as JSON: "+problem.Clip(err.Error()))
		}
		_, shape := strict.Decode(raw, &spec)
		var faulty *domain.Error
		if errors.As(strict.AlsoFaulty(shape, spec.Validate()), &faulty) {
			for _, field := range faulty.Fields {
				m.faults.Add(at+field.Location, field.Message)
			}
		}
		spec.Normalize()
		m.calendarSpecs = append(m.calendarSpecs, spec)
		switch there := m.calendars[c.Name]; {
		case m.id.Role == account.Admin:
		case there == nil:
			m.faults.Add(at+"name", fmt.Sprintf("there is no calendar %q, and only admins can create calendars", problem.Clip(c.Name)))
		case len(calendarChanges(there.CalendarSpec, spec)) > 0:
			m.faults.Add(at+"name", fmt.Sprintf("calendar %q differs from the one on this server, and only admins can change calendars", c.Name))
		}
	}
	for i := range m.specs {
		name := m.specs[i].Schedule.Calendar
		if !domain.ValidCalendarName(name) || slices.ContainsFunc(m.file.Calendars, func(c jobfile.Calendar) bool { return c.Name == name }) {
			continue
		}
		if err := m.readCalendar(ctx, name); err != nil {
			return err
		}
		if m.calendars[name] == nil {
			m.faults.Add(fmt.Sprintf("jobs[%d].schedule.calendar", i), fmt.Sprintf("there is no calendar %q, neither on this server nor in the file", name))
		}
	}
	return nil
}

// readCalendar loads the calendar with the name into the import, nil if there is none.
func (m *importing) readCalendar(ctx context.Context, name string) error {
	if _, known := m.calendars[name]; known || !domain.ValidCalendarName(name) {
		return nil
	}
	c, err := m.api.Calendars.Calendar(ctx, name)
	switch {
	case err == nil:
		m.calendars[name] = &c
	case domain.CodeOf(err) == domain.NotFound:
		m.calendars[name] = nil
	default:
		return err
	}
	return nil
}

func calendarChanges(from, to domain.CalendarSpec) (changes []jobfile.Difference) {
	days := func(d domain.DaysOff) (weekdays, dates string) {
		return fmt.Sprint(d.Weekdays), fmt.Sprint(d.Dates)
	}
	oldWeekdays, oldDates := days(from.DaysOff)
	weekdays, dates := days(to.DaysOff)
	for _, c := range []jobfile.Difference{
		{Field: "description", From: from.Description, To: to.Description},
		{Field: "weekdays", From: oldWeekdays, To: weekdays}, {Field: "dates", From: oldDates, To: dates},
	} {
		if c.From != c.To {
			c.From, c.To = strings.Trim(c.From, "[]"), strings.Trim(c.To, "[]")
			changes = append(changes, c)
		}
	}
	return changes
}

// putCalendars creates and changes calendars, before the jobs that use them.
func (m *importing) putCalendars(ctx context.Context, dryRun bool, out *importResult) {
	for _, spec := range m.calendarSpecs {
		item := importItem{Kind: "calendar", Name: spec.Name, Action: actionUnchanged}
		there := m.calendars[spec.Name]
		if there == nil {
			item.Action = actionCreated
		} else if item.Changes = calendarChanges(there.CalendarSpec, spec); len(item.Changes) > 0 {
			item.Action = actionUpdated
		}
		if !dryRun {
			item.Error = m.errorText(ctx, m.putCalendar(ctx, item.Action, there, spec))
		}
		out.add(item)
	}
}

func (m *importing) putCalendar(ctx context.Context, action string, there *domain.Calendar, spec domain.CalendarSpec) error {
	object := "calendar/" + spec.Name
	switch action {
	case actionCreated:
		after, err := m.api.Calendars.CreateCalendar(ctx, spec, m.id.Actor())
		if err == nil {
			m.api.Audit.Record(ctx, m.id, "calendar.create", object, nil, after)
		}
		return err
	case actionUpdated:
		before, after, err := m.api.Calendars.EditCalendar(ctx, spec.Name, there.Version, m.id.Actor(), func(c *domain.CalendarSpec) error {
			*c = spec
			return nil
		})
		if err == nil {
			m.api.Audit.Record(ctx, m.id, "calendar.update", object, before, after)
		}
		return err
	}
	return nil
}
