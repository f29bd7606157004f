-- +goose Up

-- Every version of every script, for ever, as job_versions keeps every version of every job. A job's version names one of
-- them; the code stands here alone, so that what is read for each run stays small. Rows of deleted jobs stay, for their
-- runs may still be under way.
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
