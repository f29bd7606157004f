-- +goose Up

-- The jobs with a tag, of all groups and of one group, ordered by id. An index on the arrays would always return all of them, even for a page
-- of a few.
CREATE TABLE job_tags (
    tag        text NOT NULL,
    group_name text NOT NULL,
    job_id     bigint NOT NULL,
    PRIMARY KEY (tag, group_name, job_id)
);
CREATE INDEX job_tags_of_all ON job_tags (tag, job_id);

-- +goose StatementBegin
CREATE FUNCTION tag_job() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF TG_OP <> 'INSERT' THEN
        DELETE FROM job_tags t WHERE t.tag = ANY (OLD.tags) AND t.group_name = OLD.group_name AND t.job_id = OLD.id;
    END IF;
    IF TG_OP <> 'DELETE' THEN
        INSERT INTO job_tags SELECT DISTINCT tag, NEW.group_name, NEW.id FROM unnest(NEW.tags) tag;
    END IF;
    RETURN NULL;
END
$$;
-- +goose StatementEnd
CREATE TRIGGER jobs_tagged AFTER INSERT ON jobs FOR EACH ROW WHEN (NEW.tags <> '{}') EXECUTE FUNCTION tag_job();
CREATE TRIGGER jobs_retagged AFTER UPDATE ON jobs FOR EACH ROW
    WHEN (OLD.tags <> NEW.tags OR OLD.group_name <> NEW.group_name) EXECUTE FUNCTION tag_job();
CREATE TRIGGER jobs_untagged AFTER DELETE ON jobs FOR EACH ROW WHEN (OLD.tags <> '{}') EXECUTE FUNCTION tag_job();
INSERT INTO job_tags SELECT DISTINCT tag, j.group_name, j.id FROM jobs j, unnest(j.tags) tag;
DROP INDEX jobs_tags;

-- +goose Down
CREATE INDEX jobs_tags ON jobs USING gin (tags);
DROP TRIGGER jobs_untagged ON jobs;
DROP TRIGGER jobs_retagged ON jobs;
DROP TRIGGER jobs_tagged ON jobs;
DROP FUNCTION tag_job();
DROP TABLE job_tags;
