-- name: InsertFirstUser :execrows
-- Does nothing if there is any user.
INSERT INTO users (name, password_hash, role)
SELECT @name, @password_hash, 'admin'
 WHERE NOT EXISTS (SELECT FROM users)
ON CONFLICT (name) DO NOTHING;

-- name: HasUsers :one
SELECT EXISTS (SELECT FROM users);

-- name: InsertUser :one
INSERT INTO users (name, password_hash, role, groups, must_change_password)
VALUES (@name, @password_hash, @role, @groups, @must_change_password)
RETURNING *;

-- name: UserByName :one
SELECT * FROM users WHERE name = @name;

-- name: Users :many
SELECT * FROM users WHERE id > @after ORDER BY id LIMIT @max_rows;

-- name: SetPasswordHash :exec
UPDATE users SET password_hash = @password_hash, updated_at = now() WHERE id = @id;

-- name: InsertSession :one
-- The lock and the comparison of the hash prevent a log-in with a password that is being changed at the same time: the
-- change ends all sessions, and this one would be created after that.
INSERT INTO sessions (token_sha256, user_id, expires_at, remote, agent)
SELECT @token_sha256, u.id, now() + @lifetime::interval, @remote, @agent
  FROM users u
 WHERE u.id = @user_id AND u.password_hash = @verified_hash AND NOT u.disabled
   FOR SHARE
RETURNING sessions.expires_at;

-- name: PrincipalOfSession :one
SELECT u.id, u.name, u.role, u.groups, u.kind, u.must_change_password, s.id AS session_id, s.expires_at,
       (s.last_used_at < now() - interval '1 minute')::boolean AS touch
  FROM sessions s JOIN users u ON u.id = s.user_id
 WHERE s.token_sha256 = @token_sha256 AND s.expires_at > now() AND NOT u.disabled;

-- name: TouchSession :exec
UPDATE sessions SET last_used_at = now() WHERE id = @id;

-- name: Sessions :many
SELECT id, created_at, expires_at, last_used_at, remote, agent
  FROM sessions
 WHERE user_id = @user_id AND expires_at > now() AND id > @after
 ORDER BY id LIMIT @max_rows;

-- name: DeleteSession :execrows
DELETE FROM sessions WHERE token_sha256 = @token_sha256;

-- name: EndSession :execrows
DELETE FROM sessions WHERE id = @id AND user_id = @user_id;

-- name: DeleteExpiredSessions :execrows
DELETE FROM sessions WHERE expires_at <= now();

-- name: LockUsers :exec
-- Allows one change at a time, so that two changes cannot remove the last two admins.
SELECT pg_advisory_xact_lock(hashtextextended('belfry.users', 0));

-- name: UpdateUser :one
UPDATE users SET role = @role, groups = @groups, disabled = @disabled, updated_at = now(),
       must_change_password = @must_change_password,
       password_hash = COALESCE(NULLIF(@password_hash::text, ''), password_hash)
 WHERE id = @id
RETURNING *;

-- name: DeleteUser :exec
DELETE FROM users WHERE id = @id;

-- name: EndSessions :execrows
DELETE FROM sessions WHERE user_id = @user_id;

-- name: ChangePassword :execrows
-- Does nothing if the password was changed meanwhile, because the verification is then outdated.
UPDATE users SET password_hash = @password_hash, must_change_password = false, updated_at = now()
 WHERE id = @id AND password_hash = @verified_hash AND NOT disabled;

-- name: HasAdmin :one
SELECT EXISTS (SELECT FROM users WHERE role = 'admin' AND NOT disabled);

-- name: UserBySubject :one
SELECT * FROM users WHERE issuer = @issuer AND subject = @subject;

-- name: InsertOIDCUser :one
INSERT INTO users (name, password_hash, role, groups, kind, issuer, subject)
VALUES (@name, '', @role, @groups, 'oidc', @issuer, @subject)
RETURNING *;

-- name: ExistingGroups :many
SELECT name FROM groups WHERE name = ANY(@names::text[]) ORDER BY name;
