-- +goose Up

-- Pauses of the schedules of a group's jobs, from from_at inclusive to to_at exclusive. to_at is null while the end is unknown. Rows are
-- never deleted, not even with the group, because the fire check explains fire times by them.
CREATE TABLE group_pauses (
    id         bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    group_name text NOT NULL,
    from_at    timestamptz NOT NULL,
    to_at      timestamptz,
    reason     text NOT NULL,
    paused_by  text NOT NULL,
    resumed_by text NOT NULL DEFAULT '', -- empty: the pause has ended, or will end, without a user
    taken_back boolean NOT NULL DEFAULT false, -- runs that had been planned into the pause are removed
    released   boolean NOT NULL DEFAULT false -- the pause is over, and its jobs are planned again
);
CREATE INDEX group_pauses_group ON group_pauses (group_name, from_at);
CREATE INDEX group_pauses_end ON group_pauses (to_at);
CREATE INDEX group_pauses_open ON group_pauses (id) WHERE NOT released;

-- The paused group of a job that came due during the pause. The job is planned again after the pause. A job is parked only when it comes
-- due, so a pause costs nothing for jobs that would not fire in it.
ALTER TABLE job_due ADD COLUMN parked text;
CREATE INDEX job_due_parked ON job_due (parked, job_id) WHERE parked IS NOT NULL;

-- pauses_for_planning returns the pauses that are not over, or ended at or after since. It takes a shared lock; the beginning and the end of
-- a pause take the same lock exclusively, so that no transaction plans by outdated pauses. The function takes the lock before it reads
-- the pauses with a new snapshot. For this it must be plpgsql and volatile.
-- +goose StatementBegin
CREATE FUNCTION pauses_for_planning(since timestamptz) RETURNS SETOF group_pauses
LANGUAGE plpgsql VOLATILE AS $$
BEGIN
    PERFORM pg_advisory_xact_lock_shared(hashtextextended('belfry.group_pauses', 0));
    RETURN QUERY SELECT * FROM group_pauses p WHERE p.to_at IS NULL OR p.to_at >= since ORDER BY p.from_at;
END
$$;
-- +goose StatementEnd

-- A user who may not log in, and whose tokens do not work.
ALTER TABLE users ADD COLUMN disabled boolean NOT NULL DEFAULT false;

-- +goose Down
ALTER TABLE users DROP COLUMN disabled;
DROP FUNCTION pauses_for_planning(timestamptz);
DROP INDEX job_due_parked;
ALTER TABLE job_due DROP COLUMN parked;
DROP TABLE group_pauses;
