-- +goose Up

-- The failing jobs and the pauses of the jobs of each group, for counts. The group is that of the job: the roll-up and the statement that begins a
-- pause write it, and a trigger follows the job to another group. A pause of a deleted job has no group.
ALTER TABLE job_failures ADD COLUMN group_name text NOT NULL DEFAULT '';
ALTER TABLE job_pauses ADD COLUMN group_name text NOT NULL DEFAULT '';
UPDATE job_failures f SET group_name = j.group_name FROM jobs j WHERE j.id = f.job_id;
UPDATE job_pauses p SET group_name = j.group_name FROM jobs j WHERE j.id = p.job_id;
CREATE INDEX job_failures_of_group ON job_failures (group_name, job_id) WHERE failing;
CREATE INDEX job_pauses_of_group ON job_pauses (group_name, coalesce(to_at, 'infinity'::timestamptz)) WHERE group_name <> '';

-- +goose StatementBegin
CREATE FUNCTION move_job() RETURNS trigger LANGUAGE plpgsql AS $$
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
CREATE TRIGGER jobs_moved AFTER UPDATE ON jobs FOR EACH ROW WHEN (OLD.group_name <> NEW.group_name) EXECUTE FUNCTION move_job();
CREATE TRIGGER jobs_unpaused AFTER DELETE ON jobs FOR EACH ROW EXECUTE FUNCTION move_job();

-- +goose Down
DROP TRIGGER jobs_unpaused ON jobs;
DROP TRIGGER jobs_moved ON jobs;
DROP FUNCTION move_job();
ALTER TABLE job_pauses DROP COLUMN group_name;
ALTER TABLE job_failures DROP COLUMN group_name;
