-- name: VersionsOfBoots :many
-- Returns the versions of processes, with their numbers in the list. It looks once for each.
SELECT u.number::integer AS number, b.version
  FROM (SELECT unnest(@groups::text[]) AS group_name, unnest(@boots::text[]) AS boot_id, generate_series(1, cardinality(@boots::text[])) AS number) u
 CROSS JOIN LATERAL (SELECT o.version FROM executor_boots o WHERE o.group_name = u.group_name AND o.boot_id = u.boot_id OFFSET 0) b;

-- name: AddSuccesses :execrows
-- Adds succeeded runs to the health of their jobs. An update is cheap only if it changes no indexed column. So p95, the second largest of 20
-- durations, is computed again only if it can have changed: not if the new duration equals the one that leaves, and not if both are at most p95
-- and the others contain p95 twice. With fewer than 20 durations, p95 is their maximum.
UPDATE job_health h
   SET success_at = CASE WHEN h.success_run > u.run THEN h.success_at ELSE u.at END,
       success_version = CASE WHEN h.success_run > u.run THEN h.success_version ELSE u.version END,
       success_instance = CASE WHEN h.success_run > u.run THEN h.success_instance ELSE u.instance END,
       success_executor = CASE WHEN h.success_run > u.run THEN h.success_executor ELSE u.executor END,
       success_run = greatest(h.success_run, u.run),
       durations = substr(u.durations || h.durations, 1, 20),
       p95 = CASE WHEN length(u.durations) > 1 OR length(h.durations) = 19 THEN
                       (SELECT get_byte(u.durations || h.durations, i) FROM generate_series(0, least(length(u.durations) + length(h.durations), 20) - 1) i
                         ORDER BY 1 DESC OFFSET CASE WHEN length(u.durations) + length(h.durations) >= 20 THEN 1 ELSE 0 END LIMIT 1)
                  WHEN length(h.durations) < 19 THEN greatest(h.p95, get_byte(u.durations, 0))
                  WHEN get_byte(u.durations, 0) = get_byte(h.durations, 19) THEN h.p95
                  WHEN get_byte(u.durations, 0) <= h.p95 AND (get_byte(h.durations, 19) < h.p95 OR get_byte(h.durations, 19) = h.p95
                       AND position(set_byte('\x00', 0, h.p95) IN substr(h.durations, 1 + position(set_byte('\x00', 0, h.p95) IN h.durations),
                                    greatest(0, 19 - position(set_byte('\x00', 0, h.p95) IN h.durations)))) > 0) THEN h.p95
                  ELSE (SELECT get_byte(u.durations || h.durations, i) FROM generate_series(0, 19) i ORDER BY 1 DESC OFFSET 1 LIMIT 1) END,
       hour = greatest(h.hour, sqlc.arg(hour)::integer),
       hour_succeeded = length(u.durations) + CASE WHEN h.hour >= sqlc.arg(hour)::integer THEN h.hour_succeeded ELSE 0 END,
       past_succeeded = CASE WHEN h.hour >= sqlc.arg(hour)::integer THEN h.past_succeeded
           ELSE substr(substr(decode(repeat('00', 46), 'hex'), 1, 2 * least(sqlc.arg(hour)::integer - h.hour - 1, 23)) || int2send(least(h.hour_succeeded, 32767)::smallint)
                       || h.past_succeeded, 1, 46) END
  FROM (SELECT unnest(@job_ids::bigint[]) AS job_id, unnest(@runs::uuid[]) AS run, unnest(@ats::timestamptz[]) AS at,
               unnest(@versions::integer[]) AS version, unnest(@instances::text[]) AS instance, unnest(@executors::text[]) AS executor,
               unnest(@durations::bytea[]) AS durations) u
 WHERE h.job_id = u.job_id;

-- name: CreateHealth :many
-- Creates empty rows for the jobs that have none, and returns these jobs. Deleted jobs get none, also if they are deleted meanwhile.
INSERT INTO job_health (job_id, success_at, success_version, hour, hour_succeeded, p95, success_run, durations, past_succeeded)
SELECT j.id, 'epoch', 0, @hour::integer, 0, 0, '00000000-0000-0000-0000-000000000000', '', ''
  FROM jobs j
 WHERE j.id = ANY (@job_ids::bigint[]) AND NOT EXISTS (SELECT FROM job_health h WHERE h.job_id = j.id)
 ORDER BY j.id
   FOR KEY SHARE OF j
ON CONFLICT (job_id) DO NOTHING
RETURNING job_id;

-- name: FailingJobs :many
-- Returns failing jobs, max_rows at most.
SELECT f.job_id, f.run FROM job_failures f WHERE f.failing ORDER BY f.failing_since, f.job_id + 0 LIMIT @max_rows;

-- name: FailingAmong :many
-- Looks once for each job, by the primary key. The planner could otherwise read all failing jobs for each of the jobs.
SELECT u.job_id::bigint AS job_id, f.run
  FROM (SELECT unnest(@job_ids::bigint[]) AS job_id) u
 CROSS JOIN LATERAL (SELECT o.run, o.failing FROM job_failures o WHERE o.job_id = u.job_id OFFSET 0) f
 WHERE f.failing;

