-- name: InsertTrigger :one
INSERT INTO event_triggers (name, head, job_id, filter, param, enabled)
VALUES (@name, @head, @job_id, @filter, @param, @enabled) RETURNING id;

-- name: Trigger :one
SELECT t.id, t.name, t.job_id, t.filter, t.param, t.enabled, t.version, t.created_at, t.updated_at,
       j.name AS job_name, j.group_name
  FROM event_triggers t JOIN jobs j ON j.id = t.job_id WHERE t.id = @id;

-- name: Triggers :many
SELECT t.id, t.name, t.job_id, t.filter, t.param, t.enabled, t.version, t.created_at, t.updated_at,
       j.name AS job_name, j.group_name
  FROM event_triggers t JOIN jobs j ON j.id = t.job_id
 WHERE t.id > @after AND (sqlc.narg('only')::text[] IS NULL OR j.group_name = ANY(sqlc.narg('only')::text[]))
   AND (@group_name::text = '' OR j.group_name = @group_name) AND (@job_id::bigint = 0 OR t.job_id = @job_id)
   AND (@name::text = '' OR t.name = @name)
 ORDER BY t.id LIMIT @max_rows;

-- name: LockTrigger :exec
SELECT id FROM event_triggers WHERE id = @id FOR UPDATE;

-- name: UpdateTrigger :exec
UPDATE event_triggers SET name = @name, head = @head, job_id = @job_id, filter = @filter, param = @param, enabled = @enabled,
       version = version + 1, updated_at = clock_timestamp() WHERE id = @id;

-- name: DeleteTrigger :exec
DELETE FROM event_triggers WHERE id = @id;

-- name: Candidates :many
-- Triggers whose pattern may match names with these heads.
SELECT t.id, t.version, t.name, t.job_id, t.filter, t.param, t.enabled, j.group_name
  FROM event_triggers t JOIN jobs j ON j.id = t.job_id
 WHERE t.head = ANY(@heads::text[]) ORDER BY t.id LIMIT @max_rows;

-- name: CandidateVersions :many
SELECT t.id, t.version, j.group_name
  FROM event_triggers t JOIN jobs j ON j.id = t.job_id
 WHERE t.head = ANY(@heads::text[]) ORDER BY t.id LIMIT @max_rows;

-- name: CountTriggers :one
SELECT count(*) FROM event_triggers;
