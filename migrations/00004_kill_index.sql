-- +goose Up

-- Every second, reconcilers look for kills that no executor has confirmed. The column does not change during the life of an ordinary run,
-- so that updates of its row stay heap-only.
CREATE INDEX runs_live_killed ON runs_live (kill_requested_at) WHERE kill_requested_at IS NOT NULL;

-- +goose Down
DROP INDEX runs_live_killed;
