package store

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/belfryhq/belfry/internal/domain"
	"github.com/belfryhq/belfry/internal/schedule"
	"github.com/belfryhq/belfry/internal/store/pgerr"
	"github.com/belfryhq/belfry/internal/store/sqlcgen"
)

// Calendars lists calendars by name, starting after the given name.
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

// Calendar returns a calendar, or NotFound.
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
		return nil, domain.WrapError(domain.Internal, "encode the calendar", err)
	}
	return data, nil
}

// CreateCalendar stores a calendar. An Invalid error names every faulty field. Conflict means that the name is taken.
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

// useCalendar copies the days of the schedule's calendar into the schedule, and locks them until the transaction ends.
// before is the job's previous calendar. A calendar that does not exist, or that has the maximum number of jobs, is
// added to f as a fault.
func useCalendar(ctx context.Context, q *sqlcgen.Queries, f *domain.Faults, sched *domain.Schedule, before string) error {
	name := sched.Calendar
	sched.DaysOff = nil
	if !domain.ValidCalendarName(name) {
		return nil // the schedule names no calendar, or its compilation reports the invalid name
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

// errJoined means that another job began to use a calendar while the calendar's jobs were being locked.
var errJoined = errors.New("another job began to use the calendar")

// joinTries bounds how often an edit of a calendar is repeated after errJoined.
const joinTries = 5

// EditCalendar changes a calendar by edit, which may be called several times. If version is not 0 and not the current
// version, EditCalendar returns Conflict and changes nothing. An edit without changes makes no new version. New days
// take effect at once for all jobs that use the calendar: in the same transaction each of them gets a next version.
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
		err = domain.WrapError(domain.Conflict, "jobs begin to use the calendar at the same time; try again", err)
	}
	if err != nil {
		return before, after, err
	}
	after, err = s.Calendar(ctx, name)
	return before, after, err
}

// editCalendar locks in the same order as an edit of a job: first the planning of jobs, then the calendar.
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
	return before, s.changeDays(ctx, tx, q, jobs, &spec, days, by)
}

// editedCalendar returns the calendar as changed by edit, and whether its days change.
func editedCalendar(c domain.Calendar, version int, edit func(*domain.CalendarSpec) error) (spec domain.CalendarSpec, changes bool, err error) {
	if version != 0 && version != c.Version {
		return spec, false, domain.NewError(domain.Conflict, fmt.Sprintf(
			"the calendar is at version %d, not %d: it was changed meanwhile; read it again and repeat your change", c.Version, version))
	}
	spec = c.CalendarSpec
	spec.Normalize() // clones the slices, so that edit may change them
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

// jobsOf returns the ids of the jobs that use a calendar, in order. There are at most MaxCalendarJobs, because a job begins to
// use a calendar only under the calendar's lock, and only if fewer jobs use it.
func jobsOf(ctx context.Context, q *sqlcgen.Queries, name string) ([]int64, error) {
	rows, err := q.JobsOfCalendar(ctx, sqlcgen.JobsOfCalendarParams{Calendar: name, MaxRows: domain.MaxCalendarJobs})
	ids := make([]int64, len(rows))
	for i, r := range rows {
		ids[i] = r.ID
	}
	return ids, err
}

// changeDays makes new versions with the calendar's new days for jobs whose planning the caller has locked. It does for
// all of them together what replan does for one job. Their planned runs are late by the time this takes.
func (s *Store) changeDays(ctx context.Context, tx pgx.Tx, q *sqlcgen.Queries, ids []int64, c *domain.CalendarSpec, days []byte, by string) error {
	if len(ids) == 0 {
		return nil
	}
	now, err := q.Now(ctx)
	if err != nil {
		return err
	}
	now = now.UTC().Truncate(time.Millisecond)
	rows, err := q.JobsToReplan(ctx, ids)
	if err != nil {
		return err
	}
	locked := make(map[int64]*lockedEdit, len(rows))
	edits := make([]*lockedEdit, 0, len(rows))
	ids = ids[:0]
	for _, r := range rows {
		job, err := jobOf(r.ID, r.Spec, r.Version, r.CreatedAt, r.UpdatedAt)
		if err != nil {
			return err
		}
		if job.Schedule.Calendar != c.Name {
			continue // written by a server of an older release, which does not know calendars
		}
		l := &lockedEdit{job: job, now: now, due: sqlcgen.LockJobRow{
			JobID: r.ID, Version: r.Version, NextFireTime: r.NextFireTime, NextDueAt: r.NextDueAt, DecidedThrough: r.DecidedThrough, Parked: r.Parked, Paused: r.Paused, Now: now,
		}}
		locked[r.ID] = l
		edits = append(edits, l)
		ids = append(ids, r.ID)
	}
	if len(edits) == 0 {
		return nil
	}
	if err := s.takeBack(ctx, tx, q, edits...); err != nil {
		return err
	}
	now = edits[0].now
	kept, err := q.KeptThroughOf(ctx, sqlcgen.KeptThroughOfParams{JobIds: ids, Now: now})
	if err != nil {
		return err
	}
	var due sqlcgen.SetDueOfParams
	for _, k := range kept {
		fire, at := s.firstOf(locked[k.ID], &c.DaysOff, fromEpoch(k.Through))
		due.JobIds = append(due.JobIds, k.ID)
		due.Fires, due.Dues = append(due.Fires, epoch(fire)), append(due.Dues, epoch(at))
		due.Throughs = append(due.Throughs, k.Through)
	}
	if err := q.SetDueOf(ctx, due); err != nil {
		return err
	}
	if err := q.InsertVersionsWithDays(ctx, sqlcgen.InsertVersionsWithDaysParams{JobIds: ids, DaysOff: days, Now: now, ChangedBy: by}); err != nil {
		return err
	}
	if err := q.CloseVersions(ctx, sqlcgen.CloseVersionsParams{JobIds: ids, At: &now}); err != nil {
		return err
	}
	if err := q.UpdateJobsWithDays(ctx, sqlcgen.UpdateJobsWithDaysParams{Ids: ids, DaysOff: days, Now: now}); err != nil {
		return err
	}
	return notify(ctx, tx)
}

// firstOf returns the fire time from which a locked job is planned with other days off.
func (s *Store) firstOf(l *lockedEdit, days *domain.DaysOff, through time.Time) (fire, due time.Time) {
	if !l.job.Enabled {
		return time.Time{}, time.Time{}
	}
	edited := l.job.Schedule
	edited.DaysOff = days
	compiled, err := schedule.Compile(edited, schedule.Options{DefaultZone: s.zone, CreatedAt: l.job.CreatedAt.Time})
	if err != nil { // for example because its zone no longer exists: its plan does not change, and it does not fire
		return orZero(l.due.NextFireTime), orZero(l.due.NextDueAt)
	}
	return s.firstAfter(l, compiled, edited.Jitter.Std(), through)
}

// jobsNamed bounds how many jobs a Conflict names.
const jobsNamed = 3

// DeleteCalendar deletes a calendar; version 0 matches any version. NotFound means that there is none. Conflict means
// that it has another version, or that jobs use it; the error names some of them. A job that begins to use the calendar
// at the same time waits for the lock of its row, or holds it.
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
