-- +goose Up

-- Event triggers: which events fire which job. A trigger is deleted with its job.
CREATE TABLE event_triggers (
    id         bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    name       text NOT NULL, -- a pattern
    head       text NOT NULL, -- the words of the name before the first wildcard; the key for lookups
    job_id     bigint NOT NULL CONSTRAINT event_triggers_job_fkey REFERENCES jobs (id) ON DELETE CASCADE,
    filter     text NOT NULL,
    param      text NOT NULL,
    enabled    boolean NOT NULL,
    version    integer NOT NULL DEFAULT 1,
    created_at timestamptz NOT NULL DEFAULT now(),
    updated_at timestamptz NOT NULL DEFAULT now()
);
CREATE INDEX event_triggers_head ON event_triggers (head, id);
CREATE INDEX event_triggers_job ON event_triggers (job_id);

-- Keys of accepted events. A transaction that inserts a key creates its event. If the key exists, the event is a repetition. The keys have
-- their own table because events are partitioned by day, and across partitions only the id is unique.
CREATE TABLE event_keys (
    digest   bytea PRIMARY KEY,
    event_id uuid NOT NULL,
    body     bytea NOT NULL, -- a digest of the body
    at       timestamptz NOT NULL
);
CREATE INDEX event_keys_age ON event_keys (at);

-- Accepted events and their deliveries, partitioned by the day of their id. Insert-only; old partitions are dropped.
CREATE TABLE events (
    id          uuid NOT NULL,
    name        text NOT NULL,
    source      text NOT NULL,
    type        text NOT NULL,
    subject     text NOT NULL,
    key         text NOT NULL,
    at          timestamptz NOT NULL, -- when it happened
    received_at timestamptz NOT NULL,
    via         text NOT NULL,
    sent_by     text NOT NULL,
    data_bytes  integer NOT NULL,
    data        text, -- JSON; null if it is too long to be stored
    groups      text[] NOT NULL, -- of the jobs whose triggers matched; users of these groups may see the event
    deliveries  jsonb NOT NULL,
    PRIMARY KEY (id)
) PARTITION BY RANGE (id);
CREATE INDEX events_name ON events (name, id);

-- make_event_day creates the partition of a UTC day, as make_day does for runs.
-- +goose StatementBegin
CREATE FUNCTION make_event_day(day date) RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
    part text := 'events_' || to_char(day, 'YYYYMMDD');
    lo   uuid := first_run_id(day::timestamp AT TIME ZONE 'UTC');
    hi   uuid := first_run_id((day + 1)::timestamp AT TIME ZONE 'UTC');
BEGIN
    IF to_regclass(part) IS NOT NULL THEN
        RETURN;
    END IF;
    PERFORM pg_advisory_xact_lock(hashtextextended('belfry.make_day', 0));
    IF to_regclass(part) IS NULL THEN
        EXECUTE format('CREATE TABLE %I (LIKE events INCLUDING DEFAULTS INCLUDING CONSTRAINTS INCLUDING STORAGE)', part);
        EXECUTE format('ALTER TABLE events ATTACH PARTITION %I FOR VALUES FROM (%L) TO (%L)', part, lo, hi);
    END IF;
END
$$;
-- +goose StatementEnd

-- +goose Down
DROP FUNCTION make_event_day(date);
DROP TABLE events, event_keys, event_triggers;
