-- +goose Up
-- A run that fires grows, by its route and where it is bound, to almost twice what it was when it was planned. Where
-- pages were half full, a third of these updates found no room beside the old row, and made new entries in all indexes.
ALTER TABLE runs_live SET (fillfactor = 35);

-- +goose Down
ALTER TABLE runs_live SET (fillfactor = 50);
