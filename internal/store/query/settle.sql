-- name: HistoryOutcomes :many
SELECT id, job_id, job_version, group_name, state, reason, attempt, COALESCE(instance, '')::text AS instance, COALESCE(boot_id, '')::text AS boot_id, started_at
  FROM runs_history WHERE id = ANY(@ids::uuid[]);

-- name: AttemptOutcomes :many
SELECT run_id, attempt, COALESCE(instance, '')::text AS instance, COALESCE(boot_id, '')::text AS boot_id, outcome, reason
  FROM run_attempts WHERE run_id = ANY(@ids::uuid[]);

-- name: LockWaiting :exec
SELECT run_id FROM runs_waiting WHERE run_id = ANY(@ids::uuid[]) ORDER BY run_id FOR UPDATE;

-- name: LockBroadcasts :exec
SELECT id FROM broadcasts WHERE id = ANY(@ids::uuid[]) ORDER BY id FOR UPDATE;

-- name: PeekRuns :many
-- Reads without locks, only to find out what to lock.
SELECT id, job_id, job_version, state, instance, broadcast_id FROM runs_live WHERE id = ANY(@ids::uuid[]);

-- name: LockRuns :many
-- Locks by id, so that two settlers, or a settler and a Fire, cannot deadlock.
SELECT id, job_id, job_version, group_name, cause, state, attempt, bind, fire_time, created_at, kill_requested_at,
       kill_reason, kill_why, kill_why_note, instance, boot_id, broadcast_id
  FROM runs_live WHERE id = ANY(@ids::uuid[]) ORDER BY id FOR UPDATE;

-- name: LockRunIDs :exec
-- Locks like LockRuns before an update with a join, without reading the rows.
SELECT id FROM runs_live WHERE id = ANY(@ids::uuid[]) ORDER BY id FOR UPDATE;

-- name: DeleteLive :exec
DELETE FROM runs_live WHERE id = ANY(@ids::uuid[]);

-- name: MoveToHistory :many
-- The caller holds the rows' locks, has compared the rows, and calls DeleteLive afterwards. Lateness is that of the
-- first attempt with a known start. The start that the executor reports takes precedence.
WITH e AS (
    SELECT unnest(@ids::uuid[]) AS id, unnest(@states::text[]) AS state, unnest(@reasons::text[]) AS reason,
           unnest(@messages::text[]) AS message, unnest(@message_notes::text[]) AS message_notes, unnest(@outputs::text[]) AS output,
           unnest(@started_ats::timestamptz[]) AS started_at, unnest(@finished_ats::timestamptz[]) AS finished_at,
           unnest(@last_lines::bigint[]) AS last_line
)
INSERT INTO runs_history (id, job_id, job_version, group_name, cause, state, reason, message, message_notes, output, param,
       attempt, fire_time, due_at, created_at, dispatched_at, started_at, finished_at, kill_requested_at, lateness_ms,
       last_line, instance, boot_id, route, route_note, shard_index, shard_total, broadcast_id, parent_run_id, event_id, trace,
       waited_note, waited_ms)
SELECT r.id, r.job_id, r.job_version, r.group_name, r.cause, e.state, e.reason, e.message, NULLIF(e.message_notes, ''), e.output, r.param,
       r.attempt, r.fire_time, r.due_at, r.created_at, r.dispatched_at,
       COALESCE(NULLIF(e.started_at, 'epoch'), r.started_at), e.finished_at, r.kill_requested_at,
       COALESCE(CASE WHEN r.attempt > 1 THEN r.lateness_ms END, (extract(epoch FROM NULLIF(e.started_at, 'epoch') - r.due_at) * 1000)::bigint, r.lateness_ms),
       e.last_line, r.instance, r.boot_id, r.route, r.route_note, r.shard_index, r.shard_total, r.broadcast_id, r.parent_run_id, r.event_id, r.trace,
       r.waiting_note, CASE WHEN r.waiting IS NULL THEN r.waited_ms ELSE GREATEST((extract(epoch FROM clock_timestamp() - r.due_at) * 1000)::bigint, 0) END
  FROM e JOIN runs_live r ON r.id = e.id
RETURNING id, lateness_ms;

-- name: RetryRuns :many
-- Ends an attempt whose run continues: the attempt is kept, and the run waits for its next attempt.
WITH e AS (
    SELECT unnest(@ids::uuid[]) AS id, unnest(@due_ats::timestamptz[]) AS due_at, unnest(@outcomes::text[]) AS outcome,
           unnest(@reasons::text[]) AS reason, unnest(@messages::text[]) AS message,
           unnest(@message_notes::text[]) AS message_notes, unnest(@avoids::text[]) AS avoid,
           unnest(@started_ats::timestamptz[]) AS started_at, unnest(@finished_ats::timestamptz[]) AS finished_at,
           unnest(@last_lines::bigint[]) AS last_line
), kept AS (
    INSERT INTO run_attempts (run_id, attempt, instance, boot_id, dispatched_at, started_at, finished_at, outcome,
           reason, message, message_notes, last_line)
    SELECT r.id, r.attempt, r.instance, r.boot_id, r.dispatched_at,
           COALESCE(NULLIF(e.started_at, 'epoch'), r.started_at), e.finished_at, e.outcome, e.reason, e.message, NULLIF(e.message_notes, ''), e.last_line
      FROM e JOIN runs_live r ON r.id = e.id
)
UPDATE runs_live r
   SET state = 'retrying', replanned = false, rung_at = NULL, due_at = e.due_at, reason = e.reason,
       message = e.message, message_notes = NULLIF(e.message_notes, ''), avoid = NULLIF(e.avoid, ''), instance = NULL, boot_id = NULL, bound_at = NULL,
       give_up_at = NULL, waiting = NULL, waiting_note = NULL, waited_ms = NULL, started_at = NULL, dispatched_at = NULL,
       lateness_ms = COALESCE(CASE WHEN r.attempt > 1 THEN r.lateness_ms END, (extract(epoch FROM NULLIF(e.started_at, 'epoch') - r.due_at) * 1000)::bigint, r.lateness_ms)
  FROM e WHERE r.id = e.id
