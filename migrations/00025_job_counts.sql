-- +goose Up

-- The number of jobs of a group is the sum of the changes in this table. Each transaction that changes jobs inserts rows and so waits for no
-- other. From time to time the rows of a group are replaced by their sum. Counting the jobs themselves would read one index entry per job.
CREATE TABLE job_counts (
    group_name text NOT NULL,
    jobs       bigint NOT NULL, -- change of the number of jobs
    enabled    bigint NOT NULL  -- change of the number of enabled jobs
);

-- +goose StatementBegin
CREATE FUNCTION count_jobs() RETURNS trigger LANGUAGE plpgsql AS $$
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
CREATE TRIGGER jobs_added AFTER INSERT ON jobs REFERENCING NEW TABLE AS added FOR EACH STATEMENT EXECUTE FUNCTION count_jobs();
CREATE TRIGGER jobs_edited AFTER UPDATE ON jobs REFERENCING NEW TABLE AS added OLD TABLE AS removed FOR EACH STATEMENT EXECUTE FUNCTION count_jobs();
CREATE TRIGGER jobs_removed AFTER DELETE ON jobs REFERENCING OLD TABLE AS removed FOR EACH STATEMENT EXECUTE FUNCTION count_jobs();

-- Creating the triggers has locked the table, so no other transaction changes it from here on.
INSERT INTO job_counts SELECT j.group_name, count(*), count(*) FILTER (WHERE j.enabled) FROM jobs j GROUP BY 1;

-- +goose Down
DROP TRIGGER jobs_removed ON jobs;
DROP TRIGGER jobs_edited ON jobs;
DROP TRIGGER jobs_added ON jobs;
DROP FUNCTION count_jobs();
DROP TABLE job_counts;
