-- name: InsertToken :one
INSERT INTO api_tokens (user_id, name, token_sha256, role, groups, expires_at, scope, made_with)
VALUES (@user_id, @name, @token_sha256, @role, @groups, @expires_at, @scope, sqlc.narg('made_with')::bigint)
RETURNING *;

-- name: PrincipalOfToken :one
-- Returns the rights of the owner and of the token; the lesser of them apply.
SELECT u.id, u.name, u.kind, u.role, u.groups, t.id AS token_id, t.name AS token_name, t.role AS token_role,
       t.groups AS token_groups, t.expires_at, t.scope,
       (t.last_used_at IS NULL OR t.last_used_at < now() - interval '1 minute')::boolean AS touch
  FROM api_tokens t JOIN users u ON u.id = t.user_id
 WHERE t.token_sha256 = @token_sha256 AND NOT u.disabled AND (t.expires_at IS NULL OR t.expires_at > now());

-- name: LiveTokens :many
-- Returns the rights of the owner and of the token, like PrincipalOfToken, for those of the tokens that are valid.
SELECT t.id, u.role, t.role AS token_role, t.groups AS token_groups, t.scope
  FROM api_tokens t JOIN users u ON u.id = t.user_id
 WHERE t.id = ANY (@ids::bigint[]) AND NOT u.disabled AND (t.expires_at IS NULL OR t.expires_at > now());

-- name: TouchToken :exec
UPDATE api_tokens SET last_used_at = now() WHERE id = @id;

-- name: Tokens :many
-- Returns the tokens of one user, or of all users if user_id is 0.
SELECT t.id, t.name, t.role, t.groups, t.created_at, t.expires_at, t.last_used_at, t.scope, u.name AS user_name
  FROM api_tokens t JOIN users u ON u.id = t.user_id
 WHERE (@user_id::bigint = 0 OR t.user_id = @user_id) AND t.id > @after
 ORDER BY t.id LIMIT @max_rows;

-- name: DeleteToken :one
-- This also deletes the tokens that were made with it.
DELETE FROM api_tokens
 WHERE id = @id AND (@user_id::bigint = 0 OR user_id = @user_id)
RETURNING *;

-- name: RightsOf :one
-- Returns the rights of a user and of the user's token, like PrincipalOfToken. Without a token (0), the token's columns are null.
SELECT u.id, u.name, u.kind, u.role, u.groups, t.id AS token_id, t.name AS token_name, t.role AS token_role,
       t.groups AS token_groups, t.scope
  FROM users u
  LEFT JOIN api_tokens t ON t.id = @token_id AND t.user_id = u.id AND (t.expires_at IS NULL OR t.expires_at > now())
 WHERE u.id = @user_id AND NOT u.disabled AND (@token_id::bigint = 0 OR t.id IS NOT NULL);
