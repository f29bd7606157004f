-- +goose Up

-- The end of a plain run has no further effect: no slot, no child, no chain, no shard, no alert. The planner sets the flag, so that settling
-- needs no query for it.
ALTER TABLE runs_live ADD COLUMN plain boolean NOT NULL DEFAULT false;

-- Runs that are in no ring yet. Ordinary fires are inserted with rung_at set, and are never in this index.
CREATE INDEX runs_live_unrung ON runs_live (due_at) WHERE rung_at IS NULL;

-- +goose Down
DROP INDEX runs_live_unrung;
ALTER TABLE runs_live DROP COLUMN plain;
