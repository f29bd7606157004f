-- +goose Up

-- Belfry vacuums runs_live itself, every few seconds, if there are enough dead rows. Autovacuum repeated this work. Now autovacuum runs only
-- if Belfry's vacuum fails, for instance because Belfry's user does not own the table. Also, every 15 s ANALYZE read 30,000 rows with 30 columns
-- each: of runs_live, whose rows exist only for seconds, and of the newest day of the history. A few thousand rows give
-- equally good statistics. Together this was a twentieth of Postgres's work near the maximum rate.
ALTER TABLE runs_live SET (autovacuum_vacuum_threshold = 500000, autovacuum_vacuum_scale_factor = 1, autovacuum_vacuum_insert_threshold = -1);

-- sample_little sets the statistics target of all columns of a table. ANALYZE then reads 300 times as many rows as the target; -1 means the
-- server's default.
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

-- The previous make_day is renamed to make_day_tables. The new make_day calls it, and then lowers the statistics target of the new day of the
-- history.
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
