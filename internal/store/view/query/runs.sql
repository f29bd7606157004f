-- Lists of runs are read in two steps. The first walks one index from new to old between two ids and returns for each
-- run whether it matches the other filters. The second fetches the page. There is one query of the first step for each
-- index, so that each statement keeps one plan whatever the filters are.
--
-- With unplanned, live runs that are not due yet are left out, except held ones. Up to 400,000 runs may be planned, and their ids are those
-- of their fire times. So the walk begins half a second ahead of the clock: runs with later ids are planned, because no run is fired more
-- than 240 ms before it is due. Below, planned runs have a jitter.

-- name: RunKeys :many
WITH r AS (
    SELECT id, group_name, state, cause, reason, instance FROM runs_live l
     WHERE l.id < CASE WHEN @unplanned::boolean THEN first_run_id(now() + interval '500 milliseconds') ELSE @hi::uuid END
       AND NOT (@unplanned AND l.state = 'pending' AND NOT l.held AND l.due_at > now())
    UNION ALL
    SELECT id, group_name, state, cause, reason, instance FROM runs_history
)
SELECT r.id, ((sqlc.narg('only')::text[] IS NULL OR r.group_name = ANY (sqlc.narg('only')::text[]))
       AND (sqlc.narg('states')::text[] IS NULL OR r.state = ANY (sqlc.narg('states')::text[]))
       AND (sqlc.narg('cause')::text IS NULL OR r.cause = sqlc.narg('cause')::text)
       AND (sqlc.narg('reason')::text IS NULL OR r.reason = sqlc.narg('reason')::text)
       AND (sqlc.narg('instance')::text IS NULL OR coalesce(r.instance, '') = sqlc.narg('instance')::text))::boolean AS fits
  FROM r
 WHERE r.id >= @lo::uuid AND r.id < @hi::uuid
 ORDER BY r.id DESC LIMIT @max_rows;

-- name: RunKeysOfJob :many
WITH r AS (
    SELECT id, job_id, group_name, state, cause, reason, instance FROM runs_live l
     WHERE l.id < CASE WHEN @unplanned::boolean THEN first_run_id(now() + interval '500 milliseconds') ELSE @hi::uuid END
       AND NOT (@unplanned AND l.state = 'pending' AND NOT l.held AND l.due_at > now())
    UNION ALL
    SELECT id, job_id, group_name, state, cause, reason, instance FROM runs_history
)
SELECT r.id, ((sqlc.narg('only')::text[] IS NULL OR r.group_name = ANY (sqlc.narg('only')::text[]))
       AND (sqlc.narg('states')::text[] IS NULL OR r.state = ANY (sqlc.narg('states')::text[]))
       AND (sqlc.narg('cause')::text IS NULL OR r.cause = sqlc.narg('cause')::text)
       AND (sqlc.narg('reason')::text IS NULL OR r.reason = sqlc.narg('reason')::text)
       AND (sqlc.narg('instance')::text IS NULL OR coalesce(r.instance, '') = sqlc.narg('instance')::text))::boolean AS fits
  FROM r
 WHERE r.job_id = @job_id::bigint AND r.id >= @lo::uuid AND r.id < @hi::uuid
 ORDER BY r.id DESC LIMIT @max_rows;

-- name: RunKeysOfGroup :many
WITH r AS (
    SELECT id, group_name, state, cause, reason, instance FROM runs_live l
     WHERE l.id < CASE WHEN @unplanned::boolean THEN first_run_id(now() + interval '500 milliseconds') ELSE @hi::uuid END
       AND NOT (@unplanned AND l.state = 'pending' AND NOT l.held AND l.due_at > now())
    UNION ALL
    SELECT id, group_name, state, cause, reason, instance FROM runs_history
)
SELECT r.id, ((sqlc.narg('states')::text[] IS NULL OR r.state = ANY (sqlc.narg('states')::text[]))
       AND (sqlc.narg('cause')::text IS NULL OR r.cause = sqlc.narg('cause')::text)
       AND (sqlc.narg('reason')::text IS NULL OR r.reason = sqlc.narg('reason')::text)
       AND (sqlc.narg('instance')::text IS NULL OR coalesce(r.instance, '') = sqlc.narg('instance')::text))::boolean AS fits
  FROM r
 WHERE r.group_name = @group_name::text AND r.id >= @lo::uuid AND r.id < @hi::uuid
 ORDER BY r.id DESC LIMIT @max_rows;

