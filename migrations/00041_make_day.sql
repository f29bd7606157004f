-- +goose Up

-- When two processes created the partitions of a day at the same time, one of them could fail with "relation already exists": its first
-- look-up of the name was cached, so that the look-up after the lock did not see the other's table. For an event from NATS, this error made
-- the event a dead letter. Now the process that comes second finds the table when it creates it. The first one has committed by then, because
-- of the lock.
-- +goose StatementBegin
CREATE OR REPLACE FUNCTION make_event_day(day date) RETURNS void
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
    BEGIN
        EXECUTE format('CREATE TABLE %I (LIKE events INCLUDING DEFAULTS INCLUDING CONSTRAINTS INCLUDING STORAGE)', part);
    EXCEPTION WHEN duplicate_table THEN
        RETURN;
    END;
    EXECUTE format('ALTER TABLE events ATTACH PARTITION %I FOR VALUES FROM (%L) TO (%L)', part, lo, hi);
END
$$;
-- +goose StatementEnd

-- +goose StatementBegin
CREATE OR REPLACE FUNCTION make_day_tables(day date) RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
    parent text;
    part   text;
    lo     uuid := first_run_id(day::timestamp AT TIME ZONE 'UTC');
    hi     uuid := first_run_id((day + 1)::timestamp AT TIME ZONE 'UTC');
BEGIN
    PERFORM pg_advisory_xact_lock(hashtextextended('belfry.make_day', 0));
    FOREACH parent IN ARRAY ARRAY['runs_history', 'run_attempts', 'late_results', 'run_logs'] LOOP
        part := parent || '_' || to_char(day, 'YYYYMMDD');
        IF to_regclass(part) IS NULL THEN
            BEGIN
                EXECUTE format('CREATE TABLE %I (LIKE %I INCLUDING DEFAULTS INCLUDING CONSTRAINTS INCLUDING STORAGE)', part, parent);
            EXCEPTION WHEN duplicate_table THEN
                CONTINUE;
            END;
            EXECUTE format('ALTER TABLE %I ATTACH PARTITION %I FOR VALUES FROM (%L) TO (%L)', parent, part, lo, hi);
        END IF;
    END LOOP;
END
$$;
-- +goose StatementEnd

-- +goose Down
-- +goose StatementBegin
CREATE OR REPLACE FUNCTION make_event_day(day date) RETURNS void
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

-- +goose StatementBegin
CREATE OR REPLACE FUNCTION make_day_tables(day date) RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
    parent text;
    part   text;
    lo     uuid := first_run_id(day::timestamp AT TIME ZONE 'UTC');
    hi     uuid := first_run_id((day + 1)::timestamp AT TIME ZONE 'UTC');
BEGIN
    PERFORM pg_advisory_xact_lock(hashtextextended('belfry.make_day', 0));
    FOREACH parent IN ARRAY ARRAY['runs_history', 'run_attempts', 'late_results', 'run_logs'] LOOP
        part := parent || '_' || to_char(day, 'YYYYMMDD');
        IF to_regclass(part) IS NULL THEN
            EXECUTE format('CREATE TABLE %I (LIKE %I INCLUDING DEFAULTS INCLUDING CONSTRAINTS INCLUDING STORAGE)', part, parent);
            EXECUTE format('ALTER TABLE %I ATTACH PARTITION %I FOR VALUES FROM (%L) TO (%L)', parent, part, lo, hi);
        END IF;
    END LOOP;
END
$$;
-- +goose StatementEnd
