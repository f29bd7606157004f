-- +goose Up

-- The roll-up writes one row of these tables for each job of a window. With a foreign key, each update reads the row twice, and each insert looks up the
-- job by a separate query. Instead, a trigger deletes the rows of a deleted job, and the roll-up locks the job while it inserts a row.
ALTER TABLE job_health DROP CONSTRAINT job_health_job_id_fkey;
ALTER TABLE job_failures DROP CONSTRAINT job_failures_job_id_fkey;

-- +goose StatementBegin
CREATE OR REPLACE FUNCTION move_job() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF TG_OP = 'UPDATE' THEN
        UPDATE job_failures SET group_name = NEW.group_name WHERE job_id = NEW.id;
        UPDATE job_pauses SET group_name = NEW.group_name WHERE job_id = NEW.id;
    ELSE
        DELETE FROM job_health WHERE job_id = OLD.id;
        DELETE FROM job_failures WHERE job_id = OLD.id;
        UPDATE job_pauses SET group_name = '' WHERE job_id = OLD.id;
    END IF;
    RETURN NULL;
END
$$;
-- +goose StatementEnd

-- The index by group lists the failing jobs by id too. Its second column is an expression, so that only this index has the order of such a list.
DROP INDEX job_failures_failing;
DROP INDEX job_failures_of_group;
CREATE INDEX job_failures_of_group ON job_failures (group_name, (job_id + 0)) WHERE failing;

-- +goose Down
DROP INDEX job_failures_of_group;
CREATE INDEX job_failures_of_group ON job_failures (group_name, job_id) WHERE failing;
CREATE INDEX job_failures_failing ON job_failures (job_id) WHERE failing;
-- +goose StatementBegin
CREATE OR REPLACE FUNCTION move_job() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF TG_OP = 'UPDATE' THEN
        UPDATE job_failures SET group_name = NEW.group_name WHERE job_id = NEW.id;
        UPDATE job_pauses SET group_name = NEW.group_name WHERE job_id = NEW.id;
    ELSE
        UPDATE job_pauses SET group_name = '' WHERE job_id = OLD.id;
    END IF;
    RETURN NULL;
END
$$;
-- +goose StatementEnd
DELETE FROM job_health h WHERE NOT EXISTS (SELECT FROM jobs j WHERE j.id = h.job_id);
DELETE FROM job_failures f WHERE NOT EXISTS (SELECT FROM jobs j WHERE j.id = f.job_id);
ALTER TABLE job_health ADD CONSTRAINT job_health_job_id_fkey FOREIGN KEY (job_id) REFERENCES jobs (id) ON DELETE CASCADE;
ALTER TABLE job_failures ADD CONSTRAINT job_failures_job_id_fkey FOREIGN KEY (job_id) REFERENCES jobs (id) ON DELETE CASCADE;
