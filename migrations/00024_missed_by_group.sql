-- +goose Up

-- The group of the job at that time. With it, the missed fire times of a group are found without its jobs. A trigger sets it, because the
-- previous binary does not.
ALTER TABLE missed ADD COLUMN group_name text;
-- +goose StatementBegin
CREATE FUNCTION missed_group() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    NEW.group_name := coalesce((SELECT j.group_name FROM jobs j WHERE j.id = NEW.job_id),
        (SELECT v.spec->>'group' FROM job_versions v WHERE v.job_id = NEW.job_id ORDER BY v.version DESC LIMIT 1), '');
    RETURN NEW;
END
$$;
-- +goose StatementEnd
CREATE TRIGGER missed_group BEFORE INSERT ON missed FOR EACH ROW WHEN (NEW.group_name IS NULL) EXECUTE FUNCTION missed_group();
UPDATE missed m SET group_name = coalesce((SELECT j.group_name FROM jobs j WHERE j.id = m.job_id),
        (SELECT v.spec->>'group' FROM job_versions v WHERE v.job_id = m.job_id ORDER BY v.version DESC LIMIT 1), '');
ALTER TABLE missed ALTER COLUMN group_name SET NOT NULL;

-- The newest entries of all groups, and of one group.
DROP INDEX missed_at;
CREATE INDEX missed_at ON missed (at, id);
CREATE INDEX missed_of_group ON missed (group_name, at, id);

-- Missed fire times, by the minute (span 60) and by the hour (span 3600) of their entry in the ledger.
CREATE TABLE missed_stats (
    span       integer NOT NULL,
    at         timestamptz NOT NULL,
    group_name text NOT NULL,
    fires      bigint NOT NULL,
    PRIMARY KEY (span, at, group_name)
);

-- All ledger entries before missed_through are counted. This is a second mark, because the previous binary advances `through` without
-- counting missed fire times. The roll-up counts entries of transactions that began before this one and write after it.
ALTER TABLE run_stats_mark ADD COLUMN missed_through timestamptz;
UPDATE run_stats_mark SET missed_through = now() - interval '1 minute';
ALTER TABLE run_stats_mark ALTER COLUMN missed_through SET NOT NULL;
INSERT INTO missed_stats (span, at, group_name, fires)
SELECT s.span, date_bin(make_interval(secs => s.span), m.at, 'epoch'::timestamptz), m.group_name, sum(m.count)
  FROM missed m CROSS JOIN (VALUES (60), (3600)) s (span)
 WHERE m.at < now() - interval '1 minute'
 GROUP BY 1, 2, 3;

-- The parents of a job, ordered by id.
DROP INDEX job_children_child;
CREATE INDEX job_children_child ON job_children (child_id, parent_id);

-- +goose Down
DROP INDEX job_children_child;
CREATE INDEX job_children_child ON job_children (child_id);
ALTER TABLE run_stats_mark DROP COLUMN missed_through;
DROP TABLE missed_stats;
DROP TRIGGER missed_group ON missed;
DROP FUNCTION missed_group();
DROP INDEX missed_of_group, missed_at;
CREATE INDEX missed_at ON missed (at);
ALTER TABLE missed DROP COLUMN group_name;
