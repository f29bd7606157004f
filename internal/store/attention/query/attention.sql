-- name: GroupJobs :many
-- Returns the groups that have enabled jobs.
SELECT c.group_name, sum(c.enabled)::bigint AS enabled
  FROM job_counts c
 WHERE (sqlc.narg('only')::text[] IS NULL OR c.group_name = ANY (sqlc.narg('only')::text[]))
 GROUP BY 1 HAVING sum(c.enabled) > 0;

-- name: FailingJobs :many
-- Returns failing jobs, those that began to fail last first. Jobs that fail because their group has no executors are left out.
SELECT f.job_id, j.group_name, j.name, coalesce(j.spec->>'runbook_url', '')::text AS runbook_url, f.failing_since, f.streak, f.run,
       h.success_run, h.success_at, h.success_version, h.success_instance, h.success_executor, f.version, f.instance, f.executor, f.reason,
       left(f.message, 300)::text AS message,
       (CASE WHEN length(f.message) <= 300 THEN coalesce(f.message_notes, '') ELSE '' END)::text AS message_notes
  FROM (SELECT * FROM job_failures o WHERE o.failing ORDER BY o.failing_since DESC, o.job_id + 0 DESC LIMIT @max_scan) f
  JOIN jobs j ON j.id = f.job_id
  LEFT JOIN job_health h ON h.job_id = f.job_id
 WHERE j.enabled AND (sqlc.narg('only')::text[] IS NULL OR j.group_name = ANY (sqlc.narg('only')::text[]))
   AND NOT (f.reason IN ('no_executor', 'lost') AND j.group_name = ANY (@absent::text[]))
 ORDER BY f.failing_since DESC, f.job_id DESC LIMIT @max_rows;

-- name: FailingJob :one
SELECT f.job_id, j.group_name, j.name, coalesce(j.spec->>'runbook_url', '')::text AS runbook_url, f.failing_since, f.streak, f.run,
       h.success_run, h.success_at, h.success_version, h.success_instance, h.success_executor, f.version, f.instance, f.executor, f.reason,
       left(f.message, 300)::text AS message,
       (CASE WHEN length(f.message) <= 300 THEN coalesce(f.message_notes, '') ELSE '' END)::text AS message_notes
  FROM job_failures f JOIN jobs j ON j.id = f.job_id LEFT JOIN job_health h ON h.job_id = f.job_id
 WHERE f.job_id = @job_id AND f.failing AND j.enabled;

-- name: FailingOfAbsent :many
-- Counts the jobs that fail because their group has no executors.
SELECT j.group_name, count(*) AS jobs, min(f.failing_since)::timestamptz AS since
  FROM (SELECT * FROM job_failures o WHERE o.failing ORDER BY o.failing_since DESC, o.job_id + 0 DESC LIMIT @max_scan) f
  JOIN jobs j ON j.id = f.job_id
 WHERE j.enabled AND f.reason IN ('no_executor', 'lost') AND j.group_name = ANY (@absent::text[])
 GROUP BY 1;

-- name: FailingCount :one
SELECT count(*) FROM (SELECT FROM job_failures o WHERE o.failing LIMIT @max_scan) x;

-- name: Backlogs :many
-- Counts the runs of each group that have been held, or have waited for an instance, for over a minute.
SELECT w.group_name, count(*) FILTER (WHERE w.held) AS held, count(*) FILTER (WHERE NOT w.held) AS waiting, min(w.due_at)::timestamptz AS since
  FROM ((SELECT l.group_name, l.due_at, true AS held FROM runs_live l WHERE l.held LIMIT @max_scan)
        UNION ALL (SELECT r.group_name, r.due_at, false FROM runs_waiting r LIMIT @max_scan)) w
 WHERE w.due_at < statement_timestamp() - interval '1 minute'
   AND (sqlc.narg('only')::text[] IS NULL OR w.group_name = ANY (sqlc.narg('only')::text[]))
 GROUP BY 1;

-- name: MissedOfGroups :many
-- Returns the missed fire times of the last 24 hours, and the newest entry of each group.
SELECT s.group_name, s.fires, m.id, m.job_id, m.at, m.why, coalesce(m.why_note, '')::text AS why_note, s.since, coalesce(j.name, '')::text AS job_name
  FROM (SELECT o.group_name, sum(o.fires)::bigint AS fires, min(o.at)::timestamptz AS since
          FROM missed_stats o
         WHERE o.span = 3600 AND o.at >= statement_timestamp() - interval '24 hours'
           AND (sqlc.narg('only')::text[] IS NULL OR o.group_name = ANY (sqlc.narg('only')::text[]))
         GROUP BY 1) s
 CROSS JOIN LATERAL (SELECT * FROM missed o WHERE o.group_name = s.group_name ORDER BY o.group_name DESC, o.at DESC, o.id DESC LIMIT 1) m
  LEFT JOIN jobs j ON j.id = m.job_id
 ORDER BY m.at DESC LIMIT @max_rows;

-- name: Undelivered :many
-- Returns the deliveries that failed in the last 24 hours, by channel and group.
SELECT d.channel, a.group_name, count(*) AS deliveries, min(d.updated_at)::timestamptz AS since, max(d.alert_id)::bigint AS newest,
       (array_agg(d.error ORDER BY d.alert_id DESC))[1]::text AS error
  FROM (SELECT * FROM alert_deliveries o WHERE o.state = 'failed' AND o.updated_at > statement_timestamp() - interval '24 hours'
         ORDER BY o.updated_at DESC LIMIT @max_scan) d
  JOIN alerts a ON a.id = d.alert_id
 WHERE sqlc.narg('only')::text[] IS NULL OR a.group_name = ANY (sqlc.narg('only')::text[])
 GROUP BY 1, 2 ORDER BY newest DESC LIMIT @max_rows;

-- name: Acks :many
SELECT item, cause, by_actor, at, note, until FROM attention_acks
 WHERE item = ANY (@ids::text[]) AND (until IS NULL OR until > statement_timestamp());

-- name: SetAck :one
INSERT INTO attention_acks AS a (item, cause, by_actor, at, note, until) VALUES (@item, @cause, @by_actor, now(), @note, sqlc.narg('until'))
ON CONFLICT (item) DO UPDATE SET cause = excluded.cause, by_actor = excluded.by_actor, at = excluded.at, note = excluded.note, until = excluded.until
RETURNING *;

-- name: SweepAcks :exec
-- Deletes acknowledgements that have ended, and those of items that have not existed for long.
DELETE FROM attention_acks WHERE until < now() - interval '1 day' OR at < now() - interval '400 days';

-- name: EndAcks :exec
DELETE FROM attention_acks WHERE item = ANY (@ids::text[]);
