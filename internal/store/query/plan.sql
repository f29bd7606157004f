-- name: Now :one
SELECT clock_timestamp()::timestamptz AS now;

-- name: LockDueJobs :many
-- Takes due jobs without waiting for those that another scheduler is planning. Here and in every query that finds due
-- rows by an index, the comparison uses statement_timestamp. clock_timestamp is volatile, so it would be evaluated for
-- every entry. paused says, here and below, that the pauses of the job matter. Planning looks back by less than a minute.
SELECT job_id, version, next_fire_time, next_due_at, decided_through,
       ((paused_until > LEAST(next_fire_time, statement_timestamp()) - interval '1 minute') IS TRUE)::bool AS paused, clock_timestamp()::timestamptz AS now
  FROM job_due
 WHERE next_due_at <= statement_timestamp() + @horizon::interval
 ORDER BY next_due_at
 LIMIT @batch
   FOR UPDATE SKIP LOCKED;

-- name: Busy :one
-- Reports whether OpenPauses, LockDueJobs, ClaimNear, ClaimStranded or StrandedJobs may find something. It is true whenever one of them would.
-- It also reads the clock.
SELECT EXISTS (
    SELECT 1 FROM job_due WHERE next_due_at <= statement_timestamp() + @horizon::interval
    UNION ALL
    SELECT 1 FROM runs_live WHERE rung_at IS NULL AND due_at <= statement_timestamp() + @horizon::interval
                              AND (NOT held AND state IN ('pending', 'retrying')) IS TRUE
    UNION ALL
    SELECT 1 FROM runs_live WHERE NOT held AND due_at < statement_timestamp() - @stranded_after::interval AND (state IN ('pending', 'retrying')) IS TRUE
    UNION ALL
    SELECT 1 FROM group_pauses WHERE NOT released AND (NOT taken_back OR to_at <= statement_timestamp())) AS busy,
       clock_timestamp()::timestamptz AS now;

-- name: LockJob :one
SELECT job_id, version, next_fire_time, next_due_at, decided_through, (parked IS NOT NULL)::bool AS parked,
       ((paused_until > LEAST(next_fire_time, statement_timestamp()) - interval '1 minute') IS TRUE)::bool AS paused, clock_timestamp()::timestamptz AS now
  FROM job_due WHERE job_id = @job_id FOR UPDATE;

-- name: StrandedJobs :many
-- Returns jobs with planned runs that were not admitted within the tolerance, because their scheduler died.
SELECT DISTINCT s.job_id FROM (
    SELECT job_id FROM runs_live
     WHERE NOT held AND due_at < statement_timestamp() - @tolerance::interval
       AND (state = 'pending' AND NOT admitted AND attempt = 1 AND cause = 'schedule') IS TRUE
     ORDER BY due_at LIMIT @batch) s;

-- name: LockJobs :many
SELECT job_id, version, next_fire_time, next_due_at, decided_through,
       ((paused_until > LEAST(next_fire_time, statement_timestamp()) - interval '1 minute') IS TRUE)::bool AS paused, clock_timestamp()::timestamptz AS now
  FROM job_due WHERE job_id = ANY(@job_ids::bigint[]) ORDER BY job_id FOR UPDATE SKIP LOCKED;

-- name: StrandedRuns :many
SELECT id, job_id, fire_time FROM runs_live
 WHERE job_id = ANY(@job_ids::bigint[])
   AND NOT held AND due_at < statement_timestamp() - @tolerance::interval
   AND state = 'pending' AND NOT admitted AND attempt = 1 AND cause = 'schedule'
 ORDER BY id FOR UPDATE;

-- name: ReviveStranded :many
UPDATE runs_live SET cause = 'misfire', due_at = @now, rung_at = clock_timestamp()
 WHERE id = ANY(@ids::uuid[]) AND state = 'pending' AND NOT admitted
RETURNING id, job_id, job_version, attempt, due_at, pin, avoid;

-- name: DropStranded :exec
DELETE FROM runs_live WHERE id = ANY(@ids::uuid[]) AND state = 'pending' AND NOT admitted;

-- name: InsertScheduled :exec
-- The computed id prevents a second run of a fire time.
INSERT INTO runs_live (id, job_id, job_version, group_name, cause, plain, fire_time, due_at, rung_at)
SELECT unnest(@ids::uuid[]), unnest(@job_ids::bigint[]), unnest(@versions::int[]), unnest(@groups::text[]),
       unnest(@causes::text[]), unnest(@plains::bool[]), unnest(@fire_times::timestamptz[]), unnest(@due_ats::timestamptz[]),
       clock_timestamp()
    ON CONFLICT (id) DO NOTHING;

-- name: DeleteFinished :many
-- Runs after an insert into runs_live, as a separate statement, because the insert's snapshot may be older than the
-- commit that moved the same run into the history.
DELETE FROM runs_live l WHERE l.id = ANY(@ids::uuid[])
   AND (EXISTS (SELECT 1 FROM runs_history h WHERE h.id = l.id)) IS TRUE
