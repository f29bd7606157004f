-- +goose Up

-- The token before the current one stays valid until previous_token_until. Without an overlap, both are null.
ALTER TABLE groups ADD COLUMN previous_token_sha256 bytea,
                   ADD COLUMN previous_token_until timestamptz,
                   ADD CONSTRAINT groups_previous_token CHECK ((previous_token_sha256 IS NULL) = (previous_token_until IS NULL));

CREATE UNIQUE INDEX groups_by_previous_token ON groups (previous_token_sha256) WHERE previous_token_sha256 IS NOT NULL;

-- +goose Down
DROP INDEX groups_by_previous_token;
ALTER TABLE groups DROP CONSTRAINT groups_previous_token, DROP COLUMN previous_token_until, DROP COLUMN previous_token_sha256;
