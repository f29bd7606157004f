-- +goose Up

-- Pauses of the schedules of single jobs, as group_pauses has those of groups. A transaction that begins or ends a pause holds the job's lock,
-- its row in job_due, as planning does. It takes back the runs that are planned into the pause, and moves next_due_at to the end of the
-- pause. While such a pause keeps a job from being planned, job_due.parked is ''. Rows are never deleted, not even with the job, because
-- the fire check explains fire times by them.
CREATE TABLE job_pauses (
    id         bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    job_id     bigint NOT NULL,
    from_at    timestamptz NOT NULL,
    to_at      timestamptz,
    reason     text NOT NULL,
    paused_by  text NOT NULL,
    resumed_by text NOT NULL DEFAULT '' -- empty: the pause has ended, or will end, without a user
);
CREATE INDEX job_pauses_job ON job_pauses (job_id, from_at);

-- The end of the job's newest pause, null if it was never paused. Planning reads the pauses only of jobs whose undecided fire times may
-- lie in one.
ALTER TABLE job_due ADD COLUMN paused_until timestamptz;

-- +goose Down
ALTER TABLE job_due DROP COLUMN paused_until;
DROP TABLE job_pauses;