RETURNING l.id;

-- name: InsertMissed :exec
-- If the group is empty, the table's trigger looks it up.
INSERT INTO missed (job_id, group_name, first_fire_time, last_fire_time, count, policy, why, why_note)
SELECT unnest(@job_ids::bigint[]), NULLIF(unnest(@groups::text[]), ''), unnest(@firsts::timestamptz[]), unnest(@lasts::timestamptz[]),
       unnest(@counts::bigint[]), unnest(@policies::text[]), unnest(@whys::text[]),
       NULLIF(unnest(@why_notes::text[]), '');

-- name: AdvanceDue :exec
-- The epoch stands for null, because the driver's arrays of time values have no nulls. A pause of the job itself that is over no longer
-- parks it. ParkDue follows if one lasts.
UPDATE job_due d
   SET next_fire_time = NULLIF(w.next_fire, 'epoch'), next_due_at = NULLIF(w.next_due, 'epoch'),
       decided_through = NULLIF(w.decided, 'epoch'), parked = NULLIF(d.parked, '')
  FROM (SELECT unnest(@job_ids::bigint[]) AS job_id, unnest(@next_fires::timestamptz[]) AS next_fire,
               unnest(@next_dues::timestamptz[]) AS next_due, unnest(@decideds::timestamptz[]) AS decided) w
 WHERE d.job_id = w.job_id;

-- name: ClaimNear :many
-- Takes runs that others planned (a user, the API, a parent, a retry). The mark rung_at makes sure that each run is in
-- one ring at a time. The array is built once and looked up by the primary key; IN would read all live runs.
UPDATE runs_live SET rung_at = clock_timestamp()
 WHERE id = ANY(ARRAY(
    SELECT c.id FROM runs_live c
     WHERE c.rung_at IS NULL AND c.due_at <= statement_timestamp() + @horizon::interval
       AND (NOT c.held AND c.state IN ('pending', 'retrying') AND c.replanned AND c.kill_requested_at IS NULL
            AND (c.cause <> 'schedule' OR c.admitted OR c.attempt > 1 OR c.due_at >= statement_timestamp() - @tolerance::interval)) IS TRUE
     ORDER BY c.due_at LIMIT @batch FOR UPDATE SKIP LOCKED))
RETURNING id, job_id, job_version, attempt, due_at, pin, avoid, broadcast_id;

-- name: ClaimStranded :many
-- Takes past-due runs that their ring has not fired. Runs that were due longer than @back ago are not read, because most
-- of them are already running.
UPDATE runs_live SET rung_at = clock_timestamp()
 WHERE id = ANY(ARRAY(
    SELECT c.id FROM runs_live c
     WHERE NOT c.held AND c.due_at < statement_timestamp() - @stranded_after::interval AND c.due_at > statement_timestamp() - @back::interval
       AND (c.state IN ('pending', 'retrying') AND c.replanned AND c.kill_requested_at IS NULL
            AND c.rung_at < statement_timestamp() - @stranded_after::interval
            AND (c.cause <> 'schedule' OR c.admitted OR c.attempt > 1 OR c.due_at >= statement_timestamp() - @tolerance::interval)) IS TRUE
     ORDER BY c.due_at LIMIT @batch FOR UPDATE SKIP LOCKED))
RETURNING id, job_id, job_version, attempt, due_at, pin, avoid, broadcast_id;

-- name: HandBack :execrows
-- Takes runs out of the ring of a scheduler that stops. The query compares what AdmitRuns compares, so that a ring entry
-- for an earlier state of a run changes nothing.
UPDATE runs_live SET rung_at = NULL
 WHERE id = ANY(ARRAY(
    SELECT r.id FROM runs_live r
      JOIN (SELECT unnest(@ids::uuid[]) AS id, unnest(@due_ats::timestamptz[]) AS due_at,
                   unnest(@versions::int[]) AS version, unnest(@attempts::int[]) AS attempt) w
        ON r.id = w.id
     WHERE r.id = ANY(@ids::uuid[])
       AND (r.due_at = w.due_at AND r.job_version = w.version AND r.attempt = w.attempt
            AND r.state IN ('pending', 'retrying') AND r.replanned AND NOT r.held AND r.rung_at IS NOT NULL) IS TRUE
     ORDER BY r.id FOR UPDATE OF r));

-- name: Definitions :many
SELECT v.job_id, v.version, v.spec, v.created_at, v.valid_from
  FROM job_versions v
  JOIN (SELECT unnest(@job_ids::bigint[]) AS job_id, unnest(@versions::int[]) AS version) w
    ON v.job_id = w.job_id AND v.version = w.version;

-- name: Notify :exec
SELECT pg_notify('belfry_plan', '');
