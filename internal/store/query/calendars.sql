-- name: Calendars :many
SELECT c.name, c.description, c.days_off, c.version, c.created_at, c.updated_at, c.updated_by,
       (SELECT count(*) FROM jobs j WHERE j.calendar = c.name) AS jobs
  FROM calendars c WHERE c.name > @after ORDER BY c.name LIMIT @max_rows;

-- name: Calendar :one
SELECT c.name, c.description, c.days_off, c.version, c.created_at, c.updated_at, c.updated_by,
       (SELECT count(*) FROM jobs j WHERE j.calendar = c.name) AS jobs
  FROM calendars c WHERE c.name = @name;

-- name: LockCalendar :exec
-- What is read of it after that is as it stands.
SELECT name FROM calendars WHERE name = @name FOR UPDATE;

-- name: CalendarDays :one
-- For a job that uses the calendar. The lock keeps the days as they are until the job's version can be seen.
SELECT days_off FROM calendars WHERE name = @name FOR SHARE;

-- name: CalendarDaysToJoin :one
-- For a job that begins to use the calendar: one at a time, so that they can be counted.
SELECT days_off FROM calendars WHERE name = @name FOR NO KEY UPDATE;

-- name: CountJobsOfCalendar :one
SELECT count(*) FROM jobs WHERE calendar = @calendar::text;

-- name: InsertCalendar :exec
INSERT INTO calendars (name, description, days_off, updated_by) VALUES (@name, @description, @days_off, @updated_by);

-- name: UpdateCalendar :exec
UPDATE calendars SET description = @description, days_off = @days_off, version = version + 1, updated_at = clock_timestamp(), updated_by = @updated_by
 WHERE name = @name;

-- name: DeleteCalendar :exec
DELETE FROM calendars WHERE name = @name;

-- name: JobsOfCalendar :many
SELECT id, group_name, name FROM jobs WHERE calendar = @calendar::text ORDER BY id LIMIT @max_rows;


-- name: LockPlanning :exec
-- In the order of ids, as whoever locks several does.
SELECT job_id FROM job_due WHERE job_id = ANY(@job_ids::bigint[]) ORDER BY job_id FOR UPDATE;