-- name: Recover :exec
UPDATE job_failures f SET failing = false, recovered_by = u.run
  FROM (SELECT unnest(@job_ids::bigint[]) AS job_id, unnest(@runs::uuid[]) AS run) u
 WHERE f.job_id = u.job_id;

-- name: Failures :many
-- Returns the failures and the newest success of jobs. The zero id stands for none.
SELECT u.job_id::bigint AS job_id, coalesce(f.failing, false)::boolean AS failing, coalesce(f.streak, 0)::integer AS streak, coalesce(f.version, 0)::integer AS version,
       coalesce(f.hour, 0)::integer AS hour, coalesce(f.hour_failed, 0)::integer AS hour_failed, coalesce(f.failing_since, 'epoch')::timestamptz AS failing_since,
       coalesce(f.failed_at, 'epoch')::timestamptz AS failed_at, coalesce(f.run, '00000000-0000-0000-0000-000000000000')::uuid AS run,
       coalesce(f.recovered_by, '00000000-0000-0000-0000-000000000000')::uuid AS recovered_by, coalesce(f.past_failed, '')::bytea AS past_failed,
       coalesce(h.success_run, '00000000-0000-0000-0000-000000000000')::uuid AS success_run
  FROM (SELECT unnest(@job_ids::bigint[]) AS job_id) u
  LEFT JOIN LATERAL (SELECT * FROM job_failures o WHERE o.job_id = u.job_id OFFSET 0) f ON true
  LEFT JOIN LATERAL (SELECT o.success_run FROM job_health o WHERE o.job_id = u.job_id OFFSET 0) h ON true;

-- name: UpdateFailures :exec
-- For jobs that have failed before. If the newest failed run stays the same, what belongs to it stays. Empty notes and the zero id stand for none.
UPDATE job_failures f
   SET failing = u.failing, streak = u.streak, version = u.version, hour = u.hour, hour_failed = u.runs, failing_since = u.since, failed_at = u.at,
       run = u.run, recovered_by = NULLIF(u.recovered_by, '00000000-0000-0000-0000-000000000000'), past_failed = u.past,
       reason = CASE WHEN f.run = u.run THEN f.reason ELSE u.reason END,
       message = CASE WHEN f.run = u.run THEN f.message ELSE u.message END,
       message_notes = CASE WHEN f.run = u.run THEN f.message_notes ELSE NULLIF(u.notes, '') END,
       instance = CASE WHEN f.run = u.run THEN f.instance ELSE u.instance END,
       executor = CASE WHEN f.run = u.run THEN f.executor ELSE u.executor END
  FROM (SELECT unnest(@job_ids::bigint[]) AS job_id, unnest(@failings::boolean[]) AS failing, unnest(@streaks::integer[]) AS streak,
               unnest(@versions::integer[]) AS version, unnest(@hours::integer[]) AS hour, unnest(@runs::integer[]) AS runs,
               unnest(@sinces::timestamptz[]) AS since, unnest(@ats::timestamptz[]) AS at, unnest(@failed_runs::uuid[]) AS run,
               unnest(@recovered_bys::uuid[]) AS recovered_by, unnest(@pasts::bytea[]) AS past, unnest(@reasons::text[]) AS reason,
               unnest(@messages::text[]) AS message, unnest(@notes::text[]) AS notes, unnest(@instances::text[]) AS instance,
               unnest(@executors::text[]) AS executor) u
 WHERE f.job_id = u.job_id;

-- name: InsertFailures :exec
-- For the first failures of jobs, except deleted ones.
INSERT INTO job_failures (job_id, failing, streak, version, hour, hour_failed, failing_since, failed_at, run, recovered_by, past_failed, reason, message,
       message_notes, instance, executor, group_name)
SELECT j.id, u.failing, u.streak, u.version, u.hour, u.runs, u.since, u.at, u.run, NULLIF(u.recovered_by, '00000000-0000-0000-0000-000000000000'), u.past,
       u.reason, u.message, NULLIF(u.notes, ''), u.instance, u.executor, j.group_name
  FROM (SELECT unnest(@job_ids::bigint[]) AS job_id, unnest(@failings::boolean[]) AS failing, unnest(@streaks::integer[]) AS streak,
               unnest(@versions::integer[]) AS version, unnest(@hours::integer[]) AS hour, unnest(@runs::integer[]) AS runs,
               unnest(@sinces::timestamptz[]) AS since, unnest(@ats::timestamptz[]) AS at, unnest(@failed_runs::uuid[]) AS run,
               unnest(@recovered_bys::uuid[]) AS recovered_by, unnest(@pasts::bytea[]) AS past, unnest(@reasons::text[]) AS reason,
               unnest(@messages::text[]) AS message, unnest(@notes::text[]) AS notes, unnest(@instances::text[]) AS instance,
               unnest(@executors::text[]) AS executor) u
  JOIN jobs j ON j.id = u.job_id
   FOR KEY SHARE OF j; -- so that no job is deleted or moves to another group meanwhile
