-- +goose Up

-- When a run was written to the history, by the clock of the transaction that wrote it. The roll-up of the statistics continues from this
-- instant, because finished_at can be hours before the result arrives. Existing runs have no value and are not counted. The index adds
-- almost nothing to the cost of a settled batch, because it stores ranges of blocks, not rows.
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
    duration_ms bigint NOT NULL, -- sum over all runs
    PRIMARY KEY (span, at, group_name, state, reason)
);

-- Lateness of the first starts of runs, as a histogram: bucket 0 is under 1 ms, bucket n is from 2^((n-1)/4) ms to 2^(n/4) ms.
CREATE TABLE run_lateness (
    span       integer NOT NULL,
    at         timestamptz NOT NULL,
    group_name text NOT NULL,
    bucket     integer NOT NULL,
    runs       bigint NOT NULL,
    PRIMARY KEY (span, at, group_name, bucket)
);

-- Progress of the roll-up: one row, which is also its lock.
CREATE TABLE run_stats_mark (
    single  boolean PRIMARY KEY DEFAULT true CHECK (single),
    through timestamptz NOT NULL -- all runs that were settled before are counted
);
INSERT INTO run_stats_mark (through) VALUES (now());

CREATE INDEX missed_at ON missed (at);

-- +goose Down
DROP INDEX missed_at;
DROP TABLE run_stats_mark, run_lateness, run_stats;
DROP INDEX runs_history_settled;
ALTER TABLE runs_history DROP COLUMN settled_at;
