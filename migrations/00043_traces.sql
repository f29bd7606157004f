-- +goose Up

-- The trace that a run continues, in the form of package trace. It is null for a run that begins its own trace, because the id of that trace
-- is computed from the run's id. The previous binary ignores the column: runs that it moves to the history lose their link to the trace.
ALTER TABLE runs_live ADD COLUMN trace text;
ALTER TABLE runs_live ALTER COLUMN trace SET STATISTICS 10; -- like all columns of runs_live
ALTER TABLE runs_history ADD COLUMN trace text;

CREATE OR REPLACE VIEW runs AS
SELECT id, job_id, job_version, group_name, cause, state, reason, message, ''::text AS output, param, attempt,
       fire_time, due_at, created_at, dispatched_at, started_at, NULL::timestamptz AS finished_at,
       kill_requested_at, lateness_ms, 0::bigint AS last_line, instance, boot_id, route, waiting,
       CASE WHEN held THEN COALESCE((SELECT s.owner FROM block_slots s WHERE s.job_id = l.job_id AND s.instance = l.held_on), held_by)
       END AS held_by,
       shard_index, shard_total, broadcast_id, parent_run_id, event_id, route_note, waiting_note, message_notes, trace
  FROM runs_live l
UNION ALL
SELECT id, job_id, job_version, group_name, cause, state, reason, message, output, param, attempt,
       fire_time, due_at, created_at, dispatched_at, started_at, finished_at,
       kill_requested_at, lateness_ms, last_line, instance, boot_id, route, NULL, NULL,
       shard_index, shard_total, broadcast_id, parent_run_id, event_id, route_note, NULL, message_notes, trace
  FROM runs_history;

-- +goose Down
DROP VIEW runs;
CREATE VIEW runs AS
SELECT id, job_id, job_version, group_name, cause, state, reason, message, ''::text AS output, param, attempt,
       fire_time, due_at, created_at, dispatched_at, started_at, NULL::timestamptz AS finished_at,
       kill_requested_at, lateness_ms, 0::bigint AS last_line, instance, boot_id, route, waiting,
       CASE WHEN held THEN COALESCE((SELECT s.owner FROM block_slots s WHERE s.job_id = l.job_id AND s.instance = l.held_on), held_by)
       END AS held_by,
       shard_index, shard_total, broadcast_id, parent_run_id, event_id, route_note, waiting_note, message_notes
  FROM runs_live l
UNION ALL
SELECT id, job_id, job_version, group_name, cause, state, reason, message, output, param, attempt,
       fire_time, due_at, created_at, dispatched_at, started_at, finished_at,
       kill_requested_at, lateness_ms, last_line, instance, boot_id, route, NULL, NULL,
       shard_index, shard_total, broadcast_id, parent_run_id, event_id, route_note, NULL, message_notes
  FROM runs_history;
ALTER TABLE runs_history DROP COLUMN trace;
ALTER TABLE runs_live DROP COLUMN trace;
