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
       (SELECT count(*) FROM jobs j WHERE j.group_name = g.name) AS jobs
  FROM groups g
 WHERE g.name = @name;

-- name: Groups :many
-- Of the names in `only`, or all where that is null.
SELECT g.name, g.description, g.created_at, g.updated_at,
       (SELECT count(*) FROM jobs j WHERE j.group_name = g.name) AS jobs
  FROM groups g
 WHERE g.name > @after AND (sqlc.narg('only')::text[] IS NULL OR g.name = ANY (sqlc.narg('only')::text[]))
 ORDER BY g.name LIMIT @max_rows;

-- name: SetGroupDescription :execrows
UPDATE groups SET description = @description, updated_at = now() WHERE name = @name;

-- name: SetGroupToken :execrows
UPDATE groups SET token_sha256 = @token_sha256, updated_at = now() WHERE name = @name;

-- name: DeleteGroup :execrows
DELETE FROM groups WHERE name = @name;

-- name: GroupOfToken :one
SELECT name FROM groups WHERE token_sha256 = @token_sha256;
