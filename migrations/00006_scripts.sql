-- +goose Up

-- All versions of all scripts. No version is ever deleted, as in job_versions. A version of a job refers to one version of its script. Only
-- this table has the code, so that the definition that is read for each run stays small. The rows of a deleted job stay, because runs
-- of the job may still be active.
CREATE TABLE scripts (
    job_id      bigint NOT NULL,
    version     integer NOT NULL CHECK (version > 0),
    job_version integer NOT NULL, -- the first version of the job that runs it
    language    text NOT NULL,
    code        text NOT NULL,
    bytes       integer NOT NULL, -- of code
    sha256      text NOT NULL,    -- of code, in hexadecimal
    remark      text NOT NULL DEFAULT '',
    created_at  timestamptz NOT NULL,
    created_by  text NOT NULL,
    PRIMARY KEY (job_id, version)
);

-- +goose Down
DROP TABLE scripts;
