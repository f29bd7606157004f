-- +goose Up

-- A script version counts for the group that its job has when it is stored, also after the job has moved or was deleted. This is not in the
-- previous migration, because together they would lock tables jobs and scripts, which edits and creations of jobs lock in either order.
-- +goose StatementBegin
CREATE FUNCTION count_scripts() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO group_usage (group_name, jobs, fires, script_versions)
    SELECT j.group_name, 0, 0, count(*) FROM added a JOIN jobs j ON j.id = a.job_id GROUP BY 1;
    RETURN NULL;
END
$$;
-- +goose StatementEnd
CREATE TRIGGER scripts_added AFTER INSERT ON scripts REFERENCING NEW TABLE AS added FOR EACH STATEMENT EXECUTE FUNCTION count_scripts();

-- Creating the trigger has locked the table, so no other transaction changes it from here on.
INSERT INTO group_usage (group_name, jobs, fires, script_versions)
SELECT g.name, 0, 0, count(*)
  FROM scripts s
  CROSS JOIN LATERAL (SELECT COALESCE((SELECT j.group_name FROM jobs j WHERE j.id = s.job_id),
      (SELECT v.spec ->> 'group' FROM job_versions v WHERE v.job_id = s.job_id ORDER BY v.version DESC LIMIT 1)) AS name) g
 WHERE g.name IS NOT NULL
 GROUP BY 1;

-- The number of unfinished runs of each group that has some, as of the last count. A dispatcher counts every few seconds, because a
-- maintained counter would cost each run two updates of a row that all runs of its group share.
CREATE TABLE group_live_runs (
    group_name text PRIMARY KEY,
    runs       bigint NOT NULL
) WITH (fillfactor = 50);
CREATE TABLE group_live_mark (
    counted_at timestamptz NOT NULL,
    next_at    timestamptz NOT NULL -- of the next count
) WITH (fillfactor = 50);
INSERT INTO group_live_mark VALUES ('epoch', 'epoch');

-- The bytes of log text that were stored for a group on a UTC day.
CREATE TABLE group_log_bytes (
    day        date NOT NULL,
    group_name text NOT NULL,
    bytes      bigint NOT NULL,
    PRIMARY KEY (day, group_name)
) WITH (fillfactor = 50);

-- +goose Down
DROP TABLE group_live_runs, group_live_mark, group_log_bytes;
DROP TRIGGER scripts_added ON scripts;
DROP FUNCTION count_scripts();
UPDATE group_usage SET script_versions = 0;
