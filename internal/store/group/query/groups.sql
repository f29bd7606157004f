-- name: InsertGroup :one
INSERT INTO groups (name, description, token_sha256)
VALUES (@name, @description, @token_sha256)
RETURNING *;

-- name: EnsureGroup :execrows
INSERT INTO groups (name, description, token_sha256)
VALUES (@name, @description, @token_sha256)
ON CONFLICT (name) DO NOTHING;

-- name: Group :one
SELECT g.name, g.description, g.created_at, g.updated_at,
       COALESCE(p.from_at, 'epoch')::timestamptz AS paused_at, COALESCE(p.to_at, 'epoch')::timestamptz AS paused_until,
       COALESCE(p.reason, '')::text AS pause_reason, COALESCE(p.paused_by, '')::text AS paused_by, g.limits,
       CASE WHEN g.previous_token_until > now() THEN g.previous_token_until ELSE 'epoch' END::timestamptz AS previous_token_until
  FROM groups g
  LEFT JOIN LATERAL (SELECT * FROM group_pauses o WHERE o.group_name = g.name AND (o.to_at IS NULL OR o.to_at > now())
                      ORDER BY o.from_at LIMIT 1) p ON true
 WHERE g.name = @name;

-- name: Groups :many
-- Returns the groups in `only`, or all groups if it is null.
SELECT g.name, g.description, g.created_at, g.updated_at,
       COALESCE(p.from_at, 'epoch')::timestamptz AS paused_at, COALESCE(p.to_at, 'epoch')::timestamptz AS paused_until,
       COALESCE(p.reason, '')::text AS pause_reason, COALESCE(p.paused_by, '')::text AS paused_by, g.limits,
       CASE WHEN g.previous_token_until > now() THEN g.previous_token_until ELSE 'epoch' END::timestamptz AS previous_token_until
  FROM groups g
  LEFT JOIN LATERAL (SELECT * FROM group_pauses o WHERE o.group_name = g.name AND (o.to_at IS NULL OR o.to_at > now())
                      ORDER BY o.from_at LIMIT 1) p ON true
 WHERE g.name > @after AND (sqlc.narg('only')::text[] IS NULL OR g.name = ANY (sqlc.narg('only')::text[]))
 ORDER BY g.name LIMIT @max_rows;

-- name: SetGroupDescription :execrows
UPDATE groups SET description = @description, updated_at = now() WHERE name = @name;

-- name: SetGroupLimits :execrows
-- Adds the given limits to the group's own ones.
UPDATE groups SET limits = limits || @limits::jsonb, updated_at = now() WHERE name = @name;

-- name: GroupLimits :many
SELECT name, limits FROM groups WHERE name = ANY (@names::text[]);

-- name: GroupUsages :many
-- Returns the usage of the groups in `only`, or of all groups if it is null. It reads few rows for each group.
SELECT g.name, g.limits, u.jobs, u.fires, u.script_versions, COALESCE(l.runs, 0)::bigint AS live_runs, COALESCE(b.bytes, 0)::bigint AS log_bytes
  FROM groups g
  CROSS JOIN LATERAL (SELECT COALESCE(sum(r.jobs), 0)::bigint AS jobs, COALESCE(sum(r.fires), 0)::bigint AS fires,
                             COALESCE(sum(r.script_versions), 0)::bigint AS script_versions
                        FROM group_usage r WHERE r.group_name = g.name) u
  LEFT JOIN group_live_runs l ON l.group_name = g.name
  LEFT JOIN group_log_bytes b ON b.group_name = g.name AND b.day = (now() AT TIME ZONE 'UTC')::date
 WHERE sqlc.narg('only')::text[] IS NULL OR g.name = ANY (sqlc.narg('only')::text[])
 ORDER BY g.name LIMIT @max_rows;

-- name: SetGroupToken :execrows
-- With an overlap above 0, the old token becomes the previous one. Any earlier previous token ends.
UPDATE groups
   SET token_sha256 = @token_sha256, updated_at = now(),
       previous_token_sha256 = CASE WHEN @overlap_seconds::float8 > 0 THEN token_sha256 END,
       previous_token_until = CASE WHEN @overlap_seconds::float8 > 0 THEN now() + make_interval(secs => @overlap_seconds::float8) END
 WHERE name = @name;

-- name: DeleteGroup :execrows
-- A pause ends with its group, so that a new group of the same name starts without it.
WITH ended AS (UPDATE group_pauses SET to_at = now() WHERE group_name = @name AND (to_at IS NULL OR to_at > now()))
DELETE FROM groups WHERE name = @name;

-- name: GroupOfToken :one
-- left_seconds is 0 for the current token, and the rest of the overlap for the previous one.
SELECT g.name, (CASE WHEN g.token_sha256 = @token_sha256 THEN 0 ELSE EXTRACT(EPOCH FROM g.previous_token_until - now()) END)::float8 AS left_seconds
  FROM groups g
 WHERE g.token_sha256 = @token_sha256 OR (g.previous_token_sha256 = @token_sha256 AND g.previous_token_until > now());

-- name: TokensOfGroups :many
-- previous is null if there is no other valid token.
SELECT g.name, g.token_sha256, (CASE WHEN g.previous_token_until > now() THEN g.previous_token_sha256 END)::bytea AS previous
  FROM groups g WHERE g.name = ANY (@names::text[]);
