-- name: BeginIdempotent :execrows
-- Takes the key if it is free, if it is older than a day, or if its first request has been in progress for so long that
-- its process must have died.
INSERT INTO idempotency_keys (actor, route, key, body_sha256, rights)
VALUES (@actor, @route, @key, @body_sha256, @rights)
ON CONFLICT (actor, route, key) DO UPDATE
   SET body_sha256 = excluded.body_sha256, rights = excluded.rights, status = NULL, response = NULL, created_at = now()
 WHERE idempotency_keys.created_at < now() - interval '24 hours'
    OR (idempotency_keys.status IS NULL AND idempotency_keys.created_at < now() - interval '2 minutes'
        AND idempotency_keys.body_sha256 = excluded.body_sha256 AND idempotency_keys.rights = excluded.rights);

-- name: Idempotent :one
SELECT body_sha256, rights, status, response FROM idempotency_keys
 WHERE actor = @actor AND route = @route AND key = @key;

-- name: FinishIdempotent :exec
UPDATE idempotency_keys SET status = @status::integer, response = @response
 WHERE actor = @actor AND route = @route AND key = @key AND body_sha256 = @body_sha256;

-- name: ForgetIdempotent :exec
DELETE FROM idempotency_keys
 WHERE actor = @actor AND route = @route AND key = @key AND status IS NULL;

-- name: DeleteOldIdempotent :execrows
DELETE FROM idempotency_keys WHERE created_at < now() - interval '24 hours';

-- name: ServerKey :one
SELECT key FROM server_keys WHERE purpose = 'idempotency';
