-- name: Glance :one
-- Reports whether PastDeadline, UnconfirmedKills, OverdueRetries, BoundInstances, UnheldHeld, CountLiveRuns, WaitingKeys and Vacuum may find
-- anything. It also reads the clock.
SELECT EXISTS (SELECT FROM runs_waiting WHERE deadline_at < statement_timestamp()) AS deadlines,
       EXISTS (SELECT FROM runs_live WHERE kill_requested_at < statement_timestamp()) AS kills,
       EXISTS (SELECT FROM runs_live WHERE NOT replanned AND due_at < statement_timestamp() AND (NOT held AND state = 'retrying') IS TRUE) AS retries,
       EXISTS (SELECT FROM runs_live WHERE NOT held AND due_at < statement_timestamp()
                  AND (instance IS NOT NULL AND state IN ('queued', 'running')) IS TRUE) AS bound,
       EXISTS (SELECT FROM runs_live WHERE held) AS held,
       EXISTS (SELECT 1 FROM runs_live UNION ALL SELECT 1 FROM group_live_runs) AS live,
       EXISTS (SELECT FROM runs_waiting) AS waiting,
       (pg_stat_get_dead_tuples('runs_live'::regclass) > 0 OR pg_stat_get_dead_tuples('runs_waiting'::regclass) > 0
        OR pg_stat_get_dead_tuples('job_due'::regclass) > 0 OR pg_stat_get_dead_tuples('block_slots'::regclass) > 0)::bool AS dead,
       (pg_stat_get_dead_tuples('runs_live'::regclass) > sqlc.arg(many)::bigint + pg_stat_get_live_tuples('runs_live'::regclass) / 2)::bool AS many_dead,
       clock_timestamp()::timestamptz AS now;

-- name: SilentRuns :many
-- Returns bound runs for which it has been unknown for a while whether they were accepted, because their dispatcher
-- died or an answer was lost. The order is random, so that runs of instances that do not answer cannot keep the others
-- from being checked. Runs that are not due yet are not read. The groups are within IS TRUE, so that no index of groups is used,
-- which would have all runs of a group.
SELECT * FROM runs_live
 WHERE NOT held AND due_at < statement_timestamp() - @after::interval
   AND (state = 'queued' AND instance IS NOT NULL AND kill_requested_at IS NULL AND group_name = ANY(@groups::text[])
        AND GREATEST(bound_at, due_at) < statement_timestamp() - @after::interval) IS TRUE
 ORDER BY random() LIMIT @batch;

-- name: BoundInstances :many
-- Returns the boots that runs are bound to, with the number of runs that are silent, marked as running, or past their
-- timeout and grace period. A reconciler whose number is zero needs no further query. Only runs that were due some time
-- ago are counted, because newer ones may be about to end. kept says that Postgres has a record of the boot, which ends with the boot.
SELECT group_name, instance::text AS instance, boot_id::text AS boot_id, count(*) AS runs,
       EXISTS (SELECT FROM gateway_addresses a
                WHERE a.group_name = runs_live.group_name AND a.instance = runs_live.instance AND a.boot_id = runs_live.boot_id) AS kept,
       count(*) FILTER (WHERE state = 'queued' AND kill_requested_at IS NULL
                          AND GREATEST(bound_at, due_at) < statement_timestamp() - @silent_after::interval) AS silent,
       count(*) FILTER (WHERE state = 'running') AS running,
       count(*) FILTER (WHERE give_up_at < statement_timestamp()) AS overdue
  FROM runs_live
 WHERE NOT held AND due_at < statement_timestamp() - @due_ago::interval
   AND (instance IS NOT NULL AND state IN ('queued', 'running')) IS TRUE
 GROUP BY group_name, instance, boot_id;

-- name: RunsOfBoot :many
SELECT * FROM runs_live
 WHERE group_name = @group_name AND instance = @instance::text AND boot_id = @boot_id::text AND id > @after AND state IN ('queued', 'running')
 ORDER BY id LIMIT @batch;

-- name: SentTo :many
-- Returns the positions, from 1, of the attempts that a gateway has sent to an executor in the given boot.
SELECT w.place::int AS place
  FROM (SELECT generate_series(1, @n::int) AS place, unnest(@run_ids::uuid[]) AS run_id, unnest(@attempts::int[]) AS attempt, unnest(@boot_ids::text[]) AS boot_id) w
 WHERE EXISTS (SELECT FROM gateway_sends s WHERE s.run_id = w.run_id AND s.attempt = w.attempt AND s.boot_id = w.boot_id AND s.sent_at IS NOT NULL);

-- name: PastDeadline :many
SELECT r.* FROM runs_waiting w JOIN runs_live r ON r.id = w.run_id
 WHERE w.deadline_at < statement_timestamp() AND r.state = 'queued' AND r.instance IS NULL
 ORDER BY w.deadline_at LIMIT @batch;

-- name: PastGiveUp :many
SELECT * FROM runs_live
 WHERE give_up_at < statement_timestamp() AND state IN ('queued', 'running') AND instance IS NOT NULL
   AND (group_name = @group_name::text) IS TRUE
 ORDER BY give_up_at LIMIT @batch;