-- name: RunKeysFailed :many
SELECT r.id, ((sqlc.narg('only')::text[] IS NULL OR r.group_name = ANY (sqlc.narg('only')::text[]))
       AND (sqlc.narg('cause')::text IS NULL OR r.cause = sqlc.narg('cause'))
       AND (sqlc.narg('reason')::text IS NULL OR r.reason = sqlc.narg('reason'))
       AND (sqlc.narg('instance')::text IS NULL OR coalesce(r.instance, '') = sqlc.narg('instance')))::boolean AS fits
  FROM runs_history r
 WHERE r.state = 'failed' AND r.id >= @lo AND r.id < @hi
 ORDER BY r.id DESC LIMIT @max_rows;

-- name: RunKeysFailedOfGroup :many
SELECT r.id, ((sqlc.narg('cause')::text IS NULL OR r.cause = sqlc.narg('cause'))
       AND (sqlc.narg('reason')::text IS NULL OR r.reason = sqlc.narg('reason'))
       AND (sqlc.narg('instance')::text IS NULL OR coalesce(r.instance, '') = sqlc.narg('instance')))::boolean AS fits
  FROM runs_history r
 WHERE r.state = 'failed' AND r.group_name = @group_name AND r.id >= @lo AND r.id < @hi
 ORDER BY r.id DESC LIMIT @max_rows;

-- name: RunKeysLive :many
-- For filters on unfinished states only. The live table is small.
SELECT r.id FROM runs_live r
 WHERE r.id >= @lo AND r.id < @hi
   AND (sqlc.narg('job_id')::bigint IS NULL OR r.job_id = sqlc.narg('job_id'))
   AND (sqlc.narg('group_name')::text IS NULL OR r.group_name = sqlc.narg('group_name'))
   AND (sqlc.narg('only')::text[] IS NULL OR r.group_name = ANY (sqlc.narg('only')::text[]))
   AND r.state = ANY (@states::text[])
   AND r.id < CASE WHEN @unplanned::boolean THEN first_run_id(now() + interval '500 milliseconds') ELSE @hi END
   AND NOT (@unplanned AND r.state = 'pending' AND NOT r.held AND r.due_at > now())
   AND (sqlc.narg('cause')::text IS NULL OR r.cause = sqlc.narg('cause'))
   AND (sqlc.narg('reason')::text IS NULL OR r.reason = sqlc.narg('reason'))
   AND (sqlc.narg('instance')::text IS NULL OR r.instance = sqlc.narg('instance'))
 ORDER BY r.id DESC LIMIT @max_rows;

-- name: RunsByID :many
-- For lists: long texts are cut to text_chars characters.
SELECT r.id, r.job_id, r.job_version, r.group_name, r.cause, r.state, r.reason,
       left(r.message, @text_chars::integer) AS message, r.message_notes, left(r.output, @text_chars) AS output,
       left(coalesce(r.param, v.spec->>'param', ''), @text_chars)::text AS param,
       r.attempt, r.fire_time, r.due_at, r.created_at, r.dispatched_at, r.started_at, r.finished_at,
       r.kill_requested_at, r.lateness_ms, r.instance, r.route, r.route_note, r.waiting, r.waiting_note, coalesce(r.waited_note, '')::text AS waited_note, r.waited_ms, r.held_by, r.shard_index, r.shard_total,
       r.broadcast_id, r.parent_run_id, r.event_id, r.trace, r.last_line,
       coalesce(v.spec->>'name', '')::text AS job_name,
       coalesce((v.spec->>'retries')::integer, 0)::integer AS retries
  FROM runs r LEFT JOIN job_versions v ON v.job_id = r.job_id AND v.version = r.job_version
 WHERE r.id = ANY (@ids::uuid[])
 ORDER BY r.id DESC;

