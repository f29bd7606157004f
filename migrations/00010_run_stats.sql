-- +goose Up

-- When a run was written to the history, by the clock of the transaction that wrote it: what the roll-up of statistics
-- goes on from, as finished_at may be hours before the result arrives. Runs that are there already have none, and are
-- not counted. The index costs a settled batch next to nothing: it names ranges of blocks, not rows.
ALTER TABLE runs_history ADD COLUMN settled_at timestamptz;
ALTER TABLE runs_history ALTER COLUMN settled_at SET DEFAULT now();
CREATE INDEX runs_history_settled ON runs_history USING brin (settled_at) WITH (pages_per_range = 32);
-- Finished runs by minute (span 60) and by hour (span 3600) of their finished_at.
CREATE TABLE run_stats (
    span        integer NOT NULL,
    at          timestamptz NOT NULL,
    group_name  text NOT NULL,
    state       text NOT NULL,
    reason      text NOT NULL,
    runs        bigint NOT NULL,
    duration_ms bigint NOT NULL, -- of all of them together
    PRIMARY KEY (span, at, group_name, state, reason)
);

-- How late their first starts were, as a histogram: bucket 0 is under 1 ms, bucket n from 2^((n-1)/4) ms to 2^(n/4) ms.
CREATE TABLE run_lateness (
    span       integer NOT NULL,
    at         timestamptz NOT NULL,
    group_name text NOT NULL,
    bucket     integer NOT NULL,
    runs       bigint NOT NULL,
    PRIMARY KEY (span, at, group_name, bucket)
);

-- How far the roll-up has come: one row, which is its lock.
CREATE TABLE run_stats_mark (
    single  boolean PRIMARY KEY DEFAULT true CHECK (single),
    through timestamptz NOT NULL -- all that was settled before is counted
);
INSERT INTO run_stats_mark (through) VALUES (now());

CREATE INDEX missed_at ON missed (at);

-- +goose Down
DROP INDEX missed_at;
DROP TABLE run_stats_mark, run_lateness, run_stats;
DROP INDEX runs_history_settled;
ALTER TABLE runs_history DROP COLUMN settled_at;
