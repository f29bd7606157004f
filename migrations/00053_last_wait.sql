-- +goose Up

-- The last wait of a run: waiting_note keeps its code after `waiting` is null again, and waited_ms says how long it was, from the run's due
-- instant. A binary of the previous release empties the note, so that the run has no last wait.
ALTER TABLE runs_live ADD COLUMN waited_ms bigint;
ALTER TABLE runs_live ALTER COLUMN waited_ms SET STATISTICS 10; -- like all columns of runs_live
ALTER TABLE runs_history ADD COLUMN waited_note text;
ALTER TABLE runs_history ADD COLUMN waited_ms bigint;

CREATE OR REPLACE VIEW runs AS
SELECT id, job_id, job_version, group_name, cause, state, reason, message, ''::text AS output, param, attempt,
       fire_time, due_at, created_at, dispatched_at, started_at, NULL::timestamptz AS finished_at,
       kill_requested_at, lateness_ms, 0::bigint AS last_line, instance, boot_id, route, waiting,
       CASE WHEN held THEN COALESCE((SELECT s.owner FROM block_slots s WHERE s.job_id = l.job_id AND s.instance = l.held_on), held_by)
       END AS held_by,
       shard_index, shard_total, broadcast_id, parent_run_id, event_id, route_note, waiting_note, message_notes, trace,
       CASE WHEN waiting IS NULL THEN waiting_note END AS waited_note, waited_ms
  FROM runs_live l
UNION ALL
SELECT id, job_id, job_version, group_name, cause, state, reason, message, output, param, attempt,
       fire_time, due_at, created_at, dispatched_at, started_at, finished_at,
       kill_requested_at, lateness_ms, last_line, instance, boot_id, route, NULL, NULL,
       shard_index, shard_total, broadcast_id, parent_run_id, event_id, route_note, NULL, message_notes, trace,
       waited_note, waited_ms
  FROM runs_history;

-- +goose Down
DROP VIEW runs;
CREATE VIEW runs AS
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
ALTER TABLE runs_history DROP COLUMN waited_ms;
ALTER TABLE runs_history DROP COLUMN waited_note;
ALTER TABLE runs_live DROP COLUMN waited_ms;
