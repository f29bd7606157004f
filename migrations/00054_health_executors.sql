-- +goose Up

-- Where the newest succeeded and the newest failed run of a job ran. These are copies, because retention deletes the runs and the processes of
-- executors. Empty: unknown.
ALTER TABLE job_health
    ADD COLUMN success_instance text NOT NULL DEFAULT '',
    ADD COLUMN success_executor text NOT NULL DEFAULT ''; -- the version of the executor
ALTER TABLE job_failures
    ADD COLUMN instance text NOT NULL DEFAULT '',
    ADD COLUMN executor text NOT NULL DEFAULT '';

-- +goose Down
ALTER TABLE job_failures DROP COLUMN executor, DROP COLUMN instance;
ALTER TABLE job_health DROP COLUMN success_executor, DROP COLUMN success_instance;
