-- name: InsertFirstUser :execrows
-- Does nothing once there is any user.
INSERT INTO users (name, password_hash, role)
SELECT @name, @password_hash, 'admin'
 WHERE NOT EXISTS (SELECT FROM users)
ON CONFLICT (name) DO NOTHING;

-- name: HasUsers :one
SELECT EXISTS (SELECT FROM users);

-- name: InsertUser :one
INSERT INTO users (name, password_hash, role, groups)
VALUES (@name, @password_hash, @role, @groups)
RETURNING *;

-- name: UserByName :one
SELECT * FROM users WHERE name = @name;

-- name: Users :many
SELECT * FROM users WHERE id > @after ORDER BY id LIMIT @max_rows;

-- name: SetPasswordHash :exec
UPDATE users SET password_hash = @password_hash, updated_at = now() WHERE id = @id;

-- name: InsertSession :one
INSERT INTO sessions (token_sha256, user_id, expires_at, remote)
VALUES (@token_sha256, @user_id, now() + @lifetime::interval, @remote)
RETURNING expires_at;

-- name: PrincipalOfSession :one
SELECT u.id, u.name, u.role, u.groups, s.expires_at
  FROM sessions s JOIN users u ON u.id = s.user_id
 WHERE s.token_sha256 = @token_sha256 AND s.expires_at > now() AND NOT u.disabled;

-- name: DeleteSession :execrows
DELETE FROM sessions WHERE token_sha256 = @token_sha256;

-- name: DeleteExpiredSessions :execrows
DELETE FROM sessions WHERE expires_at <= now();

-- name: LockUsers :exec
-- One change at a time, so that two of them cannot leave nobody who may do everything.
SELECT pg_advisory_xact_lock(hashtextextended('belfry.users', 0));

-- name: UpdateUser :one
UPDATE users SET role = @role, groups = @groups, disabled = @disabled, updated_at = now(),
       password_hash = COALESCE(NULLIF(@password_hash::text, ''), password_hash)
 WHERE id = @id
RETURNING *;

-- name: DeleteUser :exec
DELETE FROM users WHERE id = @id;

-- name: EndSessions :exec
DELETE FROM sessions WHERE user_id = @user_id;

-- name: HasAdmin :one
SELECT EXISTS (SELECT FROM users WHERE role = 'admin' AND NOT disabled);