RETURNING r.*;

-- name: RequeueRuns :many
-- The instance accepted the attempt but could not start it: the same attempt is routed again.
UPDATE runs_live r
   SET state = 'queued', instance = NULL, boot_id = NULL, bound_at = NULL, give_up_at = NULL, started_at = NULL,
       waiting = @waiting::text, waiting_note = @waiting_note::text, avoid = r.instance
 WHERE r.id = ANY(@ids::uuid[])
RETURNING r.*;

-- name: ReplanRetry :many
-- Called by the River worker: the next attempt may be claimed by a ring. A repeat changes nothing.
UPDATE runs_live r SET replanned = true, attempt = r.attempt + 1, rung_at = NULL
  FROM (SELECT unnest(@ids::uuid[]) AS id, unnest(@attempts::int[]) AS attempt) w
 WHERE r.id = w.id AND (r.attempt = w.attempt AND r.state = 'retrying' AND NOT r.replanned) IS TRUE
RETURNING r.id, r.due_at;

-- name: OverdueRetries :many
SELECT id, attempt FROM runs_live
 WHERE NOT replanned AND due_at < statement_timestamp() AND (NOT held AND state = 'retrying') IS TRUE
 ORDER BY due_at LIMIT @batch;

-- name: HandSlots :many
-- Returns the next held run of each freed slot, in order. In scope cluster, the slot passes to this run, so that no new
-- run can take it in between. In scope instance, the run is routed again and takes a slot then.
SELECT f.job_id::bigint AS job_id, f.instance::text AS instance, n.id AS next_id
  FROM (SELECT unnest(@job_ids::bigint[]) AS job_id, unnest(@instances::text[]) AS instance) f
  CROSS JOIN LATERAL (
    SELECT r.id FROM runs_live r
     WHERE r.held AND r.job_id = f.job_id AND r.held_on = f.instance
     ORDER BY r.id LIMIT 1) n;

-- name: Release :many
-- The new due instant is the instant of release, but not earlier than the old one: the process that held the run
-- estimates this clock, and its estimate may be a little ahead. The note stays: it says why the run waited.
UPDATE runs_live r SET held = false, held_by = NULL, held_on = NULL, waiting = NULL, rung_at = clock_timestamp(),
       waited_ms = GREATEST((extract(epoch FROM clock_timestamp() - r.due_at) * 1000)::bigint, 0),
       due_at = GREATEST(r.due_at, date_trunc('milliseconds', clock_timestamp()))
 WHERE r.id = ANY(@ids::uuid[]) AND r.held
RETURNING r.*;

-- name: CountDown :many
UPDATE broadcasts b SET remaining = b.remaining - w.n, succeeded = b.succeeded + w.succeeded, cancelled = b.cancelled + w.cancelled
  FROM (SELECT unnest(@ids::uuid[]) AS id, unnest(@ns::int[]) AS n, unnest(@succeededs::int[]) AS succeeded,
               unnest(@cancelleds::int[]) AS cancelled) w
 WHERE b.id = w.id
RETURNING b.id, b.job_id, b.total, b.remaining, b.succeeded, b.cancelled;

-- name: DeleteBroadcasts :exec
DELETE FROM broadcasts WHERE id = ANY(@ids::uuid[]) AND remaining = 0;

-- name: IdleDelayJobs :many
-- Returns jobs without a next fire time whose chain has to continue, because no scheduled run of theirs is live. The
-- caller holds their locks.
SELECT d.job_id, d.version FROM job_due d
 WHERE d.job_id = ANY(@job_ids::bigint[]) AND d.chained AND d.next_due_at IS NULL
   AND NOT EXISTS (SELECT 1 FROM runs_live r WHERE r.job_id = d.job_id AND r.cause IN ('schedule', 'misfire'));

-- name: ChainNext :exec
-- A chain ends here if its window has closed.
UPDATE job_due d SET next_fire_time = NULLIF(w.next_fire, 'epoch'), next_due_at = NULLIF(w.next_due, 'epoch'),
       chained = w.next_fire <> 'epoch'
  FROM (SELECT unnest(@job_ids::bigint[]) AS job_id, unnest(@next_fires::timestamptz[]) AS next_fire,
               unnest(@next_dues::timestamptz[]) AS next_due) w
 WHERE d.job_id = w.job_id;

-- name: LostChains :many
SELECT d.job_id FROM job_due d
 WHERE d.chained AND d.next_due_at IS NULL
   AND NOT EXISTS (SELECT 1 FROM runs_live r WHERE r.job_id = d.job_id AND r.cause IN ('schedule', 'misfire'))
 LIMIT @batch;

-- name: LockDue :many
SELECT job_id, chained FROM job_due WHERE job_id = ANY(@job_ids::bigint[]) ORDER BY job_id FOR UPDATE;

-- name: InsertLate :exec
INSERT INTO late_results (run_id, attempt, instance, outcome, reason, message, output, started_at, finished_at)
SELECT unnest(@ids::uuid[]), unnest(@attempts::int[]), unnest(@instances::text[]), unnest(@outcomes::text[]),
       unnest(@reasons::text[]), unnest(@messages::text[]), unnest(@outputs::text[]),
       NULLIF(unnest(@started_ats::timestamptz[]), 'epoch'), NULLIF(unnest(@finished_ats::timestamptz[]), 'epoch')
    ON CONFLICT DO NOTHING;
