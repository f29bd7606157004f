-- +goose Up

-- Why a run waits, how it was routed and why fire times were missed are stored as a code with arguments: see package
-- explain. For one release the sentences are written too, because the previous binary reads and writes only those. It
-- leaves the notes of a row as they were, so a note counts only while its text equals the stored sentence. Adding a
-- column without a default rewrites no row.
ALTER TABLE runs_live ADD COLUMN waiting_note text, ADD COLUMN route_note text;
ALTER TABLE runs_live ALTER COLUMN waiting_note SET STATISTICS 10, ALTER COLUMN route_note SET STATISTICS 10; -- like all columns of runs_live
ALTER TABLE runs_history ADD COLUMN route_note text;
ALTER TABLE missed ADD COLUMN why_note text;

CREATE OR REPLACE VIEW runs AS
SELECT id, job_id, job_version, group_name, cause, state, reason, message, ''::text AS output, param, attempt,
       fire_time, due_at, created_at, dispatched_at, started_at, NULL::timestamptz AS finished_at,
       kill_requested_at, lateness_ms, 0::bigint AS last_line, instance, boot_id, route, waiting,
       CASE WHEN held THEN COALESCE((SELECT s.owner FROM block_slots s WHERE s.job_id = l.job_id AND s.instance = l.held_on), held_by)
       END AS held_by,
       shard_index, shard_total, broadcast_id, parent_run_id, event_id, route_note, waiting_note
  FROM runs_live l
UNION ALL
SELECT id, job_id, job_version, group_name, cause, state, reason, message, output, param, attempt,
       fire_time, due_at, created_at, dispatched_at, started_at, finished_at,
       kill_requested_at, lateness_ms, last_line, instance, boot_id, route, NULL, NULL,
       shard_index, shard_total, broadcast_id, parent_run_id, event_id, route_note, NULL
  FROM runs_history;

-- +goose Down
DROP VIEW runs;
CREATE VIEW runs AS
SELECT id, job_id, job_version, group_name, cause, state, reason, message, ''::text AS output, param, attempt,
       fire_time, due_at, created_at, dispatched_at, started_at, NULL::timestamptz AS finished_at,
       kill_requested_at, lateness_ms, 0::bigint AS last_line, instance, boot_id, route, waiting,
       CASE WHEN held THEN COALESCE((SELECT s.owner FROM block_slots s WHERE s.job_id = l.job_id AND s.instance = l.held_on), held_by)
       END AS held_by,
       shard_index, shard_total, broadcast_id, parent_run_id, event_id
  FROM runs_live l
UNION ALL
SELECT id, job_id, job_version, group_name, cause, state, reason, message, output, param, attempt,
       fire_time, due_at, created_at, dispatched_at, started_at, finished_at,
       kill_requested_at, lateness_ms, last_line, instance, boot_id, route, NULL, NULL,
       shard_index, shard_total, broadcast_id, parent_run_id, event_id
  FROM runs_history;
ALTER TABLE missed DROP COLUMN why_note;
ALTER TABLE runs_history DROP COLUMN route_note;
ALTER TABLE runs_live DROP COLUMN waiting_note, DROP COLUMN route_note;
