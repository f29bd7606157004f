-- +goose Up

-- The most fire times that the job's schedule has in any minute, times the fixed shards of a broadcast, and the version of the job for
-- which it was computed. A dispatcher computes it for jobs that an older release has written.
ALTER TABLE jobs ADD COLUMN fires_per_minute integer NOT NULL DEFAULT 0, ADD COLUMN fires_version integer NOT NULL DEFAULT 0;
CREATE INDEX jobs_fires_unknown ON jobs (id) WHERE fires_version <> version;

-- The usage of a group is the sum of its rows. Each transaction that changes the usage inserts a row and so waits for no other. A transaction
-- that adds to the usage compares the sum with the group's limits before it commits, under an advisory lock of the group. It also replaces
-- many rows by their sum.
CREATE TABLE group_usage (
    group_name      text NOT NULL, -- no foreign key: scripts outlive their group
    jobs            bigint NOT NULL, -- change of the number of jobs
    fires           bigint NOT NULL, -- change of the sum of fires_per_minute of the enabled jobs
    script_versions bigint NOT NULL  -- change of the number of script versions that were stored for jobs of the group
);
CREATE INDEX group_usage_group ON group_usage (group_name);

-- +goose StatementBegin
CREATE OR REPLACE FUNCTION count_jobs() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF TG_OP = 'INSERT' THEN
        INSERT INTO job_counts SELECT a.group_name, count(*), count(*) FILTER (WHERE a.enabled) FROM added a GROUP BY 1;
        INSERT INTO group_usage (group_name, jobs, fires, script_versions)
        SELECT a.group_name, count(*), sum(a.enabled::integer * a.fires_per_minute), 0 FROM added a GROUP BY 1;
    ELSIF TG_OP = 'DELETE' THEN
        INSERT INTO job_counts SELECT r.group_name, -count(*), -count(*) FILTER (WHERE r.enabled) FROM removed r GROUP BY 1;
        INSERT INTO group_usage (group_name, jobs, fires, script_versions)
        SELECT r.group_name, -count(*), -sum(r.enabled::integer * r.fires_per_minute), 0 FROM removed r GROUP BY 1;
    ELSE
        INSERT INTO job_counts
        SELECT c.group_name, sum(c.n), sum(c.n * c.enabled::integer)
          FROM (SELECT a.group_name, a.enabled, 1 AS n FROM added a UNION ALL SELECT r.group_name, r.enabled, -1 FROM removed r) c
         GROUP BY 1 HAVING sum(c.n) <> 0 OR sum(c.n * c.enabled::integer) <> 0;
        INSERT INTO group_usage (group_name, jobs, fires, script_versions)
        SELECT c.group_name, sum(c.n), sum(c.fires), 0
          FROM (SELECT a.group_name, 1 AS n, a.enabled::integer * a.fires_per_minute AS fires FROM added a
                UNION ALL SELECT r.group_name, -1, -r.enabled::integer * r.fires_per_minute FROM removed r) c
         GROUP BY 1 HAVING sum(c.n) <> 0 OR sum(c.fires) <> 0;
    END IF;
    RETURN NULL;
END
$$;
-- +goose StatementEnd

-- Adding the columns has locked the table, so no other transaction changes it from here on.
INSERT INTO group_usage (group_name, jobs, fires, script_versions) SELECT j.group_name, count(*), 0, 0 FROM jobs j GROUP BY 1;

-- +goose Down
-- +goose StatementBegin
CREATE OR REPLACE FUNCTION count_jobs() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF TG_OP = 'INSERT' THEN
        INSERT INTO job_counts SELECT a.group_name, count(*), count(*) FILTER (WHERE a.enabled) FROM added a GROUP BY 1;
    ELSIF TG_OP = 'DELETE' THEN
        INSERT INTO job_counts SELECT r.group_name, -count(*), -count(*) FILTER (WHERE r.enabled) FROM removed r GROUP BY 1;
    ELSE
        INSERT INTO job_counts
        SELECT c.group_name, sum(c.n), sum(c.n * c.enabled::integer)
          FROM (SELECT a.group_name, a.enabled, 1 AS n FROM added a UNION ALL SELECT r.group_name, r.enabled, -1 FROM removed r) c
         GROUP BY 1 HAVING sum(c.n) <> 0 OR sum(c.n * c.enabled::integer) <> 0;
    END IF;
    RETURN NULL;
END
$$;
-- +goose StatementEnd
DROP TABLE group_usage;
DROP INDEX jobs_fires_unknown;
ALTER TABLE jobs DROP COLUMN fires_per_minute, DROP COLUMN fires_version;
