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

-- make_day is what it was, under another name, and has little sampled of the history's new days.
ALTER FUNCTION make_day(date) RENAME TO make_day_tables;
-- +goose StatementBegin
CREATE OR REPLACE FUNCTION make_day(day date) RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
    part  text := 'runs_history_' || to_char(day, 'YYYYMMDD');
    fresh bool := to_regclass(part) IS NULL;
BEGIN
    PERFORM make_day_tables(day);
    IF fresh THEN
        PERFORM sample_little(part::regclass, 20);
    END IF;
END
$$;
-- +goose StatementEnd

SELECT sample_little('runs_live', 10);

-- +goose Down
SELECT sample_little('runs_live', -1);
ALTER TABLE runs_live RESET (autovacuum_vacuum_threshold, autovacuum_vacuum_scale_factor, autovacuum_vacuum_insert_threshold);
DROP FUNCTION make_day(date);
ALTER FUNCTION make_day_tables(date) RENAME TO make_day;
DROP FUNCTION sample_little(regclass, int);
