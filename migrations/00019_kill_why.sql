-- +goose Up

-- Who or what asked for a kill, in words, for the message of the run that it ends. The release before leaves it empty.
ALTER TABLE runs_live ADD COLUMN kill_why text;

-- +goose Down

ALTER TABLE runs_live DROP COLUMN kill_why;
