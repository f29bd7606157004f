-- name: HealthOfJobs :many
-- Leaves out jobs of which no run has succeeded or failed. The instant is the database's clock.
SELECT j.id::bigint AS job_id, h.durations, h.success_run, h.success_at, h.success_version, h.success_instance, h.success_executor, h.hour, h.hour_succeeded, h.past_succeeded,
       f.failing, f.streak, f.failing_since, f.run, f.failed_at, f.version, f.hour AS failed_hour, f.hour_failed, f.past_failed, f.reason, f.message,
       f.message_notes, f.instance, f.executor, now()::timestamptz AS now
  FROM unnest(@job_ids::bigint[]) AS j (id) LEFT JOIN job_health h ON h.job_id = j.id LEFT JOIN job_failures f ON f.job_id = j.id
 WHERE h.job_id IS NOT NULL OR f.job_id IS NOT NULL;

-- name: SuccessBefore :one
-- Returns the newest succeeded run of a job before an id. It looks at max_rows runs before the id. The condition on the job is a range, so that the
-- planner walks the index of the job's runs and not that of all runs.
SELECT w.id, w.finished_at, w.job_version, coalesce(w.instance, '')::text AS instance, coalesce(b.version, '')::text AS executor
  FROM (SELECT o.job_id, o.id, o.state, o.finished_at, o.job_version, o.group_name, o.instance, o.boot_id FROM runs_history o
         WHERE (o.job_id, o.id) < (@job_id::bigint, @before::uuid) AND o.job_id >= @job_id::bigint AND o.id < @before::uuid
         ORDER BY o.job_id DESC, o.id DESC LIMIT @max_rows) w
  LEFT JOIN executor_boots b ON b.group_name = w.group_name AND b.boot_id = w.boot_id
 WHERE w.state = 'succeeded' ORDER BY w.job_id DESC, w.id DESC LIMIT 1;

-- name: JobsOfGroups :one
SELECT coalesce(sum(c.jobs), 0)::bigint AS jobs FROM job_counts c WHERE c.group_name = ANY (@groups::text[]);
