-- +goose Up

-- A further limit of an API token, in addition to its role: empty means none, events means that the token can only send events.
ALTER TABLE api_tokens ADD COLUMN scope text NOT NULL DEFAULT '' CONSTRAINT api_tokens_scope CHECK (scope IN ('', 'events'));

-- +goose Down
ALTER TABLE api_tokens DROP COLUMN scope;
