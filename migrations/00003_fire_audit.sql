-- +goose Up

-- When each scheduler was at work: one row from its start, or from the moment that it came back after a silence, to
-- its last sign of life, every two seconds. What no row covers, no scheduler was there for. The rows say it rather than a
-- record of gaps, because nobody can write about a gap while all are away, and who comes back cannot know
-- whether it was the only one. Old rows are dropped.
CREATE TABLE scheduler_presence (
    id        bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    scheduler text NOT NULL, -- host and process
    from_at   timestamptz NOT NULL DEFAULT clock_timestamp(),
    seen_at   timestamptz NOT NULL DEFAULT clock_timestamp()
) WITH (fillfactor = 50);

-- How far the periodic audit of fire times has come: one row. Whoever holds the claim works on; it is a lease, as
-- a pass takes longer than a transaction may.
CREATE TABLE fire_audit (
    single        boolean PRIMARY KEY DEFAULT true CHECK (single),
    through       timestamptz NOT NULL, -- all that is due by then was looked at
    upto          timestamptz, -- the end of the round under way; null: none is
    job_id        bigint NOT NULL DEFAULT 0, -- the round goes on after this job
    due_at        timestamptz, -- or within it, after this due instant
    round_at      timestamptz NOT NULL DEFAULT now(), -- when the round began
    claimed_by    text NOT NULL DEFAULT '',
    claimed_until timestamptz NOT NULL DEFAULT 'epoch'
);
INSERT INTO fire_audit (through) VALUES (date_trunc('milliseconds', now()));

-- The audit asks for ledger entries by fire time, and for jobs that were deleted.
CREATE INDEX missed_fires ON missed (job_id, last_fire_time);
CREATE INDEX job_versions_deleted ON job_versions (job_id) WHERE change = 'deleted';

-- +goose Down
DROP INDEX job_versions_deleted, missed_fires;
DROP TABLE fire_audit, scheduler_presence;
