-- name: InsertSession :one
-- The lock and the comparison of the hash prevent a log-in with a password that is being changed at the same time: the
-- change ends all sessions, and the session of this log-in would begin after that.
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

-- name: EndSessions :execrows
DELETE FROM sessions WHERE user_id = @user_id;
