package store

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/belfryhq/belfry/internal/domain"
	"github.com/belfryhq/belfry/internal/schedule"
	"github.com/belfryhq/belfry/internal/store/pgerr"
	"github.com/belfryhq/belfry/internal/store/sqlcgen"
)

// Calendars lists calendars by name, after the given one.
func (s *Store) Calendars(ctx context.Context, after string, limit int) ([]domain.Calendar, error) {
	rows, err := s.q.Calendars(ctx, sqlcgen.CalendarsParams{After: after, MaxRows: int32(limit)})
	if err != nil {
		return nil, pgerr.Translate(err)
	}
	out := make([]domain.Calendar, len(rows))
	for i, r := range rows {
		if out[i], err = toCalendar(sqlcgen.CalendarRow(r)); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// Calendar returns a calendar. NotFound: there is none.
func (s *Store) Calendar(ctx context.Context, name string) (domain.Calendar, error) {
	c, err := readCalendar(ctx, s.q, name)
	return c, pgerr.Translate(err)
}

func readCalendar(ctx context.Context, q *sqlcgen.Queries, name string) (domain.Calendar, error) {
	r, err := q.Calendar(ctx, name)
	if errors.Is(err, pgx.ErrNoRows) {
		return domain.Calendar{}, domain.NewError(domain.NotFound, "there is no calendar of this name")
	}
	if err != nil {
		return domain.Calendar{}, err
	}
	return toCalendar(r)
}

func toCalendar(r sqlcgen.CalendarRow) (domain.Calendar, error) {
	c := domain.Calendar{
		CalendarSpec: domain.CalendarSpec{Name: r.Name, Description: r.Description},
		Jobs:         int(r.Jobs), Version: int(r.Version), CreatedAt: domain.At(r.CreatedAt), UpdatedAt: domain.At(r.UpdatedAt), UpdatedBy: r.UpdatedBy,
	}
	days, err := decodeDays(r.DaysOff)
	if err == nil {
		c.DaysOff = *days
	}
	return c, err
}

func decodeDays(data []byte) (*domain.DaysOff, error) {
	var d domain.DaysOff
	if err := json.Unmarshal(data, &d); err != nil {
		return nil, domain.WrapError(domain.Internal, "a stored calendar cannot be read", err)
	}
	d.Normalize()
	return &d, nil
}

func encodeDays(d *domain.DaysOff) ([]byte, error) {
	data, err := json.Marshal(d)
	if err != nil {
		return nil, domain.WrapError(domain.Internal, "write the calendar", err)
	}
	return data, nil
}

// CreateCalendar stores a calendar. Invalid names every faulty field. Conflict: the name is taken.
func (s *Store) CreateCalendar(ctx context.Context, spec domain.CalendarSpec, by string) (domain.Calendar, error) {
	if err := spec.Validate(); err != nil {
		return domain.Calendar{}, err
	}
	spec.Normalize()
	days, err := encodeDays(&spec.DaysOff)
	if err != nil {
		return domain.Calendar{}, err
	}
	err = s.q.InsertCalendar(ctx, sqlcgen.InsertCalendarParams{Name: spec.Name, Description: spec.Description, DaysOff: days, UpdatedBy: by})
	if err != nil {
		return domain.Calendar{}, pgerr.Translate(err)
	}
	return s.Calendar(ctx, spec.Name)
}

// useCalendar gives a schedule the days of the calendar that it names, and keeps them as they are until the transaction
// ends. before is the calendar that the job has used until now. One that is not there, or that has enough jobs, is a fault.
func useCalendar(ctx context.Context, q *sqlcgen.Queries, f *domain.Faults, sched *domain.Schedule, before string) error {
	name := sched.Calendar
	sched.DaysOff = nil
	if !domain.ValidCalendarName(name) {
		return nil // there is none, or compiling the schedule says what is wrong with the name
	}
	const field = "schedule.calendar"
	read := q.CalendarDays
	if name != before {
		read = q.CalendarDaysToJoin
	}
	days, err := read(ctx, name)
	if errors.Is(err, pgx.ErrNoRows) {
		f.Add(field, fmt.Sprintf("there is no calendar %q; make it first, with belfry calendar create or POST /api/v1/calendars", name))
		return nil
	}
	if err != nil {
		return err
	}
	if sched.DaysOff, err = decodeDays(days); err != nil || name == before {
		return err
	}
	n, err := q.CountJobsOfCalendar(ctx, name)
	if n >= domain.MaxCalendarJobs {
		f.Add(field, fmt.Sprintf("calendar %q is used by %d jobs, the most that may use one; make a second one with the same days", name, n))
	}
	return err
}

// errJoined tells that a job began to use a calendar while the others were being locked.
var errJoined = errors.New("another job uses the calendar by now")

// joinTries bounds how often an edit of a calendar begins anew after that.
const joinTries = 5

// EditCalendar changes a calendar by edit, which may be called several times. A version other than 0 must be the current
// one, else Conflict and nothing changes; nor does an edit that changes nothing make a version. New days hold at once for
// all jobs that use the calendar: in the same transaction each of them gets a next version.
func (s *Store) EditCalendar(ctx context.Context, name string, version int, by string, edit func(*domain.CalendarSpec) error) (before, after domain.Calendar, err error) {
	for range joinTries {
		err = s.tx(ctx, func(tx pgx.Tx, q *sqlcgen.Queries) (err error) {
			before, err = s.editCalendar(ctx, tx, q, name, version, by, edit)
			return err
		})
		if !errors.Is(err, errJoined) {
			break
		}
	}
	if errors.Is(err, errJoined) {
		err = domain.WrapError(domain.Conflict, "other jobs begin to use the calendar just now; try again", err)
	}
	if err != nil {
		return before, after, err
	}
	after, err = s.Calendar(ctx, name)
	return before, after, err
}

// editCalendar locks as an edit of a job does: first the planning of jobs, then the calendar.
func (s *Store) editCalendar(ctx context.Context, tx pgx.Tx, q *sqlcgen.Queries, name string, version int, by string, edit func(*domain.CalendarSpec) error) (before domain.Calendar, err error) {
	if before, err = readCalendar(ctx, q, name); err != nil {
		return before, err
	}
	_, changes, err := editedCalendar(before, version, edit)
	if err != nil {
		return before, err
	}
	var locked []int64
	if changes {
		if locked, err = jobsOf(ctx, q, name); err != nil {
			return before, err
		}
		if err := q.LockPlanning(ctx, locked); err != nil {
			return before, err
		}
	}
	if err := q.LockCalendar(ctx, name); err != nil {
		return before, err
	}
	if before, err = readCalendar(ctx, q, name); err != nil {
		return before, err
	}
	spec, changes, err := editedCalendar(before, version, edit)
	if err != nil || !changes && spec.Description == before.Description {
		return before, err
	}
	days, err := encodeDays(&spec.DaysOff)
	if err != nil {
		return before, err
	}
	err = q.UpdateCalendar(ctx, sqlcgen.UpdateCalendarParams{Name: name, Description: spec.Description, DaysOff: days, UpdatedBy: by})
	if err != nil || !changes {
		return before, err
	}
	jobs, err := jobsOf(ctx, q, name)
	if err != nil {
		return before, err
	}
	if slices.ContainsFunc(jobs, func(id int64) bool { _, had := slices.BinarySearch(locked, id); return !had }) {
		return before, errJoined
	}
	for _, id := range jobs {
		if err := s.changeDays(ctx, tx, q, domain.JobID(id), &spec, by); err != nil {
			return before, fmt.Errorf("change the days off of job %d: %w", id, err)
		}
	}
	return before, notify(ctx, tx)
}

// editedCalendar returns what edit makes of a calendar, and whether its days change.
func editedCalendar(c domain.Calendar, version int, edit func(*domain.CalendarSpec) error) (spec domain.CalendarSpec, changes bool, err error) {
	if version != 0 && version != c.Version {
		return spec, false, domain.NewError(domain.Conflict, fmt.Sprintf(
			"the calendar is at version %d, not %d: somebody changed it; read it again and repeat your change", c.Version, version))
	}
	spec = c.CalendarSpec
	spec.Normalize() // makes copies, which edit may change
	if err := edit(&spec); err != nil {
		return spec, false, err
	}
	spec.Name = c.Name
	if err := spec.Validate(); err != nil {
		return spec, false, err
	}
	spec.Normalize()
	return spec, !spec.DaysOff.Equal(&c.DaysOff), nil
}

// jobsOf returns the ids of the jobs that use a calendar, in order. Each joined under the calendar's lock, when it had
// fewer than the most that are allowed.
func jobsOf(ctx context.Context, q *sqlcgen.Queries, name string) ([]int64, error) {
	rows, err := q.JobsOfCalendar(ctx, sqlcgen.JobsOfCalendarParams{Calendar: name, MaxRows: domain.MaxCalendarJobs})
	ids := make([]int64, len(rows))
	for i, r := range rows {
		ids[i] = r.ID
	}
	return ids, err
}

// changeDays gives a job, whose planning the caller has locked, a version with the calendar's new days.
func (s *Store) changeDays(ctx context.Context, tx pgx.Tx, q *sqlcgen.Queries, id domain.JobID, c *domain.CalendarSpec, by string) error {
	l, err := s.lockForEdit(ctx, q, id, 0) // anew for each, so that it decides by the clock as it is now
	if err != nil || l.job.Schedule.Calendar != c.Name {
		return err
	}
	spec := cloneSpec(l.job.JobSpec)
	spec.Schedule.DaysOff = &c.DaysOff
	compiled, err := schedule.Compile(spec.Schedule, schedule.Options{DefaultZone: s.zone, CreatedAt: l.job.CreatedAt.Time})
	if domain.CodeOf(err) == domain.Invalid {
		return nil //nolint:nilerr // it does not fire, and an edit that mends it takes the days as they are then
	}
	if err != nil {
		return err
	}
	return s.supersede(ctx, tx, q, l, &spec, compiled, by, "calendar")
}

// jobsNamed bounds how many jobs a Conflict names.
const jobsNamed = 3

// DeleteCalendar deletes a calendar; version 0 is any. NotFound: there is none. Conflict: it has another version, or jobs
// use it, of which the error names some. A job that begins to use it at the same time waits for its row, or holds it.
func (s *Store) DeleteCalendar(ctx context.Context, name string, version int) (c domain.Calendar, err error) {
	err = s.tx(ctx, func(_ pgx.Tx, q *sqlcgen.Queries) (err error) {
		if err := q.LockCalendar(ctx, name); err != nil {
			return err
		}
		if c, err = readCalendar(ctx, q, name); err != nil {
			return err
		}
		if _, _, err := editedCalendar(c, version, func(*domain.CalendarSpec) error { return nil }); err != nil {
			return err
		}
		jobs, err := q.JobsOfCalendar(ctx, sqlcgen.JobsOfCalendarParams{Calendar: name, MaxRows: jobsNamed})
		if err != nil {
			return err
		}
		if len(jobs) == 0 {
			return q.DeleteCalendar(ctx, name)
		}
		names := make([]string, len(jobs), len(jobs)+1)
		for i, j := range jobs {
			names[i] = fmt.Sprintf("%s/%s (%d)", j.GroupName, j.Name, j.ID)
		}
		if c.Jobs > len(jobs) {
			names = append(names, fmt.Sprintf("and %d more", c.Jobs-len(jobs)))
		}
		return domain.NewError(domain.Conflict, "jobs use the calendar; take it out of them first: "+strings.Join(names, ", "))
	})
	return c, err
}
