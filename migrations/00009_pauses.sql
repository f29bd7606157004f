-- +goose Up

-- When the schedules of a group's jobs were, or are, paused: from from_at on and before to_at, null while nobody knows
-- the end. Rows stay for ever, as the audit explains fire times by them, also when the group is gone.
CREATE TABLE group_pauses (
    id         bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    group_name text NOT NULL,
    from_at    timestamptz NOT NULL,
    to_at      timestamptz,
    reason     text NOT NULL,
    paused_by  text NOT NULL,
    resumed_by text NOT NULL DEFAULT '', -- empty: it ended, or will, by itself
    taken_back boolean NOT NULL DEFAULT false, -- what was planned of it beforehand is no longer
    released   boolean NOT NULL DEFAULT false -- it is over, and its jobs are looked at again
);
CREATE INDEX group_pauses_group ON group_pauses (group_name, from_at);
CREATE INDEX group_pauses_end ON group_pauses (to_at);
CREATE INDEX group_pauses_open ON group_pauses (id) WHERE NOT released;

-- The group in whose pause the job came due: it is looked at when that is over. A job comes here by itself when it
-- comes due, so that a pause costs nothing for jobs that would not fire in it.
ALTER TABLE job_due ADD COLUMN parked text;
CREATE INDEX job_due_parked ON job_due (parked, job_id) WHERE parked IS NOT NULL;

-- pauses_for_planning returns the pauses that are not over, or ended at or after since. Whoever plans by them shares a
-- lock that a pause's beginning and end take alone, so that no one plans by what was. The lock is taken before the
-- pauses are read, with a snapshot of their own, which is why this is plpgsql and volatile.
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
