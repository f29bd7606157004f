-- +goose Up

-- Reconcilers look for kills that nobody confirmed every second. The column changes in no ordinary life, so that updates
-- stay heap-only.
CREATE INDEX runs_live_killed ON runs_live (kill_requested_at) WHERE kill_requested_at IS NOT NULL;

-- +goose Down
DROP INDEX runs_live_killed;
