-- name: InsertBackfill :exec
-- Inserts one run for each fire time, in the order of the ids.
INSERT INTO runs_live (id, job_id, job_version, group_name, cause, fire_time, due_at)
SELECT unnest(@ids::uuid[]), @job_id, @job_version, @group_name, 'backfill', unnest(@fire_times::timestamptz[]), @due_at;
