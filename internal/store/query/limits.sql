-- name: LockGroupUsage :exec
-- Allows one transaction at a time to add to a group's usage or to sum it up.
SELECT pg_advisory_xact_lock(hashtextextended('belfry.group_usage ' || @group_name::text, 0));

-- name: TryLockGroupUsage :one
SELECT pg_try_advisory_xact_lock(hashtextextended('belfry.group_usage ' || @group_name::text, 0));

-- name: GroupUsage :one
SELECT g.limits, u.parts, u.jobs, u.fires, u.script_versions
  FROM groups g
  CROSS JOIN LATERAL (SELECT count(*) AS parts, COALESCE(sum(r.jobs), 0)::bigint AS jobs,
                             COALESCE(sum(r.fires), 0)::bigint AS fires, COALESCE(sum(r.script_versions), 0)::bigint AS script_versions
                        FROM group_usage r WHERE r.group_name = g.name) u
 WHERE g.name = @group_name;

-- name: SumGroupUsage :exec
-- Replaces the rows of a group by their sum. The caller holds the group's lock.
WITH old AS (DELETE FROM group_usage WHERE group_name = @group_name RETURNING jobs, fires, script_versions)
INSERT INTO group_usage (group_name, jobs, fires, script_versions)
SELECT @group_name, sum(o.jobs), sum(o.fires), sum(o.script_versions) FROM old o
HAVING sum(o.jobs) <> 0 OR sum(o.fires) <> 0 OR sum(o.script_versions) <> 0;

-- name: PartedGroups :many
-- Returns groups whose usage has more than @most rows.
SELECT r.group_name FROM group_usage r GROUP BY 1 HAVING count(*) > @most::bigint ORDER BY 1 LIMIT 100;

-- name: JobsWithoutFires :many
-- Locks jobs whose fires per minute were not computed for their current version. Jobs that are being edited are skipped.
SELECT id, spec, created_at FROM jobs WHERE fires_version <> version ORDER BY id LIMIT @batch FOR NO KEY UPDATE SKIP LOCKED;

-- name: SetFires :exec
UPDATE jobs j SET fires_per_minute = w.fires, fires_version = j.version
  FROM (SELECT unnest(@ids::bigint[]) AS id, unnest(@fires::integer[]) AS fires) w
 WHERE j.id = w.id;

-- name: ClaimLiveCount :one
-- Claims the count of live runs for a transaction, if it is time for one.
SELECT counted_at FROM group_live_mark WHERE next_at <= clock_timestamp() FOR UPDATE SKIP LOCKED;

-- name: CountLiveRuns :exec
WITH n AS MATERIALIZED (SELECT l.group_name, count(*) AS runs FROM runs_live l GROUP BY 1),
     gone AS (DELETE FROM group_live_runs g WHERE NOT EXISTS (SELECT 1 FROM n WHERE n.group_name = g.group_name))
INSERT INTO group_live_runs AS g (group_name, runs) SELECT n.group_name, n.runs FROM n
    ON CONFLICT (group_name) DO UPDATE SET runs = excluded.runs WHERE g.runs <> excluded.runs;

-- name: SetLiveCount :exec
-- The pause before the next count has a lower bound, and is longer if this count took long.
UPDATE group_live_mark SET counted_at = now(), next_at = clock_timestamp() + sqlc.arg(pause)::interval + (clock_timestamp() - now()) * sqlc.arg(share)::float8;

-- name: LiveRunsOf :many
-- Returns the groups of jobs, and how many unfinished runs each group had at the last count.
SELECT DISTINCT g.name, g.limits, COALESCE(l.runs, 0)::bigint AS runs, m.counted_at
  FROM jobs j
  JOIN groups g ON g.name = j.group_name
  CROSS JOIN group_live_mark m
  LEFT JOIN group_live_runs l ON l.group_name = g.name
 WHERE j.id = ANY(@job_ids::bigint[]);

-- name: LogBytesBeyond :many
-- Returns the groups that have reached their limit of log bytes today.
SELECT b.group_name
  FROM group_log_bytes b JOIN groups g ON g.name = b.group_name
 WHERE b.day = (now() AT TIME ZONE 'UTC')::date
   AND b.bytes >= COALESCE((g.limits ->> 'max_log_bytes_per_day')::bigint, @default_limit::bigint)
 ORDER BY 1;

-- name: DeleteLogBytes :exec
DELETE FROM group_log_bytes WHERE day < (now() AT TIME ZONE 'UTC')::date - @days::integer;
