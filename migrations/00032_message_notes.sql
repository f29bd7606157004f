-- +goose Up

-- A message that the engine itself wrote has notes, as in 00031: the codes and arguments of package explain, one note on each
-- line. The previous binary reads and writes only the sentences. So notes count only if they match the message. Messages
-- of handlers have no notes. New columns without a default change no stored row.
ALTER TABLE runs_live ADD COLUMN message_notes text, ADD COLUMN kill_why_note text;
ALTER TABLE runs_live ALTER COLUMN message_notes SET STATISTICS 10, ALTER COLUMN kill_why_note SET STATISTICS 10;
ALTER TABLE runs_history ADD COLUMN message_notes text;
ALTER TABLE run_attempts ADD COLUMN message_notes text;

CREATE OR REPLACE VIEW runs AS
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

-- +goose Down
DROP VIEW runs;
CREATE VIEW runs AS
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
ALTER TABLE run_attempts DROP COLUMN message_notes;
ALTER TABLE runs_history DROP COLUMN message_notes;
ALTER TABLE runs_live DROP COLUMN message_notes, DROP COLUMN kill_why_note;
