-- name: HealthOfJobs :many
-- Leaves out jobs of which no run has succeeded or failed. The instant is the database's clock.
SELECT j.id::bigint AS job_id, h.durations, h.success_run, h.success_at, h.success_version, h.success_instance, h.success_executor, h.hour, h.hour_succeeded, h.past_succeeded,
       f.failing, f.streak, f.failing_since, f.run, f.failed_at, f.version, f.hour AS failed_hour, f.hour_failed, f.past_failed, f.reason, f.message,
       f.message_notes, f.instance, f.executor, now()::timestamptz AS now
  FROM unnest(@job_ids::bigint[]) AS j (id) LEFT JOIN job_health h ON h.job_id = j.id LEFT JOIN job_failures f ON f.job_id = j.id
 WHERE h.job_id IS NOT NULL OR f.job_id IS NOT NULL;

-- name: JobsOfGroups :one
SELECT coalesce(sum(c.jobs), 0)::bigint AS jobs FROM job_counts c WHERE c.group_name = ANY (@groups::text[]);
