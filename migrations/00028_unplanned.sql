-- +goose Up

-- Retries whose River job has not run yet. There are few, and a reconciler looks for them every second. Without this index it would read
-- every run that is due.
CREATE INDEX runs_live_unplanned ON runs_live (due_at) WHERE NOT replanned;

-- +goose Down
DROP INDEX runs_live_unplanned;
