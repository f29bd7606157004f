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
