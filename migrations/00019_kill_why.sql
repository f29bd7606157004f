-- +goose Up

-- The text that names the user or the cause of a kill. It becomes part of the message of the run. The previous release leaves it empty.
ALTER TABLE runs_live ADD COLUMN kill_why text;

-- +goose Down

ALTER TABLE runs_live DROP COLUMN kill_why;
