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
