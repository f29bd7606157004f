-- +goose Up
-- The deletion of a token deletes the tokens that were created with it. Otherwise an attacker with a leaked token could keep its rights.
ALTER TABLE api_tokens ADD COLUMN made_with bigint REFERENCES api_tokens (id) ON DELETE CASCADE; -- null: made with a log-in
CREATE INDEX api_tokens_made_with ON api_tokens (made_with) WHERE made_with IS NOT NULL;

-- Keys of the servers. Each one is random and is used for one purpose.
CREATE TABLE server_keys (
    purpose text PRIMARY KEY,
    key     bytea NOT NULL
);
-- gen_random_uuid uses a strong random generator. Three of its values have 366 random bits.
INSERT INTO server_keys (purpose, key)
VALUES ('idempotency', sha256((gen_random_uuid()::text || gen_random_uuid()::text || gen_random_uuid()::text)::bytea));

-- The actor is now token/<id> or user/<id>, and body_sha256 is an HMAC. rights is a digest of the rights that the first request had.
ALTER TABLE idempotency_keys ADD COLUMN rights bytea NOT NULL DEFAULT '';
-- These bodies have passwords and secrets, and earlier versions stored their plain digests.
DELETE FROM idempotency_keys
 WHERE route ~ '^POST /api/v1/(auth|users|alert-channels)(/|$)';

-- +goose Down
ALTER TABLE idempotency_keys DROP COLUMN rights;
DROP TABLE server_keys;
ALTER TABLE api_tokens DROP COLUMN made_with;
