-- +goose Up

-- The number of jobs of a group with a tag is the sum of the changes in this table, as in job_counts. Belfry folds the changes of a tag into one row
-- from time to time. Lists read the rows with the largest numbers first, so that their cost does not depend on the number of tags.
CREATE TABLE tag_counts (
    tag        text COLLATE "C" NOT NULL,
    group_name text NOT NULL,
    jobs       bigint NOT NULL, -- change of the number of jobs
    folded     boolean NOT NULL DEFAULT false -- the sum of earlier changes
);

-- Creating the triggers has locked the table in the previous migrations. This one replaces only a function, so it locks the table itself.
LOCK TABLE jobs IN SHARE ROW EXCLUSIVE MODE;
INSERT INTO tag_counts SELECT t.tag, t.group_name, count(*), true FROM job_tags t GROUP BY 1, 2;
CREATE INDEX tag_counts_all ON tag_counts (jobs DESC);
CREATE INDEX tag_counts_of_group ON tag_counts (group_name, jobs DESC);
CREATE INDEX tag_counts_by_tag ON tag_counts (tag, group_name);
CREATE INDEX tag_counts_of_group_by_tag ON tag_counts (group_name, tag);
CREATE INDEX tag_counts_changes ON tag_counts (group_name) WHERE NOT folded;

-- +goose StatementBegin
CREATE OR REPLACE FUNCTION tag_job() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF TG_OP <> 'INSERT' THEN
        DELETE FROM job_tags t WHERE t.tag = ANY (OLD.tags) AND t.group_name = OLD.group_name AND t.job_id = OLD.id;
    END IF;
    IF TG_OP <> 'DELETE' THEN
        INSERT INTO job_tags SELECT DISTINCT tag, NEW.group_name, NEW.id FROM unnest(NEW.tags) tag;
    END IF;
    INSERT INTO tag_counts (tag, group_name, jobs)
    SELECT c.tag, c.group_name, sum(c.change)
      FROM (SELECT DISTINCT tag, NEW.group_name, 1 FROM unnest(NEW.tags) tag
            UNION ALL
            SELECT DISTINCT tag, OLD.group_name, -1 FROM unnest(OLD.tags) tag) c (tag, group_name, change)
     GROUP BY 1, 2 HAVING sum(c.change) <> 0;
    RETURN NULL;
END
$$;
-- +goose StatementEnd

-- +goose Down
-- +goose StatementBegin
CREATE OR REPLACE FUNCTION tag_job() RETURNS trigger LANGUAGE plpgsql AS $$
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
DROP TABLE tag_counts;
