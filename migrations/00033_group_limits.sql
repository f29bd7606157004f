-- +goose Up

-- The limits that an administrator has set for a group. A missing key means the default of the binary.
ALTER TABLE groups ADD COLUMN limits jsonb NOT NULL DEFAULT '{}';

-- +goose Down
ALTER TABLE groups DROP COLUMN limits;
