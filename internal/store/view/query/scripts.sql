-- name: ScriptVersions :many
-- Newest first, before the given version (0: starting with the newest), without the code.
SELECT s.version, s.job_version, s.language, s.bytes, s.sha256, s.remark, s.created_at, s.created_by
  FROM scripts s
 WHERE s.job_id = @job_id AND (@before_version::integer = 0 OR s.version < @before_version)
 ORDER BY s.version DESC LIMIT @max_rows;

-- name: ScriptVersion :one
SELECT s.version, s.job_version, s.language, s.bytes, s.sha256, s.remark, s.created_at, s.created_by, s.code
  FROM scripts s
 WHERE s.job_id = @job_id AND s.version = @version;
