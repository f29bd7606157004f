-- +goose Up

-- What an API token is confined to beyond its role: empty is nothing, events is sending them.
ALTER TABLE api_tokens ADD COLUMN scope text NOT NULL DEFAULT '' CONSTRAINT api_tokens_scope CHECK (scope IN ('', 'events'));

-- +goose Down
ALTER TABLE api_tokens DROP COLUMN scope;
