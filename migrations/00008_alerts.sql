-- +goose Up

CREATE TABLE alert_channels (
    name        text PRIMARY KEY,
    kind        text NOT NULL,
    settings    jsonb NOT NULL, -- the channel without its secrets
    secrets     bytea NOT NULL, -- sealed, or in plain text if the server has no key
    created_at  timestamptz NOT NULL DEFAULT now(),
    updated_at  timestamptz NOT NULL DEFAULT now()
);

-- The deletion of a channel looks for jobs that use it. Jobs without channels are not in the index.
CREATE INDEX jobs_alert_channels ON jobs USING gin ((spec -> 'alert' -> 'channels') jsonb_path_ops)
    WHERE spec -> 'alert' -> 'channels' <> '[]'::jsonb;

-- The state of the alerts of each job: one row for a job and kind. It folds repeated events into one alert.
CREATE TABLE alert_state (
    job_id       bigint NOT NULL,
    kind         text NOT NULL, -- failed, missed or late
    open         boolean NOT NULL, -- kind failed: an alert was sent, and no run has succeeded since
    opened_at    timestamptz NOT NULL, -- the first failure since the last success
    failures     bigint NOT NULL, -- the number of failures since opened_at
    told_at      timestamptz NOT NULL, -- when the last alert was sent
    told         bigint NOT NULL, -- the number of events in that alert
    telling      boolean NOT NULL, -- whether the last change of the row sends an alert
    folded       bigint NOT NULL DEFAULT 0, -- the number of events since the last alert
    since        timestamptz NOT NULL, -- the first of the folded events; if there are none, the first event of the last alert
    job_version  integer NOT NULL, -- of the latest event
    run_id       uuid, -- of the latest event
    PRIMARY KEY (job_id, kind)
) WITH (fillfactor = 50);

CREATE TABLE alerts (
    id         bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    kind       text NOT NULL,
    job_id     bigint NOT NULL,
    job_name   text NOT NULL,
    group_name text NOT NULL,
    run_id     uuid,
    content    jsonb NOT NULL, -- the data for the texts of the alert
    at         timestamptz NOT NULL DEFAULT clock_timestamp()
);
CREATE INDEX alerts_job ON alerts (job_id, id);
CREATE INDEX alerts_at ON alerts (at);

CREATE TABLE alert_deliveries (
    alert_id   bigint NOT NULL REFERENCES alerts (id) ON DELETE CASCADE,
    channel    text NOT NULL,
    state      text NOT NULL DEFAULT 'pending' CHECK (state IN ('pending', 'delivered', 'failed')),
    tries      integer NOT NULL DEFAULT 0,
    error      text NOT NULL DEFAULT '', -- of the last try
    updated_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    PRIMARY KEY (alert_id, channel)
);
CREATE INDEX alert_deliveries_open ON alert_deliveries (updated_at) WHERE state = 'pending';

-- +goose Down
DROP TABLE alert_deliveries, alerts, alert_state;
DROP INDEX jobs_alert_channels;
DROP TABLE alert_channels;
