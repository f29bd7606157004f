-- +goose Up

-- The periods in which each scheduler was running. A scheduler inserts a row when it starts or continues after an interruption, and extends
-- the row every two seconds. If no row covers an instant, no scheduler was running then. The table stores these periods and not the gaps,
-- because no scheduler runs during a gap to record it, and a scheduler that starts does not know whether another one was running. Old rows
-- are deleted.
CREATE TABLE scheduler_presence (
    id        bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    scheduler text NOT NULL, -- host and process
    from_at   timestamptz NOT NULL DEFAULT clock_timestamp(),
    seen_at   timestamptz NOT NULL DEFAULT clock_timestamp()
) WITH (fillfactor = 50);

-- Progress of the fire check: one row. The dispatcher that holds the claim runs the check. The claim is a lease, because one pass
-- takes longer than a transaction should.
CREATE TABLE fire_audit (
    single        boolean PRIMARY KEY DEFAULT true CHECK (single),
    through       timestamptz NOT NULL, -- all fire times that were due by then are checked
    upto          timestamptz, -- the end of the current round; null: there is none
    job_id        bigint NOT NULL DEFAULT 0, -- the round continues after this job
    due_at        timestamptz, -- or within this job, after this due instant
    round_at      timestamptz NOT NULL DEFAULT now(), -- when the round began
    claimed_by    text NOT NULL DEFAULT '',
    claimed_until timestamptz NOT NULL DEFAULT 'epoch'
);
INSERT INTO fire_audit (through) VALUES (date_trunc('milliseconds', now()));

-- The fire check reads ledger entries by fire time, and the deleted jobs.
CREATE INDEX missed_fires ON missed (job_id, last_fire_time);
CREATE INDEX job_versions_deleted ON job_versions (job_id) WHERE change = 'deleted';

-- +goose Down
DROP INDEX job_versions_deleted, missed_fires;
DROP TABLE fire_audit, scheduler_presence;
