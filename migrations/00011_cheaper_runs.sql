-- +goose Up

-- Plain runs end without anything else to be done: no slot, no child, no chain, no shard, no alert. Said once, where the
-- run is planned, so that settling need not ask.
ALTER TABLE runs_live ADD COLUMN plain boolean NOT NULL DEFAULT false;

-- What is in no ring yet. Ordinary fires are inserted with their mark and never enter it.
CREATE INDEX runs_live_unrung ON runs_live (due_at) WHERE rung_at IS NULL;

-- +goose Down
DROP INDEX runs_live_unrung;
ALTER TABLE runs_live DROP COLUMN plain;