-- name: UnconfirmedKills :many
-- The order is random, so that handlers that ignore their kill cannot keep the others from receiving theirs.
SELECT * FROM runs_live WHERE kill_requested_at < statement_timestamp() - @after::interval ORDER BY random() LIMIT @batch;

-- name: UnheldHeld :many
-- Returns the first held run of each slot without a live owner. Such slots remain after a crash, or if the released run
-- was routed elsewhere. In scope instance, a live owner has a run bound to the instance. The LIMITs force a separate
-- lookup for each owner. Without them, the planner would join the slots with all live runs.
SELECT f.job_id, f.id, COALESCE(f.held_on, '')::text AS held_on
  FROM (SELECT DISTINCT ON (r.job_id, r.held_on) r.job_id, r.id, r.held_on
          FROM runs_live r WHERE r.held ORDER BY r.job_id, r.held_on, r.id) f
  LEFT JOIN block_slots s ON s.job_id = f.job_id AND s.instance = f.held_on
  LEFT JOIN LATERAL (SELECT true AS found FROM runs_live l WHERE f.held_on = '' AND l.id = s.owner AND NOT l.held LIMIT 1) run ON true
  LEFT JOIN LATERAL (SELECT true AS found FROM broadcasts b WHERE f.held_on = '' AND b.id = s.owner LIMIT 1) broadcast ON true
  LEFT JOIN LATERAL (SELECT true AS found FROM runs_live l
                      WHERE f.held_on <> '' AND l.job_id = f.job_id AND l.instance = f.held_on
                        AND COALESCE(l.broadcast_id, l.id) = s.owner LIMIT 1) bound ON true
 WHERE run.found IS NULL AND broadcast.found IS NULL AND bound.found IS NULL
 ORDER BY f.job_id, f.held_on LIMIT @batch;

-- name: RequestKill :many
-- If the kill is requested several times, the first request is kept.
UPDATE runs_live r SET kill_requested_at = COALESCE(r.kill_requested_at, clock_timestamp()), kill_reason = COALESCE(r.kill_reason, @reason),
       kill_why = CASE WHEN r.kill_requested_at IS NULL THEN k.why ELSE r.kill_why END,
       kill_why_note = CASE WHEN r.kill_requested_at IS NULL THEN k.note ELSE r.kill_why_note END
  FROM (SELECT unnest(@ids::uuid[]) AS id, unnest(@whys::text[]) AS why, unnest(@why_notes::text[]) AS note) k
 WHERE r.id = k.id
RETURNING r.*;

-- name: LateWaiting :many
-- Returns queued, unbound runs without an entry in runs_waiting, which is the result of a bug or manual SQL; the caller
-- inserts the entries. A queued run is due or almost due, so the condition on due_at avoids reading all live runs.
SELECT r.id, r.job_id, r.job_version, r.group_name, r.due_at, r.pin FROM runs_live r
 WHERE NOT r.held AND r.due_at < statement_timestamp() + interval '1 second'
   AND (r.state = 'queued' AND r.instance IS NULL) IS TRUE
   AND NOT EXISTS (SELECT 1 FROM runs_waiting w WHERE w.run_id = r.id)
 LIMIT @batch;

-- name: WaitingCounts :many
SELECT COALESCE(r.waiting, '')::text AS waiting, COALESCE(r.waiting_note, '')::text AS note, count(*) AS runs
  FROM (SELECT run_id FROM runs_waiting LIMIT 10000) w JOIN runs_live r ON r.id = w.run_id GROUP BY 1, 2;

-- name: MakeDays :exec
SELECT make_day(d) FROM unnest(@days::date[]) d;

-- name: StoreLogs :exec
-- Stores chunks and counts the text of those that are new. The rows of the groups are locked in order, so that two
-- batches cannot deadlock.
WITH c AS MATERIALIZED (
    SELECT unnest(@run_ids::uuid[]) AS run_id, unnest(@attempts::int[]) AS attempt, unnest(@first_lines::bigint[]) AS first_line,
           unnest(@last_lines::bigint[]) AS last_line, unnest(@chunks::bytea[]) AS lines, unnest(@groups::text[]) AS group_name,
           unnest(@text_bytes::bigint[]) AS text_bytes
), stored AS (
    INSERT INTO run_logs (run_id, attempt, first_line, last_line, lines)
    SELECT c.run_id, c.attempt, c.first_line, c.last_line, c.lines FROM c
        ON CONFLICT DO NOTHING
    RETURNING run_id, attempt, first_line
)
INSERT INTO group_log_bytes AS b (day, group_name, bytes)
SELECT (now() AT TIME ZONE 'UTC')::date, c.group_name, sum(c.text_bytes)
  FROM stored JOIN c USING (run_id, attempt, first_line)
 WHERE c.group_name <> '' GROUP BY c.group_name ORDER BY c.group_name
    ON CONFLICT (day, group_name) DO UPDATE SET bytes = b.bytes + excluded.bytes;

-- name: GroupsOfRuns :many
SELECT id, group_name FROM runs_live WHERE id = ANY(@ids::uuid[])
UNION ALL
SELECT id, group_name FROM runs_history WHERE id = ANY(@ids::uuid[]);
