-- +goose Up

CREATE TABLE alert_channels (
    name        text PRIMARY KEY,
    kind        text NOT NULL,
    settings    jsonb NOT NULL, -- the channel without its secrets
    secrets     bytea NOT NULL, -- sealed, or plain where the server has no key
    created_at  timestamptz NOT NULL DEFAULT now(),
    updated_at  timestamptz NOT NULL DEFAULT now()
);

-- Which jobs use a channel is asked when it is to be deleted. Jobs without channels are not in the index.
CREATE INDEX jobs_alert_channels ON jobs USING gin ((spec -> 'alert' -> 'channels') jsonb_path_ops)
    WHERE spec -> 'alert' -> 'channels' <> '[]'::jsonb;

-- Where each job stands that had something to tell: one row for a job and kind. It folds what repeats itself.
CREATE TABLE alert_state (
    job_id       bigint NOT NULL,
    kind         text NOT NULL, -- failed, missed or late
    open         boolean NOT NULL, -- failed: told, and no success since
    opened_at    timestamptz NOT NULL, -- when the first failure since the last success came
    failures     bigint NOT NULL, -- how many since then
    told_at      timestamptz NOT NULL, -- when it was last told
    told         bigint NOT NULL, -- how many that was
    telling      boolean NOT NULL, -- whether the latest change of the row is to be told
    folded       bigint NOT NULL DEFAULT 0, -- how many came since, and have not been told
    since        timestamptz NOT NULL, -- when the first of those that are folded came, or else of those told last
    job_version  integer NOT NULL, -- of the latest
    run_id       uuid, -- the latest
    PRIMARY KEY (job_id, kind)
) WITH (fillfactor = 50);

CREATE TABLE alerts (
    id         bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    kind       text NOT NULL,
    job_id     bigint NOT NULL,
    job_name   text NOT NULL,
    group_name text NOT NULL,
    run_id     uuid,
    content    jsonb NOT NULL, -- what is told
    at         timestamptz NOT NULL DEFAULT clock_timestamp()
);
CREATE INDEX alerts_job ON alerts (job_id, id);
CREATE INDEX alerts_at ON alerts (at);

CREATE TABLE alert_deliveries (
    alert_id   bigint NOT NULL REFERENCES alerts (id) ON DELETE CASCADE,
    channel    text NOT NULL,
    state      text NOT NULL DEFAULT 'pending' CHECK (state IN ('pending', 'delivered', 'failed')),
    tries      integer NOT NULL DEFAULT 0,
    error      text NOT NULL DEFAULT '', -- of the latest try
    updated_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    PRIMARY KEY (alert_id, channel)
);
CREATE INDEX alert_deliveries_open ON alert_deliveries (updated_at) WHERE state = 'pending';

-- +goose Down
DROP TABLE alert_deliveries, alerts, alert_state;
DROP INDEX jobs_alert_channels;
DROP TABLE alert_channels;
