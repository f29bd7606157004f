-- +goose Up

-- The processes of executors that dispatchers have seen. An attempt names its process by group and boot id, so that a reader can tell
-- which version of an executor ran it. Rows are deleted when no run can name them any more.
CREATE TABLE executor_boots (
    group_name text NOT NULL,
    boot_id    text NOT NULL,
    instance   text NOT NULL,
    version    text NOT NULL, -- as the executor reports it; may be empty
    host       text NOT NULL, -- the same
    first_seen timestamptz NOT NULL DEFAULT clock_timestamp(),
    last_seen  timestamptz NOT NULL DEFAULT clock_timestamp(), -- at most ten minutes old while the process lives
    PRIMARY KEY (group_name, boot_id)
);
CREATE INDEX executor_boots_last_seen ON executor_boots (last_seen);

-- +goose Down
DROP TABLE executor_boots;
