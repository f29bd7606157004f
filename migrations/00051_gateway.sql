-- +goose Up

-- The groups whose instances are executors of XXL-JOB: see package gateway of the store.
CREATE TABLE gateway_groups (
    group_name text PRIMARY KEY CONSTRAINT gateway_groups_group_fkey REFERENCES groups (name) ON DELETE CASCADE,
    app_name   text NOT NULL CONSTRAINT gateway_groups_app_key UNIQUE, -- as which the executors register
    token      bytea, -- their access token, sealed; null: they have none
    networks   cidr[] NOT NULL, -- from which they may register and call back, and in which they may be called
    capacity   integer NOT NULL CONSTRAINT gateway_groups_capacity CHECK (capacity BETWEEN 1 AND 65536), -- slots of each instance
    updated_at timestamptz NOT NULL DEFAULT now()
);

-- The addresses that executors have registered. Each is an instance, and one gateway process at a time serves it.
CREATE TABLE gateway_addresses (
    group_name        text NOT NULL REFERENCES gateway_groups (group_name) ON DELETE CASCADE,
    instance          text NOT NULL,
    url               text NOT NULL,
    boot_id           text NOT NULL, -- survives restarts of gateways
    owner             text NOT NULL, -- the gateway process that serves the address, or served it last
    epoch             bigint NOT NULL, -- how many gateway processes have served it
    lease_until       timestamptz NOT NULL, -- then another process may take the address over
    created_at        timestamptz NOT NULL,
    registered_at     timestamptz NOT NULL,
    registrations     bigint NOT NULL DEFAULT 1,
    source            text NOT NULL, -- the IP address that sent the last registration
    source_changed_at timestamptz, -- when another source than before last registered
    leaving_at        timestamptz, -- when the executor said that it stops; null: it has registered since
    kind              text NOT NULL, -- java, go, python, other
    agent             text NOT NULL, -- the executor's User-Agent
    PRIMARY KEY (group_name, instance)
) WITH (fillfactor = 50);

-- The ids that executors get for runs. XXL-JOB's own ids are smaller, because executors keep its log files.
CREATE SEQUENCE gateway_log_id_seq AS bigint START 1099511627776;

-- The runs that were sent to executors, and their results. An attempt is sent at most once: rows of an attempt that was not started do
-- not count, because it is routed again. No index uses a column that changes when an attempt is sent or answered, so that these updates
-- stay heap-only.
CREATE TABLE gateway_sends (
    log_id      bigint PRIMARY KEY DEFAULT nextval('gateway_log_id_seq'),
    group_name  text NOT NULL,
    instance    text NOT NULL,
    boot_id     text NOT NULL,
    run_id      uuid NOT NULL,
    attempt     integer NOT NULL,
    bind        integer NOT NULL,
    wire_id     bigint NOT NULL, -- the job's id for executors
    handler     text NOT NULL, -- or "script:<language>"
    state       text NOT NULL DEFAULT 'accepted', -- accepted, sending, taken, unknown, ended, lost, unstarted
    unstarted   boolean NOT NULL DEFAULT false,
    accepted_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    sent_at     timestamptz,
    kill_reason text NOT NULL DEFAULT '', -- of the first kill request
    ended_at    timestamptz, -- null: there is no result yet
    outcome     text NOT NULL DEFAULT '',
    reason      text NOT NULL DEFAULT '',
    message     text NOT NULL DEFAULT '',
    output      text NOT NULL DEFAULT '',
    permanent   boolean NOT NULL DEFAULT false, -- the run is not tried again
    forget_at   timestamptz -- when the row may be deleted; null: there is no result, or it is not settled
) WITH (fillfactor = 60);
CREATE UNIQUE INDEX gateway_sends_attempt ON gateway_sends (run_id, attempt) WHERE NOT unstarted;
CREATE UNIQUE INDEX gateway_sends_bind ON gateway_sends (run_id, attempt, bind);
CREATE INDEX gateway_sends_unsettled ON gateway_sends (group_name, instance, log_id) WHERE forget_at IS NULL;
CREATE INDEX gateway_sends_forget ON gateway_sends (forget_at) WHERE forget_at IS NOT NULL;

-- +goose Down
DROP TABLE gateway_sends;
DROP SEQUENCE gateway_log_id_seq;
DROP TABLE gateway_addresses;
DROP TABLE gateway_groups;
