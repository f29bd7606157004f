-- +goose Up

-- The id that a job of a group has for executors of XXL-JOB. A job that was imported keeps its id, because handlers may use it. Other jobs
-- get ids from 10^9. The row of a deleted job stays, so that another import does not create the job again.
CREATE TABLE gateway_wire_ids (
    group_name text NOT NULL REFERENCES groups (name) ON DELETE CASCADE,
    wire_id    bigint NOT NULL CONSTRAINT gateway_wire_ids_range CHECK (wire_id BETWEEN 1 AND 2147483647), -- executors read 32 bits
    job_id     bigint NOT NULL,
    source     text NOT NULL DEFAULT '', -- of an import, such as host:port/database
    imported   jsonb, -- the job as the last import wrote it; null: it was not imported
    updated_at timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (group_name, wire_id),
    CONSTRAINT gateway_wire_ids_job_key UNIQUE (group_name, job_id)
);

CREATE SEQUENCE gateway_wire_id_seq AS bigint START 1000000000 MAXVALUE 2147483647;

-- +goose Down
DROP SEQUENCE gateway_wire_id_seq;
DROP TABLE gateway_wire_ids;
