-- +goose Up

-- Retries whose River job has not been worked yet: few, and looked for every second. Without it that look read every
-- run that was due.
CREATE INDEX runs_live_unplanned ON runs_live (due_at) WHERE NOT replanned;

-- +goose Down
DROP INDEX runs_live_unplanned;
