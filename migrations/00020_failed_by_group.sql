-- +goose Up

-- The failed runs of a group, for users who see only that group. Most runs do not fail, so the index has only those that did.
CREATE INDEX runs_history_group_failed ON runs_history (group_name, id) WHERE state = 'failed';

-- +goose Down
DROP INDEX runs_history_group_failed;
