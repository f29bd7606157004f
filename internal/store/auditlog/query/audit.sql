-- name: InsertAudit :exec
INSERT INTO audit_log (actor, remote, action, object, before, after)
VALUES (@actor, @remote, @action, @object, @before, @after);

-- name: Audit :many
-- Newest first, before the given id (0: starting with the newest).
SELECT * FROM audit_log
 WHERE (@before_id::bigint = 0 OR id < @before_id)
   AND (@actor::text = '' OR actor = @actor)
   AND (@action::text = '' OR action = @action)
 ORDER BY id DESC LIMIT @max_rows;

-- name: AuditOfObject :many
SELECT * FROM audit_log
 WHERE object = @object
   AND (@before_id::bigint = 0 OR id < @before_id)
   AND (@actor::text = '' OR actor = @actor)
   AND (@action::text = '' OR action = @action)
 ORDER BY id DESC LIMIT @max_rows;
