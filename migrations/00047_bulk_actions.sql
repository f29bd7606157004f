-- +goose Up

-- Actions on many runs: see package bulk of the store. They are deleted some days after their end.
CREATE TABLE bulk_actions (
    id          bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    action      text NOT NULL, -- kill, retry
    filter      jsonb NOT NULL,
    state       text NOT NULL DEFAULT 'waiting', -- waiting, running, done, stopped, failed
    user_id     bigint NOT NULL, -- the creator, whose rights are checked before each batch; the user may be deleted
    token_id    bigint NOT NULL, -- the API token of the creator; 0: a log-in
    created_by  text NOT NULL,
    remote      text NOT NULL,
    groups      text[], -- the groups that the creator was confined to, and that the filter names; null: all
    created_at  timestamptz NOT NULL DEFAULT clock_timestamp(), -- runs that were created later do not match
    started_at  timestamptz,
    finished_at timestamptz,
    matched     bigint NOT NULL, -- runs that matched at created_at
    at_least    boolean NOT NULL, -- matched is a lower bound
    jobs        jsonb NOT NULL, -- how many of them by job
    cursor      uuid, -- all matching runs from this id up are processed; null: none
    done        bigint NOT NULL DEFAULT 0,
    skipped     bigint NOT NULL DEFAULT 0,
    failed      bigint NOT NULL DEFAULT 0,
    errors      jsonb NOT NULL DEFAULT '[]', -- why runs failed, by reason
    note        text NOT NULL DEFAULT '' -- why the action failed, waits, or was stopped
);
CREATE INDEX bulk_actions_unfinished ON bulk_actions (user_id) WHERE finished_at IS NULL;
CREATE INDEX bulk_actions_finished ON bulk_actions (finished_at) WHERE finished_at IS NOT NULL;

-- The new runs of a retry, so that another action can kill them.
CREATE TABLE bulk_runs (
    bulk_id bigint NOT NULL REFERENCES bulk_actions (id) ON DELETE CASCADE,
    run_id  uuid NOT NULL,
    PRIMARY KEY (bulk_id, run_id)
);

-- +goose Down
DROP TABLE bulk_runs;
DROP TABLE bulk_actions;
