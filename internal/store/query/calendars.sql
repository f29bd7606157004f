-- name: Calendars :many
SELECT c.name, c.description, c.days_off, c.version, c.created_at, c.updated_at, c.updated_by,
       (SELECT count(*) FROM jobs j WHERE j.calendar = c.name) AS jobs
  FROM calendars c WHERE c.name > @after ORDER BY c.name LIMIT @max_rows;

-- name: Calendar :one
SELECT c.name, c.description, c.days_off, c.version, c.created_at, c.updated_at, c.updated_by,
       (SELECT count(*) FROM jobs j WHERE j.calendar = c.name) AS jobs
  FROM calendars c WHERE c.name = @name;

-- name: LockCalendar :exec
-- The days read after this lock are current and cannot change.
SELECT name FROM calendars WHERE name = @name FOR UPDATE;

-- name: CalendarDays :one
-- For a job that already uses the calendar. The lock keeps the days unchanged until the job's version is visible.
SELECT days_off FROM calendars WHERE name = @name FOR SHARE;

-- name: CalendarDaysToJoin :one
-- For a job that begins to use the calendar. The lock lets one job at a time do so, so that they can be counted.
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
-- Locks by id, like every transaction that locks several jobs.
SELECT job_id FROM job_due WHERE job_id = ANY(@job_ids::bigint[]) ORDER BY job_id FOR UPDATE;

-- name: JobsToReplan :many
-- Returns the jobs whose planning LockPlanning has locked.
SELECT j.id, j.spec, j.version, j.created_at, j.updated_at, d.next_fire_time, d.next_due_at, d.decided_through, (d.parked IS NOT NULL)::bool AS parked,
       ((d.paused_until > LEAST(d.next_fire_time, statement_timestamp()) - interval '1 minute') IS TRUE)::bool AS paused
  FROM jobs j JOIN job_due d ON d.job_id = j.id WHERE j.id = ANY(@ids::bigint[]) ORDER BY j.id;

-- name: KeptThroughOf :many
-- Returns the same as KeptThrough, for several jobs.
SELECT x.id::bigint AS id, COALESCE(GREATEST(
    (SELECT max(l.fire_time) FROM runs_live l WHERE l.job_id = x.id AND l.cause IN ('schedule', 'misfire')),
    (SELECT h.fire_time FROM runs_history h WHERE h.job_id = x.id AND h.cause IN ('schedule', 'misfire') AND h.due_at <= @now
      ORDER BY h.id DESC LIMIT 1),
    (SELECT m.last_fire_time FROM missed m WHERE m.job_id = x.id ORDER BY m.last_fire_time DESC LIMIT 1)), 'epoch')::timestamptz AS through
  FROM (SELECT unnest(@job_ids::bigint[]) AS id) x;

-- name: SetDueOf :exec
-- The epoch stands for null.
UPDATE job_due d SET version = d.version + 1, next_fire_time = NULLIF(x.fire, 'epoch'), next_due_at = NULLIF(x.due, 'epoch'),
       decided_through = NULLIF(x.through, 'epoch'), parked = NULL
  FROM (SELECT unnest(@job_ids::bigint[]) AS id, unnest(@fires::timestamptz[]) AS fire, unnest(@dues::timestamptz[]) AS due,
               unnest(@throughs::timestamptz[]) AS through) x
 WHERE d.job_id = x.id;

-- name: InsertVersionsWithDays :exec
-- Inserts the next version of jobs, which differs from the current one in its days off.
INSERT INTO job_versions (job_id, version, spec, created_at, valid_from, changed_by, change)
SELECT v.job_id, v.version + 1, jsonb_set(v.spec, '{schedule,days_off}', @days_off::jsonb), v.created_at, @now, @changed_by, 'calendar'
  FROM jobs j JOIN job_versions v ON v.job_id = j.id AND v.version = j.version WHERE j.id = ANY(@job_ids::bigint[]);

-- name: CloseVersions :exec
UPDATE job_versions v SET valid_to = @at FROM jobs j WHERE j.id = ANY(@job_ids::bigint[]) AND v.job_id = j.id AND v.version = j.version;

-- name: UpdateJobsWithDays :exec
-- Days off do not change the most fires per minute.
UPDATE jobs SET spec = jsonb_set(spec, '{schedule,days_off}', @days_off::jsonb), version = version + 1, updated_at = @now,
       fires_version = CASE WHEN fires_version = version THEN version + 1 ELSE fires_version END WHERE id = ANY(@ids::bigint[]);
