-- name: JobsForEvents :many
-- Locks like JobRowForRun, for the runs that events cause.
SELECT id, group_name, version FROM jobs WHERE id = ANY(@ids::bigint[]) ORDER BY id FOR KEY SHARE;

-- name: InsertEventRuns :many
-- Returns the runs that did not exist.
INSERT INTO runs_live (id, job_id, job_version, group_name, cause, fire_time, due_at, param, event_id, trace)
SELECT w.id, w.job_id, w.job_version, w.group_name, 'event', w.fire_time, @due_at::timestamptz, w.param, w.event_id, NULLIF(w.trace, '')
  FROM (SELECT unnest(@ids::uuid[]) AS id, unnest(@job_ids::bigint[]) AS job_id, unnest(@job_versions::int[]) AS job_version,
               unnest(@group_names::text[]) AS group_name, unnest(@fire_times::timestamptz[]) AS fire_time,
               unnest(@params::text[]) AS param, unnest(@event_ids::text[]) AS event_id,
               unnest(@traces::text[]) AS trace) w
    ON CONFLICT (id) DO NOTHING
RETURNING id;
