-- +goose Up

-- Belfry vacuums runs_live itself, every few seconds and by what is dead. Autovacuum did the same work a second time; now
-- it is for the case that Belfry's fails, such as for lack of ownership. And ANALYZE looked at 30,000 rows of 30 columns
-- every quarter of a minute: here at what is gone within seconds, in a day of the history while that is young. A few
-- thousand tell as much. Together this was a twentieth of what Postgres did near the maximum.
ALTER TABLE runs_live SET (autovacuum_vacuum_threshold = 500000, autovacuum_vacuum_scale_factor = 1, autovacuum_vacuum_insert_threshold = -1);

-- sample_little has ANALYZE look at 300 times as many rows of a table as it is told; -1 is as many as of any other.
-- +goose StatementBegin
CREATE FUNCTION sample_little(part regclass, target int) RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
    name text;
BEGIN
    FOR name IN SELECT attname FROM pg_attribute WHERE attrelid = part AND attnum > 0 AND NOT attisdropped LOOP
        EXECUTE format('ALTER TABLE %s ALTER COLUMN %I SET STATISTICS %s', part, name, target);
    END LOOP;
END
$$;
-- +goose StatementEnd

-- As before, but for the sample.
-- +goose StatementBegin
CREATE OR REPLACE FUNCTION make_day(day date) RETURNS void
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
            IF parent = 'runs_history' THEN
                PERFORM sample_little(part::regclass, 20);
            END IF;
            EXECUTE format('ALTER TABLE %I ATTACH PARTITION %I FOR VALUES FROM (%L) TO (%L)', parent, part, lo, hi);
        END IF;
    END LOOP;
END
$$;
-- +goose StatementEnd

SELECT sample_little('runs_live', 10);

-- +goose Down
SELECT sample_little('runs_live', -1);
ALTER TABLE runs_live RESET (autovacuum_vacuum_threshold, autovacuum_vacuum_scale_factor, autovacuum_vacuum_insert_threshold);
-- +goose StatementBegin
CREATE OR REPLACE FUNCTION make_day(day date) RETURNS void
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
DROP FUNCTION sample_little(regclass, int);
