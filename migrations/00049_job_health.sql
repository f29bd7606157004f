-- +goose Up

-- How each job fares. The roll-up of settled runs writes it: see package runstats of the store. job_health has a row for each job that has
-- succeeded. A success rewrites the row in place, because it rarely changes p95.
CREATE TABLE job_health (
    job_id          bigint PRIMARY KEY REFERENCES jobs (id) ON DELETE CASCADE,
    success_at      timestamptz NOT NULL, -- when the newest succeeded run finished
    success_version integer NOT NULL, -- the version of the job in that run
    hour            integer NOT NULL, -- since 1970, of hour_succeeded
    hour_succeeded  integer NOT NULL, -- runs that succeeded in that hour
    p95             smallint NOT NULL, -- of durations
    success_run     uuid NOT NULL,
    durations       bytea NOT NULL, -- of the last 20 succeeded runs, newest first: one byte each, see internal/store/jobhealth
    past_succeeded  bytea NOT NULL -- runs that succeeded in the 23 hours before hour, newest first: two bytes each
) WITH (fillfactor = 50);
-- The second column of this and other indexes is an expression, so that the planner never uses them to look for one job. While it knows little about
-- the tables, it would estimate a search through such an index as cheap.
CREATE INDEX job_health_p95 ON job_health (p95, (job_id + 0));

-- A row for each job that has failed. The texts are copies, because the run is deleted after its retention.
CREATE TABLE job_failures (
    job_id        bigint PRIMARY KEY REFERENCES jobs (id) ON DELETE CASCADE,
    failing       boolean NOT NULL, -- the newest failed run is not older than the newest succeeded one
    streak        integer NOT NULL, -- failed runs in a row, up to the newest one
    version       integer NOT NULL, -- the version of the job in the newest failed run
    hour          integer NOT NULL,
    hour_failed   integer NOT NULL,
    failing_since timestamptz NOT NULL, -- when the first run of the streak finished
    failed_at     timestamptz NOT NULL, -- when the newest failed run finished
    run           uuid NOT NULL, -- the newest failed run
    recovered_by  uuid, -- the succeeded run that ended the streak
    past_failed   bytea NOT NULL,
    reason        text NOT NULL,
    message       text NOT NULL, -- the first 1,024 characters
    message_notes text
) WITH (fillfactor = 70);
CREATE INDEX job_failures_failing ON job_failures (job_id) WHERE failing;
CREATE INDEX job_failures_since ON job_failures (failing_since, (job_id + 0)) WHERE failing;
CREATE INDEX job_failures_newest ON job_failures (failed_at, (job_id + 0));

-- All runs that were settled before health_through are part of the jobs' health. The mark is separate, because the previous binary advances
-- `through` without writing the health. After the update, the roll-up continues with the runs of the last day.
ALTER TABLE run_stats_mark ADD COLUMN health_through timestamptz;
UPDATE run_stats_mark SET health_through = CASE WHEN EXISTS (SELECT FROM runs_history) THEN least(through, now() - interval '1 day') ELSE through END;
ALTER TABLE run_stats_mark ALTER COLUMN health_through SET NOT NULL;

-- Lists of jobs by name.
CREATE INDEX jobs_by_name ON jobs (name, id);

-- +goose Down
DROP INDEX jobs_by_name;
ALTER TABLE run_stats_mark DROP COLUMN health_through;
DROP TABLE job_failures, job_health;