-- name: RunTexts :many
-- For searches: the texts of some runs between two ids, which say on which days they are. A run without a param has that of its job's version.
SELECT r.id, r.job_id, r.job_version, r.message, r.output, r.param, (r.finished_at IS NOT NULL)::boolean AS final
  FROM runs r
 WHERE r.id = ANY (@ids::uuid[]) AND r.id >= @lo::uuid AND r.id <= @hi::uuid;

-- name: ParamsOfVersions :many
SELECT v.job_id, v.version, coalesce(v.spec->>'param', '')::text AS param
  FROM (SELECT unnest(@job_ids::bigint[]) AS job_id, unnest(@versions::integer[]) AS version) w
  JOIN job_versions v ON v.job_id = w.job_id AND v.version = w.version;

-- name: RunsOfBulk :many
-- Returns the new runs of a bulk action, newest first.
SELECT run_id FROM bulk_runs WHERE bulk_id = @bulk_id AND run_id >= @lo AND run_id < @hi ORDER BY run_id DESC LIMIT @max_rows;

-- name: FirstInLine :many
-- Of the given runs that wait for an instance: why the first run with the same needs waits.
SELECT w.run_id, coalesce(h.waiting, '')::text AS waiting, coalesce(h.waiting_note, '')::text AS waiting_note
  FROM runs_waiting w
 CROSS JOIN LATERAL (
    SELECT f.run_id FROM runs_waiting f
     WHERE f.group_name = w.group_name AND f.handler = w.handler AND f.pin = w.pin AND f.apart = w.apart
     ORDER BY f.due_at, f.run_id LIMIT 1) f
  JOIN runs_live h ON h.id = f.run_id
 WHERE w.run_id = ANY (@ids::uuid[]) AND f.run_id <> w.run_id;

-- name: AttemptsOfRun :many
SELECT a.attempt, a.instance, a.dispatched_at, a.started_at, a.finished_at, a.outcome, a.reason, a.message, a.message_notes
  FROM run_attempts a WHERE a.run_id = @run_id
 ORDER BY a.attempt;

-- name: ExecutorsOfRun :many
-- The processes that have taken attempts of a run of this group, as far as they were recorded.
SELECT a.attempt, b.version, b.host
  FROM (SELECT attempt, boot_id FROM run_attempts WHERE run_id = @run_id
        UNION ALL
        SELECT attempt, boot_id FROM runs WHERE id = @run_id) a
  JOIN executor_boots b ON b.group_name = @group_name AND b.boot_id = a.boot_id;

-- name: LateResultsOfRun :many
SELECT attempt, outcome FROM late_results WHERE run_id = @run_id ORDER BY attempt;

-- name: Now :one
SELECT now()::timestamptz AS now;

-- name: RunState :one
SELECT group_name, state, reason, attempt, finished_at, last_line, now()::timestamptz AS now
  FROM runs WHERE id = @id ORDER BY finished_at NULLS LAST LIMIT 1;

-- name: LogChunks :many
-- Returns the chunks with lines starting at the given line of the given attempt. low_line is the earliest line at which
-- a chunk with that line can begin. This lower bound lets the index find the chunks anywhere in the log.
SELECT attempt, first_line, last_line, lines, (now() - stored_at < interval '2 seconds')::boolean AS fresh
  FROM run_logs
 WHERE run_id = @run_id AND (attempt, first_line) >= (@attempt::integer, @low_line::bigint)
   AND (attempt > @attempt OR last_line >= @line)
 ORDER BY attempt, first_line LIMIT @max_rows;

-- name: LogTail :many
-- Returns the positions of the last chunks, starting at the end.
SELECT attempt, first_line, last_line FROM run_logs
 WHERE run_id = @run_id
 ORDER BY attempt DESC, first_line DESC LIMIT @max_rows;

-- name: StoredLines :one
SELECT coalesce(sum(last_line - first_line + 1), 0)::bigint FROM run_logs
 WHERE run_id = @run_id AND attempt = @attempt;
