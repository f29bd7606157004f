-- name: InsertScript :one
-- Inserts the next version of a job's script. The caller holds the job's planning lock, or has just created the job.
INSERT INTO scripts (job_id, version, job_version, language, code, bytes, sha256, remark, created_at, created_by)
SELECT @job_id::bigint, COALESCE(max(s.version), 0) + 1, @job_version::integer, @language::text, @code::text, @bytes::integer, @sha256::text,
       @remark::text, @now::timestamptz, @created_by::text
  FROM scripts s WHERE s.job_id = @job_id::bigint
RETURNING version;

-- name: ScriptCode :one
SELECT code FROM scripts WHERE job_id = @job_id AND version = @version;
