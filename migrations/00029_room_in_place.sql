-- +goose Up
-- When a run fires, its row grows to almost twice its size, because the route and the binding are added. With pages that are half full
-- at first, a third of these updates found no room on the page of the old row, and had to insert entries into all indexes.
ALTER TABLE runs_live SET (fillfactor = 35);

-- +goose Down
ALTER TABLE runs_live SET (fillfactor = 50);
