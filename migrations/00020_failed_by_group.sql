-- +goose Up

-- Who sees one group asks for what failed there, and most of what a group did has not failed. Runs that did not fail are not in it.
CREATE INDEX runs_history_group_failed ON runs_history (group_name, id) WHERE state = 'failed';

-- +goose Down
DROP INDEX runs_history_group_failed;
