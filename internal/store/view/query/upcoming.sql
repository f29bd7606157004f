-- name: DueJobs :many
-- Returns the jobs of the groups by their next due instant. It reads the first max_scan jobs of all groups.
SELECT d.job_id, j.group_name, j.name, (j.spec->'schedule')::jsonb AS schedule, j.created_at, d.next_fire_time, d.next_due_at::timestamptz AS next_due_at
  FROM (SELECT o.job_id, o.next_fire_time, o.next_due_at FROM job_due o
         WHERE o.next_due_at IS NOT NULL AND o.next_due_at <= @until::timestamptz
         ORDER BY o.next_due_at LIMIT @max_scan) d
  JOIN jobs j ON j.id = d.job_id
 WHERE sqlc.narg('groups')::text[] IS NULL OR j.group_name = ANY (sqlc.narg('groups')::text[])
 ORDER BY d.next_due_at LIMIT @max_rows;

-- name: DueScanEnd :one
-- Returns where the scan of DueJobs ends, or the epoch if it reaches the end.
SELECT coalesce((SELECT o.next_due_at FROM job_due o WHERE o.next_due_at IS NOT NULL AND o.next_due_at <= @until::timestamptz
                  ORDER BY o.next_due_at OFFSET @max_scan - 1 LIMIT 1), 'epoch')::timestamptz AS scanned;

-- name: PlannedRuns :many
-- Returns scheduled runs that are planned and not yet due.
SELECT r.id, r.job_id, r.group_name, coalesce(v.spec->>'name', '')::text AS job_name, r.fire_time, r.due_at
  FROM (SELECT * FROM runs_live o
         WHERE NOT o.held AND o.due_at > @from_at::timestamptz AND o.due_at <= @until::timestamptz AND o.state = 'pending' AND o.cause = 'schedule'
         ORDER BY o.due_at LIMIT @max_scan) r
  LEFT JOIN job_versions v ON v.job_id = r.job_id AND v.version = r.job_version
 WHERE sqlc.narg('groups')::text[] IS NULL OR r.group_name = ANY (sqlc.narg('groups')::text[])
 ORDER BY r.due_at, r.id LIMIT @max_rows;

-- name: CountScheduled :one
-- Counts jobs whose schedules fire, including those parked by a pause.
SELECT count(*) FROM job_due d WHERE d.next_due_at IS NOT NULL OR d.parked IS NOT NULL;

-- name: CountScheduledOf :one
SELECT count(*) FROM jobs j JOIN job_due d ON d.job_id = j.id
 WHERE j.group_name = ANY (@groups::text[]) AND (d.next_due_at IS NOT NULL OR d.parked IS NOT NULL);

-- name: ScheduledJobs :many
-- Returns one in one_in of the jobs that CountScheduled counts. A hash of the id selects them, so that regular gaps
-- between ids do not matter.
SELECT j.id, j.group_name, (j.spec->'schedule')::jsonb AS schedule, j.created_at, coalesce(d.next_fire_time, 'epoch')::timestamptz AS next_fire_time
  FROM job_due d JOIN jobs j ON j.id = d.job_id
 WHERE (d.next_due_at IS NOT NULL OR d.parked IS NOT NULL) AND (d.job_id * 7919) % 1000003 % @one_in::bigint = 0
   AND (sqlc.narg('groups')::text[] IS NULL OR j.group_name = ANY (sqlc.narg('groups')::text[]))
 LIMIT @max_rows;
